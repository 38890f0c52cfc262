//! Runs with a jitter, which is random or fixed.

use crate::common::desk::{Desk, counting};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tourbillon::Jitter;

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

#[test]
fn a_fixed_jitter_delays_each_run_by_the_same() {
    let mut desk = Desk::new();
    let jitter = Jitter::fixed("invoices", SECOND * 3600);
    let off = jitter.draw();
    assert!(off > SECOND * 240 && off < SECOND * 300, "{off:?}");
    let (runs, count) = counting();
    let hourly = desk.scheduler.every(SECOND * 3600).jitter(jitter).run(count).unwrap();
    for hour in 1..=10 {
        let next = SECOND * 3600 * hour + off;
        assert_eq!(desk.since_start(hourly.next_run()), Some(next));
        desk.advance(next - desk.clock.elapsed() - Duration::from_millis(1));
        assert_eq!(runs.load(Relaxed), hour - 1);
        desk.advance(Duration::from_millis(2));
        assert_eq!(runs.load(Relaxed), hour);
    }
}

/// A thousand jobs at midnight.
#[test]
#[cfg(feature = "cron")]
fn jobs_of_one_calendar_spread_and_each_keeps_its_time() {
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;
    use tourbillon::scheduler::{Calendar, Run};

    let (day, step) = (SECOND * 86_400, SECOND * 10);
    let mut desk = Desk::new();
    // The sweeps come five seconds after each whole ten, the first before the last check of the
    // wall clock.
    desk.clock.set_wall(SystemTime::UNIX_EPOCH + day - SECOND * 95);
    let calendar = Calendar::builder("0 0 * * *").wall_clock(desk.clock.clone()).build().unwrap();
    let begun = Arc::new(Mutex::new(Vec::new()));
    for job in 0..1000 {
        let (begun, clock) = (Arc::clone(&begun), desk.clock.clone());
        let jitter = Jitter::fixed(format!("job {job}"), SECOND * 600);
        let run = move |run: Run| {
            let wall = clock.wall().duration_since(run.time.unwrap()).unwrap();
            begun.lock().unwrap().push((job, wall.as_secs() / 10));
        };
        desk.scheduler.by(calendar.clone()).jitter(jitter).run_with(run).unwrap();
    }
    let mut night = || {
        for _ in 0..72 {
            desk.advance(step);
            desk.advance(Duration::ZERO);
        }
        desk.clock.set_wall(desk.clock.wall() + day - step * 72);
        let mut night = std::mem::take(&mut *begun.lock().unwrap());
        night.sort_unstable();
        night
    };
    let (first, second) = (night(), night());
    assert_eq!((first.len(), second.len()), (1000, 1000));
    let busiest = (0..72).map(|ten| first.iter().filter(|(_, at)| *at == ten).count()).max();
    assert!(busiest < Some(40), "{busiest:?} jobs in ten seconds");
    for ((job, before), (same, after)) in first.into_iter().zip(second) {
        assert!(job == same && before.abs_diff(after) <= 1, "{job}: {before}, {after}");
    }
}
