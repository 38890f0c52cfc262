//! [`Wake`]: a waker that lies in the wheel.

#![forbid(unsafe_code)]

use std::fmt;
use std::task::Waker;

/// What the wheel of a [`Timer`](super::Timer) holds: the waker of a task that sleeps.
///
/// It wakes the task when it is dropped, so that whatever becomes of it the task polls again.
pub struct Wake(Option<Waker>);

impl Wake {
    pub(super) fn of(waker: &Waker) -> Self {
        Self(Some(waker.clone()))
    }

    /// Wakes the task: the handler for whoever sweeps the wheel.
    pub fn wake(self) {
        drop(self);
    }

    /// Drops the waker unused.
    pub(super) fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").finish_non_exhaustive()
    }
}

/// Which waker lies in the wheel, as far as a sleep remembers it: enough to know it again while it
/// lies there, without holding the task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    data: usize,
    vtable: usize,
}

impl Identity {
    #[inline]
    pub(super) fn of(waker: &Waker) -> Self {
        Self { data: waker.data().addr(), vtable: std::ptr::from_ref(waker.vtable()).addr() }
    }
}
