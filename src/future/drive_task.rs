//! [`DriveTask`]: wakes the task that sweeps a timer, and tells it that this has ended.

#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, Relaxed};
use atomic_waker::AtomicWaker;
use std::task::Waker;

/// Wakes the task that has registered last.
#[derive(Debug, Default)]
pub(super) struct DriveTask {
    waker: AtomicWaker,
    ended: AtomicBool,
}

impl DriveTask {
    /// From here on it is this task that is woken.
    pub(super) fn register(&self, task: &Waker) {
        self.waker.register(task);
    }

    /// Wakes the task, if there is one.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Rings for the last time: nothing waits in the wheel any more, whatever its counts say yet.
    pub(super) fn end(&self) {
        // Relaxed: it is seen by whoever this wakes, and by whoever registers too late for that
        // (both synchronize, in `AtomicWaker`).
        self.ended.store(true, Relaxed);
        self.wake();
    }

    /// Whether it has rung for the last time. To be asked after [`register`](Self::register).
    pub(super) fn has_ended(&self) -> bool {
        // Relaxed: with the store of `end`, as said there.
        self.ended.load(Relaxed)
    }
}
