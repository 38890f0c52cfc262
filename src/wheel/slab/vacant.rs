//! The head of the stack of vacant entries.
//!
//! ```text
//!   63        55 54                     30 29                                 0
//!  ┌────────────┬─────────────────────────┬────────────────────────────────────┐
//!  │     0      │ generation of top (25)  │            index of top (30)       │
//!  └────────────┴─────────────────────────┴────────────────────────────────────┘
//! ```
//!
//! A Treiber stack (IBM RJ 5118, 1986) linked by index. Such a stack is prone to ABA: a thread that
//! read the top and its next must not succeed after the top was popped and pushed again with
//! another next. This head identifies the top by its generation, and a popped entry comes back only
//! with a later one (armed and ended, or [bumped]). The same head word therefore never means two
//! different stacks, down to the last entry, and several entries can be popped at once.
//!
//! [bumped]: super::Claimed::bump

#![forbid(unsafe_code)]

use crate::sync::{AcqRel, Acquire, AtomicU64};
use crate::wheel::bits::Field;
use crate::wheel::id::Generation;

const INDEX: Field = Field::low(30);
const GENERATION: Field = INDEX.above(Generation::BITS);

/// A copied head: the top vacant entry, identified by its generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VacantHead(u64);

impl VacantHead {
    /// The head of the empty stack.
    pub(crate) const EMPTY: VacantHead = VacantHead(INDEX.put(Self::LAST as u64));

    /// The index that marks the end of the chain.
    pub(crate) const LAST: u32 = (1 << 30) - 1;

    #[inline]
    pub(crate) fn new(generation: Generation, index: u32) -> Self {
        debug_assert!(!generation.is_armed());
        Self(GENERATION.put(u64::from(generation.0)) | INDEX.put(u64::from(index)))
    }

    #[inline]
    pub(crate) fn generation(self) -> Generation {
        Generation(GENERATION.get_u32(self.0))
    }

    /// Returns the index of the top, or [`LAST`](Self::LAST) for the empty stack.
    #[inline]
    pub(crate) const fn index(self) -> u32 {
        INDEX.get_u32(self.0)
    }
}

/// The head word of a stack of vacant entries.
#[derive(Debug)]
pub(crate) struct AtomicVacantHead(AtomicU64);

impl AtomicVacantHead {
    #[inline]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(VacantHead::EMPTY.0))
    }

    #[inline]
    pub(crate) fn load(&self) -> VacantHead {
        // Acquire: pairs with the Release of `compare_exchange`, so that the state of the top is
        // seen.
        VacantHead(self.0.load(Acquire))
    }

    /// Pops or pushes. Writes `next` if the head is still `seen`.
    #[inline]
    pub(crate) fn compare_exchange(
        &self,
        seen: VacantHead,
        next: VacantHead,
    ) -> Result<(), VacantHead> {
        // AcqRel on success, Acquire on failure:
        // - the Release half, of a push, publishes the entry (its state and the end of its value's
        //   use) to the thread that pops it;
        // - the Acquire half, of a pop, pairs with it;
        // - the Acquire on failure is that of `load`.
        match self.0.compare_exchange(seen.0, next.0, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(word) => Err(VacantHead(word)),
        }
    }
}
