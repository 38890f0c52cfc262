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
    /// All levels, the finest first.
    pub(crate) fn grains(self) -> Box<[Grain]> {
        (0..self.levels).map(|level| self.grain(level)).collect()
    }

    fn grain(self, level: u32) -> Grain {
        let Geometry { root_bits, level_bits, .. } = self;
        let shift = if level == 0 { 0 } else { root_bits + (level - 1) * level_bits };
        let bits = if level == 0 { root_bits } else { level_bits };
        Grain { shift, mask: (1 << bits) - 1 }
    }
}

/// One level: how its slots divide time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grain {
    /// A slot is `2^shift` ticks wide.
    shift: u32,
    /// One less than the number of slots, a power of two.
    mask: u64,
}

impl Grain {
    /// How many slots the level has.
    #[inline]
    pub(crate) fn slots(self) -> u64 {
        self.mask + 1
    }

    /// The number of the slot that `tick` falls into, counted from the first tick of all.
    #[inline]
    pub(crate) fn number(self, tick: Tick) -> u64 {
        tick.0 >> self.shift
    }

    /// When slot `number` is taken.
    #[inline]
    pub(crate) fn taken_at(self, number: u64) -> Tick {
        Tick(number << self.shift)
    }

    /// Where in the level the slots `number`, `number + slots`, … lie.
    #[inline]
    pub(crate) fn within(self, number: u64) -> usize {
        to_index(number & self.mask)
    }

    // In C, for `ci/genmc`: `next_turn_of`.
    /// When the slot is next taken by a sweep that has reached `swept`.
    #[inline]
    pub(crate) fn next_turn(self, within: usize, swept: Tick) -> Tick {
        let next = self.number(swept) + 1;
        let ahead = (within as u64).wrapping_sub(next) & self.mask;
        self.taken_at(next + ahead)
    }

    // In C, for `ci/genmc`: `is_taken_at`.
    /// Whether a slot that is taken at `at` can be this one.
    #[inline]
    pub(crate) fn is_taken_at(self, within: usize, at: Tick) -> bool {
        let number = self.number(at);
        self.within(number) == within && self.taken_at(number) == at
    }
}

// In C, for `ci/genmc`: `place_for`.
/// Where a timer of this deadline waits when the sweep has reached `swept`.
#[inline]
pub(crate) fn place(grains: &[Grain], deadline: Tick, swept: Tick) -> Place {
    if deadline <= swept {
        return Place::Overdue;
    }
    let mut farthest = Place::Overdue;
    for (level, grain) in (0..).zip(grains) {
        let (number, reached) = (grain.number(deadline), grain.number(swept));
        let last = reached + grain.mask;
        let slot = |number| SlotIndex { level, within: grain.within(number) };
        if number <= last {
            return Place::Slot { slot: slot(number), at: grain.taken_at(number) };
        }
        farthest = Place::Slot { slot: slot(last), at: grain.taken_at(last) };
    }
    farthest
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Geometry, Place, place};
    use crate::wheel::tick::Tick;

    fn at(geometry: Geometry, deadline: u64, swept: u64) -> Option<u64> {
        match place(&geometry.grains(), Tick(deadline), Tick(swept)) {
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
