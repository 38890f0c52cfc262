//! [`Budget`]: makes a future that is ready repeatedly yield to other tasks.
//!
//! An executor gets its thread back only when a task's poll returns `Pending`. A task that awaits
//! futures that are all ready never returns it, and starves the other tasks of its thread. The
//! crate knows of no runtime whose own budget it could charge. A source of many results therefore
//! counts them. After [`MAX_IN_A_ROW`] results it wakes its task and returns `Pending` once.

#![forbid(unsafe_code)]

use std::task::{Poll, Waker};

/// The number of results in a row before the task yields. It is small enough that other tasks wait
/// for microseconds, and large enough that the extra poll costs nothing by comparison.
const MAX_IN_A_ROW: u8 = 64;

/// Wakes the task and returns `Pending`, so that the executor polls it again after other tasks.
pub(super) fn yield_once<R>(waker: &Waker) -> Poll<R> {
    waker.wake_by_ref();
    Poll::Pending
}

/// A count of the results that were ready without a `Pending` between them.
#[derive(Debug, Default)]
pub(super) struct Budget {
    ready: u8,
}

impl Budget {
    /// Returns `Ready` unless the budget is spent. In that case the task yields and the count
    /// restarts.
    pub(super) fn poll_ready(&mut self, waker: &Waker) -> Poll<()> {
        if self.ready < MAX_IN_A_ROW {
            return Poll::Ready(());
        }
        self.ready = 0;
        yield_once(waker)
    }

    /// Counts the result of a poll and returns it.
    pub(super) fn count<R>(&mut self, polled: Poll<R>) -> Poll<R> {
        self.ready = if polled.is_ready() { self.ready + 1 } else { 0 };
        polled
    }
}
