//! A clock in virtual time whose readings are used again.

use std::time::Instant;
use tourbillon::{Clock, ManualClock};

/// Moves only when told to, and lets readings be used again.
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
