//! [`Bell`]: wakes the task that sweeps a timer.

#![forbid(unsafe_code)]

use atomic_waker::AtomicWaker;
use std::task::Waker;

/// Wakes the task that has registered last.
#[derive(Debug, Default)]
pub(super) struct Bell(AtomicWaker);

impl Bell {
    /// From here on it is this task that is woken.
    pub(super) fn register(&self, task: &Waker) {
        self.0.register(task);
    }

    /// Wakes the task, if there is one.
    pub(super) fn ring(&self) {
        self.0.wake();
    }
}
