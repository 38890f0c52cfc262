//! Closures at a given time, in virtual time unless threads are the subject.

use crate::common::desk::{Desk, counting};
use crate::common::receive;
use crate::common::sleepless::Sleepless;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tourbillon::scheduler::{
    AfterPanic, Cancel, Ending, JoinError, LastRun, MissedTickBehavior, Next, RepeatRefusal, Rule,
    Scheduled, Scheduler, Unrun,
};
use tourbillon::{Builder, Clock, DriverBuilder, ExecutorJob, Inline, ManualClock, Refusal};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Delays that overflow an instant are clamped to this: 136 years.
const FAR: Duration = Duration::from_secs(1 << 32);

#[test]
fn a_fixed_rate_does_not_drift_over_a_million_periods() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let ticking = desk.scheduler.every(MS * 10).run(closure).unwrap();
    // Each run is up to four ticks late, which does not accumulate.
    for run in 1..=1_000_000 {
        let late = MS * (run % 5);
        desk.advance(MS * 10 * run + late - (desk.clock.now() - desk.clock.start()));
    }
    assert_eq!(count.load(Relaxed), 1_000_000);
    assert_eq!(desk.since_start(ticking.next_run()), Some(MS * 10 * 1_000_001));
}

#[test]
fn missed_runs_burst_are_delayed_or_skipped() {
    let runs = |missed| {
        let mut desk = Desk::new();
        let (count, closure) = counting();
        let ticking = desk.scheduler.every(SECOND).missed(missed).run(closure).unwrap();
        desk.advance(MS * 10_500);
        // Runs that are made up for begin in the next sweeps.
        (0..20).for_each(|_| desk.advance(Duration::ZERO));
        (count.load(Relaxed), desk.since_start(ticking.next_run()).unwrap())
    };
    assert_eq!(runs(MissedTickBehavior::Burst), (10, MS * 11_000));
    assert_eq!(runs(MissedTickBehavior::Delay), (1, MS * 11_500));
    assert_eq!(runs(MissedTickBehavior::Skip), (1, MS * 11_000));
    // Of the nine missed ones, and the one that was due first.
    for (most, expected) in [(0, 1), (1, 2), (3, 4), (8, 9), (9, 10), (10, 10), (u32::MAX, 10)] {
        assert_eq!(runs(MissedTickBehavior::CatchUp(most)), (expected, MS * 11_000), "{most}");
    }
}

#[test]
fn a_rate_and_a_fixed_delay_end_with_their_last_run() {
    let mut desk = Desk::new();
    let start = desk.clock.start();
    let (rate, closure) = counting();
    let at_end = desk.scheduler.every(SECOND).until(start + SECOND * 5).run(closure).unwrap();
    let (fixed, closure) = counting();
    let every = desk.scheduler.every(SECOND).fixed_delay().until(start + MS * 5999);
    let before_end = every.run(closure).unwrap();
    (0..48).for_each(|_| desk.advance(MS * 100));
    assert_eq!((at_end.ending(), before_end.ending()), (None, None));
    (0..30).for_each(|_| desk.advance(MS * 100));
    let done = Some(Ending::Done);
    assert_eq!((at_end.ending(), before_end.ending()), (done, done));
    assert_eq!((rate.load(Relaxed), fixed.load(Relaxed)), (5, 5));
    // Missed runs are made up for.
    let (missed, closure) = counting();
    let now = desk.clock.now();
    desk.scheduler.every(SECOND).until(now + SECOND * 3).run(closure).unwrap();
    desk.advance(SECOND * 10);
    (0..20).for_each(|_| desk.advance(Duration::ZERO));
    assert_eq!(missed.load(Relaxed), 3);
    // No run is due by the end.
    let every = desk.scheduler.every(SECOND).until(desk.clock.now() + MS * 999);
    assert_eq!(every.run(|| ()).unwrap_err().reason, RepeatRefusal::Never);
    let every = desk.scheduler.every(Duration::MAX).until(desk.clock.now() + SECOND);
    assert_eq!(every.run(|| ()).unwrap_err().reason, RepeatRefusal::Never);
}

#[test]
fn by_default_a_clock_that_counts_suspensions_skips_the_runs_of_a_night() {
    let runs_after_night = |clock: &ManualClock, builder: Builder| {
        let (wheel, mut sweeper) = builder.build().unwrap();
        let scheduler = Scheduler::new(wheel);
        let (count, closure) = counting();
        let minute = scheduler.every(SECOND * 60).run(closure).unwrap();
        clock.advance(SECOND * 3600 * 8);
        // Runs that are made up for begin in the next sweeps.
        for _ in 0..500 {
            let _ = sweeper.sweep(|timer| scheduler.fire(timer));
        }
        drop(minute);
        count.load(Relaxed)
    };
    let clock = ManualClock::new();
    let suspended = Builder::new().clock(Sleepless(clock.clone()));
    assert_eq!(runs_after_night(&clock, suspended), 1);
    let stalled = Builder::new().clock(clock.clone());
    assert_eq!(runs_after_night(&clock, stalled), 480, "a wheel that was not swept");
}

#[test]
fn a_fixed_delay_counts_from_the_end_of_a_run() {
    let mut desk = Desk::new();
    let clock = desk.clock.clone();
    let slow = move || clock.advance(MS * 300);
    let every = desk.scheduler.every(SECOND).fixed_delay().first_after(Duration::ZERO);
    let ticking = every.run(slow).unwrap();
    desk.advance(Duration::ZERO);
    assert_eq!(desk.since_start(ticking.next_run()), Some(MS * 1300));
    desk.advance(SECOND);
    assert_eq!(desk.since_start(ticking.next_run()), Some(MS * 2600));
}

#[test]
fn a_fixed_rate_counts_from_when_a_run_was_due() {
    let mut desk = Desk::new();
    let clock = desk.clock.clone();
    let first = desk.clock.start() + MS * 50;
    let every = desk.scheduler.every(SECOND).first_at(first);
    let ticking = every.run(move || clock.advance(MS * 300)).unwrap();
    desk.advance(MS * 50);
    assert_eq!(desk.since_start(ticking.next_run()), Some(MS * 1050));
}

#[test]
fn a_rule_determines_the_runs_and_the_end() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let mut steps = [100, 20, 3].into_iter();
    let rule = move |last: Instant| steps.next().map(|step| last + MS * step);
    let ticking = desk.scheduler.by(rule).run(closure).unwrap();
    for (at, runs) in [(99, 0), (100, 1), (119, 1), (120, 2), (123, 3)] {
        desk.advance(MS * at - (desk.clock.now() - desk.clock.start()));
        assert_eq!(count.load(Relaxed), runs, "at {at} ms");
    }
    assert_eq!(ticking.ending(), Some(Ending::Done));
    assert!(desk.scheduler.wheel().is_empty());
}

/// A rule that asks twice to be asked again before it returns a run.
struct Hesitant(u32);

impl Rule for Hesitant {
    fn next(&mut self, last: &LastRun) -> Next {
        self.0 += 1;
        if self.0 % 3 == 0 { Next::At(last.ended + MS * 10) } else { Next::AskAfter(MS * 4) }
    }
}

#[test]
fn a_rule_can_ask_to_be_asked_again() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let ticking = desk.scheduler.by(Hesitant(0)).run(closure).unwrap();
    let mut at = Vec::new();
    for now in 1..=20 {
        desk.advance(MS);
        at.extend((count.swap(0, Relaxed) > 0).then_some(now));
    }
    assert_eq!(at, [10, 20], "asked at 4 and 8, and due 10 after the end of the last run");
    assert_eq!(ticking.cancel(), Cancel::Prevented);
}

#[test]
fn cancel_reports_whether_a_run_was_prevented() {
    let mut desk = Desk::new();
    let held = Arc::new(());
    let holder = Arc::clone(&held);
    let armed = desk.scheduler.every(SECOND).run(move || drop(Arc::clone(&holder))).unwrap();
    assert_eq!(armed.cancel(), Cancel::Prevented);
    assert_eq!(Arc::strong_count(&held), 1, "its captured values are dropped immediately");
    assert_eq!(armed.cancel(), Cancel::Ended);
    assert_eq!(armed.ending(), Some(Ending::Cancelled));
    assert!(desk.scheduler.wheel().is_empty());

    // The sweeper has taken its timer, and nothing has run it yet.
    let (count, closure) = counting();
    let taken = desk.scheduler.every(SECOND).run(closure).unwrap();
    let timers = desk.take(SECOND);
    assert_eq!((timers.len(), taken.cancel()), (1, Cancel::Prevented));
    timers.into_iter().for_each(|timer| desk.scheduler.fire(timer));
    assert_eq!(count.load(Relaxed), 0);

    // During a run.
    let (send, cancelled) = mpsc::channel();
    let own = Own::default();
    let handle = Arc::clone(&own);
    let running = desk.scheduler.every(SECOND).run(move || {
        let handle = handle.lock().unwrap();
        let handle = handle.as_ref().unwrap();
        send.send((handle.is_running(), handle.cancel(), handle.cancel())).unwrap();
    });
    *own.lock().unwrap() = Some(running.unwrap());
    desk.advance(SECOND);
    assert_eq!(cancelled.try_recv(), Ok((true, Cancel::LastRun, Cancel::Ended)));
    assert!(desk.scheduler.wheel().is_empty());
}

#[test]
fn a_reset_applies_wherever_the_timer_is() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let moved = desk.scheduler.every(SECOND).run(closure).unwrap();
    assert_eq!(moved.reset(MS * 3000), Ok(true));
    desk.advance(MS * 2999);
    assert_eq!((count.load(Relaxed), desk.since_start(moved.next_run())), (0, Some(MS * 3000)));
    assert_eq!(moved.reset_at(desk.clock.start() + MS * 3001), Ok(true));
    desk.advance(MS);
    assert_eq!(count.load(Relaxed), 0);

    // The sweeper has taken its timer, which is superseded.
    let timers = desk.take(MS);
    assert_eq!((timers.len(), moved.reset(MS * 5)), (1, Ok(true)));
    timers.into_iter().for_each(|timer| desk.scheduler.fire(timer));
    assert_eq!(count.load(Relaxed), 0);
    desk.advance(MS * 5);
    assert_eq!(count.load(Relaxed), 1);
    assert_eq!(moved.cancel(), Cancel::Prevented);
    assert_eq!(moved.reset(MS), Ok(false));
}

/// A closure's handle to itself.
type Own = Arc<Mutex<Option<Scheduled>>>;

/// Runs `act` with the closure's own handle, every second. Returns the delay of the next run after
/// the first one began, or `None` if the closure has ended.
fn next_after_a_run(act: impl Fn(&Scheduled, &ManualClock) + Send + 'static) -> Option<Duration> {
    let mut desk = Desk::new();
    let own = Own::default();
    let (handle, clock) = (Arc::clone(&own), desk.clock.clone());
    let running = desk.scheduler.every(SECOND).run(move || {
        act(handle.lock().unwrap().as_ref().unwrap(), &clock);
    });
    let running = running.unwrap();
    *own.lock().unwrap() = Some(running.clone());
    let _ = catch_unwind(AssertUnwindSafe(|| desk.advance(SECOND)));
    // A closure that holds itself would never be dropped. (It may have panicked under this lock.)
    drop(own.lock().unwrap_or_else(PoisonError::into_inner).take());
    desk.since_start(running.next_run()).map(|next| next - SECOND)
}

#[test]
fn a_reset_during_a_run_moves_the_next_run() {
    // Counted from the call, and not from the end of the run.
    let slow = |own: &Scheduled, clock: &ManualClock| {
        assert_eq!(own.reset(MS * 70), Ok(true));
        clock.advance(MS * 50);
    };
    assert_eq!(next_after_a_run(slow), Some(MS * 70));
    // A delay that overflows is far away.
    let absurd = |own: &Scheduled, _: &ManualClock| {
        assert_eq!(own.reset(Duration::MAX), Ok(true));
    };
    assert_eq!(next_after_a_run(absurd), Some(FAR));
    // A run that panics stops, whatever it has requested.
    let failing = |own: &Scheduled, _: &ManualClock| {
        assert_eq!(own.reset(MS * 70), Ok(true));
        panic!("on purpose");
    };
    assert_eq!(next_after_a_run(failing), None);
}

#[test]
fn a_question_beyond_the_range_is_asked_without_a_run() {
    let year = Duration::from_secs(365 * 86_400);
    let mut desk = Desk::of(Builder::new().resolution(Duration::from_micros(1)));
    let (count, closure) = counting();
    let (asked, ask) = counting();
    let rule = AsksIn(year, Box::new(ask));
    let _never = desk.scheduler.by(rule).run(closure).unwrap();
    while asked.load(Relaxed) < 2 {
        let next = desk.sweeper.next_deadline().unwrap();
        desk.advance(next.saturating_duration_since(desk.clock.now()));
    }
    assert_eq!(desk.clock.now() - desk.clock.start(), year);
    assert_eq!(count.load(Relaxed), 0);
}

/// A rule that records what it is asked with, and takes some time.
struct Telling(mpsc::Sender<LastRun>, ManualClock);

impl Rule for Telling {
    fn next(&mut self, last: &LastRun) -> Next {
        self.0.send(*last).unwrap();
        self.1.advance(MS);
        if last.runs == 0 && self.1.now() - last.ended < MS * 5 {
            return Next::AskAfter(MS);
        }
        Next::After(Duration::ZERO)
    }
}

#[test]
fn a_rule_is_asked_with_one_last_run_until_there_is_another() {
    let mut desk = Desk::new();
    let (send, asked) = mpsc::channel();
    let start = desk.clock.now();
    let _ = desk.scheduler.by(Telling(send, desk.clock.clone())).run(|| ()).unwrap();
    (0..20).for_each(|_| desk.advance(MS));
    let asked: Vec<LastRun> = asked.try_iter().collect();
    let first = asked[0];
    assert_eq!((first.runs, first.due, first.began, first.ended), (0, start, start, start));
    let again = asked.iter().take_while(|last| last.runs == 0);
    assert!(again.clone().all(|last| *last == first), "{asked:?}");
    let runs: Vec<u64> = asked.iter().skip(again.count()).map(|last| last.runs).collect();
    assert_eq!(runs, (1..=runs.len() as u64).collect::<Vec<_>>());
    assert!(runs.len() > 2, "{runs:?}");
}

struct AsksIn(Duration, Box<dyn FnMut() + Send>);

impl Rule for AsksIn {
    fn next(&mut self, _last: &LastRun) -> Next {
        (self.1)();
        Next::AskAfter(self.0)
    }
}

#[test]
fn delays_beyond_the_range_of_the_wheel_are_kept_to_the_tick() {
    let year = Duration::from_secs(365 * 86_400);
    let mut desk = Desk::of(Builder::new().resolution(Duration::from_micros(1)));
    let (count, closure) = counting();
    let late = desk.scheduler.after(year, closure).unwrap();
    let (_, never) = counting();
    let rescheduled = desk.scheduler.every(SECOND).run(never).unwrap();
    assert_eq!(rescheduled.reset(year * 2), Ok(true));
    let mut stops = 0;
    while count.load(Relaxed) == 0 {
        let next = desk.sweeper.next_deadline().unwrap();
        desk.advance(next.saturating_duration_since(desk.clock.now()));
        stops += 1;
    }
    assert_eq!(desk.clock.now() - desk.clock.start(), year);
    assert!(stops > 100, "{stops}");
    assert!(late.join().is_ok());
    assert_eq!(desk.since_start(rescheduled.next_run()), Some(year * 2));
}

#[test]
fn a_panic_is_reported_and_ends_the_repetition_or_not() {
    for (after_panic, ending) in
        [(AfterPanic::Stop, Some(Ending::Panicked)), (AfterPanic::GoOn, None)]
    {
        let mut desk = Desk::new();
        let every = desk.scheduler.every(SECOND).after_panic(after_panic);
        let failing = every.run(|| panic!("on purpose")).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| desk.advance(SECOND))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        assert_eq!(failing.ending(), ending);
        assert_eq!(desk.since_start(failing.next_run()).is_some(), ending.is_none());
    }
}

#[test]
fn a_rule_that_panics_ends_the_repetition() {
    let mut desk = Desk::new();
    let mut runs = 0;
    let rule = move |last| {
        runs += 1;
        assert!(runs < 2, "on purpose");
        Some(last + SECOND)
    };
    let failing = desk.scheduler.by(rule).run(|| ()).unwrap();
    catch_unwind(AssertUnwindSafe(|| desk.advance(SECOND))).unwrap_err();
    assert_eq!(failing.ending(), Some(Ending::Panicked));
}

#[test]
fn a_join_returns_the_result_or_the_reason() {
    let mut desk = Desk::new();
    let good = desk.scheduler.after(SECOND, || 42).unwrap();
    let bad = desk.scheduler.after(SECOND, || panic!("on purpose")).unwrap();
    let cancelled = desk.scheduler.after(SECOND, || 43).unwrap();
    assert!(matches!(good.try_join(), Ok(None)));
    assert_eq!(cancelled.cancel(), Cancel::Prevented);
    desk.advance(SECOND);
    assert!(matches!(good.try_join(), Ok(Some(42))));
    assert_eq!(good.scheduled().ending(), Some(Ending::Done));
    let Err(JoinError::Panicked(payload)) = bad.join() else { panic!("it panicked") };
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    assert!(matches!(cancelled.join(), Err(JoinError::NotRun)));

    // The panic is reported, because no thread waits for the result.
    drop(desk.scheduler.after(SECOND, || panic!("on purpose")).unwrap());
    catch_unwind(AssertUnwindSafe(|| desk.advance(SECOND))).unwrap_err();
}

#[test]
fn a_shutdown_returns_the_closures_that_did_not_run() {
    let desk = Desk::new();
    let start = desk.clock.start();
    let run = desk.scheduler.after(SECOND, || "run").unwrap();
    let dropped = desk.scheduler.at(start + SECOND * 2, || "run").unwrap();
    let repeated = desk.scheduler.every(SECOND * 3).run(|| ()).unwrap();
    let mut unrun = desk.scheduler.shutdown();
    unrun.sort_by_key(Unrun::due);
    let due: Vec<_> = unrun.iter().map(|unrun| unrun.due().unwrap() - start).collect();
    assert_eq!(due, [SECOND, SECOND * 2, SECOND * 3]);
    // Each closure can be identified, one by one or by a lookup.
    let all = [run.scheduled(), dropped.scheduled(), &repeated];
    let told: Vec<_> = unrun.iter().map(Unrun::scheduled).collect();
    assert_eq!(told, all);
    assert!(*told[0] != repeated && *told[2] == repeated.clone());
    let state = RandomState::new();
    assert_eq!(state.hash_one(told[2]), state.hash_one(&repeated));
    assert_eq!(repeated.ending(), Some(Ending::ShutDown));
    unrun.swap_remove(0).run();
    drop(unrun);
    assert!(matches!(run.join(), Ok("run")));
    assert!(matches!(dropped.join(), Err(JoinError::NotRun)));
    assert!(desk.scheduler.shutdown().is_empty());

    let refused = desk.scheduler.after(SECOND, || "back").unwrap_err();
    assert_eq!((refused.reason, (refused.value)()), (Refusal::Closed, "back"));
    let refused = desk.scheduler.every(SECOND).run(|| ()).unwrap_err();
    assert_eq!(refused.reason, RepeatRefusal::Wheel(Refusal::Closed));
    assert_eq!(repeated.reset(SECOND), Ok(false));
}

#[test]
fn dropping_a_scheduler_ends_all_waits() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::spawn(Builder::new().clock(clock).driver()).unwrap();
    let once = scheduler.after(SECOND, || ()).unwrap();
    let repeated = scheduler.every(SECOND).run(|| ()).unwrap();
    drop(scheduler);
    assert_eq!(repeated.ending(), Some(Ending::ShutDown));
    assert!(matches!(once.join(), Err(JoinError::NotRun)));
}

#[test]
fn a_timer_that_is_dropped_unfired_ends_its_closure() {
    let mut desk = Desk::new();
    let taken = desk.scheduler.after(SECOND, || ()).unwrap();
    let moved = desk.scheduler.every(SECOND).run(|| ()).unwrap();
    let timers = desk.take(SECOND);
    assert_eq!(moved.reset(SECOND), Ok(true));
    drop(timers);
    assert!(matches!(taken.join(), Err(JoinError::NotRun)));
    assert_eq!(moved.ending(), None, "that timer was superseded");
    let drained = desk.scheduler.after(SECOND, || ()).unwrap();
    drop(desk.scheduler.wheel().drain());
    assert_eq!(moved.ending(), Some(Ending::ShutDown));
    assert!(matches!(drained.try_join(), Err(JoinError::NotRun)));
    // The wheel is dropped, and all waiters are notified.
    let swept = desk.scheduler.after(SECOND, || ()).unwrap();
    drop((desk, moved, drained));
    assert!(matches!(swept.join(), Err(JoinError::NotRun)));
}

#[test]
fn an_executor_that_drops_its_batches_ends_all_waits() {
    let (send, jobs) = mpsc::channel::<ExecutorJob>();
    let clock = ManualClock::new();
    let builder = Builder::new().clock(clock.clone()).driver().executor(move |job| {
        let _ = send.send(job);
    });
    let scheduler = Scheduler::spawn(builder).unwrap();
    let queued = scheduler.after(SECOND, || ()).unwrap();
    clock.advance(SECOND);
    let batch = receive(&jobs, 1);
    drop(scheduler);
    drop(batch);
    assert!(matches!(queued.join(), Err(JoinError::NotRun)));
}

/// A panic whose payload panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "the payload, on purpose");
    }
}

#[test]
fn a_payload_that_panics_leaves_no_closure_busy() {
    let mut desk = Desk::new();
    let mut asked = 0;
    let rule = move |last| {
        asked += 1;
        assert!(asked < 2, "on purpose");
        Some(last + SECOND)
    };
    let by = desk.scheduler.by(rule).after_panic(AfterPanic::GoOn);
    let bombing = by.run(|| std::panic::panic_any(Bomb)).unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| desk.advance(SECOND))).unwrap_err();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(caught))).is_err());
    assert_eq!(bombing.ending(), Some(Ending::Panicked));
}

/// A clock that lags by up to a step.
#[derive(Debug)]
struct Lagging(ManualClock, Duration);

impl Clock for Lagging {
    fn now(&self) -> Instant {
        let steps = (self.0.now() - self.0.start()).as_nanos() / self.1.as_nanos();
        self.0.start() + self.1 * u32::try_from(steps).unwrap()
    }

    fn lag(&self) -> Duration {
        self.1
    }
}

#[test]
fn a_lagging_clock_shortens_no_delay() {
    let days = [1, 5].map(|days| Duration::from_secs(days * 86_400));
    for delay in days {
        let clock = ManualClock::new();
        let lagging = Lagging(clock.clone(), MS * 50);
        let builder = Builder::new().resolution(Duration::from_micros(1)).clock(lagging);
        let (wheel, mut sweeper) = builder.build().unwrap();
        let scheduler = Scheduler::new(wheel);
        clock.advance(MS * 49);
        let (count, closure) = counting();
        let _far = scheduler.after(delay, closure).unwrap();
        while count.load(Relaxed) == 0 {
            let next = sweeper.next_deadline().unwrap();
            clock.advance(next.saturating_duration_since(clock.now()).max(MS));
            let _ = sweeper.sweep(|timer| scheduler.fire(timer));
        }
        assert!(clock.now() - clock.start() >= delay + MS * 49);
    }
}

#[test]
fn a_repetition_ends_with_its_scheduler() {
    let mut desk = Desk::new();
    let scheduler = desk.scheduler.clone();
    let last = desk.scheduler.every(SECOND).run(move || assert!(scheduler.shutdown().is_empty()));
    desk.advance(SECOND);
    assert_eq!(last.unwrap().ending(), Some(Ending::ShutDown));
}

#[test]
fn bad_input_is_refused_and_nothing_is_armed() {
    let desk = Desk::of(Builder::new().capacity(1).shards(1));
    let refused = desk.scheduler.every(Duration::ZERO).run(|| ()).unwrap_err();
    assert_eq!(refused.reason, RepeatRefusal::ZeroPeriod);
    assert_eq!(refused.to_string(), "the period must not be zero");
    let refused = desk.scheduler.by(|_| None).run(|| ()).unwrap_err();
    assert_eq!(refused.reason, RepeatRefusal::Never);
    assert!(desk.scheduler.wheel().is_empty());
    let _armed = desk.scheduler.after(SECOND, || ()).unwrap();
    let refused = desk.scheduler.after(SECOND, || "back").unwrap_err();
    assert_eq!(refused.reason, Refusal::AtCapacity { capacity: 1 });
    assert_eq!((refused.value)(), "back");
}

#[test]
fn a_period_that_overflows_ends_no_repetition() {
    let mut desk = Desk::new();
    let rate = desk.scheduler.every(Duration::MAX).run(|| ()).unwrap();
    assert_eq!(desk.since_start(rate.next_run()), Some(FAR));
    let begun = || desk.scheduler.every(Duration::MAX).first_after(SECOND);
    let rate = begun().run(|| ()).unwrap();
    let skipping = begun().missed(MissedTickBehavior::Skip).run(|| ()).unwrap();
    let delay = begun().fixed_delay().run(|| ()).unwrap();
    let once = desk.scheduler.after(Duration::MAX, || ()).unwrap();
    desk.advance(SECOND * 3);
    for repetition in [rate, skipping, delay] {
        assert_eq!(desk.since_start(repetition.next_run()), Some(FAR + SECOND * 3));
        assert_eq!(repetition.ending(), None);
    }
    assert_eq!(desk.since_start(once.scheduled().next_run()), Some(FAR));
}

#[test]
fn closures_that_are_due_together_are_handed_over_one_by_one() {
    let jobs_of = |set: fn(DriverBuilder) -> DriverBuilder| {
        let (send, jobs) = mpsc::channel::<ExecutorJob>();
        let clock = ManualClock::new();
        let driver = Builder::new().clock(clock.clone()).driver();
        let driver = driver.executor(move |job| drop(send.send(job)));
        let scheduler = Scheduler::spawn(set(driver)).unwrap();
        let due: Vec<_> = (0..6).map(|n| scheduler.after(SECOND, move || n).unwrap()).collect();
        clock.advance(SECOND);
        let mut handed = 0;
        for (n, closure) in due.into_iter().enumerate() {
            let result = loop {
                if let Some(result) = closure.try_join().unwrap() {
                    break result;
                }
                receive(&jobs, 1).remove(0)();
                handed += 1;
            };
            assert_eq!(result, n);
        }
        handed
    };
    assert_eq!(jobs_of(|driver| driver), 6);
    assert_eq!(jobs_of(|driver| driver.batch(100)), 1);
}

#[test]
fn closures_that_are_due_together_run_side_by_side() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::spawn(Builder::new().clock(clock.clone()).driver()).unwrap();
    let (meet, met) = mpsc::channel();
    let (answer, answered) = mpsc::channel::<()>();
    // Each of them waits for the other.
    let first = scheduler.after(SECOND, move || receive(&met, 1)).unwrap();
    let second = scheduler.after(SECOND, move || {
        meet.send(answer).unwrap();
        answered.recv_timeout(SECOND * 60)
    });
    clock.advance(SECOND);
    drop(first.join().unwrap());
    assert_eq!(second.unwrap().join().unwrap(), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a drop that does not end is to be seen")]
fn the_last_handle_may_be_dropped_under_a_lock_that_closures_take() {
    let clock = ManualClock::new();
    let driver = Builder::new().clock(clock.clone()).driver().executor(Inline);
    let scheduler = Scheduler::spawn(driver).unwrap();
    let lock = Arc::new(Mutex::new(()));
    let takes = Arc::clone(&lock);
    let (begin, begun) = mpsc::channel();
    let run = scheduler.after(SECOND, move || {
        begin.send(()).unwrap();
        drop(takes.lock().unwrap());
    });
    let later = scheduler.after(SECOND * 2, || ()).unwrap();
    let held = lock.lock().unwrap();
    clock.advance(SECOND);
    receive(&begun, 1); // the tick thread is in the closure
    let (end, ended) = mpsc::channel();
    let dropping = std::thread::spawn(move || {
        drop(scheduler);
        end.send(()).unwrap();
    });
    receive(&ended, 1);
    drop(held);
    dropping.join().unwrap();
    run.unwrap().join().unwrap();
    assert!(matches!(later.join(), Err(JoinError::NotRun)));
}

#[test]
fn runs_of_one_closure_never_overlap_and_can_be_waited_for() {
    use tourbillon::WaitError;

    let clock = ManualClock::new();
    let builder = Builder::new().clock(clock.clone());
    let scheduler = Scheduler::spawn(builder.driver().batch(1)).unwrap();
    let (began, begun) = mpsc::channel();
    let (release, go_on) = mpsc::channel::<()>();
    let own = Own::default();
    let handle = Arc::clone(&own);
    let slow = scheduler.every(SECOND).run(move || {
        let inside = handle.lock().unwrap().as_ref().unwrap().wait();
        began.send(inside).unwrap();
        go_on.recv().unwrap();
    });
    *own.lock().unwrap() = Some(slow.unwrap());
    clock.advance(SECOND);
    assert_eq!(receive(&begun, 1), [Err(WaitError::InsideHandler)]);
    let slow = own.lock().unwrap().take().unwrap();
    *own.lock().unwrap() = Some(slow.clone());
    for _ in 0..5 {
        clock.advance(SECOND);
        // Another closure runs meanwhile, so the tick thread has seen the time.
        scheduler.after(Duration::ZERO, || ()).unwrap().join().unwrap();
    }
    assert!(begun.try_recv().is_err(), "a second run began within the first");
    release.send(()).unwrap();
    // The next one is late and begins as soon as the first has ended.
    assert_eq!(receive(&begun, 1), [Err(WaitError::InsideHandler)]);
    assert_eq!(slow.cancel(), Cancel::LastRun);
    release.send(()).unwrap();
    assert_eq!(slow.wait(), Ok(()));
    assert!(!slow.is_running());
    assert_eq!(slow.ending(), Some(Ending::Cancelled));
}
