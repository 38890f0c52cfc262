//! The hierarchy: all slots of one shard, where the references to its timers wait.
//!
//! Scheme 7 of Varghese and Lauck ("Hashed and hierarchical timing wheels", SOSP 1987), with
//! references in place of nodes: a slot holds [`EntryRef`]s of slab entries, and whether a timer
//! lives in an entry, and when that is due, is decided by the entry when the sweeper visits the
//! reference. So a reference may lie in any slot, twice, or after its timer has gone, and nothing
//! breaks; what must hold is only that the entry of each armed timer has *a* reference in a slot
//! that is taken no later than the timer's deadline.
//!
//! ```text
//!            sweep ──►  deadline on level 0: taken at its own tick
//!  level 0   │·│·│·│·│·│·│·│·│ 4096 slots of one tick
//!  level 1   │       ·       │       ·       │ 256 slots of 4096 ticks, cascades into level 0
//!  …                     taken when the sweep reaches the slot's first tick
//!  overdue   references whose deadline the sweep had passed when they were filed
//! ```
//!
//! Anyone may [`file`](Hierarchy::file); only the sweeper takes. Which slots are worth a visit is
//! in [`occupancy`]; the arithmetic is in [`geometry`].

pub(crate) mod block;
pub(crate) mod entry_ref;
pub(crate) mod geometry;
pub(crate) mod occupancy;
pub(crate) mod slot;

use crate::wheel::memory::Guard;
use crate::wheel::tick::Tick;
use block::Blocks;
use entry_ref::EntryRef;
use geometry::{Geometry, Levels, Place, SlotIndex, WheelLevel};
use occupancy::Occupancy;
use slot::{Chain, SlotHead, Unwritten};
use std::collections::VecDeque;

/// The slots of one shard.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    shard: usize,
    levels: Levels,
    /// All levels in a row, the finest first.
    slots: Box<[SlotHead]>,
    occupied: Occupancy,
    overdue: SlotHead,
    blocks: Blocks,
}

/// Where references were taken from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) shard: usize,
    /// `None` for references that were overdue.
    pub(crate) slot: Option<SlotIndex>,
}

/// The references in one slot, taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) from: Source,
    /// When the slot expires, as seen from the sweep that took it.
    pub(crate) at: Tick,
    pub(crate) chain: Chain,
}

/// A taken block with references that are reserved but not yet written.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) from: Source,
    pub(crate) unwritten: Unwritten,
}

impl Hierarchy {
    pub(crate) fn new(shard: usize, geometry: Geometry) -> Self {
        let levels = geometry.levels();
        let len = levels.iter().map(|level| level.end()).max().unwrap_or_default();
        let slots = (0..len).map(|_| SlotHead::new()).collect();
        let (overdue, blocks) = (SlotHead::new(), Blocks::new());
        Self { shard, levels, slots, occupied: Occupancy::new(len), overdue, blocks }
    }

    /// Where a timer of this deadline waits when the sweep has reached `swept`.
    #[inline]
    pub(crate) fn place(&self, deadline: Tick, swept: Tick) -> Place {
        self.levels.place(deadline, swept)
    }

    /// As [`file`](Self::file), without making a block: calls `first`, if there is room, and files
    /// the reference if nobody else is faster. `None`: there is none. Returns whether it did.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a part of an operation")]
    pub(crate) fn try_file(
        &self,
        reference: EntryRef,
        slot: SlotIndex,
        first: impl FnOnce(),
    ) -> Option<bool> {
        let filed = self.slots[slot.0].try_push(reference, &self.blocks, first)?;
        if filed {
            self.occupied.mark(slot.0);
        }
        Some(filed)
    }

    /// As [`place`](Self::place), the slot and its expiry, in the common case.
    #[inline]
    pub(crate) fn fast_slot(&self, deadline: Tick, swept: Tick) -> Option<(SlotIndex, Tick)> {
        self.levels.fast_slot(deadline, swept)
    }

    /// Files a reference, and then marks its slot. Returns whether a block was made for it; `None`,
    /// and the reference is not filed, if none can be had.
    pub(crate) fn file(&self, reference: EntryRef, place: Place) -> Option<bool> {
        match place {
            Place::Overdue => self.overdue.push(reference, &self.blocks),
            Place::Slot { slot, .. } => {
                let made = self.slots[slot.0].push(reference, &self.blocks)?;
                self.occupied.mark(slot.0);
                Some(made)
            }
        }
    }

    /// Of each level, the finest first: how many ticks its slots are wide, how many there are, and
    /// how many are occupied.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (u64, usize, usize)> {
        self.levels
            .iter()
            .map(|level| (level.taken_at(1).0, level.row().len(), self.occupied.count(level.row())))
    }

    /// Calls `visit` for each slot in which references wait: with the number of its level, its next
    /// expiry, and how many.
    pub(crate) fn for_each_slot(
        &self,
        swept: Tick,
        guard: &Guard,
        mut visit: impl FnMut(usize, Tick, u64),
    ) {
        for (number, level) in self.levels.iter().enumerate() {
            for slot in level.row().map(SlotIndex) {
                let references = self.slots[slot.0].len(&self.blocks, guard);
                if references > 0 {
                    visit(number, level.next_expiry(slot, swept), references);
                }
            }
        }
    }

    /// The blocks that references lie in.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The first tick after `swept` at which an occupied slot is taken.
    pub(crate) fn next_expiry(&self, swept: Tick) -> Option<Tick> {
        self.levels.iter().filter_map(|level| self.next_in(level, swept)).min()
    }

    /// Whether references are overdue.
    pub(crate) fn has_overdue(&self) -> bool {
        !self.overdue.is_empty()
    }

    /// Takes the references that are overdue.
    pub(crate) fn take_overdue(&self, swept: Tick) -> Option<Taken> {
        (!self.overdue.is_empty()).then(|| Taken {
            from: Source { shard: self.shard, slot: None },
            at: swept,
            chain: self.overdue.take(),
        })
    }

    /// Takes every occupied slot whose expiry is after `from` and not after `to`.
    pub(crate) fn take_due(&self, from: Tick, to: Tick, taken: &mut VecDeque<Taken>) {
        for level in self.levels.iter() {
            let mut reached = from;
            while let Some(at) = self.next_in(level, reached).filter(|&at| at <= to) {
                taken.push_back(self.take(level.slot(level.number(at)), at));
                reached = at;
            }
        }
    }

    /// Takes one slot early, if it is occupied.
    pub(crate) fn take_early(&self, slot: SlotIndex, swept: Tick) -> Option<Taken> {
        if self.slots[slot.0].is_empty() {
            return None;
        }
        let at = self.levels.of(slot).next_expiry(slot, swept);
        Some(self.take(slot, at))
    }

    /// Whether a slot that is taken at `at` can be this one.
    #[inline]
    pub(crate) fn is_taken_at(&self, slot: SlotIndex, at: Tick) -> bool {
        self.levels.of(slot).is_taken_at(slot, at)
    }

    /// A place in the slot, for its next expiry.
    #[inline]
    pub(crate) fn next_expiry_of(&self, slot: SlotIndex, swept: Tick) -> Place {
        Place::Slot { slot, at: self.levels.of(slot).next_expiry(slot, swept) }
    }

    /// As [`file`](Self::file), for a reference that was taken early: back into its slot.
    pub(crate) fn put_back(&self, reference: EntryRef, slot: SlotIndex, at: Tick) -> Option<bool> {
        self.file(reference, Place::Slot { slot, at })
    }

    /// The first occupied slot, in the row of all, from this place on.
    pub(crate) fn next_occupied(&self, from: usize) -> Option<SlotIndex> {
        self.occupied.next_from(from).map(SlotIndex)
    }

    /// Clears the mark, then takes the references: whoever pushes after the swap marks again.
    fn take(&self, slot: SlotIndex, at: Tick) -> Taken {
        self.occupied.clear(slot.0);
        let chain = self.slots[slot.0].take();
        Taken { from: Source { shard: self.shard, slot: Some(slot) }, at, chain }
    }

    /// The first tick after `swept` at which an occupied slot of the level is taken.
    fn next_in(&self, level: &WheelLevel, swept: Tick) -> Option<Tick> {
        let next = level.number(swept) + 1;
        let distance = self.occupied.distance(level.row(), level.slot(next).0)?;
        Some(level.taken_at(next + distance as u64))
    }
}
