//! Where a sweep is ([`Stage`]), and which references are pending ([`Pending`]).
//!
//! ```text
//!   Ended ──► Begun ──► Overdue ──► Slots ──────────► Unfiled ──► Ended
//!             take      sort what   slot after slot,  take what could
//!             what is   was visited     up to the         not be filed
//!             overdue               sweep's end
//! ```
//!
//! Between two steps, whatever the stage, what is pending is visited. A bounded sweep stops
//! wherever it has enough; the stage and what is pending stay as they are, and the next call goes
//! on from there.

#![forbid(unsafe_code)]

use crate::wheel::counters::SweepCount;
use crate::wheel::engine::Engine;
use crate::wheel::hierarchy::entry_ref::EntryRef;
use crate::wheel::hierarchy::slot::Read;
use crate::wheel::hierarchy::{Kept, Source, Taken};
use crate::wheel::memory::pin;
use std::collections::VecDeque;

/// Where a sweep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No sweep is under way.
    Ended,
    /// It has yet to take what is overdue. It does so once: a handler that arms timers without
    /// delay cannot keep it from ending.
    Begun,
    /// It visits what was overdue. That is handed over together, since its order is made by
    /// sorting.
    Overdue,
    /// It goes from occupied slot to occupied slot.
    Slots,
    /// It visits the timers that may have no reference, for want of memory: some have become due.
    Unfiled,
}

/// References that were taken out of their slots and have not been visited.
#[derive(Debug)]
pub(super) struct Pending {
    /// Taken chains, in the order of their expiries.
    pub(super) taken: VecDeque<Taken>,
    /// References read from one of them.
    pub(super) references: Vec<EntryRef>,
    /// Where those were taken from.
    pub(super) from: Source,
    /// Blocks with references that were reserved but not yet written.
    pub(super) kept: VecDeque<Kept>,
    /// How many of them are yet to be looked at, by the present tick.
    unchecked: usize,
    /// Of each shard, which page is to be looked at next for timers without a reference.
    pages: Box<[Option<u32>]>,
    /// Of each shard, how many references could not be filed when its pages were last looked at.
    unfiled: Box<[u64]>,
}

impl Pending {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            taken: VecDeque::new(),
            references: Vec::new(),
            from: Source { shard: 0, slot: None },
            kept: VecDeque::new(),
            unchecked: 0,
            pages: vec![None; shards].into(),
            unfiled: vec![0; shards].into(),
        }
    }

    /// Whether references could not be filed since their shard's pages were last looked at.
    pub(super) fn has_unfiled<T>(&self, engine: &Engine<T>) -> bool {
        let shards = engine.shards.iter().zip(&self.unfiled);
        shards.into_iter().any(|(shard, &seen)| shard.unfiled() != seen)
    }

    /// Has the pages of shards looked at of which references could not be filed.
    pub(super) fn take_unfiled<T>(&mut self, engine: &Engine<T>) {
        for (number, shard) in engine.shards.iter().enumerate() {
            let now = shard.unfiled();
            if std::mem::replace(&mut self.unfiled[number], now) != now {
                self.pages[number] = Some(0);
            }
        }
    }

    /// Has every kept block looked at once more.
    pub(super) fn recheck_kept(&mut self) {
        self.unchecked = self.kept.len();
    }

    /// Whether a kept block has references that were written since the last check.
    pub(super) fn has_news<T>(&self, engine: &Engine<T>) -> bool {
        let blocks = |kept: &Kept| engine.shard(kept.from.shard).hierarchy.blocks();
        self.kept.iter().any(|kept| kept.unwritten.has_news(blocks(kept)))
    }

    /// Whether there is nothing left to read.
    pub(super) fn is_worked_off(&self) -> bool {
        self.taken.is_empty() && self.unchecked == 0 && self.pages.iter().all(Option::is_none)
    }

    /// Reads on, with no references read before: up to `most` references (and the rest of their
    /// block) of the next slot, or what has been written into the next kept block.
    pub(super) fn read_on<T>(&mut self, most: usize, engine: &Engine<T>) {
        let Some(taken) = self.taken.front_mut() else {
            return match self.unchecked {
                0 => self.read_page(engine),
                _ => self.read_kept(engine),
            };
        };
        self.from = taken.from;
        let (counters, blocks) =
            (engine.progress.counters(), engine.shard(taken.from.shard).hierarchy.blocks());
        while self.references.len() < most {
            match taken.chain.read_block(&mut self.references, blocks) {
                None => {
                    self.taken.pop_front();
                    break;
                }
                Some(Read::Whole) => counters.add(SweepCount::BlocksFreed, 1),
                Some(Read::Kept(unwritten)) => {
                    self.kept.push_back(Kept { from: taken.from, unwritten });
                }
            }
        }
    }

    /// Reads the next page that is to be looked at. What it gives counts as references that were
    /// filed: each is counted as visited.
    fn read_page<T>(&mut self, engine: &Engine<T>) {
        let next = self.pages.iter().position(Option::is_some);
        let Some((number, page)) = next.and_then(|number| Some((number, self.pages[number]?)))
        else {
            return;
        };
        self.from = Source { shard: number, slot: None };
        let (shard, swept) = (engine.shard(number), engine.progress.swept());
        let more = shard.read_unfiled(page, swept, &mut self.references, &pin());
        self.pages[number] = more.then_some(page + 1);
        engine.progress.counters().add(SweepCount::Extra, self.references.len() as u64);
    }

    fn read_kept<T>(&mut self, engine: &Engine<T>) {
        self.unchecked = self.unchecked.saturating_sub(1);
        let Some(mut kept) = self.kept.pop_front() else { return };
        self.from = kept.from;
        if kept
            .unwritten
            .read_written(&mut self.references, engine.shard(kept.from.shard).hierarchy.blocks())
        {
            engine.progress.counters().add(SweepCount::BlocksFreed, 1);
        } else {
            self.kept.push_back(kept);
        }
    }
}
