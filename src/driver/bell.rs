//! The bell: wakes the tick thread, without a lock.
//!
//! An insert that rings must not wait for a thread that was preempted on its way to sleep, as it
//! would in a parker with a mutex. The ringer marks, then looks for the thread; the thread shows
//! itself, then looks at the mark, both by exchanges of the mark: whichever comes second sees what
//! the other did before. The mark is the bell's own, so that a handler which parks on the tick
//! thread, and takes the wake-up that a ring left, cannot take the ring.

#![forbid(unsafe_code)]

use crate::sync::thread::{self, Thread};
use crate::sync::{AcqRel, AtomicBool, Process};
use std::sync::OnceLock;
use std::time::Duration;

/// A flag and the thread that it is for.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicBool,
    thread: OnceLock<Thread>,
    /// The process that has the thread.
    process: Process,
}

impl Bell {
    pub(crate) fn new(process: Process) -> Self {
        Self { rung: AtomicBool::new(false), thread: OnceLock::new(), process }
    }

    /// Returns `true` in a child process, which does not have the thread.
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Wakes the thread; if it is not asleep, its next wait returns at once.
    pub(crate) fn ring(&self) {
        if self.is_forked() {
            // On some systems threads park under a lock, which the thread may have held.
            return;
        }
        // AcqRel: the Release half publishes what the ringer did before to the thread that wakes;
        // the Acquire half sees the thread, if that has looked at the mark before.
        self.rung.swap(true, AcqRel);
        // Also when somebody else has rung: that thread may have been preempted before this.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// The calling thread is the one to be woken.
    pub(crate) fn hang_up(&self) {
        let _ = self.thread.set(thread::current());
    }

    /// Sleeps until a ring since the last wait, or until the time-out has passed.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        // AcqRel: the other side of `ring`.
        if self.rung.swap(false, AcqRel) || timeout == Some(Duration::ZERO) {
            return;
        }
        // A wake-up for no reason costs a look at the wheel, no more.
        match timeout {
            Some(timeout) => thread::park_timeout(timeout),
            None => thread::park(),
        }
        // AcqRel: as above.
        self.rung.swap(false, AcqRel);
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Bell;
    use crate::sync::Process;
    use std::time::Duration;

    /// A handler on the tick thread may park, and swallow the wake-up that a ring left.
    #[test]
    fn a_bell_that_was_rung_is_heard_though_the_wake_up_was_swallowed() {
        let bell = Bell::new(Process::current().unwrap());
        bell.hang_up();
        bell.ring();
        std::thread::park();
        // It would sleep for long.
        let before = crate::Clock::now(&crate::MonotonicClock);
        bell.wait(Some(Duration::from_secs(60)));
        let waited = crate::Clock::now(&crate::MonotonicClock) - before;
        assert!(waited < Duration::from_secs(30), "{waited:?}");
    }
}
