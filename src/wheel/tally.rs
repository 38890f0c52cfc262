//! Counting what the verbs do, at no cost that can be measured.
//!
//! Each [`Caller`] has a stripe of counters on a cache line of its own, so that a count is a
//! plain load and store; only the stripe that threads share needs a read-modify-write. The
//! sweeper has counters of its own. Sums are exact once all is quiet, and never show more timers
//! ended than begun.

#![forbid(unsafe_code)]

use crate::sync::{Acquire, AtomicU64, Relaxed, Release};
use crate::wheel::caller::Caller;
use crossbeam_utils::CachePadded;

/// What callers count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    /// Timers armed.
    Inserted,
    /// Resets that took effect.
    Reset,
    /// Timers ended by a cancel.
    Cancelled,
    /// Timers ended by a drain, or by an insert that met the closing of the wheel.
    Returned,
    /// Names filed.
    Filed,
    /// Blocks of names made.
    Blocks,
}

const COUNTS: usize = 6;

/// One caller's counters.
#[derive(Debug)]
struct Stripe([AtomicU64; COUNTS]);

/// All counters that callers write.
#[derive(Debug)]
pub(crate) struct Tally {
    stripes: Box<[CachePadded<Stripe>]>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let stripe = |_| CachePadded::new(Stripe(std::array::from_fn(|_| AtomicU64::new(0))));
        Self { stripes: (0..=Caller::OWN).map(stripe).collect() }
    }

    /// Adds to a count. Answers the caller's new count.
    #[inline]
    pub(crate) fn add(&self, caller: Caller, count: Count, more: u64) -> u64 {
        let counter = &self.stripes[caller.number as usize].0[count as usize];
        if caller.is_shared() {
            // Release: see below.
            return counter.fetch_add(more, Release).wrapping_add(more);
        }
        // Relaxed: no other thread writes this stripe while this one has the number.
        let sum = counter.load(Relaxed).wrapping_add(more);
        // Release: pairs with the Acquire of `sum`: who sees a timer's end counted also sees its
        // beginning counted.
        counter.store(sum, Release);
        sum
    }

    /// Takes back one that was added for something that did not come about.
    pub(crate) fn take_back(&self, caller: Caller, count: Count) {
        self.add(caller, count, 1_u64.wrapping_neg());
    }

    /// The sum over all callers.
    pub(crate) fn sum(&self, count: Count) -> u64 {
        // Acquire: pairs with the Release of `add`.
        self.stripes.iter().map(|stripe| stripe.0[count as usize].load(Acquire)).sum()
    }
}

/// How many powers of two of microseconds the lateness histogram tells apart.
pub(crate) const LATENESS_BUCKETS: usize = 40;

/// What the sweeper counts; only it writes.
#[derive(Debug)]
pub(crate) struct SweeperTally {
    /// Timers that were due and have ended.
    pub(crate) ended: AtomicU64,
    /// Those of them that were handed over.
    pub(crate) fired: AtomicU64,
    /// Names met and dropped, stale or redundant.
    pub(crate) dropped: AtomicU64,
    pub(crate) refiled: AtomicU64,
    pub(crate) extra: AtomicU64,
    pub(crate) blocks_made: AtomicU64,
    pub(crate) blocks_freed: AtomicU64,
    pub(crate) sweeps: AtomicU64,
    pub(crate) longest_nanos: AtomicU64,
    pub(crate) lateness: [AtomicU64; LATENESS_BUCKETS],
}

impl SweeperTally {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            ended: zero(),
            fired: zero(),
            dropped: zero(),
            refiled: zero(),
            extra: zero(),
            blocks_made: zero(),
            blocks_freed: zero(),
            sweeps: zero(),
            longest_nanos: zero(),
            lateness: std::array::from_fn(|_| zero()),
        }
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, more: u64) {
    // Relaxed: no other thread writes it. Release: as in `Tally::add`.
    counter.store(counter.load(Relaxed) + more, Release);
}

/// Takes back what was added to a counter that only this thread writes.
pub(crate) fn take_back(counter: &AtomicU64, less: u64) {
    // Relaxed, Release: as in `bump`.
    counter.store(counter.load(Relaxed) - less, Release);
}

/// Raises a counter that only this thread writes to at least `least`.
pub(crate) fn raise(counter: &AtomicU64, least: u64) {
    // Relaxed: no other thread writes it, and nothing hangs on it.
    counter.store(counter.load(Relaxed).max(least), Relaxed);
}

/// Reads a counter of the sweeper.
#[inline]
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    // Acquire: pairs with the Release of `bump`.
    counter.load(Acquire)
}
