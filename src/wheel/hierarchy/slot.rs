//! The slot head: one slot, which holds references to timers until the sweeper takes them.
//!
//! ```text
//!  head                        ┌──────────────┐     ┌──────────────┐
//!  ┌─────────────────┬───────┐ │ next ────────┼────►│ next: none   │
//!  │ number of block │ count │►│ reference 0  │     │ reference 0  │
//!  │      (30)       │  (4)  │ │ reference 1  │     │ …            │
//!  └─────────────────┴───────┘ │ (not yet     │     │ reference 12 │
//!                              │    written)  │     └──────────────┘
//!                              └──────────────┘      all but the first block are full
//! ```
//!
//! A slot is a chain of [`block`](super::block)s of references. A [`push`](SlotHead::push) reserves
//! the next position of the first block by one compare-and-swap on the head, which holds the count,
//! and then stores the reference there. If the block is full, a new block with the reference
//! becomes the first of the chain. The sweeper [`take`](SlotHead::take)s the whole chain by one
//! swap. References are never popped one by one.
//!
//! **Block rule.** A block belongs to the slot until the chain is taken and then to the taker,
//! which releases it when all references reserved in it have been read. A thread accesses a block
//! only between its reservation and its store of the reference. The block is then still in use, and
//! no epoch is needed. By the time of the exchange, a head of the same value may stand for a block
//! that was released and claimed again. That is harmless, because a reservation is made in the
//! block that the head refers to *at that moment*, and the `next` of a new block is that same
//! head's.
//!
//! **A reference that is reserved but not yet written** reads as zero. The taker keeps such a block
//! ([`Unwritten`]) and checks it again at its next sweep, without waiting. The timer is not late,
//! because its insert has not returned. When the inserter continues, there are two cases:
//!
//! - The sweeper does not expect the reference any more
//!   ([`next_scan`](crate::wheel::progress::next_scan)). The re-check finds that the slot's expiry
//!   has passed, and the inserter files the reference once more.
//! - If the slot was taken early, or is the overdue one, the taker finds the reference. It checks
//!   its kept blocks whenever it has published a tick ([`crate::wheel::progress::swept`]), and
//!   before it rests. Each check follows the fence that makes it see the reference. Otherwise the
//!   inserter sees the suspension of the shard, the tick or the wake-up tick
//!   ([`crate::wheel::progress::wakeup`]), or expects a later step, which checks again.

#![forbid(unsafe_code)]

use super::block::{BlockNumber, Blocks, EntryRef, REFERENCES};
use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};
use crate::wheel::bits::{Field, to_index};
use crate::wheel::slab::hoard::Hoard;
use std::collections::VecDeque;

const COUNT: Field = Field::low(4);
const BLOCK: Field = COUNT.above(30);

/// A copied head: the first block, and the number of references reserved in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head(u64);

impl Head {
    /// No block, with the count of a full one, so that it has no free position.
    const EMPTY: Head = Head(BLOCK.put(BlockNumber::NONE.0 as u64) | COUNT.put(REFERENCES as u64));

    /// Creates a head for a block with one reference.
    fn new(block: BlockNumber) -> Self {
        Self(BLOCK.put(u64::from(block.0)) | COUNT.put(1))
    }

    #[inline]
    fn block(self) -> BlockNumber {
        BlockNumber(BLOCK.get_u32(self.0))
    }

    #[inline]
    fn count(self) -> usize {
        to_index(COUNT.get(self.0))
    }

    /// Returns this head with one more reference reserved in the same block.
    #[inline]
    fn reserved(self) -> Self {
        Self(self.0 + COUNT.put(1))
    }

    /// Returns `true` if one more reference needs a new block.
    #[inline]
    fn is_full(self) -> bool {
        self.count() >= REFERENCES
    }
}

/// The head of one slot.
#[derive(Debug)]
pub(crate) struct SlotHead(AtomicU64);

impl SlotHead {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Head::EMPTY.0))
    }

    /// Returns `true` if the slot holds no reference, as far as this thread can see.
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: a taker that finds references goes on to read them; pairs with `push`.
        Head(self.0.load(Acquire)) == Head::EMPTY
    }

    /// Files a reference if the first block has room and no other thread changes the head.
    #[inline]
    pub(crate) fn try_push(&self, reference: EntryRef, blocks: &Blocks) -> bool {
        // Relaxed: the head's block is not accessed before the exchange confirms the head.
        let head = Head(self.0.load(Relaxed));
        !head.is_full() && self.push_reference(head, reference, blocks).is_ok()
    }

    /// Files a reference. Returns `true` if it made a block for it, which `claim` returns. Returns
    /// `None`, without filing the reference, if no block is available.
    pub(crate) fn push(
        &self,
        reference: EntryRef,
        blocks: &Blocks,
        claim: impl FnOnce(&Blocks) -> Option<BlockNumber>,
    ) -> Option<bool> {
        // Relaxed: as in `try_push`.
        let mut head = Head(self.0.load(Relaxed));
        let (mut made, mut claim) = (BlockNumber::NONE, Some(claim));
        loop {
            let pushed = if !head.is_full() {
                self.push_reference(head, reference, blocks)
            } else {
                if let Some(claim) = claim.take() {
                    made = claim(blocks)?;
                }
                blocks.with(made, |block| block.begin(reference, head.block()));
                self.compare_exchange(head, Head::new(made))
            };
            match pushed {
                Ok(()) if head.is_full() => return Some(true),
                Ok(()) => break,
                Err(now) => head = now,
            }
        }
        if made != BlockNumber::NONE {
            blocks.release(made);
        }
        Some(false)
    }

    /// Reserves the next position of the first block, and writes the reference there.
    #[inline]
    fn push_reference(&self, head: Head, reference: EntryRef, blocks: &Blocks) -> Result<(), Head> {
        self.compare_exchange(head, head.reserved())?;
        // By the block rule, the block is in use until the reference reserved here has been
        // written.
        blocks.write(head.block(), head.count(), reference);
        Ok(())
    }

    #[inline]
    fn compare_exchange(&self, head: Head, next: Head) -> Result<(), Head> {
        // AcqRel on success, Relaxed on failure:
        // - the Release half publishes a new block, and the entry's state behind the reference, to
        //   the taker's swap;
        // - the Acquire half pairs with that swap, so that a thread that pushes after it also sees
        //   the slot marked empty and the sweep's published tick;
        // - after a failure the caller checks again.
        match self.0.compare_exchange(head.0, next.0, AcqRel, Relaxed) {
            Ok(_) => Ok(()),
            Err(now) => Err(Head(now)),
        }
    }

    /// Takes all references.
    pub(crate) fn take(&self) -> Chain {
        // AcqRel:
        // - the Acquire half pairs with the exchanges of `push`;
        // - the Release half shows each later push what the sweeper published before.
        let head = Head(self.0.swap(Head::EMPTY.0, AcqRel));
        Chain { block: head.block(), count: head.count() }
    }
}

/// A taken chain of blocks, which is read block by block.
#[derive(Debug)]
pub(crate) struct Chain {
    block: BlockNumber,
    count: usize,
}

impl Chain {
    /// No references.
    pub(crate) const NONE: Chain = Chain { block: BlockNumber::NONE, count: 0 };

    /// Appends the references in the next block to `references`. Returns the outcome for the block,
    /// or `None` at the end of the chain.
    pub(crate) fn read_block(
        &mut self,
        references: &mut VecDeque<EntryRef>,
        blocks: &Blocks,
        hoard: Option<&mut Hoard>,
    ) -> Option<ReadOutcome> {
        let block = self.block;
        if block == BlockNumber::NONE {
            return None;
        }
        self.block = blocks.with(block, |block| block.next());
        blocks.prefetch(self.block);
        let count = std::mem::replace(&mut self.count, REFERENCES);
        let mut unwritten = Unwritten { block, waiting: (1 << count) - 1 };
        Some(match unwritten.read_written(references, blocks, hoard) {
            true => ReadOutcome::Whole,
            false => ReadOutcome::Kept(unwritten),
        })
    }
}

/// The outcome of reading a block.
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    /// All of its references were written, and the block was released.
    Whole,
    /// Some references are reserved but not yet written.
    Kept(Unwritten),
}

/// A block with references that are reserved but not yet written.
#[derive(Debug)]
pub(crate) struct Unwritten {
    block: BlockNumber,
    /// A bit set of the positions that have not been read yet. If it is empty, the block has been
    /// released.
    waiting: u32,
}

impl Unwritten {
    /// Returns `true` if references have been written since the last check.
    pub(crate) fn has_news(&self, blocks: &Blocks) -> bool {
        let written = || {
            blocks.with(self.block, |block| self.positions().any(|position| block.has(position)))
        };
        self.waiting != 0 && written()
    }

    /// Iterates over the positions that have not been read yet.
    #[inline]
    fn positions(&self) -> impl Iterator<Item = usize> + use<> {
        let waiting = self.waiting;
        (0..REFERENCES).filter(move |position| waiting & (1 << position) != 0)
    }

    /// Appends the references written since the last check. Returns `true` if all have been read,
    /// in which case the block is released.
    #[inline]
    pub(crate) fn read_written(
        &mut self,
        references: &mut VecDeque<EntryRef>,
        blocks: &Blocks,
        hoard: Option<&mut Hoard>,
    ) -> bool {
        if self.waiting == 0 {
            return true;
        }
        blocks.with(self.block, |block| {
            for position in self.positions() {
                if let Some(reference) = block.read(position) {
                    references.push_back(reference);
                    self.waiting &= !(1 << position);
                }
            }
        });
        if self.waiting == 0 {
            // All reserved references have been written, so by the block rule no other thread
            // accesses it.
            blocks.release_to(self.block, hoard);
        }
        self.waiting == 0
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Blocks, EntryRef, REFERENCES, ReadOutcome, SlotHead};
    use std::collections::VecDeque;

    #[test]
    fn every_reference_pushed_is_taken_once() {
        let (slot, pool) = (SlotHead::new(), Blocks::new());
        let total = u32::try_from(REFERENCES * 3 + 1).unwrap();
        let blocks = (0..total)
            .filter(|&index| slot.push(EntryRef::new(index), &pool, Blocks::claim) == Some(true))
            .count();
        assert_eq!(blocks, 4);
        let mut chain = slot.take();
        let mut references = VecDeque::new();
        while let Some(read) = chain.read_block(&mut references, &pool, None) {
            assert!(matches!(read, ReadOutcome::Whole));
        }
        references.make_contiguous().sort_unstable();
        assert_eq!(references, (0..total).map(EntryRef::new).collect::<Vec<_>>());
        assert!(slot.is_empty() && slot.take().read_block(&mut references, &pool, None).is_none());
    }
}
