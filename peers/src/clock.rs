//! The time of this crate: the only file that reads the clock or sleeps.

use std::time::{Duration, Instant};

/// The present.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps.
#[allow(clippy::disallowed_methods, reason = "peers run in real time")]
pub(crate) fn rest(time: Duration) {
    std::thread::sleep(time);
}
