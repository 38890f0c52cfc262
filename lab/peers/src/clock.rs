//! The clock of this crate. No other file reads the time or sleeps.

use std::time::{Duration, Instant};

/// Returns the current time.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps for `time`.
#[allow(clippy::disallowed_methods, reason = "peers run in real time")]
pub(crate) fn rest(time: Duration) {
    std::thread::sleep(time);
}
