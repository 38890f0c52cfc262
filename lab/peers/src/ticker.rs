//! The thread that sweeps a system without a thread of its own.

use crate::clock::now;
use std::thread::Thread;
use std::time::Instant;

/// Starts a thread that calls `sweep` again and again.
///
/// It sleeps until the instant that `sweep` returned, or until it is unparked if that was `None`.
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
