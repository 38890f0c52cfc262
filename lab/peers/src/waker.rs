//! Wakers without a task, for timers that are futures.
//!
//! A waker is only the number of its timer. It is cloned and dropped for free, and to wake it is to
//! call the [handler](crate::tally::fired).

use crate::tally::fired;
use std::pin::Pin;
use std::ptr::without_provenance;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |number| RawWaker::new(number, &TABLE),
    |number| fired(number.addr() as u64),
    |number| fired(number.addr() as u64),
    |_| (),
);

/// Polls a timer once, so that it is armed and fires as `number`.
///
/// # Panics
///
/// Panics if it is already due.
pub(crate) fn arm(timer: Pin<&mut (impl Future + ?Sized)>, number: usize) {
    // SAFETY: the functions of the table use the pointer as a number and access no memory, so they
    // may be called on any thread any number of times.
    let waker = unsafe { Waker::new(without_provenance(number), &TABLE) };
    assert!(timer.poll(&mut Context::from_waker(&waker)).is_pending(), "due at once");
}
