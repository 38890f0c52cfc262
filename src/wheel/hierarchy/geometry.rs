//! The shape of the wheel, and the pure arithmetic of where a deadline waits.
//!
//! Level 0 has one slot a tick. The slots of each level above are as wide as the whole level
//! below. With the default shape (ticks of 1 ms in brackets):
//!
//! | level | slots | granularity, ticks | range, ticks |
//! |---|---|---|---|
//! | 0 | 4096 | 1 (1 ms) | 2^12 (4.1 s) |
//! | 1 | 256 | 2^12 (4.1 s) | 2^20 (17 min) |
//! | 2 | 256 | 2^20 (17 min) | 2^28 (3.1 days) |
//! | 3 | 256 | 2^28 (3.1 days) | 2^36 (2.2 years) |
//! | 4 | 256 | 2^36 (2.2 years) | 2^44 |
//!
//! A deadline waits in the finest level whose range reaches it from the sweep, in the slot that
//! its own tick falls into, and that slot is *taken* when the sweep reaches the slot's first
//! tick: at the deadline on level 0, at or before it above. Because slots are chosen by distance
//! and not by the bits that differ, a delay under 4 s is filed once and one of 30 s twice,
//! whatever the phase of the wheel.

#![forbid(unsafe_code)]

use crate::wheel::bits::to_index;
use crate::wheel::tick::Tick;

/// The shape of a wheel: how many slots and levels, and how many entries a page of the slab has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Level 0 has `2^root_bits` slots.
    pub root_bits: u32,
    /// Each level above has `2^level_bits` slots.
    pub level_bits: u32,
    /// How many levels there are. Deadlines past the last wait in its farthest slot, and are
    /// filed again from there.
    pub levels: u32,
    /// A page of the slab has `2^page_bits` entries.
    pub page_bits: u32,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { root_bits: 12, level_bits: 8, levels: 5, page_bits: 10 }
    }
}

/// A slot: its level, and its place within the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotIndex {
    pub(crate) level: u32,
    pub(crate) within: usize,
}

impl SlotIndex {
    /// Slots in a row, level 0 first: where the row begins.
    pub(crate) const FIRST: SlotIndex = SlotIndex { level: 0, within: 0 };

    /// The slot after this one, which may be past the end of its level.
    #[inline]
    pub(crate) fn next(self) -> SlotIndex {
        SlotIndex { within: self.within + 1, ..self }
    }
}

/// Where a name is to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The sweep has passed the deadline: wait for the next sweep, whenever it comes.
    Overdue,
    /// Wait in `slot`, which is taken when the sweep reaches `at`.
    Slot { slot: SlotIndex, at: Tick },
}

impl Geometry {
    /// How many slots the level has.
    #[inline]
    pub(crate) fn slots(self, level: u32) -> u64 {
        1 << if level == 0 { self.root_bits } else { self.level_bits }
    }

    /// A slot of the level is `2^shift` ticks wide.
    #[inline]
    pub(crate) fn shift(self, level: u32) -> u32 {
        if level == 0 { 0 } else { self.root_bits + (level - 1) * self.level_bits }
    }

    /// The number of the level's slot that `tick` falls into, counted from the first tick of all.
    #[inline]
    pub(crate) fn number(self, level: u32, tick: Tick) -> u64 {
        tick.0 >> self.shift(level)
    }

    /// When the level's slot `number` is taken.
    #[inline]
    pub(crate) fn taken_at(self, level: u32, number: u64) -> Tick {
        Tick(number << self.shift(level))
    }

    /// The slot of the level in which the slot numbers `number`, `number + slots`, … lie.
    #[inline]
    pub(crate) fn slot(self, level: u32, number: u64) -> SlotIndex {
        SlotIndex { level, within: to_index(number & (self.slots(level) - 1)) }
    }

    // In C, for `ci/genmc`: `next_turn_of`.
    /// When the slot is next taken by a sweep that has reached `swept`.
    #[inline]
    pub(crate) fn next_turn(self, slot: SlotIndex, swept: Tick) -> Tick {
        let next = self.number(slot.level, swept) + 1;
        let ahead = (slot.within as u64).wrapping_sub(next) & (self.slots(slot.level) - 1);
        self.taken_at(slot.level, next + ahead)
    }

    // In C, for `ci/genmc`: `is_taken_at`.
    /// Whether a slot that is taken at `at` can be this one.
    #[inline]
    pub(crate) fn is_taken_at(self, slot: SlotIndex, at: Tick) -> bool {
        let number = self.number(slot.level, at);
        self.slot(slot.level, number) == slot && self.taken_at(slot.level, number) == at
    }

    // In C, for `ci/genmc`: `place_for`.
    /// Where a timer of this deadline waits when the sweep has reached `swept`.
    #[inline]
    pub(crate) fn place(self, deadline: Tick, swept: Tick) -> Place {
        if deadline <= swept {
            return Place::Overdue;
        }
        let top = self.levels - 1;
        let distance = |level| self.number(level, deadline) - self.number(level, swept);
        let level = (0..top).find(|&level| distance(level) < self.slots(level)).unwrap_or(top);
        let farthest = self.number(level, swept) + self.slots(level) - 1;
        let number = self.number(level, deadline).min(farthest);
        Place::Slot { slot: self.slot(level, number), at: self.taken_at(level, number) }
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Geometry, Place};
    use crate::wheel::tick::Tick;

    fn at(geometry: Geometry, deadline: u64, swept: u64) -> Option<u64> {
        match geometry.place(Tick(deadline), Tick(swept)) {
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
