//! A bitmap of the slots that may hold references.
//!
//! A set bit may be outdated, because the slot may contain only stale references or an inserter may
//! be about to push. A clear bit may be outdated only if an inserter has pushed and not yet marked.
//! The inserter marks before it re-checks the progress of the sweep, and that check detects a
//! reference that the sweep may have missed (see [`crate::wheel::shard`]).

#![forbid(unsafe_code)]

use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};
use std::ops::Range;

/// The occupancy of all slots.
#[derive(Debug)]
pub(crate) struct Occupancy {
    words: Box<[AtomicU64]>,
}

impl Occupancy {
    pub(crate) fn new(slots: usize) -> Self {
        Self { words: (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Marks `slot` as possibly occupied. Called after the push.
    #[inline]
    pub(crate) fn mark(&self, slot: usize) {
        let (word, bit) = (&self.words[slot / 64], 1 << (slot % 64));
        // Relaxed: a bit that is already set is as good as one set here. It cannot be a stale value
        // from before the sweeper's `clear` if the push came after the sweeper's swap, because that
        // swap published the clearing to the push.
        if word.load(Relaxed) & bit == 0 {
            // AcqRel:
            // - the Release half publishes the push to the sweeper's `next`;
            // - the Acquire half keeps the chain unbroken from one marker of the word to the next.
            word.fetch_or(bit, AcqRel);
        }
    }

    /// Clears the mark of a `slot` that is about to be taken. Called before the swap.
    #[inline]
    pub(crate) fn clear(&self, slot: usize) {
        // AcqRel:
        // - the Acquire half pairs with `mark`, so that the swap which follows finds what the
        //   marker pushed;
        // - the Release half is carried on by that swap.
        self.words[slot / 64].fetch_and(!(1 << (slot % 64)), AcqRel);
    }

    /// Returns the first occupied slot at or after `start`.
    pub(crate) fn next_from(&self, start: usize) -> Option<usize> {
        let first = u64::MAX << (start % 64);
        let masks = std::iter::once(first).chain(std::iter::repeat(u64::MAX));
        (start / 64..self.words.len()).zip(masks).find_map(|(word, mask)| self.first_in(word, mask))
    }

    /// Returns the distance from `start` to the first occupied slot of a ring, which has words of
    /// its own.
    pub(crate) fn distance(&self, ring: Range<usize>, start: usize) -> Option<usize> {
        let (words, slots) = (ring.len().div_ceil(64), ring.len());
        let (first, from, bit) = (ring.start / 64, start / 64 - ring.start / 64, start % 64);
        (0..=words).find_map(|step| {
            let mask = match step {
                0 => u64::MAX << bit,
                _ if step == words => !(u64::MAX << bit),
                _ => u64::MAX,
            };
            let slot = self.first_in(first + (from + step) % words, mask)?;
            Some((slot + slots - start) % slots)
        })
    }

    /// Returns the number of occupied slots in a range that has words of its own.
    pub(crate) fn count(&self, row: Range<usize>) -> usize {
        let words = &self.words[row.start / 64..row.end.div_ceil(64)];
        // Relaxed: for statistics.
        words.iter().map(|word| word.load(Relaxed).count_ones() as usize).sum()
    }

    /// Returns the first occupied slot among those of a word's masked bits.
    fn first_in(&self, word: usize, mask: u64) -> Option<usize> {
        // Acquire: pairs with `mark`, so that the take which follows finds what was pushed.
        let set = self.words[word].load(Acquire) & mask;
        (set != 0).then(|| word * 64 + set.trailing_zeros() as usize)
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Occupancy;

    #[test]
    fn the_next_occupied_slot_is_found_from_everywhere() {
        for (first, slots) in [(0, 2), (64, 64), (128, 256), (0, 4096)] {
            for marked in [0, 1, slots / 2, slots - 1] {
                let occupancy = Occupancy::new(first + slots + 64);
                let ring = first..first + slots;
                assert_eq!(occupancy.distance(ring.clone(), first), None);
                occupancy.mark(first + marked);
                for start in 0..slots {
                    let expected = (marked + slots - start) % slots;
                    assert_eq!(occupancy.distance(ring.clone(), first + start), Some(expected));
                    let ahead = (start <= marked).then_some(first + marked);
                    assert_eq!(occupancy.next_from(first + start), ahead);
                }
                occupancy.clear(first + marked);
                assert_eq!(occupancy.distance(ring, first + marked), None);
            }
        }
    }

    #[test]
    fn the_nearer_of_two_is_found() {
        let occupancy = Occupancy::new(256);
        occupancy.mark(10);
        occupancy.mark(200);
        assert_eq!(occupancy.distance(0..256, 11), Some(189));
        assert_eq!(occupancy.distance(0..256, 201), Some(65));
    }
}
