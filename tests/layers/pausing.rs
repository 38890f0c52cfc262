//! Closures that are paused and resumed, in virtual time unless threads are the subject.

use crate::common::desk::{Desk, counting};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};
use tourbillon::scheduler::{
    Calendar, Cancel, Ending, JoinError, LastRun, MissedTickBehavior, MissedTimes, Next, Overlap,
    Rule, Scheduled, ScheduledTask, Scheduler, Unrun,
};
use tourbillon::{Builder, Refusal};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Sweeps until nothing is due.
fn settle(desk: &mut Desk) {
    while desk.sweeper.sweep(|timer| desk.scheduler.fire(timer)).expired > 0 {}
}

fn pass(desk: &mut Desk, time: Duration) {
    desk.clock.advance(time);
    settle(desk);
}

#[test]
fn ticks_missed_during_a_pause_burst_are_delayed_or_skipped() {
    use MissedTickBehavior::{Burst, Delay, Skip};
    let runs = |missed| {
        let mut desk = Desk::new();
        let (count, closure) = counting();
        let rate = desk.scheduler.every(SECOND).missed(missed).run(closure).unwrap();
        pass(&mut desk, SECOND);
        assert!(rate.pause() && rate.is_paused());
        assert_eq!((rate.next_run(), desk.scheduler.wheel().len()), (None, 0));
        pass(&mut desk, SECOND * 9 + SECOND / 2);
        assert_eq!((count.load(Relaxed), rate.ending()), (1, None));
        assert_eq!((rate.resume(), rate.is_paused()), (Ok(true), false));
        settle(&mut desk);
        (count.load(Relaxed), desk.since_start(rate.next_run()).unwrap())
    };
    assert_eq!(runs(Burst), (10, SECOND * 11));
    assert_eq!(runs(Delay), (2, SECOND * 23 / 2));
    assert_eq!(runs(Skip), (2, SECOND * 11));
}

#[test]
fn times_missed_during_a_pause_follow_missed_times() {
    for (missed, at_once) in [
        (MissedTimes::Once, 1),
        (MissedTimes::AllWithin(HOUR * 24), 4),
        (MissedTimes::Skip, 0),
        (MissedTimes::Within(HOUR / 4), 0),
        (MissedTimes::Within(HOUR / 2), 1),
    ] {
        let mut desk = Desk::new();
        desk.clock.set_wall(SystemTime::UNIX_EPOCH + HOUR * 21 / 2);
        let hourly = Calendar::builder("0 * * * *").missed(missed).wall_clock(desk.clock.clone());
        let (count, closure) = counting();
        let hourly = desk.scheduler.by(hourly.build().unwrap()).run(closure).unwrap();
        assert!(hourly.pause());
        pass(&mut desk, HOUR * 23 / 6); // to 14:20
        assert_eq!((count.load(Relaxed), hourly.next_time()), (0, None));
        assert_eq!(hourly.resume(), Ok(true));
        settle(&mut desk);
        assert_eq!(count.swap(0, Relaxed), at_once, "{missed:?}");
        (0..41).for_each(|_| pass(&mut desk, SECOND * 60)); // to 15:01
        assert_eq!((count.load(Relaxed), hourly.ending()), (1, None), "{missed:?}");
    }
}

#[test]
fn a_closure_that_runs_once_runs_at_its_time_or_when_it_is_resumed() {
    let mut desk = Desk::new();
    let [early, late] = [(); 2].map(|()| desk.scheduler.after(SECOND * 10, || 42).unwrap());
    assert!(early.scheduled().pause() && late.scheduled().pause());
    pass(&mut desk, SECOND * 5);
    assert_eq!(early.scheduled().resume(), Ok(true));
    pass(&mut desk, SECOND * 10);
    assert_eq!((early.try_join().unwrap(), late.try_join().unwrap()), (Some(42), None));
    assert_eq!(late.scheduled().resume(), Ok(true));
    settle(&mut desk);
    assert_eq!(late.try_join().unwrap(), Some(42));
    let ended = late.scheduled();
    assert_eq!((ended.pause(), ended.is_paused(), ended.resume()), (false, false, Ok(false)));
}

#[test]
fn a_timer_that_is_on_its_way_runs_nothing_after_a_pause() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let rate = desk.scheduler.every(SECOND).run(closure).unwrap();
    let once = desk.scheduler.after(SECOND, || ()).unwrap();
    let timers = desk.take(SECOND);
    assert!(rate.pause() && once.scheduled().pause());
    // One of them is fired, and an executor drops the other.
    let mut timers = timers.into_iter();
    desk.scheduler.fire(timers.next().unwrap());
    drop(timers);
    assert_eq!((count.load(Relaxed), rate.ending()), (0, None));
    assert_eq!((once.try_join().unwrap(), once.scheduled().ending()), (None, None));
    assert_eq!((rate.resume(), once.scheduled().resume()), (Ok(true), Ok(true)));
    settle(&mut desk);
    assert_eq!((count.load(Relaxed), once.try_join().unwrap()), (1, Some(())));
}

#[test]
fn a_pause_during_a_run_holds_back_the_next() {
    let mut desk = Desk::new();
    let own = Arc::new(Mutex::new(None::<Scheduled>));
    let (handle, (count, mut closure)) = (Arc::clone(&own), counting());
    let rate = desk.scheduler.every(SECOND).run(move || {
        closure();
        let handle = handle.lock().unwrap();
        let own = handle.as_ref().unwrap();
        assert!(own.pause() && own.is_paused() && own.is_running());
    });
    let rate = rate.unwrap();
    *own.lock().unwrap() = Some(rate.clone());
    pass(&mut desk, SECOND * 5);
    assert_eq!((count.load(Relaxed), rate.is_running()), (1, false));
    assert!(desk.scheduler.wheel().is_empty());
    assert_eq!(rate.resume(), Ok(true));
    settle(&mut desk);
    assert_eq!((count.load(Relaxed), rate.is_paused()), (2, true));
    // The only run of a closure that runs once is in progress, so none is to come.
    let (tell, told) = mpsc::channel::<Scheduled>();
    let once = desk.scheduler.after(SECOND, move || told.recv().unwrap().pause()).unwrap();
    tell.send(once.scheduled().clone()).unwrap();
    pass(&mut desk, SECOND);
    assert!(!once.join().unwrap());
    drop(own.lock().unwrap().take());
}

#[test]
fn a_pause_that_ends_during_the_run_holds_back_nothing() {
    let mut desk = Desk::new();
    let own = Arc::new(Mutex::new(None::<Scheduled>));
    let (handle, (count, mut closure)) = (Arc::clone(&own), counting());
    let rate = desk.scheduler.every(SECOND).run(move || {
        closure();
        if let Some(own) = handle.lock().unwrap().take() {
            assert!(own.pause());
            assert_eq!((own.resume(), own.is_paused()), (Ok(true), false));
        }
    });
    let rate = rate.unwrap();
    *own.lock().unwrap() = Some(rate.clone());
    pass(&mut desk, SECOND);
    assert_eq!(desk.since_start(rate.next_run()), Some(SECOND * 2));
    pass(&mut desk, SECOND);
    assert_eq!(count.load(Relaxed), 2);
}

#[test]
fn a_run_that_is_moved_during_a_pause_and_a_run_keeps_its_time() {
    let mut desk = Desk::new();
    let own = Arc::new(Mutex::new(None::<Scheduled>));
    let (handle, (count, mut closure)) = (Arc::clone(&own), counting());
    let rate = desk.scheduler.every(SECOND).run(move || {
        closure();
        if let Some(own) = handle.lock().unwrap().take() {
            assert!(own.pause());
            assert_eq!(own.reset(SECOND * 10), Ok(true));
        }
    });
    let rate = rate.unwrap();
    *own.lock().unwrap() = Some(rate.clone());
    pass(&mut desk, SECOND);
    assert!(rate.is_paused() && desk.scheduler.wheel().is_empty());
    assert_eq!(rate.resume(), Ok(true));
    pass(&mut desk, SECOND * 9);
    assert_eq!(count.load(Relaxed), 1);
    pass(&mut desk, SECOND);
    assert_eq!(count.load(Relaxed), 2);
}

/// The reply to the second question is a run that is due, and a handle pauses during that question.
struct PausedWhenAsked(u32, Arc<Mutex<Option<Scheduled>>>);

impl Rule for PausedWhenAsked {
    fn next(&mut self, _last: &LastRun) -> Next {
        self.0 += 1;
        if self.0 != 2 {
            return Next::AskAfter(SECOND);
        }
        assert!(self.1.lock().unwrap().as_ref().unwrap().pause());
        Next::After(Duration::ZERO)
    }
}

#[test]
fn a_pause_during_a_question_holds_back_the_run_that_is_due() {
    let mut desk = Desk::new();
    let own = Arc::new(Mutex::new(None));
    let (count, closure) = counting();
    let rule = PausedWhenAsked(0, Arc::clone(&own));
    let asked = desk.scheduler.by(rule).run(closure).unwrap();
    *own.lock().unwrap() = Some(asked.clone());
    pass(&mut desk, SECOND);
    assert_eq!((count.load(Relaxed), asked.is_paused()), (0, true));
    assert_eq!(asked.resume(), Ok(true));
    settle(&mut desk);
    assert_eq!((count.load(Relaxed), asked.ending()), (1, None));
    drop(own.lock().unwrap().take());
}

#[test]
fn a_pause_on_the_way_to_a_far_deadline_keeps_the_deadline() {
    let mut desk = Desk::of(Builder::new().resolution(Duration::from_micros(1)));
    let far = desk.scheduler.after(HOUR * 100, || ()).unwrap();
    let timers = desk.take(HOUR * 48);
    assert_eq!(timers.len(), 1);
    assert!(far.scheduled().pause());
    timers.into_iter().for_each(|timer| desk.scheduler.fire(timer));
    assert_eq!(far.scheduled().resume(), Ok(true));
    assert_eq!(desk.since_start(far.scheduled().next_run()), Some(HOUR * 100));
    for _ in 0..52 {
        assert_eq!(far.try_join().unwrap(), None);
        pass(&mut desk, HOUR);
    }
    assert_eq!(far.try_join().unwrap(), Some(()));
}

#[test]
fn a_paused_closure_can_be_moved_or_cancelled() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let rate = desk.scheduler.every(SECOND).run(closure).unwrap();
    assert!(rate.pause() && rate.pause());
    assert_eq!(rate.reset(SECOND * 5), Ok(true));
    assert!(rate.is_paused() && desk.scheduler.wheel().is_empty());
    assert_eq!((rate.resume(), rate.resume()), (Ok(true), Ok(false)));
    pass(&mut desk, SECOND * 4);
    assert_eq!(count.load(Relaxed), 0);
    pass(&mut desk, SECOND);
    assert_eq!(count.load(Relaxed), 1);
    assert!(rate.pause());
    assert_eq!(rate.cancel(), Cancel::Prevented);
    assert_eq!((rate.is_paused(), rate.resume()), (false, Ok(false)));
    assert_eq!(rate.ending(), Some(Ending::Cancelled));
}

#[test]
fn a_shutdown_returns_a_paused_closure() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let rate = desk.scheduler.every(SECOND).run(closure).unwrap();
    let once = desk.scheduler.after(SECOND, || 42).unwrap();
    assert!(rate.pause() && once.scheduled().pause());
    pass(&mut desk, SECOND * 3);
    desk.scheduler.wheel().close();
    assert_eq!((rate.resume(), rate.is_paused()), (Err(Refusal::Closed), true));
    let unrun = desk.scheduler.shutdown();
    let due: Vec<_> = unrun.iter().map(|unrun| desk.since_start(unrun.due())).collect();
    assert_eq!(due, [Some(SECOND); 2]);
    unrun.into_iter().for_each(Unrun::run);
    assert_eq!((count.load(Relaxed), once.join().unwrap()), (1, 42));
    assert_eq!((rate.ending(), rate.is_paused()), (Some(Ending::ShutDown), false));
}

#[test]
fn a_paused_closure_ends_with_its_scheduler() {
    let clock = tourbillon::ManualClock::new();
    let scheduler = Scheduler::spawn(Builder::new().clock(clock).driver()).unwrap();
    let once = scheduler.after(SECOND, || ()).unwrap();
    assert!(once.scheduled().pause());
    drop(scheduler);
    assert_eq!(once.scheduled().ending(), Some(Ending::ShutDown));
    assert!(matches!(once.join(), Err(JoinError::NotRun)));

    // A wheel that is swept elsewhere continues, and its closures with it.
    let desk = Desk::new();
    let once = desk.scheduler.after(SECOND, || 42).unwrap();
    let lost = desk.scheduler.after(SECOND, || 43).unwrap();
    assert!(once.scheduled().pause() && lost.scheduled().pause());
    let Desk { clock, mut sweeper, scheduler } = desk;
    let fires = scheduler.downgrade();
    drop(scheduler);
    assert!(matches!(lost.join(), Err(JoinError::NotRun)), "nothing could resume it");
    assert_eq!(once.scheduled().resume(), Ok(true));
    clock.advance(SECOND);
    let _ = sweeper.sweep(|timer| fires.fire(timer));
    assert_eq!(once.join().unwrap(), 42);
}

#[test]
fn a_paused_closure_keeps_its_permit() {
    let mut desk = Desk::of(Builder::new().capacity(1).shards(1));
    let rate = desk.scheduler.every(SECOND).run(|| ()).unwrap();
    assert!(rate.pause() && desk.scheduler.wheel().is_empty());
    let refused = desk.scheduler.after(SECOND, || ()).unwrap_err();
    assert_eq!(refused.reason, Refusal::AtCapacity { capacity: 1 });
    assert_eq!(rate.resume(), Ok(true));
    pass(&mut desk, SECOND);
    assert_eq!(rate.ending(), None);
}

#[test]
fn no_task_begins_while_its_repetition_is_paused() {
    let mut desk = Desk::new();
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let job = move || {
        let counted = Arc::clone(&counted);
        async move {
            counted.fetch_add(1, Relaxed);
        }
    };
    let spawn = |task: ScheduledTask| {
        assert!(pin!(task).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    };
    let every = desk.scheduler.every(SECOND).missed(MissedTickBehavior::Skip);
    let tasks = every.run_tasks(Overlap::Forbid, spawn, job).unwrap();
    pass(&mut desk, SECOND);
    assert!(tasks.scheduled().pause());
    pass(&mut desk, SECOND * 5);
    assert_eq!(count.load(Relaxed), 1);
    assert_eq!(tasks.scheduled().resume(), Ok(true));
    settle(&mut desk);
    assert_eq!(count.load(Relaxed), 2);
}

/// Each firing races with a pause, a resume, or neither. The threads may be suspended together, and
/// the closure paused, for as long as 20,000 firings take.
#[test]
#[allow(clippy::disallowed_methods, reason = "threads that pause and resume beside the sweep")]
fn a_closure_may_be_paused_and_resumed_by_several_threads_while_it_runs() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let rate = desk.scheduler.every(SECOND).missed(MissedTickBehavior::Skip).run(closure).unwrap();
    let over = AtomicBool::new(false);
    let mut rounds = 0;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    assert!(rate.pause());
                    assert!(rate.resume().is_ok());
                }
            });
        }
        while rounds < 20_000 || (count.load(Relaxed) == 0 && rounds < 100_000_000) {
            desk.advance(SECOND);
            rounds += 1;
        }
        over.store(true, Relaxed);
    });
    assert_eq!((rate.ending(), rate.is_running()), (None, false));
    // At rest, the result is the same as without threads.
    let ran = count.load(Relaxed);
    assert!((1..=rounds).contains(&ran), "{ran} of {rounds}");
    assert!(rate.pause());
    pass(&mut desk, SECOND * 5);
    assert_eq!(count.load(Relaxed), ran);
    assert_eq!(rate.resume(), Ok(true));
    settle(&mut desk);
    pass(&mut desk, SECOND);
    assert_eq!((count.load(Relaxed), desk.scheduler.wheel().len()), (ran + 2, 1));
}
