//! Upkeep: keeps memory in proportion to the armed timers.
//!
//! Two kinds of garbage accumulate, but neither delays a thread. References to ended timers stay in
//! their slots until those are swept, and entries of ended timers keep their pages. The sweeper
//! clears both, in slices, when there is more garbage than use:
//!
//! * If there are more references than twice the armed timers (plus [`SLACK`]), it [prunes](prune)
//!   the slots.
//! * If there are more vacant entries than armed timers (plus [`SLACK`]), or more vacant blocks
//!   than used ones, it [trims](trim) entries and blocks.
//!
//! Each thread checks the usage whenever it has made [`INTERVAL`] pieces of
//! garbage, and wakes the sweeper if upkeep is needed. It counts the entries that it releases to
//! the slab, and the references for which it makes blocks. Neither happens in the usual case of an
//! operation. Vacant entries in magazines are few. A reference for which a thread makes no block
//! lies in a block that was counted, or in a block that the sweeper made for a timer that it moved.
//! A round of either kind costs O(garbage). If less than half of what a round examines is garbage,
//! the next round does not start before at least half is. Upkeep is therefore O(1) for each insert.
//!
//! [`INTERVAL`]: crate::wheel::progress::upkeep_flag::INTERVAL
//! [`SLACK`]: crate::wheel::progress::upkeep_flag::SLACK

#![forbid(unsafe_code)]

mod prune;
mod trim;

use crate::wheel::engine::Engine;
use crate::wheel::hierarchy::KeptBlock;
use crate::wheel::memory;
use crate::wheel::progress::upkeep_flag::LONG_REST;
use crate::wheel::sweep::agenda::Agenda;
use prune::Pruning;
use std::collections::VecDeque;
use trim::Trimming;

/// The number of references, slots or entries that a slice of upkeep examines.
pub(crate) const SLICE: usize = 1 << 12;

/// The sweeper's progress with upkeep.
#[derive(Debug)]
pub(crate) struct Upkeep {
    pub(super) pruning: Pruning,
    pub(super) trimming: Trimming,
}

impl Upkeep {
    pub(crate) fn new(shards: usize) -> Self {
        Self { pruning: Pruning::new(), trimming: Trimming::new(shards) }
    }

    /// Begins the upkeep that a caller has requested, or that is due because enough timers have
    /// fired.
    pub(crate) fn begin<T>(&mut self, engine: &Engine<T>) {
        self.trimming.decide_hoarding(engine);
        if !engine.upkeep.take() {
            return;
        }
        let usage = engine.usage();
        if usage.too_many_references() {
            self.pruning.begin();
        }
        self.trimming.begin_if_wanted(engine, usage);
    }

    /// Called before each rest. Ends the burst, and processes its hoard, if a rest of `ticks` is
    /// long. Returns `true` if upkeep is in progress.
    pub(crate) fn begin_before_rest<T>(&mut self, engine: &Engine<T>, ticks: u64) -> bool {
        if ticks > LONG_REST && self.trimming.has_hoard() {
            self.trimming.end_hoarding(engine);
            memory::collect();
        }
        self.is_busy()
    }

    /// Returns `true` if there is more to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.pruning.is_busy() || self.trimming.is_busy()
    }

    /// Does a slice of the upkeep in progress, of up to `slice` references, slots or entries.
    /// Blocks that cannot be read completely yet go to `kept`.
    ///
    /// Trimming waits until a burst of timers has fired (`quiet`), because in the middle of a burst
    /// most pages are neither full nor empty.
    pub(crate) fn advance<T>(
        &mut self,
        engine: &Engine<T>,
        kept: &mut VecDeque<KeptBlock>,
        agenda: &mut Agenda,
        quiet: bool,
        slice: usize,
    ) {
        if self.pruning.advance(engine, kept, agenda, slice) {
            // Pruned references may have left too many blocks.
            self.trimming.begin_if_wanted(engine, engine.usage());
        }
        if quiet {
            self.trimming.advance(engine, slice);
        }
    }
}
