//! The position of a sweep ([`Stage`]), and its pending references ([`Pending`]).
//!
//! ```text
//!   Ended ──► Begun ──► Overdue ──► Slots ──────────► Ended
//!             take      sort what   slot after slot,
//!             what is   was visited up to the
//!             overdue               sweep's end
//! ```
//!
//! Between two steps, in every stage, the pending references are visited. A bounded sweep stops
//! when it has enough. Its stage and pending references stay as they are, and the next call
//! continues from there.

#![forbid(unsafe_code)]

use crate::wheel::counters::SweepCount;
use crate::wheel::engine::Engine;
use crate::wheel::hierarchy::block::{EntryRef, REFERENCES};
use crate::wheel::hierarchy::slot::ReadOutcome;
use crate::wheel::hierarchy::{KeptBlock, Source, Taken};
use crate::wheel::memory::pin;
use crate::wheel::slab::hoard::Hoard;
use std::collections::VecDeque;

/// The position of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No sweep is in progress.
    Ended,
    /// The overdue references have not been taken yet. They are taken once, so that a handler that
    /// arms timers without delay cannot keep the sweep from ending.
    Begun,
    /// Visits the overdue references. They are handed over together, since they have to be sorted.
    Overdue,
    /// Proceeds from occupied slot to occupied slot.
    Slots,
}

/// The number of references that are read ahead of the one that is visited: two full blocks. On a
/// machine whose misses take 200 ns, twelve are enough.
const AHEAD: usize = 2 * REFERENCES;

/// The number of taken slots, and of kept blocks, whose memory stays between two sweeps.
const TAKEN: usize = 256;

/// References that were taken out of their slots and have not been visited.
#[derive(Debug)]
pub(super) struct Pending {
    /// Taken chains, in the order of their expiries.
    pub(super) taken: VecDeque<Taken>,
    /// References read from one of them, with their entries prefetched.
    pub(super) references: VecDeque<EntryRef>,
    /// The origin of those references.
    pub(super) from: Source,
    /// `true` if more of the same origin may be read from the first of the taken chains.
    continues: bool,
    /// Blocks with references that were reserved but not yet written.
    pub(super) kept: VecDeque<KeptBlock>,
    /// The number of kept blocks that have not been checked at the present tick.
    unchecked: usize,
}

impl Pending {
    pub(super) fn new() -> Self {
        Self {
            taken: VecDeque::new(),
            references: VecDeque::new(),
            from: Source { shard: 0, slot: None },
            continues: false,
            kept: VecDeque::new(),
            unchecked: 0,
        }
    }

    /// Gives back the memory of a sweep that took very many slots.
    pub(super) fn give_back(&mut self) {
        self.taken.shrink_to(TAKEN);
        self.kept.shrink_to(TAKEN);
    }

    /// Starts a check of every kept block.
    pub(super) fn recheck_kept(&mut self) {
        self.unchecked = self.kept.len();
    }

    /// Returns `true` if a kept block has references that were written since the last check.
    pub(super) fn has_news<T>(&self, engine: &Engine<T>) -> bool {
        let blocks = |kept: &KeptBlock| engine.shard(kept.from.shard).hierarchy.blocks();
        self.kept.iter().any(|kept| kept.unwritten.has_news(blocks(kept)))
    }

    /// Returns `true` if there is nothing left to read.
    pub(super) fn is_all_read(&self) -> bool {
        self.taken.is_empty() && self.unchecked == 0
    }

    /// Reads on when all references read before have been visited: what was newly written to the
    /// next kept block, if no slot is left that can be [read](Self::read_next_block). Returns the
    /// cost.
    pub(super) fn read_next<T>(&mut self, engine: &Engine<T>) -> usize {
        if let Some(taken) = self.taken.front() {
            (self.from, self.continues) = (taken.from, true);
            return 0;
        }
        self.read_kept(engine);
        self.prefetch(0, engine);
        // A block without references costs something as well.
        self.references.len().max(1)
    }

    /// Returns `true` if there is nothing to visit before more is read.
    pub(super) fn is_empty(&self) -> bool {
        self.references.is_empty() && !self.continues
    }

    /// Returns `true` if the next block of the slot is to be read, so that its memory and that of
    /// its entries arrives while the references before it are visited.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.continues && self.references.len() < AHEAD
    }

    /// Reads the next block of the slot, and starts to fetch the entries of its references. Returns
    /// the cost.
    pub(super) fn read_next_block<T>(
        &mut self,
        engine: &Engine<T>,
        hoard: Option<&mut Hoard>,
    ) -> usize {
        let Some(taken) = self.taken.front_mut() else { return 1 };
        let blocks = engine.shard(taken.from.shard).hierarchy.blocks();
        let before = self.references.len();
        match taken.chain.read_block(&mut self.references, blocks, hoard) {
            None => {
                self.taken.pop_front();
                self.continues = false;
                return 0;
            }
            Some(ReadOutcome::Whole) => engine.progress.counters().add(SweepCount::BlocksFreed, 1),
            Some(ReadOutcome::Kept(unwritten)) => {
                self.kept.push_back(KeptBlock { from: taken.from, unwritten });
            }
        }
        self.prefetch(before, engine);
        (self.references.len() - before).max(1)
    }

    /// Starts to fetch the entries of the references from position `first` on.
    fn prefetch<T>(&self, first: usize, engine: &Engine<T>) {
        let (shard, _guard) = (engine.shard(self.from.shard), pin());
        for reference in self.references.range(first..) {
            shard.prefetch(reference.index());
        }
    }

    fn read_kept<T>(&mut self, engine: &Engine<T>) {
        self.unchecked = self.unchecked.saturating_sub(1);
        let Some(mut kept) = self.kept.pop_front() else { return };
        self.from = kept.from;
        let blocks = engine.shard(kept.from.shard).hierarchy.blocks();
        if kept.unwritten.read_written(&mut self.references, blocks, None) {
            engine.progress.counters().add(SweepCount::BlocksFreed, 1);
        } else {
            self.kept.push_back(kept);
        }
    }
}
