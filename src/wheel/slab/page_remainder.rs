//! The unused remainder of an installed page.
//!
//! ```text
//!   63      60 59                               30 29                              0
//!  ┌──────────┬───────────────────────────────────┬─────────────────────────────────┐
//!  │    0     │  how many entries are left (30)   │    index of the first (30)      │
//!  └──────────┴───────────────────────────────────┴─────────────────────────────────┘
//! ```
//!
//! The thread that installs a page takes as many of its entries as it wants and leaves the rest
//! here. A thread that finds the vacant stack empty takes some from the front of the range, by one
//! exchange. The remainder is a range of indices, so that no thread has to walk along the states of
//! its entries, which are written when the entries are taken. If few entries of a page are needed,
//! the memory of the others is not touched.
//!
//! The same word may come again with another incarnation of the page. That is harmless, because the
//! word is valid at the time of the exchange, and nothing that was read before is relied upon.

#![forbid(unsafe_code)]

use super::magazine::Rounds;
use crate::sync::{Acquire, AtomicU64, Relaxed, Release};
use crate::wheel::bits::Field;

const FIRST: Field = Field::low(30);
const LEFT: Field = FIRST.above(30);

/// The remainder of one slab.
#[derive(Debug)]
pub(crate) struct PageRemainder(AtomicU64);

impl PageRemainder {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes up to `most` entries from the front of the range, if there are any.
    pub(crate) fn take(&self, most: u32) -> Option<Rounds> {
        // Relaxed: the exchange decides.
        let mut seen = self.0.load(Relaxed);
        loop {
            let (first, left) = (FIRST.get_u32(seen), LEFT.get_u32(seen));
            let count = most.min(left);
            if count == 0 {
                return None;
            }
            // Acquire: pairs with the Release of `put`, on which every exchange since builds, so
            // that the page, and the generation it begins with, are seen.
            match self.0.compare_exchange(seen, word(first + count, left - count), Acquire, Relaxed)
            {
                Ok(_) => return Some(Rounds { top: first, count }),
                Err(now) => seen = now,
            }
        }
    }

    /// Leaves entries of a page here if the range is empty. Returns `true` if it did.
    pub(crate) fn put(&self, Rounds { top, count }: Rounds) -> bool {
        // Relaxed: as in `take`.
        let seen = self.0.load(Relaxed);
        // Release: publishes the page to `take`.
        let put = || self.0.compare_exchange(seen, word(top, count), Release, Relaxed).is_ok();
        LEFT.get(seen) == 0 && put()
    }
}

fn word(first: u32, left: u32) -> u64 {
    // No entry follows the last possible index.
    FIRST.put(u64::from(first) & FIRST.max()) | LEFT.put(u64::from(left))
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{PageRemainder, Rounds};

    #[test]
    fn a_range_is_taken_from_the_front_and_only_one_is_left_at_a_time() {
        let remainder = PageRemainder::new();
        assert_eq!(remainder.take(16), None);
        assert!(remainder.put(Rounds { top: 1040, count: 20 }));
        assert!(!remainder.put(Rounds { top: 4096, count: 8 }), "another is left");
        assert_eq!(remainder.take(16), Some(Rounds { top: 1040, count: 16 }));
        assert_eq!(remainder.take(16), Some(Rounds { top: 1056, count: 4 }));
        assert_eq!(remainder.take(1), None);
        assert!(remainder.put(Rounds { top: (1 << 30) - 1, count: 1 }));
        assert_eq!(remainder.take(2), Some(Rounds { top: (1 << 30) - 1, count: 1 }));
    }
}
