//! The tick at which the sweeper scans a shard by itself ([`NextScan`]), and the shards that have
//! other references ([`Reports`]).
//!
//! A *scan* of a shard takes the slots that have expired and finds the next occupied slot. It reads
//! the occupancy bits of all levels. A step of the sweep therefore scans only the shards in which
//! something may be due. The sweeper knows the next expiry of each shard from its last scan, and
//! publishes it in the shard's `next_scan`, which it alone writes.
//!
//! Step F3 of the [handshake](super) reads it, and S1, S3 and S4 write
//! it. F4 adds to the reports, and S3 clears them.
//!
//! # Why no reference is missed
//!
//! *A scan finds each reference whose filer did not notice the suspension.* If a filer loads a
//! `next_scan` from before a suspension, or a bit from before its clearing, its fence F2 precedes
//! the sweeper's fence between the suspension and the scan (S2 or S3). The reference was pushed,
//! and its slot marked, before the one and is searched for after the other.
//!
//! *A reference that is expected is taken at `at`.* The filer has loaded a `next_scan` that is not
//! after `at`. The sweep had not reached that tick when it was written, and cannot reach it
//! without suspending the shard. The filer has loaded it from before the next suspension, so that
//! the scan after that finds the reference. That step takes the slot if it goes to `at` or further,
//! and otherwise `next_scan` is again not after `at`, and remains so until a step to `at` or
//! further. Since the sweeper rests until the earliest `next_scan` of all shards, it does not rest
//! beyond `at` either. The filer therefore needs no re-check.
//!
//! *A reference that is reported is taken at `at`.* Let `t` be the first tick from `at` on that the
//! sweeper publishes. A filer that returns has found an earlier tick in F6, so its fence F5
//! precedes the fence S2 of `t`. The filer has set the bit or found it set. S3 therefore accepts
//! the report after the publication of `t`, or has accepted it before. The next scan of
//! the shard finds the reference, even if the shard was suspended for another reason.
//!
//! *The sweeper does not rest beyond `at`* after a report. The same holds with the fence W2. A
//! filer whose fence F5 comes after W2 finds the wake-up tick in F7 and wakes the sweeper.
//!
//! *A slot that upkeep takes early.* The sweeper takes the slots of a shard one by one, and lowers
//! `next_scan` for the references that it puts back. Then it suspends the shard, passes a fence and
//! scans it. A
//! block with a reference that is not yet written is kept, and checked after each tick that the
//! sweeper publishes and before it rests. If the filer of that reference is expected and its fence
//! precedes that of the suspension, each later check finds the reference written. Otherwise the
//! filer has loaded a `next_scan` whose step suspends the shard, passes a fence and checks the
//! block again.
//!
//! Filers do not lower `next_scan` themselves. A filer could otherwise rely on a tick that another
//! filer has written too late, when the sweep had already passed it.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Relaxed};
use crate::wheel::tick::Tick;
use crossbeam_utils::CachePadded;

/// The tick at which the sweeper scans a shard by itself.
#[derive(Debug)]
pub(crate) struct NextScan(AtomicU64);

impl NextScan {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Tick::NEVER.0))
    }

    /// Step F3. Returns `true` if the sweeper scans the shard later than `at` or not at
    /// all, as seen after the caller's fence.
    #[inline]
    pub(crate) fn is_after(&self, at: Tick) -> bool {
        // Relaxed: ordered by the fence F2, whose partner is the sweeper's fence after a suspension
        // (S2 or S3).
        at.0 < self.0.load(Relaxed)
    }

    /// Publishes the tick. Called by the sweeper alone.
    pub(crate) fn set(&self, tick: Tick) {
        // Relaxed:
        // - a suspension is ordered by the fence between it and the scan (S2 or S3), whose partner
        //   is the filer's fence F2;
        // - any other tick may be seen at any time.
        self.0.store(tick.0, Relaxed);
    }
}

/// The shards in which a reference was filed that the sweeper does not expect.
#[derive(Debug)]
pub(crate) struct Reports {
    /// Two bits for each of the first shards: one report, and more than one.
    first: AtomicU64,
    /// Those of all other shards.
    more: Box<[CachePadded<AtomicU64>]>,
}

/// The number of shards in a word.
const SHARDS: usize = 32;

/// The bit by which a shard was reported once. The bit above it is set when it was reported again.
const ONCE: u64 = 1;
const AGAIN: u64 = 2;

impl Reports {
    pub(crate) fn new(shards: usize) -> Self {
        let more = 1..shards.div_ceil(SHARDS);
        Self {
            first: AtomicU64::new(0),
            more: more.map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        }
    }

    /// Step F4. Returns `true` if the shard was reported for the second time since the
    /// sweeper last accepted its reports.
    pub(crate) fn add(&self, shard: usize) -> bool {
        let shift = 2 * (shard % SHARDS);
        let word = match shard / SHARDS {
            0 => &self.first,
            number => &self.more[number - 1],
        };
        // Relaxed, here and below: the fences F2 and F5 order the reference before the bit,
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

    /// Step S3: clears the bits, and calls `suspend` for each shard that was
    /// reported. A full fence has to follow.
    pub(crate) fn accept(&self, mut suspend: impl FnMut(usize)) {
        let words = std::iter::once(&self.first).chain(self.more.iter().map(|word| &**word));
        for (word, first) in words.zip((0..).step_by(SHARDS)) {
            // Relaxed, here and below: ordered by the fence after, and by that before where a tick
            // or a wake-up tick was just published. Elsewhere a report may be missed, and is
            // accepted at the next call.
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
