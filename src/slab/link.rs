//! The entry's link: where the timer waits for the sweeper, or which entry is vacant after it.
//!
//! ```text
//!   63                     39 38 37                                           0
//!  ┌─────────────────────────┬──┬──────────────────────────────────────────────┐
//!  │   own generation (25)   │  │ odd: low bits of the earliest filed tick (38)│
//!  │                         │  │ even: index of the next vacant entry (30)    │
//!  └─────────────────────────┴──┴──────────────────────────────────────────────┘
//! ```
//!
//! The generation is the entry's own, so a resetter that was held up cannot write a filed tick
//! over the link of a later timer, or over the chain of vacant entries: its compare-and-swap
//! names a generation that has passed.
//!
//! Who writes it: the inserter before it publishes the timer; the sweeper when it files the name
//! again; the resetter that holds the relinking flag; whoever releases the entry. What it
//! promises is in [`crate::shard`].

#![forbid(unsafe_code)]

use crate::bits::Field;
use crate::id::Generation;
use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};
use crate::tick::Tick;

const FILED: Field = Field::low(Tick::LOW_BITS);
const NEXT: Field = Field::low(30);
const GENERATION: Field = FILED.above(1).above(Generation::BITS);

/// A copied link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link(u64);

impl Link {
    /// The link of a vacant entry after which no other is vacant.
    pub(crate) const LAST: u32 = (1 << 30) - 1;

    /// A name of the timer of `generation` waits in a slot that is taken at `at`.
    #[inline]
    pub(crate) fn filed(generation: Generation, at: Tick) -> Self {
        debug_assert!(generation.is_armed());
        Self(GENERATION.put(u64::from(generation.0)) | FILED.put(at.low()))
    }

    /// The entry is vacant in `generation`, and `next` is vacant after it.
    #[inline]
    pub(crate) fn vacant(generation: Generation, next: u32) -> Self {
        debug_assert!(!generation.is_armed());
        Self(GENERATION.put(u64::from(generation.0)) | NEXT.put(u64::from(next)))
    }

    /// The entry's generation when the link was written.
    #[inline]
    pub(crate) fn generation(self) -> Generation {
        Generation(GENERATION.get_u32(self.0))
    }

    /// The earliest tick at which a name is filed; for links of armed generations.
    #[inline]
    pub(crate) fn filed_at(self, swept: Tick) -> Tick {
        Tick::near(FILED.get(self.0), swept)
    }

    /// The next vacant entry; for links of vacant generations.
    #[inline]
    pub(crate) fn next(self) -> u32 {
        NEXT.get_u32(self.0)
    }
}

/// The entry's link word.
#[derive(Debug)]
pub(crate) struct AtomicLink(AtomicU64);

impl AtomicLink {
    #[inline]
    pub(crate) fn new(link: Link) -> Self {
        Self(AtomicU64::new(link.0))
    }

    #[inline]
    pub(crate) fn load(&self) -> Link {
        // Acquire: the sweeper that drops a name because of the tick it reads here relies on the
        // name filed there; pairs with the Release of `replace`, which follows that filing.
        Link(self.0.load(Acquire))
    }

    /// Writes the link of an entry that the caller alone holds.
    #[inline]
    pub(crate) fn store(&self, link: Link) {
        // Relaxed: published by the entry's state (armed) or by the vacant stack's head (vacant).
        #[cfg(not(loom))]
        self.0.store(link.0, Relaxed);
        // Loom would let this thread read, after its own store, an older exchange of a resetter
        // that was held up: it does not know that an exchange is one step in the word's order.
        #[cfg(loom)]
        self.0.swap(link.0, Relaxed);
    }

    /// Writes `next` if the link is still `seen`.
    #[inline]
    pub(crate) fn replace(&self, seen: Link, next: Link) -> Result<(), Link> {
        // AcqRel: the Release half publishes that the name at the new tick has been filed, or is
        // in the sweeper's hand; pairs with the Acquire of `load`. Acquire on failure, as `load`.
        match self.0.compare_exchange(seen.0, next.0, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(word) => Err(Link(word)),
        }
    }
}
