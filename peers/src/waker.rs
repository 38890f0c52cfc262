//! Bare wakers: for timers that are futures, with no task behind them.
//!
//! A waker is the number of its timer and nothing else: cloning and dropping it are free, waking
//! it is the [handler](crate::tally::fired).

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
/// If it is already due.
pub(crate) fn arm(timer: Pin<&mut (impl Future + ?Sized)>, number: usize) {
    // SAFETY: the table's functions take the pointer for a number and touch no memory, so they
    // are safe to call on any thread, in any number.
    let waker = unsafe { Waker::new(without_provenance(number), &TABLE) };
    assert!(timer.poll(&mut Context::from_waker(&waker)).is_pending(), "due at once");
}
