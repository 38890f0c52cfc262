//! [`DriveTask`]: the task that sweeps a timer.

#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, Relaxed};
use atomic_waker::AtomicWaker;
use std::task::Waker;

/// Wakes the task that registered last, and records that the timer has ended.
#[derive(Debug, Default)]
pub(super) struct DriveTask {
    waker: AtomicWaker,
    ended: AtomicBool,
}

impl DriveTask {
    /// Makes `task` the task to wake.
    pub(super) fn register(&self, task: &Waker) {
        self.waker.register(task);
    }

    /// Wakes the task, if there is one.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Wakes the task for the last time. The wheel holds no timer any more, whatever its counters
    /// still show.
    pub(super) fn end(&self) {
        // Relaxed: the task that this wakes sees the store, and so does a task that registers too
        // late to be woken. Both synchronise through `AtomicWaker`.
        self.ended.store(true, Relaxed);
        self.wake();
    }

    /// Returns `true` if the timer has ended. Must be called after [`register`](Self::register).
    pub(super) fn has_ended(&self) -> bool {
        // Relaxed: see the store in `end`.
        self.ended.load(Relaxed)
    }
}
