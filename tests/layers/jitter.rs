//! Runs with a random jitter.

use crate::common::desk::{Desk, counting};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn each_run_is_delayed_by_the_jitter_at_most_and_the_rate_does_not_drift() {
    let mut desk = Desk::new();
    let (runs, count) = counting();
    let every = desk.scheduler.every(SECOND * 10).jitter(SECOND * 2).run(count).unwrap();
    let mut seen = BTreeSet::new();
    for run in 1..=100 {
        let next = desk.since_start(every.next_run()).unwrap();
        let off = next - SECOND * 10 * run;
        assert!(off <= SECOND * 2, "run {run} is delayed by {off:?}");
        seen.insert(off);
        desk.advance(next - desk.clock.elapsed() - Duration::from_millis(1));
        assert_eq!(runs.load(Relaxed), run - 1);
        desk.advance(Duration::from_millis(2));
        assert_eq!(runs.load(Relaxed), run);
    }
    assert!(seen.len() > 90, "each is drawn separately");
    let (early, late) = (seen.first().unwrap(), seen.last().unwrap());
    assert!(*early < SECOND / 2 && *late > SECOND * 3 / 2, "{early:?} to {late:?}");
}

#[test]
fn a_rule_counts_from_the_instant_before_the_jitter() {
    let mut desk = Desk::new();
    let start = desk.clock.start();
    let rule = move |last: Instant| {
        assert_eq!((last - start).subsec_nanos(), 0, "without the jitter");
        Some(last + SECOND * 10)
    };
    let by = desk.scheduler.by(rule).jitter(SECOND * 2).run(|| ()).unwrap();
    for _ in 0..600 {
        desk.advance(SECOND / 10);
    }
    assert_eq!(by.ending(), None);
    // The instant that a handle sets is exact, and later runs are counted from it.
    by.reset_at(start + SECOND * 100).unwrap();
    assert_eq!(by.next_run(), Some(start + SECOND * 100));
    for _ in 0..410 {
        desk.advance(SECOND / 10);
    }
    let next = desk.since_start(by.next_run()).unwrap();
    assert!(next >= SECOND * 110 && next <= SECOND * 112, "{next:?}");
}

#[test]
fn a_jitter_that_overflows_is_clamped() {
    let desk = Desk::new();
    let every = desk.scheduler.every(SECOND).jitter(Duration::MAX).run(|| ()).unwrap();
    assert!(every.next_run().unwrap() >= desk.clock.start() + SECOND);
}
