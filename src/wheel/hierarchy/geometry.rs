//! The shape of the wheel, and the arithmetic that maps a deadline to a slot.
//!
//! Level 0 has one slot for each tick. The slots of each further level are as wide as the whole
//! level below. With the default shape (ticks of 1 ms in brackets):
//!
//! | level | slots | granularity, ticks | range, ticks |
//! |---|---|---|---|
//! | 0 | 4096 | 1 (1 ms) | 2^12 (4.1 s) |
//! | 1 | 256 | 2^12 (4.1 s) | 2^20 (17 min) |
//! | 2 | 256 | 2^20 (17 min) | 2^28 (3.1 days) |
//! | 3 | 256 | 2^28 (3.1 days) | 2^36 (2.2 years) |
//! | 4 | 256 | 2^36 (2.2 years) | 2^44 |
//!
//! A deadline belongs to the finest level whose range reaches it from the present tick, in the slot
//! that contains its own tick. The slot is *taken* when the sweep reaches its first tick. On level
//! 0 that is the deadline, and on other levels it is at or before the deadline. Slots are chosen by
//! distance and not by the bits that differ. A delay under 4 s is therefore filed once and one of
//! 30 s twice, regardless of the phase of the wheel.

#![forbid(unsafe_code)]

use crate::wheel::bits::to_index;
use crate::wheel::tick::Tick;
use once_cell::race::OnceBox;
use std::ops::Range;
use std::sync::Arc;

/// The shape of a wheel: its slots and levels, and the size of a page of the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Level 0 has `2^root_bits` slots.
    pub root_bits: u32,
    /// Each level above has `2^level_bits` slots.
    pub level_bits: u32,
    /// The number of levels. Deadlines beyond the last level go to its farthest slot, from which
    /// they are filed again.
    pub levels: u32,
    /// A page of the slab has `2^page_bits` entries.
    pub page_bits: u32,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { root_bits: 12, level_bits: 8, levels: 5, page_bits: 8 }
    }
}

/// A slot, identified by its position in the array of all slots. Level 0 comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotIndex(pub(crate) usize);

/// The place where a reference is filed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The sweep has passed the deadline. The reference is filed for the next sweep.
    Overdue,
    /// The reference is filed in `slot`, which is taken when the sweep reaches `at`.
    Slot { slot: SlotIndex, at: Tick },
}

impl Geometry {
    /// The shape of a wheel that is one of many. All its slots take 10 KiB, where those of the
    /// default shape take 40 KiB. A timer of 256 ms to 4 s is filed twice and not once.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) const SMALL: Geometry =
        Geometry { root_bits: 8, level_bits: 8, levels: 5, page_bits: 8 };

    /// Returns all levels. All wheels of the common shapes share them.
    ///
    /// Threads that make the shared ones at the same time race, and none waits for another, because
    /// a fork may leave that one behind.
    pub(crate) fn levels(self) -> Arc<Levels> {
        static DEFAULT: OnceBox<Arc<Levels>> = OnceBox::new();
        #[cfg(any(feature = "future", modelled))]
        static SMALL: OnceBox<Arc<Levels>> = OnceBox::new();
        let make = || Arc::new(Levels::new(self));
        let shared =
            |levels: &'static OnceBox<_>| Arc::clone(levels.get_or_init(|| Box::new(make())));
        #[cfg(any(feature = "future", modelled))]
        if self == Self::SMALL {
            return shared(&SMALL);
        }
        if self == Self::default() { shared(&DEFAULT) } else { make() }
    }

    /// Returns all levels, the finest first.
    fn list(self) -> Box<[WheelLevel]> {
        let Geometry { root_bits, level_bits, .. } = self;
        let (mut first, mut shift) = (0, 0);
        let make = |number| {
            let bits = if number == 0 { root_bits } else { level_bits };
            let level = WheelLevel { shift, mask: (1 << bits) - 1, first };
            shift += bits;
            first = level.end();
            level
        };
        (0..self.levels).map(make).collect()
    }
}

/// All levels of a wheel.
#[derive(Debug)]
pub(crate) struct Levels {
    /// The finest first.
    levels: Box<[WheelLevel]>,
    /// Indexed by the number of bits of a distance, minus one. Contains the level that reaches such
    /// a distance, or falls short of it by at most one slot, or else the last level.
    by_distance: [WheelLevel; 64],
}

/// One level of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WheelLevel {
    /// A slot is `2^shift` ticks wide.
    shift: u32,
    /// One less than the number of slots, a power of two.
    mask: u64,
    /// The position of its first slot in the array of all slots. It is a multiple of [`ROW`].
    first: usize,
}

/// The number of slots in a row, whose marks share a word. No two levels share a row.
pub(crate) const ROW: usize = 64;

impl WheelLevel {
    /// A level with one slot that covers all of time.
    const NONE: WheelLevel = WheelLevel { shift: 63, mask: 0, first: 0 };

    /// Returns the range of the level's slots in the array of all slots.
    #[inline]
    pub(crate) fn row(self) -> Range<usize> {
        self.first..self.first + to_index(self.mask) + 1
    }

    /// Returns the position in the array of all slots at which the next level begins.
    pub(crate) fn end(self) -> usize {
        self.row().end.next_multiple_of(ROW)
    }

    /// Returns the number of the slot that contains `tick`, counted from the first tick of all.
    #[inline]
    pub(crate) fn number(self, tick: Tick) -> u64 {
        tick.0 >> self.shift
    }

    /// Returns the tick at which slot `number` is taken.
    #[inline]
    pub(crate) fn taken_at(self, number: u64) -> Tick {
        Tick(number << self.shift)
    }

    /// Returns the slot of `number`, `number + slots`, ….
    #[inline]
    pub(crate) fn slot(self, number: u64) -> SlotIndex {
        SlotIndex(self.first + to_index(number & self.mask))
    }

    /// Returns the slot `number` and its expiry.
    #[inline]
    fn slot_at(self, number: u64) -> (SlotIndex, Tick) {
        (self.slot(number), self.taken_at(number))
    }

    /// Returns the slot that contains a deadline, and its expiry, if the level reaches the
    /// deadline.
    #[inline]
    fn reach(self, deadline: Tick, swept: Tick) -> Option<(SlotIndex, Tick)> {
        let number = self.number(deadline);
        (number - self.number(swept) <= self.mask).then(|| self.slot_at(number))
    }

    /// Returns the tick at which the slot is next taken by a sweep that has reached `swept`.
    #[inline]
    pub(crate) fn next_expiry(self, slot: SlotIndex, swept: Tick) -> Tick {
        let next = self.number(swept) + 1;
        let ahead = ((slot.0 - self.first) as u64).wrapping_sub(next) & self.mask;
        self.taken_at(next + ahead)
    }

    /// Returns `true` if this slot can be taken at `at`.
    #[inline]
    pub(crate) fn is_taken_at(self, slot: SlotIndex, at: Tick) -> bool {
        let number = self.number(at);
        self.slot(number) == slot && self.taken_at(number) == at
    }
}

impl Levels {
    fn new(geometry: Geometry) -> Self {
        let levels = geometry.list();
        let reaches = |ahead: u64| move |level: &&WheelLevel| ahead >> level.shift <= level.mask;
        let nearest = |bits: usize| {
            let ahead = u64::MAX >> (63 - bits);
            let reaching = levels.iter().find(reaches(ahead)).or(levels.last());
            *reaching.unwrap_or(&WheelLevel::NONE)
        };
        let by_distance = std::array::from_fn(nearest);
        Self { levels, by_distance }
    }

    /// Iterates over the levels, the finest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WheelLevel> {
        self.levels.iter()
    }

    /// Returns the level of a slot.
    #[inline]
    pub(crate) fn of(&self, slot: SlotIndex) -> &WheelLevel {
        self.iter().find(|level| slot.0 < level.row().end).unwrap_or(&WheelLevel::NONE)
    }

    /// Returns the place of a timer with this deadline when the sweep has reached `swept`.
    #[inline]
    pub(crate) fn place(&self, deadline: Tick, swept: Tick) -> Place {
        let Some(bits) = deadline.since(swept).checked_ilog2() else { return Place::Overdue };
        let usual = self.by_distance[bits as usize].reach(deadline, swept);
        let (slot, at) = usual.unwrap_or_else(|| self.slot_of(deadline, swept));
        Place::Slot { slot, at }
    }

    /// Returns the slot of a deadline that the finest level for its distance does not reach at
    /// this phase, and the expiry of the slot.
    #[cold]
    fn slot_of(&self, deadline: Tick, swept: Tick) -> (SlotIndex, Tick) {
        let near = self.iter().find_map(|level| level.reach(deadline, swept));
        near.unwrap_or_else(|| {
            let last = self.levels.last().unwrap_or(&WheelLevel::NONE);
            last.slot_at(last.number(swept) + last.mask)
        })
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Geometry, Place};
    use crate::wheel::tick::Tick;

    fn at(geometry: Geometry, deadline: u64, swept: u64) -> Option<u64> {
        match geometry.levels().place(Tick(deadline), Tick(swept)) {
            Place::Overdue => None,
            Place::Slot { at, .. } => Some(at.0),
        }
    }

    #[test]
    fn near_deadlines_wait_at_their_tick_whatever_the_phase() {
        let geometry = Geometry::default();
        for phase in [0, 1, 4000, 4095, 4096, 1 << 20, (1 << 28) - 1] {
            assert_eq!(at(geometry, phase, phase), None);
            assert_eq!(at(geometry, phase + 1, phase), Some(phase + 1));
            assert_eq!(at(geometry, phase + 4095, phase), Some(phase + 4095));
        }
    }

    #[test]
    fn a_slot_is_taken_after_the_sweep_and_not_after_the_deadline() {
        let tiny = Geometry { root_bits: 1, level_bits: 1, levels: 2, page_bits: 1 };
        let wide = Geometry { root_bits: 3, level_bits: 2, levels: 4, page_bits: 2 };
        for geometry in [tiny, wide, Geometry::default()] {
            for swept in 0..200 {
                for delay in 1..600 {
                    let taken = at(geometry, swept + delay, swept).unwrap();
                    assert!(taken > swept && taken <= swept + delay, "{geometry:?}");
                }
            }
        }
    }

    #[test]
    fn the_longest_delay_has_a_place() {
        let geometry = Geometry::default();
        let taken = at(geometry, 77 + Tick::AHEAD, 77).unwrap();
        assert!(taken > 77 && taken <= 77 + Tick::AHEAD);
    }
}
