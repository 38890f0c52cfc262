//! What has fired: the trivial handler of every system.
//!
//! A counter for each thread, so that handlers that run on many threads do not meet on one word.
//! A counter packs how many (low half) and the sum of the values (high half, wrapping), so that
//! one addition counts, and a timer lost with another handed over twice is noticed.

use crate::workload::Plan;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const STRIPES: usize = 64;

/// A counter that has its cache lines to itself.
#[repr(align(128))]
struct Stripe(AtomicU64);

static TALLY: [Stripe; STRIPES] = [const { Stripe(AtomicU64::new(0)) }; STRIPES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Relaxed: only hands out numbers.
    static MINE: &'static Stripe = &TALLY[NEXT.fetch_add(1, Relaxed) % STRIPES];
}

/// A timer with this value was handed over.
#[inline]
pub(crate) fn fired(value: u64) {
    // Relaxed: figures, read once all is quiet.
    MINE.with(|stripe| stripe.0.fetch_add(1 | (value << 32), Relaxed));
}

/// How many were handed over.
pub(crate) fn count() -> u64 {
    read().0
}

/// Holds that every caller's timers were handed over, each once: their values are their places.
///
/// # Panics
///
/// If they were not.
pub(crate) fn check(plans: &[Plan]) {
    let all = plans.iter().fold((0, 0_u32), |(count, sum), plan| {
        let timers = u32::try_from(plan.delays.len()).expect("fewer timers than 2^32");
        (count + u64::from(timers), (0..timers).fold(sum, u32::wrapping_add))
    });
    assert_eq!(read(), all, "lost, or handed over twice");
}

/// How many, and the sum of their values.
fn read() -> (u64, u32) {
    TALLY.iter().fold((0, 0), |(count, sum), stripe| {
        // Relaxed: figures.
        let packed = stripe.0.load(Relaxed);
        let (low, high) = (packed & u64::from(u32::MAX), packed >> 32);
        (count + low, sum.wrapping_add(u32::try_from(high).expect("the high half")))
    })
}
