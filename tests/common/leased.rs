//! A clock in virtual time whose readings may be cached.

use std::time::Instant;
use tourbillon::{Clock, ManualClock};

/// A manual clock whose readings may be cached.
#[derive(Debug)]
pub(crate) struct Leased(pub(crate) ManualClock);

impl Clock for Leased {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn is_cacheable(&self) -> bool {
        true
    }
}
