//! Trimming and hoarding: when the sweeper returns pages of entries and of blocks to the system,
//! and when it collects the vacant entries of a burst first. How it finds whole pages is in
//! [`slab::hoard`].
//!
//! While a burst fires and more than [`SLACK`] entries are vacant, the sweeper *hoards* the entries
//! that it ends and the blocks that it reads, by page, and trims when the burst is over. In the
//! middle of the burst most pages are neither full nor empty. It stops hoarding when callers make
//! pages, because they cannot use what is hoarded.
//!
//! [`slab::hoard`]: crate::wheel::slab::hoard

#![forbid(unsafe_code)]

use crate::wheel::counters::SweepCount;
use crate::wheel::engine::Engine;
use crate::wheel::memory;
use crate::wheel::progress::upkeep_flag::{INTERVAL, LONG_REST, SLACK, Usage};
use crate::wheel::slab::hoard::Hoard;
use crate::wheel::tick::Tick;
use std::mem::replace;

/// A round of trimming, and the hoard.
#[derive(Debug)]
pub(crate) struct Trimming {
    /// The next part, and its shard. `None` between rounds.
    next: Option<(usize, Part)>,
    /// The part with which the trimming of a shard begins: its blocks, if they alone are too many.
    first_part: Part,
    shards: Vec<ShardHoards>,
    state: HoardState,
    /// The number of intervals of fired timers at the last check.
    last_fired: u64,
    /// The tick of the sweep at which the last interval of fired timers ended.
    fired_at: Tick,
    /// The number of entries at the last check.
    last_entries: u64,
    /// The number of blocks at the last check.
    last_blocks: u64,
}

/// The part of a shard that is being trimmed.
#[derive(Clone, Copy, Debug)]
enum Part {
    Entries,
    Blocks,
}

/// The trimming of a shard.
#[derive(Debug, Default)]
struct ShardHoards {
    entries: Hoard,
    blocks: Hoard,
}

/// The state of the hoard of all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoardState {
    Empty,
    /// The sweeper adds the entries of timers that it ends.
    Growing,
    /// The sweeper adds nothing, and has not given the entries back yet.
    Ended,
}

impl Trimming {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            next: None,
            first_part: Part::Entries,
            shards: (0..shards).map(|_| ShardHoards::default()).collect(),
            state: HoardState::Empty,
            last_fired: 0,
            fired_at: Tick::NEVER,
            last_entries: 0,
            last_blocks: 0,
        }
    }

    /// Begins a round if there are too many entries or blocks, unless one is in progress.
    pub(super) fn begin_if_wanted<T>(&mut self, engine: &Engine<T>, usage: Usage) {
        // A sweeper that hoards waits for the end of the burst.
        if self.is_busy() || self.state == HoardState::Growing {
            return;
        }
        if engine.upkeep.too_many_entries(usage) {
            self.begin(engine);
        } else if engine.upkeep.too_many_blocks(usage) {
            self.begin_with(Part::Blocks);
        }
    }

    /// Begins a round, which includes the orphaned entries of exited threads.
    fn begin<T>(&mut self, engine: &Engine<T>) {
        engine.empty_idle();
        self.begin_with(Part::Entries);
    }

    fn begin_with(&mut self, part: Part) {
        self.first_part = part;
        self.next = Some((0, part));
    }

    pub(super) fn is_busy(&self) -> bool {
        self.next.is_some()
    }

    /// Trims up to `slice` entries or blocks.
    pub(super) fn advance<T>(&mut self, engine: &Engine<T>, slice: usize) {
        let Some((number, part)) = self.next else { return };
        let Some(shard) = engine.shards.get(number) else {
            engine.upkeep.trimmed(engine.usage());
            self.next = None;
            return;
        };
        let (hoards, guard) = (&mut self.shards[number], memory::pin());
        let gives_back = self.state != HoardState::Growing;
        match part {
            Part::Entries if hoards.entries.advance(&shard.slab, slice, &guard) => {
                self.next = Some((number, Part::Blocks));
                if gives_back {
                    hoards.entries.give_back(&shard.slab, &guard);
                }
            }
            Part::Blocks if shard.hierarchy.blocks().trim(&mut hoards.blocks, slice, &guard) => {
                self.next = Some((number + 1, self.first_part));
                if gives_back {
                    shard.hierarchy.blocks().give_back(&mut hoards.blocks, &guard);
                }
            }
            Part::Entries | Part::Blocks => {}
        }
        drop(guard);
        memory::collect();
    }

    /// Returns the hoards of a shard's entries and blocks, if the sweeper adds to them at present.
    pub(crate) fn hoards(&mut self, shard: usize) -> (Option<&mut Hoard>, Option<&mut Hoard>) {
        let hoards = self.shards.get_mut(shard).filter(|_| self.state == HoardState::Growing);
        hoards.map(|hoards| (&mut hoards.entries, &mut hoards.blocks)).unzip()
    }

    pub(super) fn has_hoard(&self) -> bool {
        self.state != HoardState::Empty
    }

    /// Starts to hoard while a burst fires and enough entries are vacant.
    pub(super) fn decide_hoarding<T>(&mut self, engine: &Engine<T>) {
        let (fired, swept) =
            (engine.progress.counters().get(SweepCount::Ended) / INTERVAL, engine.progress.swept());
        let grew = self.state == HoardState::Growing;
        if replace(&mut self.last_fired, fired) != fired {
            engine.upkeep.check(engine.usage());
            let held: u64 = self.shards.iter().map(|hoards| hoards.entries.held()).sum();
            if engine.entries() > engine.armed() + held + SLACK {
                self.state = HoardState::Growing;
            } else if grew {
                self.state = HoardState::Ended;
            }
            self.fired_at = swept;
        }
        if !self.has_hoard() {
            return;
        }
        let (entries, blocks) = (engine.entries(), engine.blocks());
        let last_entries = replace(&mut self.last_entries, entries);
        let last_blocks = replace(&mut self.last_blocks, blocks);
        let made = grew && (entries > last_entries || blocks > last_blocks);
        // Hoarding ends in two cases:
        // - callers make pages, possibly because of the hoard, whose entries are not on their
        //   stack;
        // - few timers have fired for as long as a long rest, so the burst is over.
        if made || self.state == HoardState::Ended || swept.since(self.fired_at) > LONG_REST {
            self.end_hoarding(engine);
        }
    }

    /// Trims if necessary, including the hoarded entries, or else gives those back.
    pub(super) fn end_hoarding<T>(&mut self, engine: &Engine<T>) {
        let grew = replace(&mut self.state, HoardState::Ended) == HoardState::Growing;
        if self.is_busy() {
            return;
        }
        if grew && engine.upkeep.too_many_entries(engine.usage()) {
            self.begin(engine);
        } else {
            self.give_back(engine);
        }
    }

    fn give_back<T>(&mut self, engine: &Engine<T>) {
        self.state = HoardState::Empty;
        let guard = memory::pin();
        for (shard, hoards) in engine.shards.iter().zip(&mut self.shards) {
            hoards.entries.give_back(&shard.slab, &guard);
            shard.hierarchy.blocks().give_back(&mut hoards.blocks, &guard);
        }
    }
}
