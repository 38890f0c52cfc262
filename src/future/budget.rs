//! [`Budget`]: keeps a future that is ready again and again from holding its task.
//!
//! An executor has its thread back only when the task's poll returns `Pending`. A task that awaits
//! futures which are all ready never returns it, and starves the other tasks of its thread. No
//! runtime is known here whose own budget could be charged, so a source of many results counts
//! them, and after [`MOST`] in a row wakes its task and returns `Pending` once.

#![forbid(unsafe_code)]

use std::task::{Poll, Waker};

/// How many results in a row are ready before the task is let go: few enough that the other tasks
/// wait for microseconds, enough that the extra poll costs nothing beside them.
const MOST: u8 = 64;

/// Wakes the task and returns `Pending`: it is polled again when the others have had their turn.
pub(super) fn yield_once<R>(waker: &Waker) -> Poll<R> {
    waker.wake_by_ref();
    Poll::Pending
}

/// Counts the results that were ready without a `Pending` between them.
#[derive(Debug, Default)]
pub(super) struct Budget {
    ready: u8,
}

impl Budget {
    /// Ready unless the budget is spent; then the task is let go, and the count begins anew.
    pub(super) fn poll_left(&mut self, waker: &Waker) -> Poll<()> {
        if self.ready < MOST {
            return Poll::Ready(());
        }
        self.ready = 0;
        yield_once(waker)
    }

    /// Counts what a poll returned, and passes it on.
    pub(super) fn counted<R>(&mut self, polled: Poll<R>) -> Poll<R> {
        self.ready = if polled.is_ready() { self.ready + 1 } else { 0 };
        polled
    }
}
