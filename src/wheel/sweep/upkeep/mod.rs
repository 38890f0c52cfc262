//! Upkeep: keeps memory in proportion to the armed timers.
//!
//! Two kinds of garbage stay behind without delaying any thread. References to ended timers stay in
//! their slots until those are swept, and entries of ended timers keep their pages. The sweeper
//! clears both, in slices, when there is more garbage than use:
//!
//! * If there are more references than twice the armed timers (plus [`SLACK`]), it visits the slots
//!   one by one and files again only the references that are needed.
//! * If there are more vacant entries than armed timers (plus [`SLACK`]), or more vacant blocks
//!   than used ones, it [`trims`](crate::wheel::slab::trim) entries and blocks.
//!
//! While a burst fires and more than [`SLACK`] entries are vacant, the sweeper *hoards* the entries
//! that it ends and the blocks that it reads, by page, and trims when the burst is over. In the
//! middle of the burst most pages are neither full nor empty. It stops hoarding when callers make
//! pages, because they cannot use what is hoarded.
//!
//! A thread checks this once in so much garbage as [`INTERVAL`] says, and wakes the sweeper. It
//! counts the entries that it releases to the slab, and the references for which it makes blocks.
//! Neither happens in the usual case of an operation. Vacant entries in magazines are few. A
//! reference for which a thread makes no block lies in one that was counted, or in one that the
//! sweeper made for a timer that it moved. A round of either kind costs O(garbage). If less than
//! half of what a round examines is garbage, the next one does not start before at least half is.
//! Upkeep is therefore O(1) for each insert.

#![forbid(unsafe_code)]

use crate::wheel::counters::SweepCount;
use crate::wheel::engine::Engine;
use crate::wheel::hierarchy::entry_ref::EntryRef;
use crate::wheel::hierarchy::geometry::{Place, SlotIndex};
use crate::wheel::hierarchy::slot::ReadOutcome;
use crate::wheel::hierarchy::{Kept, Taken};
use crate::wheel::memory;
use crate::wheel::ops::visit::SlotExpiry;
use crate::wheel::progress::upkeep_flag::{INTERVAL, SLACK, Usage};
use crate::wheel::slab::trim::Trim;
use crate::wheel::sweep::agenda::Agenda;
use crate::wheel::tick::Tick;
use std::collections::VecDeque;

/// A burst is over when there is no work, or few timers have fired, for more ticks than this.
const LONG: u64 = 16;

/// The number of references, slots or entries that a slice of upkeep examines.
pub(crate) const SLICE: usize = 1 << 12;

/// The sweeper's progress with upkeep.
#[derive(Debug)]
pub(crate) struct Upkeep {
    /// The next slot to visit, as its shard and its position in the array of that shard's slots.
    tidying: Option<(usize, usize)>,
    /// The rest of the slot that is being tidied.
    in_hand: Option<(SlotIndex, Taken)>,
    /// The number of timers that had ended by themselves at the last check for an idle wheel.
    ended_then: u64,
    /// The numbers of references ever filed and of timers ever armed when an idle wheel was last
    /// tidied.
    tidied_idle: Option<(u64, u64)>,
    /// The part that is being trimmed.
    trimming: Option<(usize, Part)>,
    /// The part with which the trimming of a shard begins: its blocks, if they alone are too many.
    first_part: Part,
    /// The number of intervals of fired timers at the last check.
    fired_then: u64,
    trims: Vec<Trims>,
    /// `true` while the sweeper hoards the entries of timers that it ends.
    hoards: bool,
    /// `true` until the hoarded entries have been given back.
    holds: bool,
    /// The tick of the sweep at which the last interval of fired timers ended.
    fired_at: Tick,
    /// The number of entries at the last check.
    entries_then: u64,
    /// The number of blocks at the last check.
    blocks_then: u64,
    /// The entries whose references have been filed again in the slot that is being tidied. Empty
    /// between slots.
    seen: Indices,
}

/// The part of a shard that is being trimmed.
#[derive(Clone, Copy, Debug)]
enum Part {
    Entries,
    Blocks,
}

/// The trimming of a shard.
#[derive(Debug, Default)]
struct Trims {
    entries: Trim,
    blocks: Trim,
}

/// A set of entries, a bit for each.
#[derive(Debug, Default)]
struct Indices {
    words: Vec<u64>,
    /// The words that are not zero.
    used: Vec<usize>,
}

impl Indices {
    /// Adds an entry. Returns `false` if it was already in the set.
    fn add(&mut self, index: u32) -> bool {
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let before = self.words[word];
        if before == 0 {
            self.used.push(word);
        }
        self.words[word] |= bit;
        before & bit == 0
    }

    /// O(entries in the set).
    fn clear(&mut self) {
        for word in self.used.drain(..) {
            self.words[word] = 0;
        }
    }
}

impl Upkeep {
    pub(crate) fn new(shards: usize) -> Self {
        let trims = (0..shards).map(|_| Trims::default()).collect();
        Self {
            tidying: None,
            in_hand: None,
            ended_then: 0,
            tidied_idle: None,
            trimming: None,
            first_part: Part::Entries,
            fired_then: 0,
            trims,
            hoards: false,
            holds: false,
            fired_at: Tick::NEVER,
            entries_then: 0,
            blocks_then: 0,
            seen: Indices::default(),
        }
    }

    /// Begins the upkeep that a caller has requested, or that is due because enough timers have
    /// fired.
    pub(crate) fn begin<T>(&mut self, engine: &Engine<T>) {
        self.decide_hoarding(engine);
        if !engine.upkeep.take() {
            return;
        }
        let usage = engine.usage();
        if self.tidying.is_none() && usage.too_many_references() {
            self.tidying = Some((0, 0));
        }
        self.begin_trimming_if_wanted(engine, usage);
    }

    /// Trims if necessary, which may also be due to blocks of discarded references.
    fn begin_trimming_if_wanted<T>(&mut self, engine: &Engine<T>, usage: Usage) {
        // A sweeper that hoards waits for the end of the burst.
        if self.trimming.is_some() || self.hoards {
            return;
        }
        if engine.upkeep.too_many_entries(usage) {
            self.begin_trimming(engine);
        } else if engine.upkeep.too_many_blocks(usage) {
            self.begin_with(Part::Blocks);
        }
    }

    /// Begins trimming, which includes the orphaned entries of exited threads.
    fn begin_trimming<T>(&mut self, engine: &Engine<T>) {
        engine.empty_idle();
        self.begin_with(Part::Entries);
    }

    fn begin_with(&mut self, part: Part) {
        self.first_part = part;
        self.trimming = Some((0, part));
    }

    /// Begins tidying if only stale references are left, so that a wheel with nothing armed can
    /// rest for longer than the given number of ticks to the next expiry.
    ///
    /// One round suffices until a reference is filed or a timer armed. The remainder of one round
    /// (a reference that its filer has not written yet) would also remain after another.
    pub(crate) fn begin_if_idle<T>(&mut self, engine: &Engine<T>, ticks: u64) {
        // While timers fire in short intervals, the check waits for the next call, since it reads
        // counters of all threads. The sweeper may wake up once for stale references alone.
        let ended = engine.progress.counters().get(SweepCount::Ended);
        if std::mem::replace(&mut self.ended_then, ended) != ended && ticks <= LONG {
            return;
        }
        // While timers are armed, as they mostly are, one check of the threads' counters is enough.
        if self.tidying.is_some() || engine.armed() > 0 || engine.references() == 0 {
            return;
        }
        let so_far = (engine.filed(), engine.begun());
        if self.tidied_idle != Some(so_far) {
            self.tidying = Some((0, 0));
            self.tidied_idle = Some(so_far);
        }
    }

    /// Returns the hoards of a shard's entries and blocks, if the sweeper adds to them at present.
    pub(crate) fn hoards(&mut self, shard: usize) -> (Option<&mut Trim>, Option<&mut Trim>) {
        let trims = self.trims.get_mut(shard).filter(|_| self.hoards);
        trims.map(|trims| (&mut trims.entries, &mut trims.blocks)).unzip()
    }

    /// Called before a rest of so many ticks. If that is long, the hoard is processed first.
    /// Returns `true` if that has made more work.
    pub(crate) fn begin_before_rest<T>(&mut self, engine: &Engine<T>, ticks: u64) -> bool {
        if ticks > LONG && self.holds {
            self.end_hoarding(engine);
            memory::collect();
        }
        self.is_busy()
    }

    /// Starts to hoard while a burst fires and enough entries are vacant.
    fn decide_hoarding<T>(&mut self, engine: &Engine<T>) {
        let (fired, swept) =
            (engine.progress.counters().get(SweepCount::Ended) / INTERVAL, engine.progress.swept());
        let hoarded = self.hoards;
        if std::mem::replace(&mut self.fired_then, fired) != fired {
            engine.upkeep.check(engine.usage());
            let held: u64 = self.trims.iter().map(|trims| trims.entries.held()).sum();
            self.hoards = engine.entries() > engine.armed() + held + SLACK;
            self.fired_at = swept;
        }
        self.holds |= self.hoards;
        if !self.holds {
            return;
        }
        let (entries, blocks) = (engine.entries(), engine.blocks());
        let entries_then = std::mem::replace(&mut self.entries_then, entries);
        let blocks_then = std::mem::replace(&mut self.blocks_then, blocks);
        let made = hoarded && (entries > entries_then || blocks > blocks_then);
        // Hoarding ends in two cases:
        // - callers make pages, possibly because of the hoard, whose entries are not on their
        //   stack;
        // - few timers fire in as many ticks as make a long rest, so that the burst is over.
        if made || !self.hoards || swept.since(self.fired_at) > LONG {
            self.end_hoarding(engine);
        }
    }

    /// Trims if necessary, including the hoarded entries, or else gives those back.
    fn end_hoarding<T>(&mut self, engine: &Engine<T>) {
        let hoarded = std::mem::take(&mut self.hoards);
        if self.trimming.is_some() {
            return;
        }
        if hoarded && engine.upkeep.too_many_entries(engine.usage()) {
            self.begin_trimming(engine);
        } else {
            self.give_back(engine);
        }
    }

    fn give_back<T>(&mut self, engine: &Engine<T>) {
        self.holds = false;
        let guard = memory::pin();
        for (shard, trims) in engine.shards.iter().zip(&mut self.trims) {
            if trims.entries.held() > 0 {
                trims.entries.give_back(&shard.slab, &guard);
            }
            if trims.blocks.held() > 0 {
                shard.hierarchy.blocks().give_back(&mut trims.blocks, &guard);
            }
        }
    }

    /// Returns `true` if there is more to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.tidying.is_some() || self.trimming.is_some()
    }

    /// Returns the tick by which the sweep needs the rest of the slot that is being tidied: its
    /// expiry.
    pub(crate) fn next_expiry(&self) -> Tick {
        self.in_hand.as_ref().map_or(Tick::NEVER, |(_, taken)| taken.at)
    }

    /// Returns the rest of the slot that is being tidied, if it expires by `swept`.
    pub(crate) fn take_due(&mut self, swept: Tick) -> Option<Taken> {
        let (_, due) = self.in_hand.take_if(|(_, taken)| taken.at <= swept)?;
        self.seen.clear();
        Some(due)
    }

    /// Does a slice of the upkeep in progress, of so many references, slots or entries. Blocks that
    /// cannot be read completely yet go to `kept`.
    ///
    /// Trimming waits until a burst of timers has fired (`quiet`), because in the middle of a burst
    /// most pages are neither full nor empty.
    pub(crate) fn advance<T>(
        &mut self,
        engine: &Engine<T>,
        kept: &mut VecDeque<Kept>,
        agenda: &mut Agenda,
        quiet: bool,
        slice: usize,
    ) {
        self.tidy_slice(engine, kept, agenda, slice);
        if quiet {
            self.trim_slice(engine, slice);
        }
    }

    fn tidy_slice<T>(
        &mut self,
        engine: &Engine<T>,
        kept: &mut VecDeque<Kept>,
        agenda: &mut Agenda,
        slice: usize,
    ) {
        let mut budget = slice;
        while budget > 0 {
            if let Some((slot, taken)) = &mut self.in_hand {
                let (looked, done) = tidy_slot(engine, *slot, taken, kept, &mut self.seen, budget);
                agenda.note_filed(engine, taken.from.shard, taken.at);
                budget = budget.saturating_sub(looked);
                if done {
                    self.in_hand = None;
                    self.seen.clear();
                }
                continue;
            }
            let Some((number, from)) = self.tidying else { return };
            let Some(shard) = engine.shards.get(number) else {
                self.tidying = None;
                // It has a bit for each entry.
                self.seen = Indices::default();
                self.begin_trimming_if_wanted(engine, engine.usage());
                return;
            };
            let Some(slot) = shard.hierarchy.next_occupied(from) else {
                agenda.scan_again(engine, number, engine.progress.swept());
                self.tidying = Some((number + 1, 0));
                continue;
            };
            self.tidying = Some((number, slot.0 + 1));
            self.in_hand = shard
                .hierarchy
                .take_early(slot, engine.progress.swept())
                .map(|taken| (slot, taken));
            budget -= 1;
        }
    }

    fn trim_slice<T>(&mut self, engine: &Engine<T>, slice: usize) {
        let Some((number, part)) = self.trimming else { return };
        let Some(shard) = engine.shards.get(number) else {
            engine.upkeep.trimmed(engine.usage());
            self.trimming = None;
            return;
        };
        let (trims, guard) = (&mut self.trims[number], memory::pin());
        match part {
            Part::Entries if trims.entries.advance(&shard.slab, slice, &guard) => {
                self.trimming = Some((number, Part::Blocks));
                if !self.hoards {
                    trims.entries.give_back(&shard.slab, &guard);
                }
            }
            Part::Blocks if shard.hierarchy.blocks().trim(&mut trims.blocks, slice, &guard) => {
                self.trimming = Some((number + 1, self.first_part));
                if !self.hoards {
                    shard.hierarchy.blocks().give_back(&mut trims.blocks, &guard);
                }
            }
            Part::Entries | Part::Blocks => {}
        }
        drop(guard);
        memory::collect();
    }
}

/// Checks about `budget` references in a slot that was taken early, and files again one copy of
/// each that is needed. Returns the number of references, and whether those were the last.
fn tidy_slot<T>(
    engine: &Engine<T>,
    slot: SlotIndex,
    taken: &mut Taken,
    kept: &mut VecDeque<Kept>,
    seen: &mut Indices,
    budget: usize,
) -> (usize, bool) {
    let shard = engine.shard(taken.from.shard);
    let expiry = SlotExpiry { slot: Some(slot), swept: engine.progress.swept() };
    let mut references = VecDeque::<EntryRef>::new();
    let (mut looked, mut filed, mut made, mut freed, mut done) = (0, 0, 0, 0, false);
    while looked < budget && !done {
        match taken.chain.read_block(&mut references, shard.hierarchy.blocks(), None) {
            None => done = true,
            Some(ReadOutcome::Whole) => freed += 1,
            Some(ReadOutcome::Kept(unwritten)) => {
                kept.push_back(Kept { from: taken.from, unwritten });
            }
        }
        looked += references.len();
        let guard = memory::pin();
        for reference in &references {
            shard.prefetch(reference.index());
        }
        for reference in references.drain(..) {
            // An entry that was filed repeatedly into a slot far ahead has several references
            // there.
            if shard.is_needed(reference, expiry, &guard) && seen.add(reference.index()) {
                let place = Place::Slot { slot, at: taken.at };
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
