//! The time of a caller's operations during a mass expiry, when a million timers are due at once.

use crate::clock::{now, rest};
use crate::system::System;
use crate::workload::{Move, Workload};
use hdrhistogram::Histogram;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// The number of timers that the caller works on. None of them is due.
const OWN: usize = 10_000;
/// The number of timers of the herd that are armed with one clock reading.
const EACH: u32 = 1000;
/// The time from the start until the herd is due.
const DUE: Duration = Duration::from_secs(5);
/// Operations are timed from [`BEFORE`] that instant until [`AFTER`] it.
const BEFORE: Duration = Duration::from_millis(100);
const AFTER: Duration = Duration::from_secs(1);
/// The quantiles that are reported.
pub(crate) const QUANTILES: [f64; 4] = [0.5, 0.99, 0.9999, 1.0];

/// The quantiles of an operation's time, in microseconds.
pub(crate) fn longest<S: System>(timers: u32) -> Vec<f64> {
    let all = OWN + timers.next_multiple_of(EACH) as usize;
    // Never dropped: the process ends with the measurement.
    let mut system = ManuallyDrop::new(S::caller(S::start(all), all));
    let far = Duration::from_secs(600);
    system.insert(vec![far; OWN].leak());
    let due = now() + DUE;
    for _ in 0..timers.div_ceil(EACH) {
        system.insert(vec![due - now(); EACH as usize].leak());
    }
    let moves: Vec<_> = (0..OWN).map(|place| Move { place, delay: far }).collect();
    let moves: &'static [Move] = moves.leak();
    let mut taken =
        Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in range");
    rest((due - BEFORE).saturating_duration_since(now()));
    for turn in (0..OWN).cycle() {
        let start = now();
        if start > due + AFTER {
            break;
        }
        if turn % 2 == 0 && S::can(Workload::ResetLater) {
            system.reset(&moves[turn..=turn]);
        } else {
            system.cancel_insert(&moves[turn..=turn]);
        }
        let nanos = u64::try_from((now() - start).as_nanos()).unwrap_or(u64::MAX);
        taken.saturating_record(nanos);
    }
    QUANTILES.into_iter().map(|at| taken.value_at_quantile(at) as f64 / 1e3).collect()
}
