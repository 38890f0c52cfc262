//! The thread that sweeps a system which has none of its own.

use crate::clock::now;
use std::thread::Thread;
use std::time::Instant;

/// Starts a thread that calls `sweep` whenever the instant it answered has come, or when the
/// thread is unparked; with no instant it waits to be unparked.
#[allow(clippy::disallowed_methods, reason = "the one place that starts a thread")]
pub(crate) fn spawn(mut sweep: impl FnMut() -> Option<Instant> + Send + 'static) -> Thread {
    let running = std::thread::spawn(move || {
        loop {
            match sweep() {
                Some(next) => std::thread::park_timeout(next.saturating_duration_since(now())),
                None => std::thread::park(),
            }
        }
    });
    running.thread().clone()
}
