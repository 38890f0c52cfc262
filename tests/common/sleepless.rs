//! [`Sleepless`]: a clock that counts the suspensions of the machine.

use std::time::Instant;
use tourbillon::{Clock, ManualClock};

/// A clock in virtual time that continues while the machine is suspended.
#[derive(Debug)]
pub(crate) struct Sleepless(pub(crate) ManualClock);

impl Clock for Sleepless {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn counts_suspension(&self) -> bool {
        true
    }
}
