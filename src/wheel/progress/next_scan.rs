//! The tick at which the sweeper scans a shard by itself ([`NextScan`]), and the shards in which a
//! reference was filed for an earlier tick ([`Reports`]).
//!
//! A *scan* of a shard takes the slots that have expired and finds the next occupied slot. It reads
//! the occupancy bits of all levels. A step of the sweep therefore scans only the shards in which
//! something may be due. The sweeper knows the next expiry of each shard from its last scan, and
//! publishes it in the shard's `next_scan`, which it alone writes.
//!
//! A thread that has filed a reference in a slot that is taken at `at`, before it returns:
//!
//! 1. It passes a full fence.
//! 2. It loads `next_scan`. If that is not after `at`, the sweeper comes in time by itself. This is
//!    the common case.
//! 3. Otherwise it *reports* the shard, by setting the shard's bit unless it is set.
//! 4. It passes a second full fence.
//! 5. After its last fence it re-checks the tick of the sweep
//!    ([`swept`](crate::wheel::progress::swept)) and the
//!    [`wakeup`](crate::wheel::progress::wakeup).
//!
//! The sweeper, to advance to tick `t`:
//!
//! 1. It *suspends* each shard whose next expiry is not after `t`. To suspend a shard means to set
//!    its `next_scan` to [`Tick::NEVER`], so that each further filer reports it.
//! 2. It publishes `t` and passes a full fence.
//! 3. It accepts the reports. It clears the bits, suspends those shards, and passes another full
//!    fence if there were any.
//! 4. It scans all shards that it has suspended, and sets the `next_scan` of each to the expiry
//!    that it found.
//!
//! Before it chooses `t`, and before a rest after the fence that follows the store of the wake-up
//! tick, it does steps 3 and 4 alone. For a reference that it files itself it lowers `next_scan`.
//!
//! # Why no reference is missed
//!
//! *A scan finds each reference whose filer did not notice the suspension.* If a filer loads a
//! `next_scan` from before a suspension, or a bit from before its clearing, its fence of step 1
//! precedes the sweeper's fence between the suspension and the scan. The reference was pushed
//! before the one and is searched for after the other.
//!
//! *The slot is taken at `at`.* Let `t` be the first tick from `at` on that the sweeper publishes.
//! A filer that returns has found an earlier tick in step 5. Its last fence therefore precedes the
//! fence after the publication of `t`.
//!
//! - If the filer has not reported, it has loaded a `next_scan` that is not after `at`. The sweeper
//!   has written that before it published `t`, because what it writes later is after `t`. Either
//!   this is still the next expiry of the shard, or a lower one is. The step then suspends and
//!   scans the shard. Or the shard has been suspended since. That scan has found the reference, and
//!   since then the next expiry of the shard is not after `at`.
//! - If the filer has set the bit or found it set, step 3 accepts it after the publication of `t`,
//!   or has accepted it before. The scan that follows finds the reference. The load of step 3
//!   cannot miss the bit, since the filer's second fence comes between its sight of the bit and its
//!   re-check of the sweep.
//!
//! *The sweeper does not rest beyond `at`.* The same holds with the fence that follows the store of
//! the wake-up tick. A filer whose last fence comes after that one finds the wake-up tick and wakes
//! the sweeper.
//!
//! A slot may also be taken early by upkeep. The sweeper then has the reference, and lowers
//! `next_scan` when it puts it back.
//!
//! Filers do not lower `next_scan` themselves. A filer could otherwise rely on a tick that another
//! filer has written too late, when the sweep had already passed it and before that filer's own
//! re-check.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Relaxed};
use crate::wheel::tick::Tick;

/// The tick at which the sweeper scans a shard by itself.
#[derive(Debug)]
pub(crate) struct NextScan(AtomicU64);

impl NextScan {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Tick::NEVER.0))
    }

    /// Returns `true` if the sweeper scans the shard later than `at` or not at all, as seen after
    /// the caller's fence.
    #[inline]
    pub(crate) fn is_after(&self, at: Tick) -> bool {
        // Relaxed: ordered by the fence of step 1.
        at.0 < self.0.load(Relaxed)
    }

    /// Publishes the tick. Called by the sweeper alone.
    pub(crate) fn set(&self, tick: Tick) {
        // Relaxed: a suspension is ordered by the fence between it and the scan; any other tick may
        // be seen at any time.
        self.0.store(tick.0, Relaxed);
    }
}

/// The shards in which a reference was filed for a tick before their next scan.
#[derive(Debug)]
pub(crate) struct Reports {
    /// Two bits for each shard: one report, and more than one.
    words: Box<[AtomicU64]>,
}

/// The number of shards in a word.
const SHARDS: usize = 32;

/// The bit by which a shard was reported once. The bit above it is set when it was reported again.
const ONCE: u64 = 1;
const AGAIN: u64 = 2;

impl Reports {
    pub(crate) fn new(shards: usize) -> Self {
        Self { words: (0..shards.div_ceil(SHARDS)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Step 3 of the filer. Returns `true` if the shard was reported for the second time since the
    /// sweeper last accepted its reports.
    pub(crate) fn add(&self, shard: usize) -> bool {
        let (word, shift) = (&self.words[shard / SHARDS], 2 * (shard % SHARDS));
        // Relaxed, here and below: the fences of steps 1 and 4 order the reference before the bit,
        // and the bit before the re-check; they pair with the sweeper's fences.
        let reported = word.load(Relaxed) >> shift;
        if reported & ONCE == 0 {
            // Relaxed: as above.
            word.fetch_or(ONCE << shift, Relaxed);
            return false;
        }
        // Relaxed: as above.
        reported & AGAIN == 0 && word.fetch_or(AGAIN << shift, Relaxed) >> shift & AGAIN == 0
    }

    /// Step 3 of the sweeper: clears the bits, and calls `suspend` for each shard that was
    /// reported. A full fence has to follow.
    pub(crate) fn accept(&self, mut suspend: impl FnMut(usize)) {
        for (word, first) in self.words.iter().zip((0..).step_by(SHARDS)) {
            // Relaxed, here and below: ordered by the fences before and after.
            if word.load(Relaxed) == 0 {
                continue;
            }
            // Relaxed: as above.
            let mut reported = word.swap(0, Relaxed);
            while reported != 0 {
                let shard = reported.trailing_zeros() as usize / 2;
                suspend(first + shard);
                reported &= !((ONCE | AGAIN) << (2 * shard));
            }
        }
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Reports;

    fn accepted(reports: &Reports) -> Vec<usize> {
        let mut shards = Vec::new();
        reports.accept(|shard| shards.push(shard));
        shards
    }

    #[test]
    fn each_reported_shard_is_accepted_once() {
        let reports = Reports::new(256);
        assert!(accepted(&reports).is_empty());
        for shard in [255, 0, 31, 32, 255, 255] {
            reports.add(shard);
        }
        assert_eq!(accepted(&reports), [0, 31, 32, 255]);
        assert!(accepted(&reports).is_empty());
    }

    #[test]
    fn only_the_second_report_of_a_shard_counts_as_such() {
        let reports = Reports::new(33);
        for _ in 0..2 {
            assert_eq!(
                [32, 31, 32, 32, 31].map(|shard| reports.add(shard)),
                [false, false, true, false, true]
            );
            assert_eq!(accepted(&reports), [31, 32]);
        }
    }
}
