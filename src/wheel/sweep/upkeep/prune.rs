//! Pruning: discarding stale references before their slots expire.
//!
//! The sweeper visits the occupied slots of all shards one by one. It takes each slot early, and
//! files again only the references that are needed.

#![forbid(unsafe_code)]

use crate::wheel::counters::SweepCount;
use crate::wheel::engine::Engine;
use crate::wheel::hierarchy::block::EntryRef;
use crate::wheel::hierarchy::geometry::{Place, SlotIndex};
use crate::wheel::hierarchy::slot::ReadOutcome;
use crate::wheel::hierarchy::{KeptBlock, Taken};
use crate::wheel::memory;
use crate::wheel::ops::visit::SlotExpiry;
use crate::wheel::progress::upkeep_flag::LONG_REST;
use crate::wheel::sweep::agenda::Agenda;
use crate::wheel::tick::Tick;
use std::collections::{HashSet, VecDeque};
use std::mem::replace;

/// A round of pruning, and when the next one of an idle wheel begins.
#[derive(Debug)]
pub(crate) struct Pruning {
    /// The next slot, as its shard and its position in the array of that shard's slots. `None`
    /// between rounds.
    next: Option<(usize, usize)>,
    slot: Option<PrunedSlot>,
    /// The number of timers that had ended by themselves at the last check for an idle wheel.
    last_ended: u64,
    /// The numbers of references ever filed and of timers ever armed when an idle wheel was last
    /// pruned.
    pruned_idle: Option<(u64, u64)>,
}

impl Pruning {
    pub(super) fn new() -> Self {
        Self { next: None, slot: None, last_ended: 0, pruned_idle: None }
    }

    /// Begins a round, unless one is in progress.
    pub(super) fn begin(&mut self) {
        self.next.get_or_insert((0, 0));
    }

    /// Begins a round if only stale references are left, so that a wheel with nothing armed can
    /// rest for longer than the `ticks` to the next expiry.
    ///
    /// One round suffices until a reference is filed or a timer armed. The first round
    /// leaves only unwritten references, so a second would not help.
    pub(crate) fn begin_if_idle<T>(&mut self, engine: &Engine<T>, ticks: u64) {
        // While timers fire in short intervals, the check waits for the next call, since it reads
        // counters of all threads. The sweeper may wake up once for stale references alone.
        let ended = engine.progress.counters().get(SweepCount::Ended);
        if replace(&mut self.last_ended, ended) != ended && ticks <= LONG_REST {
            return;
        }
        // While timers are armed, as they mostly are, one check of the threads' counters is enough.
        if self.is_busy() || engine.armed() > 0 || engine.references() == 0 {
            return;
        }
        let so_far = (engine.filed(), engine.begun());
        if self.pruned_idle != Some(so_far) {
            self.begin();
            self.pruned_idle = Some(so_far);
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.next.is_some()
    }

    /// Returns the expiry of the slot that is being pruned. By then the sweep needs the rest of it.
    pub(crate) fn next_expiry(&self) -> Tick {
        self.slot.as_ref().map_or(Tick::NEVER, |slot| slot.taken.at)
    }

    /// Returns the rest of the slot that is being pruned, if it expires by `swept`.
    pub(crate) fn take_due(&mut self, swept: Tick) -> Option<Taken> {
        self.slot.take_if(|slot| slot.taken.at <= swept).map(|slot| slot.taken)
    }

    /// Prunes up to `slice` references or slots. Returns `true` if that has ended a round.
    pub(super) fn advance<T>(
        &mut self,
        engine: &Engine<T>,
        kept: &mut VecDeque<KeptBlock>,
        agenda: &mut Agenda,
        slice: usize,
    ) -> bool {
        let mut budget = slice;
        while budget > 0 {
            if let Some(slot) = &mut self.slot {
                let (looked, done) = slot.prune(engine, kept, budget);
                agenda.note_filed(engine, slot.taken.from.shard, slot.taken.at);
                budget = budget.saturating_sub(looked);
                self.slot.take_if(|_| done);
                continue;
            }
            let Some((number, from)) = self.next else { return false };
            let Some(shard) = engine.shards.get(number) else {
                self.next = None;
                return true;
            };
            let Some(slot) = shard.hierarchy.next_occupied(from) else {
                agenda.scan_again(engine, number, engine.progress.swept());
                self.next = Some((number + 1, 0));
                continue;
            };
            self.next = Some((number, slot.0 + 1));
            let taken = shard.hierarchy.take_early(slot, engine.progress.swept());
            self.slot = taken.map(|taken| PrunedSlot { slot, taken, seen: HashSet::new() });
            budget -= 1;
        }
        false
    }
}

/// A slot that was taken early to be pruned.
#[derive(Debug)]
struct PrunedSlot {
    slot: SlotIndex,
    /// Its rest.
    taken: Taken,
    /// The entries whose references have been filed again in it. An entry that was filed repeatedly
    /// into a slot far ahead has several references there.
    seen: HashSet<u32>,
}

impl PrunedSlot {
    /// Checks about `budget` references, and files again one copy of each that is needed. Returns
    /// the number of references, and whether those were the last.
    fn prune<T>(
        &mut self,
        engine: &Engine<T>,
        kept: &mut VecDeque<KeptBlock>,
        budget: usize,
    ) -> (usize, bool) {
        let Self { slot, taken, seen } = self;
        let shard = engine.shard(taken.from.shard);
        let expiry = SlotExpiry { slot: Some(*slot), swept: engine.progress.swept() };
        let mut references = VecDeque::<EntryRef>::new();
        let (mut looked, mut filed, mut made, mut freed, mut done) = (0, 0, 0, 0, false);
        while looked < budget && !done {
            match taken.chain.read_block(&mut references, shard.hierarchy.blocks(), None) {
                None => done = true,
                Some(ReadOutcome::Whole) => freed += 1,
                Some(ReadOutcome::Kept(unwritten)) => {
                    kept.push_back(KeptBlock { from: taken.from, unwritten });
                }
            }
            looked += references.len();
            let guard = memory::pin();
            for reference in &references {
                shard.prefetch(reference.index());
            }
            for reference in references.drain(..) {
                if shard.is_needed(reference, expiry, &guard) && seen.insert(reference.index()) {
                    let place = Place::Slot { slot: *slot, at: taken.at };
                    made += u64::from(shard.file(reference.index(), place).blocks);
                    filed += 1;
                }
            }
        }
        engine.progress.counters().add(SweepCount::Discarded, (looked - filed) as u64);
        engine.progress.counters().add(SweepCount::BlocksFreed, freed);
        engine.progress.counters().add(SweepCount::BlocksMade, made);
        (looked, done)
    }
}
