//! The hierarchy: all slots of one shard, which hold the references to its timers.
//!
//! This is scheme 7 of Varghese and Lauck ("Hashed and hierarchical timing wheels", SOSP 1987),
//! with references in place of nodes. A slot holds [`EntryRef`]s of slab entries. The entry itself
//! decides, when the sweeper visits the reference, whether it holds a timer and when that timer is
//! due. A reference may therefore be in any slot, be there twice, or outlive its timer without
//! harm. The only requirement is that the entry of each armed timer has *a* reference in a slot
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
//! Any thread may [`file`](Hierarchy::file) a reference, but only the sweeper takes them. The
//! module [`rows`] records which slots are worth a visit, and [`geometry`] has the arithmetic.

pub(crate) mod block;
pub(crate) mod geometry;
pub(crate) mod rows;
pub(crate) mod slot;

use crate::wheel::tick::Tick;
use block::{Block, BlockNumber, Blocks, EntryRef};
use geometry::{Levels, Place, SlotIndex, WheelLevel};
use rows::Rows;
use slot::{Chain, SlotHead, Unwritten};
use std::alloc::{Layout, handle_alloc_error};
use std::collections::VecDeque;
use std::sync::Arc;

/// The slots of one shard.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    shard: usize,
    levels: Arc<Levels>,
    rows: Rows,
    overdue: SlotHead,
    blocks: Blocks,
}

/// The origin of taken references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) shard: usize,
    /// `None` for overdue references.
    pub(crate) slot: Option<SlotIndex>,
}

/// The references taken from one slot.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) from: Source,
    /// The slot's expiry, as seen by the sweep that took it.
    pub(crate) at: Tick,
    pub(crate) chain: Chain,
}

/// A taken block with references that are reserved but not yet written.
#[derive(Debug)]
pub(crate) struct KeptBlock {
    pub(crate) from: Source,
    pub(crate) unwritten: Unwritten,
}

impl Hierarchy {
    pub(crate) fn new(shard: usize, levels: Arc<Levels>) -> Self {
        let len = levels.iter().map(|level| level.end()).max().unwrap_or_default();
        let (overdue, blocks) = (SlotHead::new(), Blocks::new());
        Self { shard, levels, rows: Rows::new(len), overdue, blocks }
    }

    /// Returns the place of a timer with this deadline when the sweep has reached `swept`.
    #[inline]
    pub(crate) fn place(&self, deadline: Tick, swept: Tick) -> Place {
        self.levels.place(deadline, swept)
    }

    /// Files a reference, and then marks its slot as occupied, if the first block of the slot has
    /// room and no other thread changes the slot.
    #[inline]
    pub(crate) fn try_file(&self, reference: EntryRef, slot: SlotIndex) -> bool {
        let Some(row) = self.rows.get(slot) else { return false };
        let pushed = row.head(slot).try_push(reference, &self.blocks);
        if pushed {
            row.mark(slot);
        }
        pushed
    }

    /// Files a reference, and then marks its slot as occupied. Returns `true` if it made a block
    /// for it. Returns `None`, without filing the reference, if there is no memory for its slot or
    /// for a block.
    pub(crate) fn file(&self, reference: EntryRef, place: Place) -> Option<bool> {
        self.file_by(reference, place, |blocks| blocks.claim())
    }

    /// Files a reference that must not be lost, as [`file`](Self::file) does. Returns `true` if it
    /// made a block for it.
    ///
    /// If the system has no memory, it uses the [spare](Blocks::take_spare) block. If that is used
    /// up, the process ends, as it does when a collection of the standard library grows.
    pub(crate) fn file_or_abort(&self, reference: EntryRef, place: Place) -> bool {
        let claim = |blocks: &Blocks| blocks.claim().or_else(|| blocks.take_spare());
        let filed = self.file_by(reference, place, claim);
        filed.unwrap_or_else(|| handle_alloc_error(Layout::new::<Block>()))
    }

    fn file_by(
        &self,
        reference: EntryRef,
        place: Place,
        claim: impl FnOnce(&Blocks) -> Option<BlockNumber>,
    ) -> Option<bool> {
        let Place::Slot { slot, .. } = place else {
            return self.overdue.push(reference, &self.blocks, claim);
        };
        let row = self.rows.get_or_make(slot)?;
        let made = row.head(slot).push(reference, &self.blocks, claim)?;
        row.mark(slot);
        Some(made)
    }

    /// Returns the blocks that hold the references.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns the first tick after `swept` at which an occupied slot is taken, or [`Tick::NEVER`].
    pub(crate) fn next_expiry(&self, swept: Tick) -> Tick {
        let expiries = self.levels.iter().filter_map(|level| self.next_in(level, swept));
        expiries.min().unwrap_or(Tick::NEVER)
    }

    /// Returns `true` if there are overdue references.
    pub(crate) fn has_overdue(&self) -> bool {
        !self.overdue.is_empty()
    }

    /// Takes the overdue references.
    pub(crate) fn take_overdue(&self, swept: Tick) -> Option<Taken> {
        (!self.overdue.is_empty()).then(|| Taken {
            from: Source { shard: self.shard, slot: None },
            at: swept,
            chain: self.overdue.take(),
        })
    }

    /// Takes every occupied slot whose expiry is after `from` and not after `to`. Returns the first
    /// tick after `to` at which an occupied slot is taken, or [`Tick::NEVER`].
    pub(crate) fn take_due(&self, from: Tick, to: Tick, taken: &mut VecDeque<Taken>) -> Tick {
        let mut next = Tick::NEVER;
        for level in self.levels.iter() {
            let mut reached = from;
            while let Some(at) = self.next_in(level, reached) {
                if at > to {
                    next = next.min(at);
                    break;
                }
                taken.push_back(self.take(level.slot(level.number(at)), at));
                reached = at;
            }
        }
        next
    }

    /// Takes one slot early, if it is occupied.
    pub(crate) fn take_early(&self, slot: SlotIndex, swept: Tick) -> Option<Taken> {
        if self.rows.get(slot)?.head(slot).is_empty() {
            return None;
        }
        let at = self.levels.of(slot).next_expiry(slot, swept);
        Some(self.take(slot, at))
    }

    /// Returns `true` if `slot` can be taken at `at`.
    #[inline]
    pub(crate) fn is_taken_at(&self, slot: SlotIndex, at: Tick) -> bool {
        self.levels.of(slot).is_taken_at(slot, at)
    }

    /// Returns a place in the slot, for its next expiry.
    #[inline]
    pub(crate) fn next_expiry_of(&self, slot: SlotIndex, swept: Tick) -> Place {
        Place::Slot { slot, at: self.levels.of(slot).next_expiry(slot, swept) }
    }

    /// Returns the first occupied slot at or after position `from` in the array of all slots.
    pub(crate) fn next_occupied(&self, from: usize) -> Option<SlotIndex> {
        self.rows.next_from(from).map(SlotIndex)
    }

    /// Clears the mark, then takes the references. A thread that pushes after the swap marks the
    /// slot again.
    fn take(&self, slot: SlotIndex, at: Tick) -> Taken {
        let chain = self.rows.get(slot).map_or(Chain::NONE, |row| {
            row.clear(slot);
            row.head(slot).take()
        });
        Taken { from: Source { shard: self.shard, slot: Some(slot) }, at, chain }
    }

    /// Returns the first tick after `swept` at which an occupied slot of the level is taken.
    #[inline]
    fn next_in(&self, level: &WheelLevel, swept: Tick) -> Option<Tick> {
        let next = level.number(swept) + 1;
        let distance = self.rows.distance(level.row(), level.slot(next).0)?;
        Some(level.taken_at(next + distance as u64))
    }
}
