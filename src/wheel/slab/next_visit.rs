//! The entry's next visit: the tick at which one of its references is visited.
//!
//! It is written by
//!
//! - the inserter, before it publishes its timer;
//! - the sweeper, when it files a reference again, drops one, or ends a timer;
//! - the resetter that holds the refiling flag;
//! - a drain;
//! - the thread that installs the entry's page.
//!
//! It describes a reference to the *entry*, regardless of the timer for which that reference was
//! filed, so that the next timer of the entry can use it. A tick that the sweep has already reached
//! describes no reference. The invariant of `next_visit` is I2, in [`crate::wheel`].

#![forbid(unsafe_code)]

use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};
use crate::wheel::tick::Tick;

/// The entry's next-visit word, by default [`NONE`](Self::NONE).
#[derive(Debug, Default)]
pub(crate) struct AtomicNextVisit(AtomicU64);

impl AtomicNextVisit {
    /// Describes no reference, because no tick is before the first.
    pub(crate) const NONE: Tick = Tick(0);

    #[inline]
    pub(crate) fn load(&self) -> Tick {
        // Acquire: the sweeper that drops a reference because of the tick it reads here relies on
        // the reference filed there; pairs with the Release of `compare_exchange`, which follows
        // that filing.
        Tick(self.0.load(Acquire))
    }

    /// Writes the `next_visit` of an entry that the caller holds exclusively: one that is claimed
    /// and not armed yet, or ended and not released yet.
    #[inline]
    pub(crate) fn store(&self, at: Tick) {
        // Relaxed: published by the exchange that arms the entry's timer, or by the one that puts
        // the entry back among the vacant ones. The sweeper's exchange that it overwrites, or makes
        // fail, recorded that a reference has gone, or described a reference that is now cleared.
        self.0.store(at.0, Relaxed);
    }

    /// Makes `next_visit` describe no reference. The caller holds the entry exclusively, as for
    /// [`store`](Self::store).
    #[inline]
    pub(crate) fn clear(&self) {
        self.store(Self::NONE);
    }

    /// Writes `next` if `next_visit` is still `seen`.
    #[inline]
    pub(crate) fn compare_exchange(&self, seen: Tick, next: Tick) -> Result<(), Tick> {
        // AcqRel on success, Acquire on failure:
        // - the Release half publishes that the reference at the new tick has been filed, or is
        //   among the sweeper's pending references; pairs with the Acquire of `load`;
        // - the Acquire half, also on failure, is that of `load`.
        match self.0.compare_exchange(seen.0, next.0, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(word) => Err(Tick(word)),
        }
    }
}
