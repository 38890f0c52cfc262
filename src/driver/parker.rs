//! The parker: wakes the tick thread, without a lock.
//!
//! An insert that rings must not wait for a thread that was preempted on its way to sleep, as it
//! would in a parker with a mutex. The ringer marks, then looks for the thread; the thread shows
//! itself, then looks at the mark, both by exchanges of the mark: whichever comes second sees what
//! the other did before. The mark is the parker's own, so that a handler which parks on the tick
//! thread, and takes the wake-up that a ring left, cannot take the ring.

#![forbid(unsafe_code)]

use crate::sync::thread::{self, Thread};
use crate::sync::{AcqRel, AtomicBool, Process};
use std::sync::OnceLock;
use std::time::Duration;

/// A flag and the thread that it is for.
#[derive(Debug)]
pub(crate) struct Parker {
    notified: AtomicBool,
    thread: OnceLock<Thread>,
    /// The process that has the thread.
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

    /// Wakes the thread; if it is not asleep, its next wait returns at once.
    pub(crate) fn unpark(&self) {
        if self.is_forked() {
            // On some systems threads park under a lock, which the thread may have held.
            return;
        }
        // AcqRel: the Release half publishes what the ringer did before to the thread that wakes;
        // the Acquire half sees the thread, if that has looked at the mark before.
        self.notified.swap(true, AcqRel);
        // Also when somebody else has notified: that thread may have been preempted before this.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// The calling thread is the one to be woken.
    pub(crate) fn register_current(&self) {
        let _ = self.thread.set(thread::current());
    }

    /// Sleeps until a ring since the last wait, or until the time-out has passed.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        // AcqRel: the other side of `unpark`.
        if self.notified.swap(false, AcqRel) || timeout == Some(Duration::ZERO) {
            return;
        }
        // A wake-up for no reason costs a look at the wheel, no more.
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
    use crate::sync::Process;
    use std::time::Duration;

    /// A handler on the tick thread may park, and swallow the wake-up that a ring left.
    #[test]
    fn a_parker_wakes_though_its_wake_up_was_swallowed() {
        let parker = Parker::new(Process::current().unwrap());
        parker.register_current();
        parker.unpark();
        std::thread::park();
        // It would sleep for long.
        let before = crate::Clock::now(&crate::MonotonicClock);
        parker.park(Some(Duration::from_secs(60)));
        let waited = crate::Clock::now(&crate::MonotonicClock) - before;
        assert!(waited < Duration::from_secs(30), "{waited:?}");
    }
}
