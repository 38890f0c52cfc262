//! The treatment of a reference that cannot be filed because there is no memory for another block.
//! The functions are in [`lose`](super::lose).
//!
//! An insert takes its timer back and returns the value. In all other cases the timer stays armed,
//! and the shard counts the reference as *unfiled*. A thread other than the sweeper that does so
//! reports the shard ([`next_scan`](crate::wheel::progress::next_scan)), and the sweeper compares
//! the count with the last one it saw. If references were added, then whenever it takes the overdue
//! references and at the end of each sweep it reads every entry of the shard for which no reference
//! in time is known, as if each had an overdue reference. It hands over the timers that are due,
//! and files a reference for each other timer or, if that fails, tries again one tick later. No
//! timer is lost, and none is late by more than a tick and the duration of the sweep, which is
//! longer than usual. A thread that counts a reference wakes the sweeper, unless it is the sweeper.
//!
//! **`next_visit` must not describe a reference that is not there** (I2):
//!
//! * An insert that takes its timer back clears `next_visit` before it releases the entry. No other
//!   thread has the id before that.
//! * The sweeper clears `next_visit` and then revalidates the state. A reset that comes before the
//!   revalidation makes it fail, or is covered by the check of all entries. A reset that comes
//!   after it sees `next_visit`.
//! * A resetter that holds the refiling flag files its reference first and writes `next_visit`
//!   afterwards. In between the sweeper may visit the reference before its expiry and fail to file
//!   it again. The resetter writes `next_visit`, passes a fence and reads the count. The sweeper
//!   counts, passes a fence and reads `next_visit`. The thread whose fence comes second finds what
//!   the other wrote, and clears `next_visit`. The resetter then files once more.

#![forbid(unsafe_code)]

use crate::sync::{Acquire, AtomicU64, Release};
use crate::wheel::progress::swept::full_fence;

/// The number of references of a shard that could not be filed.
#[derive(Debug)]
pub(in crate::wheel) struct Unfiled(AtomicU64);

impl Unfiled {
    pub(in crate::wheel) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts one more, and then passes a fence that orders the count before the caller's next
    /// steps.
    pub(in crate::wheel) fn add(&self) {
        // Release: publishes the state of the entry to the sweeper's check of all entries; pairs
        // with the Acquire of `count`.
        self.0.fetch_add(1, Release);
        full_fence();
    }

    #[inline]
    pub(in crate::wheel) fn count(&self) -> u64 {
        // Acquire: the sweeper that finds another count than before reads the entries; pairs with
        // the Release of `add`. For a resetter's re-check, the fences order this load.
        self.0.load(Acquire)
    }
}
