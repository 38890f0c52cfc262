//! The hierarchy: all slots of one shard, where the names of its timers wait.
//!
//! Scheme 7 of Varghese and Lauck ("Hashed and hierarchical timing wheels", SOSP 1987), with
//! names in place of nodes: a slot holds [`Name`]s of slab entries, and whether a timer lives in
//! an entry, and when that is due, is decided by the entry when the sweeper meets the name. So a
//! name may lie in any slot, twice, or after its timer has gone, and nothing breaks; what must hold
//! is only that the entry of each armed timer has *a* name in a slot that is taken no later than
//! the timer's deadline.
//!
//! ```text
//!            sweep ──►  deadline on level 0: taken at its own tick
//!  level 0   │·│·│·│·│·│·│·│·│ 4096 slots of one tick
//!  level 1   │       ·       │       ·       │ 256 slots of 4096 ticks, cascades into level 0
//!  …                     taken when the sweep reaches the slot's first tick
//!  overdue   names whose deadline the sweep had passed when they were filed
//! ```
//!
//! Anyone may [`file`](Hierarchy::file); only the sweeper takes. Which slots are worth a visit is
//! in [`occupancy`]; the arithmetic is in [`geometry`].

pub(crate) mod geometry;
pub(crate) mod occupancy;
pub(crate) mod slot;

use crate::wheel::tick::Tick;
use geometry::{Geometry, Grain, Place, SlotIndex, place};
use occupancy::Occupancy;
use slot::{Chain, Name, SlotHead, Unwritten};
use std::collections::VecDeque;

/// The slots of one shard.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    shard: usize,
    grains: Box<[Grain]>,
    levels: Box<[Level]>,
    overdue: SlotHead,
}

/// All slots of one granularity.
#[derive(Debug)]
struct Level {
    slots: Box<[SlotHead]>,
    occupied: Occupancy,
}

/// Where names were taken from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) shard: usize,
    /// `None` for names that were overdue.
    pub(crate) slot: Option<SlotIndex>,
}

/// The names of one slot, taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) from: Source,
    /// When the slot's turn is, as seen from the sweep that took it.
    pub(crate) at: Tick,
    pub(crate) chain: Chain,
}

/// A taken block with names that are reserved but not yet written.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) from: Source,
    pub(crate) unwritten: Unwritten,
}

impl Hierarchy {
    pub(crate) fn new(shard: usize, geometry: Geometry) -> Self {
        let grains = geometry.grains();
        let level = |grain: &Grain| {
            let slots: Box<[SlotHead]> = (0..grain.slots()).map(|_| SlotHead::new()).collect();
            Level { occupied: Occupancy::new(slots.len()), slots }
        };
        let levels = grains.iter().map(level).collect();
        Self { shard, grains, levels, overdue: SlotHead::new() }
    }

    /// Where a timer of this deadline waits when the sweep has reached `swept`.
    #[inline]
    pub(crate) fn place(&self, deadline: Tick, swept: Tick) -> Place {
        place(&self.grains, deadline, swept)
    }

    // In C, for `ci/genmc`: `file`.
    /// Files a name, and then marks its slot. Returns whether a block was made for it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "its callers know the place")]
    pub(crate) fn file(&self, name: Name, place: Place) -> bool {
        match place {
            Place::Overdue => self.overdue.push(name),
            Place::Slot { slot, .. } => {
                let level = &self.levels[slot.level as usize];
                let made = level.slots[slot.within].push(name);
                level.occupied.mark(slot.within);
                made
            }
        }
    }

    /// The first tick after `swept` at which an occupied slot is taken.
    pub(crate) fn next_turn(&self, swept: Tick) -> Option<Tick> {
        self.each_level().filter_map(|level| self.next_in(level, swept)).min()
    }

    /// Whether names are overdue.
    pub(crate) fn has_overdue(&self) -> bool {
        !self.overdue.is_empty()
    }

    /// Takes the names that are overdue.
    pub(crate) fn take_overdue(&self, swept: Tick) -> Option<Taken> {
        (!self.overdue.is_empty()).then(|| Taken {
            from: Source { shard: self.shard, slot: None },
            at: swept,
            chain: self.overdue.take(),
        })
    }

    // In C, for `ci/genmc`: `sweep`.
    /// Takes every occupied slot whose turn is after `from` and not after `to`.
    pub(crate) fn take_due(&self, from: Tick, to: Tick, taken: &mut VecDeque<Taken>) {
        for level in self.each_level() {
            let mut reached = from;
            while let Some(at) = self.next_in(level, reached).filter(|&at| at <= to) {
                let grain = self.grain(level);
                let within = grain.within(grain.number(at));
                taken.push_back(self.take(SlotIndex { level, within }, at));
                reached = at;
            }
        }
    }

    /// Takes one slot out of turn, if it is occupied.
    pub(crate) fn take_early(&self, slot: SlotIndex, swept: Tick) -> Option<Taken> {
        if self.levels[slot.level as usize].slots[slot.within].is_empty() {
            return None;
        }
        let at = self.grain(slot.level).next_turn(slot.within, swept);
        Some(self.take(slot, at))
    }

    /// Whether a slot that is taken at `at` can be this one.
    #[inline]
    pub(crate) fn is_taken_at(&self, slot: SlotIndex, at: Tick) -> bool {
        self.grain(slot.level).is_taken_at(slot.within, at)
    }

    /// A place in the slot, for its next turn.
    #[inline]
    pub(crate) fn next_turn_of(&self, slot: SlotIndex, swept: Tick) -> Place {
        Place::Slot { slot, at: self.grain(slot.level).next_turn(slot.within, swept) }
    }

    /// Puts a name that was taken early back into its slot. Returns whether a block was made.
    pub(crate) fn put_back(&self, name: Name, slot: SlotIndex, at: Tick) -> bool {
        self.file(name, Place::Slot { slot, at })
    }

    /// The first occupied slot from `from` on, in a row of all slots, level 0 first.
    pub(crate) fn next_occupied(&self, from: SlotIndex) -> Option<SlotIndex> {
        self.each_level().skip(from.level as usize).find_map(|level| {
            let start = if level == from.level { from.within } else { 0 };
            let occupied = &self.levels[level as usize].occupied;
            occupied.next_from(start).map(|within| SlotIndex { level, within })
        })
    }

    // In C, for `ci/genmc`: `take`.
    /// Clears the mark, then takes the names: whoever pushes after the swap marks again.
    fn take(&self, slot: SlotIndex, at: Tick) -> Taken {
        let level = &self.levels[slot.level as usize];
        level.occupied.clear(slot.within);
        let chain = level.slots[slot.within].take();
        Taken { from: Source { shard: self.shard, slot: Some(slot) }, at, chain }
    }

    /// The first tick after `swept` at which an occupied slot of the level is taken.
    fn next_in(&self, level: u32, swept: Tick) -> Option<Tick> {
        let grain = self.grain(level);
        let next = grain.number(swept) + 1;
        let start = grain.within(next);
        let distance = self.levels[level as usize].occupied.distance(start)?;
        Some(grain.taken_at(next + distance as u64))
    }

    fn each_level(&self) -> impl Iterator<Item = u32> {
        (0..).take(self.grains.len())
    }

    #[inline]
    fn grain(&self, level: u32) -> Grain {
        self.grains[level as usize]
    }
}
