//! [`Rows`]: all slots of a shard, and the marks of those that may hold references.
//!
//! A row has 64 slots, whose marks are one word. It is made when a reference is first filed in one
//! of its slots, and stays from then on, so that a wheel with few timers takes little memory. The
//! slots of an absent row are empty.
//!
//! A mark may be outdated, because the slot may contain only stale references or an inserter may be
//! about to push. A missing mark, or a missing row, may be outdated only if an inserter has pushed
//! and not yet marked. The inserter marks before it checks if the sweeper expects the reference,
//! and it then notices that the sweep may have missed it
//! ([`next_scan`](crate::wheel::progress::next_scan)).

#![forbid(unsafe_code)]

use super::geometry::{ROW, SlotIndex};
use super::slot::SlotHead;
use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};
use crate::wheel::memory::Lazy;
use std::ops::Range;

/// All slots of a shard, the finest level first.
#[derive(Debug)]
pub(crate) struct Rows {
    rows: Box<[Lazy<Row>]>,
}

/// The slots whose marks share a word.
#[derive(Debug)]
pub(crate) struct Row {
    marks: AtomicU64,
    heads: [SlotHead; ROW],
}

impl Row {
    fn new() -> Self {
        Self { marks: AtomicU64::new(0), heads: std::array::from_fn(|_| SlotHead::new()) }
    }

    /// Returns the head of a slot of this row.
    #[inline]
    pub(crate) fn head(&self, slot: SlotIndex) -> &SlotHead {
        &self.heads[slot.0 % ROW]
    }

    /// Marks `slot` as possibly occupied. Called after the push.
    #[inline]
    pub(crate) fn mark(&self, slot: SlotIndex) {
        let position = slot.0 % ROW;
        // Relaxed: a bit that is already set is as good as one set here. It cannot be a stale value
        // from before the sweeper's `clear` if the push came after the sweeper's swap, because that
        // swap published the clearing to the push.
        if self.marks.load(Relaxed) >> position & 1 == 0 {
            // AcqRel:
            // - the Release half publishes the push to the sweeper's `first_in` and `first_among`;
            // - the Acquire half keeps the chain unbroken from one marker of the word to the next.
            self.marks.fetch_or(1 << position, AcqRel);
        }
    }

    /// Clears the mark of a `slot` that is about to be taken. Called before the swap.
    #[inline]
    pub(crate) fn clear(&self, slot: SlotIndex) {
        // AcqRel:
        // - the Acquire half pairs with `mark`, so that the swap which follows finds what the
        //   marker pushed;
        // - the Release half is carried on by that swap.
        self.marks.fetch_and(!(1 << (slot.0 % ROW)), AcqRel);
    }
}

impl Rows {
    /// Creates `slots` slots, without their memory.
    pub(crate) fn new(slots: usize) -> Self {
        Self { rows: (0..slots.div_ceil(ROW)).map(|_| Lazy::new(Row::new)).collect() }
    }

    /// Returns the row of a slot, if it has been made.
    #[inline]
    pub(crate) fn get(&self, slot: SlotIndex) -> Option<&Row> {
        self.rows.get(slot.0 / ROW)?.get()
    }

    /// Returns the row of a slot, after making it if necessary. Returns `None` if there is no
    /// memory for it.
    #[inline]
    pub(crate) fn get_or_make(&self, slot: SlotIndex) -> Option<&Row> {
        let row = &self.rows[slot.0 / ROW];
        row.get().or_else(|| row.get_or_make(Row::new))
    }

    /// Returns the first occupied slot at or after `start`.
    pub(crate) fn next_from(&self, start: usize) -> Option<usize> {
        let first = u64::MAX << (start % 64);
        let masks = std::iter::once(first).chain(std::iter::repeat(u64::MAX));
        (start / 64..self.rows.len()).zip(masks).find_map(|(word, mask)| self.first_in(word, mask))
    }

    /// Returns the distance from `start` to the first occupied slot of a ring, which has words of
    /// its own. The length of the ring is a power of two.
    pub(crate) fn distance(&self, ring: Range<usize>, start: usize) -> Option<usize> {
        let (first, end) = (ring.start / 64, ring.end.div_ceil(64));
        let (from, ahead) = (start / 64, u64::MAX << (start % 64));
        let slot = self
            .first_in(from, ahead)
            .or_else(|| self.first_among(from + 1..end))
            .or_else(|| self.first_among(first..from))
            .or_else(|| self.first_in(from, !ahead))?;
        Some(slot.wrapping_sub(start) & (ring.len() - 1))
    }

    /// Returns the first occupied slot among those of a range of words.
    fn first_among(&self, words: Range<usize>) -> Option<usize> {
        let start = words.start;
        self.rows[words].iter().enumerate().find_map(|(word, row)| {
            // Acquire: as in `first_in`.
            let set = row.get()?.marks.load(Acquire);
            (set != 0).then(|| (start + word) * 64 + set.trailing_zeros() as usize)
        })
    }

    /// Returns the first occupied slot among those of a word's masked bits.
    fn first_in(&self, word: usize, mask: u64) -> Option<usize> {
        // Acquire: pairs with `mark`, so that the take which follows finds what was pushed.
        let set = self.rows[word].get()?.marks.load(Acquire) & mask;
        (set != 0).then(|| word * 64 + set.trailing_zeros() as usize)
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Rows, SlotIndex};

    fn mark(rows: &Rows, slot: usize) {
        let row = rows.get_or_make(SlotIndex(slot)).expect("there is memory");
        row.mark(SlotIndex(slot));
    }

    #[test]
    fn the_next_occupied_slot_is_found_from_everywhere() {
        for (first, slots) in [(0, 2), (64, 64), (128, 256), (0, 4096)] {
            for marked in [0, 1, slots / 2, slots - 1] {
                let rows = Rows::new(first + slots + 64);
                let ring = first..first + slots;
                assert_eq!(rows.distance(ring.clone(), first), None);
                mark(&rows, first + marked);
                for start in 0..slots {
                    let expected = (marked + slots - start) % slots;
                    assert_eq!(rows.distance(ring.clone(), first + start), Some(expected));
                    let ahead = (start <= marked).then_some(first + marked);
                    assert_eq!(rows.next_from(first + start), ahead);
                }
                rows.get(SlotIndex(first + marked)).unwrap().clear(SlotIndex(first + marked));
                assert_eq!(rows.distance(ring, first + marked), None);
            }
        }
    }

    #[test]
    fn the_nearer_of_two_is_found() {
        let rows = Rows::new(256);
        mark(&rows, 10);
        mark(&rows, 200);
        assert_eq!(rows.distance(0..256, 11), Some(189));
        assert_eq!(rows.distance(0..256, 201), Some(65));
    }
}
