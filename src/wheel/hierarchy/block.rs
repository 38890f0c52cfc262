//! Blocks of references: what the slots' chains are made of, each as large as a cache line, in a
//! slab as timers are.
//!
//! A block is in use from its claim until it is given back; all that while its state is that of a
//! vacant entry that a thread holds. I4 in [`crate::wheel`] says which thread may touch it.

#![allow(clippy::inline_always, reason = "a part of an operation")]

use super::entry_ref::EntryRef;
use crate::panics::DropEach;
use crate::sync::{Acquire, AtomicU32, Relaxed, Release};
use crate::wheel::id::Generation;
use crate::wheel::memory::{Guard, Zeroable, pin};
use crate::wheel::prefetch::prefetch;
use crate::wheel::slab::Slab;
use crate::wheel::slab::slab_item::SlabItem;
use crate::wheel::slab::state::AtomicEntryState;
use crate::wheel::slab::trim::Trim;

/// How many references a block holds.
#[cfg(not(any(modelled, tiny)))]
pub(crate) const REFERENCES: usize = 13;
#[cfg(any(modelled, tiny))]
pub(crate) const REFERENCES: usize = 2;

/// A page has `2^PAGE_BITS` blocks.
const PAGE_BITS: u32 = if cfg!(any(modelled, tiny)) { 1 } else { 8 };

/// Some references, and which block comes after this one.
#[derive(Debug, Default)]
pub(crate) struct Block {
    state: AtomicEntryState,
    /// Which block comes next. Written before this one is published.
    next: AtomicU32,
    /// Zero until whoever reserved the place writes its reference.
    references: [AtomicU32; REFERENCES],
}

#[cfg(not(any(modelled, tiny)))]
const _: () = assert!(size_of::<Block>() == 64);

// SAFETY: all zeros is a vacant state of the first generation, and numbers that are zero, as by
// default. All of it is atomic.
unsafe impl Zeroable for Block {
    #[cfg(any(modelled, tiny))]
    fn zero(&self) {
        self.state.zero();
    }
}

impl SlabItem for Block {
    #[inline]
    fn state(&self) -> &AtomicEntryState {
        &self.state
    }

    fn reinit(&self) {}

    unsafe fn drop_value(&self, _: &mut DropEach) {}
}

impl Block {
    /// Begins a block with one reference, before `next`. The caller alone knows it.
    pub(crate) fn begin(&self, reference: EntryRef, next: BlockNumber) {
        // Relaxed, as below: published by the exchange that puts the block into its slot.
        self.next.store(next.0, Relaxed);
        for (place, word) in self.references.iter().enumerate() {
            word.store(if place == 0 { reference.word() } else { 0 }, Relaxed);
        }
    }

    /// Which block comes after this one.
    pub(crate) fn next(&self) -> BlockNumber {
        // Relaxed: written before the block was published, to its taker; a guess to all others.
        BlockNumber(self.next.load(Relaxed))
    }

    /// Writes a reference into the place that was reserved for it.
    #[inline]
    pub(crate) fn write(&self, place: usize, reference: EntryRef) {
        // Release: the last touch of the block comes before it is given back; pairs with the
        // Acquire of `read`.
        self.references[place].store(reference.word(), Release);
    }

    /// The reference at a place, if it has been written.
    #[inline]
    pub(crate) fn read(&self, place: usize) -> Option<EntryRef> {
        // Acquire: pairs with the Release of `write`, so that the block can be given back once all
        // its references have been read.
        EntryRef::of_word(self.references[place].load(Acquire))
    }

    /// Whether there seems to be a reference at a place.
    pub(crate) fn has(&self, place: usize) -> bool {
        // Relaxed: whether there is something to look at, not the look itself.
        self.references[place].load(Relaxed) != 0
    }
}

/// A block, by its index in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockNumber(pub(crate) u32);

impl BlockNumber {
    /// No block: none has this index.
    pub(crate) const NONE: BlockNumber = BlockNumber((1 << 30) - 1);
}

/// All blocks of a shard.
#[derive(Debug)]
pub(crate) struct Blocks {
    slab: Slab<Block>,
    /// How many have been taken, none of them twice, as in most models: who takes from the slab,
    /// and who gives back, has models of its own.
    #[cfg(all(modelled, not(crossbeam_loom)))]
    taken: crate::sync::UnmodelledU32,
    /// No more can be had: for tests of what happens then. It is no part of a model.
    #[cfg(any(test, modelled))]
    exhausted: crate::sync::UnmodelledU32,
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Self {
            // No id refers to a block.
            slab: Slab::new(PAGE_BITS, Generation::UNWRITTEN),
            #[cfg(all(modelled, not(crossbeam_loom)))]
            taken: crate::sync::UnmodelledU32::new(0),
            #[cfg(any(test, modelled))]
            exhausted: crate::sync::UnmodelledU32::new(0),
        }
    }

    /// From now on no block can be had, or can again.
    #[cfg(any(test, modelled))]
    pub(crate) fn exhaust(&self, exhausted: bool) {
        // Relaxed: it is set while no other thread uses the wheel.
        self.exhausted.store(u32::from(exhausted), Relaxed);
    }

    /// From now on blocks are used again.
    #[cfg(all(modelled, not(crossbeam_loom)))]
    pub(crate) fn recycle(&self) {
        self.taken.store(u32::MAX, Relaxed);
    }

    /// Returns an unshared block, to be [begun](Block::begin), or `None` if none is available.
    pub(crate) fn claim(&self) -> Option<BlockNumber> {
        #[cfg(any(test, modelled))]
        // Relaxed: as in `exhaust`.
        if self.exhausted.load(Relaxed) != 0 {
            return None;
        }
        #[cfg(all(modelled, not(crossbeam_loom)))]
        if self.taken.load(Relaxed) != u32::MAX {
            let index = self.taken.fetch_add(1, Relaxed);
            self.slab.materialise(index);
            return Some(BlockNumber(index));
        }
        // There are more indices than there can be blocks: it is the memory that is missing.
        self.slab.claim(&pin()).ok().map(|claimed| BlockNumber(claimed.index))
    }

    /// Gives a block back, that is nobody else's.
    pub(crate) fn release(&self, block: BlockNumber) {
        #[cfg(all(modelled, not(crossbeam_loom)))]
        if self.taken.load(Relaxed) != u32::MAX {
            return;
        }
        self.slab.release_one(block.0, &pin());
    }

    /// Calls `use_block` with a block that is in use.
    #[inline(always)]
    pub(crate) fn with<R>(&self, block: BlockNumber, use_block: impl FnOnce(&Block) -> R) -> R {
        match self.slab.entry(block.0, &pin()) {
            Some(block) => use_block(block),
            None => unreachable!("a block that is in use is there"),
        }
    }

    /// Which block comes after one that may be in use no more, nor be there: then any, or none.
    pub(crate) fn after(&self, block: BlockNumber, guard: &Guard) -> BlockNumber {
        self.slab.entry(block.0, guard).map_or(BlockNumber::NONE, Block::next)
    }

    /// Begins to fetch a block, if there is one.
    #[inline]
    pub(crate) fn prefetch(&self, block: BlockNumber) {
        if block != BlockNumber::NONE {
            self.with(block, |block| prefetch(block));
        }
    }

    /// How many blocks there are, in use or not.
    pub(crate) fn len(&self) -> u64 {
        self.slab.len()
    }

    /// How many blocks a page has.
    pub(crate) fn page_len(&self) -> u64 {
        self.slab.page_len()
    }

    /// How many bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        self.slab.bytes()
    }

    /// Hoards up to `slice` blocks that are not in use, to give whole pages back. `true` when a
    /// round ends.
    pub(crate) fn trim(&self, trim: &mut Trim, slice: usize, guard: &Guard) -> bool {
        trim.advance(&self.slab, slice, guard)
    }

    /// Gives back what was hoarded.
    pub(crate) fn give_back(&self, trim: &mut Trim, guard: &Guard) {
        trim.give_back(&self.slab, guard);
    }
}
