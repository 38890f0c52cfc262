//! The treatment of a reference that cannot be filed because there is no memory for another block;
//! the functions are in [`lose`](super::lose).
//!
//! An insert takes its timer back and returns the value. In all other cases the timer stays armed,
//! and the shard counts the reference as *unfiled*. The sweeper compares that count with the last
//! one it saw whenever it takes what is overdue, and at the end of each sweep; if references were
//! added, it reads every entry of the shard that no reference in time is known of, as if each had a
//! reference that is overdue. It hands over the timers that are due, and files a reference for each
//! other one or, if that fails, tries again one tick later. So nothing is lost, and nothing is late
//! by more than a tick and the sweep, which takes longer. Whoever counts a reference wakes the
//! sweeper, or is the sweeper.
//!
//! **`next_visit` must not tell of a reference that is not there** (I2):
//!
//! * an insert that takes its timer back clears `next_visit` before it releases the entry.
//!   Nobody has its id before;
//! * the sweeper clears `next_visit`, and then revalidates the state. A reset that comes before
//!   the revalidation makes it fail, or is seen to by the check of all entries; one that comes
//!   after it sees `next_visit`;
//! * a resetter that holds the refiling flag files its reference first, and writes `next_visit`
//!   then. In between the sweeper may visit the reference before its expiry, and fail to file
//!   it again. The resetter writes `next_visit`, passes a fence and looks at the count; the sweeper
//!   counts, passes a fence and looks at `next_visit`. Whichever fence comes second, its thread
//!   finds what the other wrote, and clears `next_visit`. The resetter then files once more.

#![forbid(unsafe_code)]

use crate::sync::{Acquire, AtomicU64, Release};
use crate::wheel::progress::swept::full_fence;

/// How many references of a shard could not be filed.
#[derive(Debug)]
pub(in crate::wheel) struct Unfiled(AtomicU64);

impl Unfiled {
    pub(in crate::wheel) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts one more, and passes the fence that orders the count before what the caller does.
    pub(in crate::wheel) fn add(&self) {
        // Release: publishes the state of the entry to the sweeper's check of all entries; pairs
        // with the Acquire of `count`.
        self.0.fetch_add(1, Release);
        full_fence();
    }

    #[inline]
    pub(in crate::wheel) fn count(&self) -> u64 {
        // Acquire: the sweeper that finds another count than before looks at the entries; pairs
        // with the Release of `add`. For a resetter's re-check it is ordered by the fences.
        self.0.load(Acquire)
    }
}
