//! Closures on a wheel with a capacity: the permits that they hold, and that repetitions keep
//! theirs.

use crate::common::desk::{Desk, counting};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tourbillon::scheduler::{Ending, LastRun, Next, RepeatRefusal, Rule, Scheduler};
use tourbillon::{Builder, Refusal};

const SECOND: Duration = Duration::from_secs(1);

fn bounded(capacity: u64) -> Desk {
    Desk::of(Builder::new().capacity(capacity).shards(1))
}

/// Arms timeouts until one is refused. Returns the number that was accepted.
fn burst(scheduler: &Scheduler, delay: Duration) -> usize {
    (0..1000).take_while(|_| scheduler.after(delay, || ()).is_ok()).count()
}

/// A rule that asks to be asked again between any two runs, as a calendar does.
struct Looks(bool);

impl Rule for Looks {
    fn next(&mut self, _last: &LastRun) -> Next {
        self.0 = !self.0;
        if self.0 { Next::AskAfter(SECOND) } else { Next::After(Duration::ZERO) }
    }
}

#[test]
fn a_burst_between_firing_and_arming_takes_no_permit_of_a_repetition() {
    let mut desk = bounded(10);
    let ((rated, rate), (ruled, by_rule)) = (counting(), counting());
    let rate = desk.scheduler.every(SECOND).run(rate).unwrap();
    let by_rule = desk.scheduler.by(Looks(false)).run(by_rule).unwrap();
    desk.advance(SECOND / 2);
    for run in 1..=100 {
        // The sweeper has taken both timers, and nothing has fired them.
        let timers = desk.take(SECOND / 2);
        assert_eq!(timers.len(), 2);
        assert_eq!(burst(&desk.scheduler, SECOND / 2), 8, "two permits are held");
        timers.into_iter().for_each(|timer| desk.scheduler.fire(timer));
        assert_eq!((rate.ending(), by_rule.ending()), (None, None));
        assert_eq!((rated.load(Relaxed), ruled.load(Relaxed)), (run, run));
        assert_eq!(desk.scheduler.wheel().len(), 10);
        desk.advance(SECOND / 2); // the end of the burst
    }
}

#[test]
fn a_closure_that_runs_once_holds_its_permit_until_its_run_begins() {
    let mut desk = bounded(1);
    let after = |desk: &Desk| desk.scheduler.after(SECOND, || ());
    let full = Refusal::AtCapacity { capacity: 1 };
    let first = after(&desk).unwrap();
    let timers = desk.take(SECOND);
    assert_eq!(after(&desk).unwrap_err().reason, full);
    timers.into_iter().for_each(|timer| desk.scheduler.fire(timer));
    assert_eq!(first.scheduled().ending(), Some(Ending::Done));
    // A cancel releases it as well, and so does a timer that is dropped.
    let second = after(&desk).unwrap();
    assert_eq!(after(&desk).unwrap_err().reason, full);
    let _ = second.cancel();
    let third = after(&desk).unwrap();
    drop(desk.take(SECOND));
    assert_eq!(third.scheduled().ending(), Some(Ending::ShutDown));
    // During its run, its permit may be held by another closure.
    let scheduler = desk.scheduler.clone();
    let retries = move || scheduler.after(SECOND, || "again").map(drop).is_ok();
    let retrying = desk.scheduler.after(SECOND, retries).unwrap();
    desk.advance(SECOND);
    assert!(retrying.join().unwrap());
}

#[test]
fn a_repetition_holds_its_permit_until_it_ends() {
    let mut desk = bounded(1);
    let full = Refusal::AtCapacity { capacity: 1 };
    let panicking = desk.scheduler.every(SECOND).run(|| panic!("on purpose")).unwrap();
    let refused = desk.scheduler.every(SECOND).run(|| ()).unwrap_err();
    assert_eq!(refused.reason, RepeatRefusal::Wheel(full));
    catch_unwind(AssertUnwindSafe(|| desk.advance(SECOND))).unwrap_err();
    assert_eq!(panicking.ending(), Some(Ending::Panicked));

    let (runs, mut closure) = counting();
    let scheduler = desk.scheduler.clone();
    let refused = move || assert_eq!(scheduler.after(SECOND, || ()).unwrap_err().reason, full);
    let rate = desk.scheduler.every(SECOND).run(move || {
        refused();
        closure();
    });
    desk.advance(SECOND);
    desk.advance(SECOND);
    assert_eq!((runs.load(Relaxed), rate.as_ref().unwrap().ending()), (2, None));
    let _ = rate.unwrap().cancel();
    assert_eq!(burst(&desk.scheduler, SECOND), 1);
}

/// On several shards, where the wheel may refuse briefly although there is room.
#[test]
#[allow(clippy::disallowed_methods, reason = "threads that arm and cancel beside the sweep")]
fn repetitions_go_on_beside_threads_that_keep_the_wheel_full() {
    let mut desk = Desk::of(Builder::new().capacity(16).shards(4));
    let counts: Vec<_> = (0..8).map(|_| counting()).collect();
    let (runs, closures): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
    let rates = closures.into_iter().map(|run| desk.scheduler.every(SECOND).run(run).unwrap());
    let rates: Vec<_> = rates.collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (scheduler, over) = (desk.scheduler.clone(), &over);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    let armed = (0..16).map_while(|_| scheduler.after(SECOND * 60, || ()).ok());
                    for timeout in armed.collect::<Vec<_>>() {
                        let _ = timeout.cancel();
                    }
                }
            });
        }
        (0..5_000).for_each(|_| desk.advance(SECOND));
        over.store(true, Relaxed);
    });
    for (rate, runs) in rates.iter().zip(&runs) {
        assert_eq!((rate.ending(), runs.load(Relaxed)), (None, 5_000));
    }
}
