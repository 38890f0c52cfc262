//! The row of counters that a thread owns, in all caches of the process.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use std::cell::Cell;
use std::sync::Mutex;

/// The number of threads that own a row at the same time.
pub(super) const ROWS: usize = u64::BITS as usize;

/// One bit for each row that no thread owns. A row passes to its next owner under this lock.
static FREE: Mutex<u64> = Mutex::new(u64::MAX);

/// The thread has no row yet.
const UNKNOWN: usize = usize::MAX;
/// The thread has found no free row, or is ending.
const NONE: usize = ROWS;

thread_local! {
    /// Read by each operation, and therefore without a destructor.
    static ROW: Cell<usize> = const { Cell::new(UNKNOWN) };

    static RETURN: Return = const { Return(Cell::new(None)) };
}

/// Frees the row of its thread when the thread ends.
struct Return(Cell<Option<usize>>);

impl Drop for Return {
    fn drop(&mut self) {
        // Destructors of this thread that run later share a row.
        let _gone = ROW.try_with(|row| row.set(NONE));
        if let Some(row) = self.0.take() {
            *ignore_poison(FREE.lock()) |= 1 << row;
        }
    }
}

/// Returns the row that the current thread alone writes, or `None` if it has to share one because
/// all are taken or the thread is ending.
#[inline]
pub(super) fn current() -> Option<usize> {
    match ROW.try_with(Cell::get).unwrap_or(NONE) {
        UNKNOWN => take(),
        row => (row < ROWS).then_some(row),
    }
}

/// Takes the lowest free row for the current thread.
#[cold]
fn take() -> Option<usize> {
    let take = |returned: &Return| {
        let mut free = ignore_poison(FREE.lock());
        let row = free.trailing_zeros() as usize;
        let row = (row < ROWS).then_some(row)?;
        *free &= !(1 << row);
        returned.0.set(Some(row));
        Some(row)
    };
    let row = RETURN.try_with(take).ok().flatten();
    let _gone = ROW.try_with(|own| own.set(row.unwrap_or(NONE)));
    row
}
