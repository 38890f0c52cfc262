//! The entry's next visit: the tick at which one of its references is visited.
//!
//! Written by the inserter before it publishes its timer; by the sweeper when it files a reference
//! again, drops one, or ends a timer; by the resetter that holds the refiling flag; by a drain; by
//! whoever puts the entry's page in. It
//! tells of a reference to the *entry*, whichever timer that reference was filed for, so that the
//! next timer of the entry can use it. A tick that the sweep has reached tells of nothing. What the
//! `next_visit` promises is in [`crate::wheel::shard`].

#![forbid(unsafe_code)]

use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};
use crate::wheel::tick::Tick;

/// The entry's next-visit word; by default it tells of [nothing](Self::NONE).
#[derive(Debug, Default)]
pub(crate) struct AtomicNextVisit(AtomicU64);

impl AtomicNextVisit {
    /// A next visit that tells of nothing: no tick is before the first.
    pub(crate) const NONE: Tick = Tick(0);

    #[inline]
    pub(crate) fn load(&self) -> Tick {
        // Acquire: the sweeper that drops a reference because of the tick it reads here relies on
        // the reference filed there; pairs with the Release of `replace`, which follows that
        // filing.
        Tick(self.0.load(Acquire))
    }

    /// Writes `next_visit` of an entry that the caller alone holds: claimed and not armed yet, or
    /// ended and not released yet.
    #[inline]
    pub(crate) fn store(&self, at: Tick) {
        // Relaxed: published by the exchange that arms the entry's timer, or by the one that puts
        // the entry back among the vacant ones. The sweeper's exchange that it overwrites, or
        // makes fail, told that a reference has gone, or of a reference that is now cleared.
        self.0.store(at.0, Relaxed);
    }

    /// Writes `next` if `next_visit` is still `seen`.
    #[inline]
    pub(crate) fn replace(&self, seen: Tick, next: Tick) -> Result<(), Tick> {
        // AcqRel: the Release half publishes that the reference at the new tick has been filed, or
        // is in the sweeper's pending references; pairs with the Acquire of `load`. Acquire on
        // failure, as `load`.
        match self.0.compare_exchange(seen.0, next.0, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(word) => Err(Tick(word)),
        }
    }
}
