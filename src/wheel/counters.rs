//! Counting what the operations do, at no cost that can be measured.
//!
//! Each caller has counts of its own ([`ThreadCounters`]), in a cache line of its own, so that to
//! count is a plain load and store; only where threads share an id a read-modify-write is
//! needed. The sweeper has counters of its own. Sums are exact once all is quiet, and never show
//! more timers ended than begun.

#![forbid(unsafe_code)]

use crate::sync::{Acquire, AtomicU64, Relaxed, Release};

/// What callers count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadCount {
    /// Timers armed.
    Inserted,
    /// Resets that took effect.
    Reset,
    /// Timers ended by a cancel.
    Cancelled,
    /// Timers ended by a drain, or by an insert that found the wheel closed.
    Returned,
    /// References filed.
    Filed,
    /// Blocks of references made.
    Blocks,
}

const COUNTS: usize = 6;

/// One caller's counters.
#[derive(Debug)]
pub(crate) struct ThreadCounters {
    counters: [AtomicU64; COUNTS],
    /// Whether several threads write them.
    shared: bool,
}

impl ThreadCounters {
    pub(crate) fn new(shared: bool) -> Self {
        Self { counters: std::array::from_fn(|_| AtomicU64::new(0)), shared }
    }

    /// Adds to a count. Returns the caller's new count.
    #[inline]
    pub(crate) fn add(&self, count: ThreadCount, more: u64) -> u64 {
        if self.shared {
            // Release: see below.
            return self.counters[count as usize].fetch_add(more, Release).wrapping_add(more);
        }
        self.add_own(count, more)
    }

    /// As [`add`](Self::add), where no other thread has the caller's id.
    #[inline]
    pub(crate) fn add_own(&self, count: ThreadCount, more: u64) -> u64 {
        debug_assert!(!self.shared);
        let counter = &self.counters[count as usize];
        // Relaxed: no other thread writes these while this one has the number.
        let sum = counter.load(Relaxed).wrapping_add(more);
        // Release: pairs with the Acquire of `get`: who sees a timer's end counted also sees its
        // beginning counted.
        counter.store(sum, Release);
        sum
    }

    /// A count.
    pub(crate) fn get(&self, count: ThreadCount) -> u64 {
        // Acquire: pairs with the Release of `add`.
        self.counters[count as usize].load(Acquire)
    }
}

/// How many powers of two of microseconds the lateness histogram tells apart.
pub(crate) const LATENESS_BUCKETS: usize = 40;

/// What the sweeper counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SweepCount {
    /// Timers that were due and have ended.
    Ended,
    /// Those of them that were handed over.
    Fired,
    /// References visited and dropped, stale or redundant.
    Discarded,
    /// References visited and filed again.
    Requeued,
    /// References filed while others were visited, beyond one for each of those.
    Extra,
    /// Blocks of references made.
    BlocksMade,
    /// Blocks of references freed.
    BlocksFreed,
    /// Sweeps.
    Sweeps,
}

const SWEEP_COUNTS: usize = 8;

/// The sweeper's counters; only it writes.
#[derive(Debug)]
pub(crate) struct SweepCounters {
    counters: [AtomicU64; SWEEP_COUNTS],
    longest_nanos: AtomicU64,
    lateness: [AtomicU64; LATENESS_BUCKETS],
}

impl SweepCounters {
    pub(crate) fn new() -> Self {
        let zero = |_| AtomicU64::new(0);
        Self {
            counters: std::array::from_fn(zero),
            longest_nanos: AtomicU64::new(0),
            lateness: std::array::from_fn(zero),
        }
    }

    /// Adds to a count.
    #[inline]
    pub(crate) fn add(&self, count: SweepCount, more: u64) {
        bump(&self.counters[count as usize], more);
    }

    /// Takes back what was added for something that did not come about.
    pub(crate) fn take_back(&self, count: SweepCount, less: u64) {
        bump(&self.counters[count as usize], less.wrapping_neg());
    }

    /// A count.
    #[inline]
    pub(crate) fn get(&self, count: SweepCount) -> u64 {
        read(&self.counters[count as usize])
    }

    /// Counts a timer that was handed over so late.
    #[inline]
    pub(crate) fn add_late(&self, bucket: usize) {
        bump(&self.lateness[bucket], 1);
    }

    /// How many timers were late, by bucket.
    pub(crate) fn lateness(&self) -> Vec<u64> {
        self.lateness.iter().map(read).collect()
    }

    /// Notes how long a sweep took.
    pub(crate) fn add_sweep(&self, nanos: u64) {
        self.add(SweepCount::Sweeps, 1);
        // Relaxed, twice: no other thread writes it, and nothing hangs on it.
        self.longest_nanos.store(self.longest_nanos.load(Relaxed).max(nanos), Relaxed);
    }

    /// How long the longest sweep took, in nanoseconds.
    pub(crate) fn longest_nanos(&self) -> u64 {
        // Relaxed: as in `add_sweep`.
        self.longest_nanos.load(Relaxed)
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
fn bump(counter: &AtomicU64, more: u64) {
    // Relaxed: no other thread writes it. Release: as in `ThreadCounters::add`.
    counter.store(counter.load(Relaxed).wrapping_add(more), Release);
}

/// Reads a counter of the sweeper.
#[inline]
fn read(counter: &AtomicU64) -> u64 {
    // Acquire: pairs with the Release of `bump`.
    counter.load(Acquire)
}
