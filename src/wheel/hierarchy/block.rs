//! References to entries, and the blocks of them that form the chains of the slots. A block is as
//! large as a cache line and, like a timer, lives in a slab.
//!
//! A block is in use from its claim until it is released. All that time its state is that of a
//! vacant entry which one thread holds. The block rule in [`slot`](super::slot) says which thread
//! may access it.

#![allow(clippy::inline_always, reason = "a part of an operation")]

use crate::panics::DropEach;
use crate::sync::{Acquire, AtomicU32, Relaxed, Release};
use crate::wheel::id::Generation;
use crate::wheel::memory::{Guard, Zeroable, pin, prefetch};
use crate::wheel::slab::Slab;
use crate::wheel::slab::hoard::Hoard;
use crate::wheel::slab::page_table::SlabItem;
use crate::wheel::slab::state::AtomicEntryState;
use std::num::NonZeroU32;

/// The number of references in a block.
#[cfg(not(any(modelled, tiny)))]
pub(crate) const REFERENCES: usize = 13;
#[cfg(any(modelled, tiny))]
pub(crate) const REFERENCES: usize = 2;

/// The binary logarithm of the number of blocks in a page.
const PAGE_BITS: u32 = if cfg!(any(modelled, tiny)) { 1 } else { 8 };

/// Some references, and the number of the next block of the chain.
#[derive(Debug, Default)]
pub(crate) struct Block {
    state: AtomicEntryState,
    /// The next block. Written before this one is published.
    next: AtomicU32,
    /// Each is zero until the thread that reserved the position writes its reference.
    references: [AtomicU32; REFERENCES],
}

#[cfg(not(any(modelled, tiny)))]
const _: () = assert!(size_of::<Block>() == 64);

// SAFETY: all zeros is a vacant state of the first generation, and numbers that are zero, as by
// default. All fields are atomic.
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
    /// Initialises a block with one reference and puts it before `next`. No other thread knows the
    /// block.
    pub(crate) fn begin(&self, reference: EntryRef, next: BlockNumber) {
        // Relaxed, here and below: published by the exchange that puts the block into its slot.
        self.next.store(next.0, Relaxed);
        for (position, word) in self.references.iter().enumerate() {
            word.store(if position == 0 { reference.word() } else { 0 }, Relaxed);
        }
    }

    /// Returns the next block of the chain.
    pub(crate) fn next(&self) -> BlockNumber {
        // Relaxed: for the taker it was written before the block was published; for all others the
        // result is a guess.
        BlockNumber(self.next.load(Relaxed))
    }

    /// Writes a reference into the position that was reserved for it.
    #[inline]
    pub(crate) fn write(&self, position: usize, reference: EntryRef) {
        // Release: this last access to the block precedes its release to the slab; pairs with the
        // Acquire of `read`.
        self.references[position].store(reference.word(), Release);
    }

    /// Returns the reference at a position, if it has been written.
    #[inline]
    pub(crate) fn read(&self, position: usize) -> Option<EntryRef> {
        // Acquire: pairs with the Release of `write`, so that the block can be released once all
        // its references have been read.
        EntryRef::of_word(self.references[position].load(Acquire))
    }

    /// Returns `true` if there seems to be a reference at a position.
    pub(crate) fn has(&self, position: usize) -> bool {
        // Relaxed: only decides whether a read is worthwhile, and is not that read.
        self.references[position].load(Relaxed) != 0
    }
}

/// A reference to an entry of the shard's slab, as it is stored in a slot. It is the index plus
/// one, so that no reference is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryRef(NonZeroU32);

impl EntryRef {
    /// Creates the reference to the entry at `index`, which is below 2^30.
    #[inline]
    pub(crate) fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    /// Returns the index of the entry.
    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.0.get() - 1
    }

    /// Returns the reference as a word, which is not zero.
    #[inline]
    fn word(self) -> u32 {
        self.0.get()
    }

    /// Returns the reference of such a word.
    #[inline]
    fn of_word(word: u32) -> Option<Self> {
        NonZeroU32::new(word).map(Self)
    }
}

/// A block, identified by its index in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockNumber(pub(crate) u32);

impl BlockNumber {
    /// No block. No block has this index.
    pub(crate) const NONE: BlockNumber = BlockNumber((1 << 30) - 1);
}

/// All blocks of a shard.
#[derive(Debug)]
pub(crate) struct Blocks {
    slab: Slab<Block>,
    /// The number of blocks taken in most models. None is taken twice, because claim and release of
    /// the slab have models of their own.
    #[cfg(all(modelled, not(crossbeam_loom)))]
    taken: crate::sync::UnmodelledU32,
    /// A block that is kept for a reference that must not be lost while the system has no memory,
    /// or [`BlockNumber::NONE`]. It was in use before, so that it costs no memory of its own.
    spare: AtomicU32,
    /// Set when no more pages can be had, for tests of that case. It is not part of a model.
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
            spare: AtomicU32::new(BlockNumber::NONE.0),
            #[cfg(any(test, modelled))]
            exhausted: crate::sync::UnmodelledU32::new(0),
        }
    }

    /// Makes every claim fail that needs another page, or succeed again.
    #[cfg(any(test, modelled))]
    pub(crate) fn exhaust(&self, exhausted: bool) {
        // Relaxed: it is set while no other thread uses the wheel.
        self.exhausted.store(u32::from(exhausted), Relaxed);
    }

    /// Makes a model reuse blocks from now on.
    #[cfg(all(modelled, not(crossbeam_loom)))]
    pub(crate) fn recycle(&self) {
        self.taken.store(u32::MAX, Relaxed);
    }

    /// Returns an unshared block, to be [begun](Block::begin), or `None` if none is available.
    pub(crate) fn claim(&self) -> Option<BlockNumber> {
        #[cfg(any(test, modelled))]
        // Relaxed: as in `exhaust`.
        if self.exhausted.load(Relaxed) != 0 {
            return self.slab.pop(&pin()).map(|claimed| BlockNumber(claimed.index));
        }
        #[cfg(all(modelled, not(crossbeam_loom)))]
        if self.taken.load(Relaxed) != u32::MAX {
            let index = self.taken.fetch_add(1, Relaxed);
            self.slab.materialise(index);
            return Some(BlockNumber(index));
        }
        // There are more indices than there can be blocks, so a failure means that memory is
        // exhausted.
        self.slab.claim(&pin()).ok().map(|claimed| BlockNumber(claimed.index))
    }

    /// Releases a block that no other thread accesses.
    pub(crate) fn release(&self, block: BlockNumber) {
        #[cfg(all(modelled, not(crossbeam_loom)))]
        if self.taken.load(Relaxed) != u32::MAX {
            return;
        }
        if !self.keep_as_spare(block) {
            self.slab.release_one(block.0, &pin());
        }
    }

    /// Makes a block that no other thread accesses the spare one, unless there is one. Not in
    /// models, which need all blocks to be used again.
    fn keep_as_spare(&self, block: BlockNumber) -> bool {
        if cfg!(modelled) {
            return false;
        }
        // Release: hands the block over to the thread that takes it; pairs with the Acquire of
        // `take_spare`. Relaxed: a failed exchange hands nothing over.
        self.spare.compare_exchange(BlockNumber::NONE.0, block.0, Release, Relaxed).is_ok()
    }

    /// Takes the spare block, to be [begun](Block::begin), if there is one.
    pub(crate) fn take_spare(&self) -> Option<BlockNumber> {
        // Acquire: pairs with the Release of `keep_as_spare`.
        let spare = BlockNumber(self.spare.swap(BlockNumber::NONE.0, Acquire));
        (spare != BlockNumber::NONE).then_some(spare)
    }

    /// Hoards a block that no other thread accesses.
    fn hoard(&self, block: BlockNumber, hoard: &mut Hoard) {
        #[cfg(all(modelled, not(crossbeam_loom)))]
        if self.taken.load(Relaxed) != u32::MAX {
            return;
        }
        hoard.add_held(&self.slab, block.0, &pin());
    }

    /// Releases a block that no other thread accesses, or adds it to a hoard.
    pub(crate) fn release_to(&self, block: BlockNumber, hoard: Option<&mut Hoard>) {
        match hoard {
            Some(hoard) if !self.keep_as_spare(block) => self.hoard(block, hoard),
            Some(_) => {}
            None => self.release(block),
        }
    }

    /// Calls `use_block` with a block that is in use.
    #[inline(always)]
    pub(crate) fn with<R>(&self, block: BlockNumber, use_block: impl FnOnce(&Block) -> R) -> R {
        match self.slab.entry(block.0, &pin()) {
            Some(block) => use_block(block),
            None => unreachable!("a block that is in use is there"),
        }
    }

    /// Writes a reference into the position that was reserved for it in a block, which is in use.
    #[inline(always)]
    pub(crate) fn write(&self, block: BlockNumber, position: usize, reference: EntryRef) {
        let pin = pin();
        let written = self.slab.entry(block.0, &pin).map(|block| block.write(position, reference));
        // Not asserted otherwise, because a panic would cost the usual case of an insert a stack
        // frame.
        debug_assert!(written.is_some(), "a block that is in use is there");
    }

    /// Prefetches a block, if there is one.
    #[inline]
    pub(crate) fn prefetch(&self, block: BlockNumber) {
        if block != BlockNumber::NONE {
            self.with(block, |block| prefetch(block));
        }
    }

    /// Returns the number of blocks, in use or not.
    pub(crate) fn len(&self) -> u64 {
        self.slab.len()
    }

    /// Returns the number of blocks in a page.
    pub(crate) fn page_len(&self) -> u64 {
        self.slab.page_len()
    }

    /// Returns the number of bytes that the blocks occupy.
    pub(crate) fn bytes(&self) -> usize {
        self.slab.bytes()
    }

    /// Hoards up to `slice` blocks that are not in use, to give whole pages back to the system.
    /// Returns `true` when a round ends.
    pub(crate) fn trim(&self, hoard: &mut Hoard, slice: usize, guard: &Guard) -> bool {
        if hoard.is_between_rounds()
            && let Some(spare) = self.take_spare()
        {
            self.slab.release_one(spare.0, guard);
        }
        hoard.advance(&self.slab, slice, guard)
    }

    /// Returns the hoarded blocks to the slab.
    pub(crate) fn give_back(&self, hoard: &mut Hoard, guard: &Guard) {
        hoard.give_back(&self.slab, guard);
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Blocks;
    use crate::wheel::memory::pin;
    use crate::wheel::slab::hoard::Hoard;

    /// A claimer that stalled while the block was on the top of the stack therefore fails.
    #[test]
    fn a_block_that_was_hoarded_has_a_later_generation() {
        let (blocks, mut hoard) = (Blocks::new(), Hoard::default());
        let [block, spare] = [(); 2].map(|()| blocks.claim().unwrap());
        blocks.release_to(spare, Some(&mut hoard));
        let generation = || blocks.with(block, |block| block.state.load().generation());
        let before = generation();
        blocks.release_to(block, Some(&mut hoard));
        blocks.give_back(&mut hoard, &pin());
        assert!(generation() > before);
        assert_eq!(blocks.claim(), Some(block), "it was put back");
    }
}
