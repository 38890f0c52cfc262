//! The count of fired timers, which is the handler of every system.
//!
//! Each thread has a counter of its own, so that handlers on many threads do not share a cache
//! line. A counter packs the number of timers (low half) and the sum of their values (high half,
//! wrapping). One addition updates both, and a timer lost while another fired twice is noticed.

use crate::workload::Plan;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const STRIPES: usize = 64;

/// A counter alone on its cache lines.
#[repr(align(128))]
struct Stripe(AtomicU64);

static TALLY: [Stripe; STRIPES] = [const { Stripe(AtomicU64::new(0)) }; STRIPES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Relaxed: only hands out numbers.
    static MINE: &'static Stripe = &TALLY[NEXT.fetch_add(1, Relaxed) % STRIPES];
}

/// Records that a timer with this value fired.
#[inline]
pub(crate) fn fired(value: u64) {
    // Relaxed: statistics, read once all threads are quiet.
    MINE.with(|stripe| stripe.0.fetch_add(1 | (value << 32), Relaxed));
}

/// The number of timers that fired.
pub(crate) fn count() -> u64 {
    read().0
}

/// Checks that every timer of every caller fired once. A timer's value is its place.
///
/// # Panics
///
/// Panics if one did not.
pub(crate) fn check(plans: &[Plan]) {
    let all = plans.iter().fold((0, 0_u32), |(count, sum), plan| {
        let timers = u32::try_from(plan.delays.len()).expect("fewer timers than 2^32");
        (count + u64::from(timers), (0..timers).fold(sum, u32::wrapping_add))
    });
    assert_eq!(read(), all, "lost, or handed over twice");
}

/// The number of timers that fired, and the sum of their values.
fn read() -> (u64, u32) {
    TALLY.iter().fold((0, 0), |(count, sum), stripe| {
        // Relaxed: statistics.
        let packed = stripe.0.load(Relaxed);
        let (low, high) = (packed & u64::from(u32::MAX), packed >> 32);
        (count + low, sum.wrapping_add(u32::try_from(high).expect("the high half")))
    })
}
