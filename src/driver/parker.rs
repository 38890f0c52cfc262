//! [`Parker`]: wakes the tick thread, without a lock.
//!
//! An insert that wakes the tick thread must not wait for a thread that was preempted on its way to
//! sleep, as it would in a parker with a mutex. The waking thread sets the flag, then reads the
//! thread. The tick thread registers itself, then reads the flag. Both access the flag by an
//! exchange, so the second one sees what the first did before. The flag belongs to the parker. A
//! handler that parks on the tick thread and consumes a pending wake-up can therefore not consume
//! the notification.

#![forbid(unsafe_code)]

use crate::sync::thread::{self, Thread};
use crate::sync::{AcqRel, AtomicBool, Process};
use std::sync::OnceLock;
use std::time::Duration;

/// A flag and its thread.
#[derive(Debug)]
pub(crate) struct Parker {
    notified: AtomicBool,
    thread: OnceLock<Thread>,
    /// The process of the thread.
    process: Process,
}

impl Parker {
    pub(crate) fn new(process: Process) -> Self {
        Self { notified: AtomicBool::new(false), thread: OnceLock::new(), process }
    }

    /// Returns `true` in a child process, which does not have the thread.
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Wakes the thread. If it is not asleep, its next call of [`park`](Self::park) returns at
    /// once.
    pub(crate) fn unpark(&self) {
        if self.is_forked() {
            // On some systems threads park under a lock, which the thread may have held at the
            // fork.
            return;
        }
        // AcqRel:
        // - The Release half publishes what this thread did before to the thread that wakes.
        // - The Acquire half sees the thread, if it has read the flag before.
        self.notified.swap(true, AcqRel);
        // This is also necessary if another thread has set the flag, because that thread may have
        // been preempted before it woke the tick thread.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Registers the calling thread as the thread to wake.
    pub(crate) fn register_current(&self) {
        let _ = self.thread.set(thread::current());
    }

    /// Parks until a call of [`unpark`](Self::unpark) or until the timeout has passed. Returns at
    /// once if a call of `unpark` came since the last park. May also return early.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        // AcqRel: the other side of `unpark`.
        if self.notified.swap(false, AcqRel) || timeout == Some(Duration::ZERO) {
            return;
        }
        // A spurious wake-up costs no more than a check of the wheel.
        match timeout {
            Some(timeout) => thread::park_timeout(timeout),
            None => thread::park(),
        }
        // AcqRel: as above.
        self.notified.swap(false, AcqRel);
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Parker;
    use crate::clock::{Clock, MonotonicClock};
    use crate::sync::Process;
    use std::time::Duration;

    /// A handler on the tick thread may park, and consume the wake-up of a notification.
    #[test]
    fn a_parker_wakes_though_its_wake_up_was_swallowed() {
        let parker = Parker::new(Process::current().unwrap());
        parker.register_current();
        parker.unpark();
        std::thread::park();
        // Without the flag it would sleep for the whole timeout.
        let before = MonotonicClock.now();
        parker.park(Some(Duration::from_secs(60)));
        let waited = MonotonicClock.now() - before;
        assert!(waited < Duration::from_secs(30), "{waited:?}");
    }
}
