//! Counters of the operations, at no measurable cost.
//!
//! Each thread has counters of its own ([`ThreadCounters`]), in a cache line of its own. Counting
//! is therefore a plain load and store, and a read-modify-write only where threads share an id. The
//! sweeper has counters of its own. Sums are exact if no operation is in progress, and never show
//! more timers ended than begun.

#![forbid(unsafe_code)]

use crate::sync::{Acquire, AtomicU64, Relaxed, Release};

/// The counters of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadCount {
    /// Timers armed.
    Inserted,
    /// Resets that took effect.
    Reset,
    /// Timers ended by a cancel.
    Cancelled,
    /// Timers ended by a drain, or by an insert that found the wheel closed or no memory.
    Returned,
    /// References filed.
    Filed,
    /// Blocks of references made.
    Blocks,
}

const COUNTS: usize = 6;

/// One thread's counters.
#[derive(Debug)]
pub(crate) struct ThreadCounters {
    counters: [AtomicU64; COUNTS],
    /// `true` if several threads write them.
    shared: bool,
}

impl ThreadCounters {
    pub(crate) fn new(shared: bool) -> Self {
        Self { counters: std::array::from_fn(|_| AtomicU64::new(0)), shared }
    }

    /// Adds to a count.
    #[inline]
    pub(crate) fn add(&self, count: ThreadCount, more: u64) {
        if self.shared {
            // Release: as in `add_own`.
            self.counters[count as usize].fetch_add(more, Release);
        } else {
            self.add_own(count, more);
        }
    }

    /// The variant of [`add`](Self::add) for a thread that does not share its id.
    #[inline]
    pub(crate) fn add_own(&self, count: ThreadCount, more: u64) {
        debug_assert!(!self.shared);
        let counter = &self.counters[count as usize];
        // Relaxed: no other thread writes these while this one holds the thread id.
        let sum = counter.load(Relaxed).wrapping_add(more);
        // Release: pairs with the Acquire of `get`, so that a thread that sees a timer's end
        // counted also sees its beginning counted.
        counter.store(sum, Release);
    }

    /// Returns a count.
    pub(crate) fn get(&self, count: ThreadCount) -> u64 {
        // Acquire: pairs with the Release of `add`.
        self.counters[count as usize].load(Acquire)
    }
}

/// The number of buckets of a lateness histogram, in powers of two of microseconds.
pub(crate) const LATENESS_BUCKETS: usize = 40;

/// The counters of the sweeper.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SweepCount {
    /// Timers that were due and have ended.
    Ended,
    /// Timers that have ended and were handed over.
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

/// The sweeper's counters. Only the sweeper writes them.
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

    /// Subtracts from a count what did not take place after all.
    pub(crate) fn take_back(&self, count: SweepCount, less: u64) {
        bump(&self.counters[count as usize], less.wrapping_neg());
    }

    /// Returns a count.
    #[inline]
    pub(crate) fn get(&self, count: SweepCount) -> u64 {
        read(&self.counters[count as usize])
    }

    /// Counts timers that were handed over with this lateness.
    #[inline]
    pub(crate) fn add_late(&self, bucket: usize, timers: u64) {
        bump(&self.lateness[bucket], timers);
    }

    /// Returns the number of late timers by bucket.
    pub(crate) fn lateness(&self) -> Vec<u64> {
        self.lateness.iter().map(read).collect()
    }

    /// Records the duration of a sweep.
    pub(crate) fn add_sweep(&self, nanos: u64) {
        self.add(SweepCount::Sweeps, 1);
        // Relaxed, twice: no other thread writes it, and nothing depends on it.
        self.longest_nanos.store(self.longest_nanos.load(Relaxed).max(nanos), Relaxed);
    }

    /// Returns the duration of the longest sweep, in nanoseconds.
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
