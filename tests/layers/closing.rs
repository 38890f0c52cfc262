//! Closures whose run takes more than one timer, when a scheduler is closed or shut down.

use crate::common::desk::{Desk, counting};
use crate::common::receive;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};
use tourbillon::scheduler::{
    Calendar, Ending, JoinError, LastRun, Next, Rule, Scheduled, Scheduler, Unrun,
};
use tourbillon::{Builder, Clock, ManualClock, Refusal};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Half an hour before noon.
fn before_noon(builder: Builder) -> Desk {
    let desk = Desk::of(builder);
    desk.clock.set_wall(SystemTime::UNIX_EPOCH + HOUR * 23 / 2);
    desk
}

fn noon(clock: &ManualClock) -> Calendar {
    Calendar::builder("0 12 * * *").wall_clock(clock.clone()).build().unwrap()
}

/// Sweeps from deadline to deadline for a time.
fn pass(desk: &mut Desk, time: Duration) {
    let until = desk.clock.now() + time;
    while let Some(next) = desk.sweeper.next_deadline().filter(|next| *next <= until) {
        desk.advance(next.saturating_duration_since(desk.clock.now()));
    }
    desk.advance(until.saturating_duration_since(desk.clock.now()));
}

#[test]
fn scheduled_closures_run_once_more_after_a_close() {
    let mut desk = before_noon(Builder::new().resolution(Duration::from_micros(1)));
    let counts: Vec<_> = (0..3).map(|_| counting()).collect();
    let (runs, mut closures): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
    let mut next = || closures.pop().unwrap();
    let calendar = desk.scheduler.by(noon(&desk.clock)).run(next()).unwrap();
    let rate = desk.scheduler.every(SECOND).run(next()).unwrap();
    let far = desk.scheduler.after(HOUR * 480, next()).unwrap();
    assert!(desk.scheduler.wheel().longest_delay() < HOUR * 480);
    desk.scheduler.close();
    let refused = desk.scheduler.after(SECOND, || "back").unwrap_err();
    assert_eq!((refused.reason, (refused.value)()), (Refusal::Closed, "back"));
    assert_eq!(rate.reset(SECOND * 2), Ok(true));

    let runs = || runs.iter().map(|runs| runs.load(Relaxed)).collect::<Vec<_>>();
    pass(&mut desk, SECOND * 10);
    assert_eq!((runs(), rate.ending()), (vec![0, 1, 0], Some(Ending::ShutDown)));
    pass(&mut desk, HOUR / 2 - SECOND * 11);
    assert_eq!((runs(), calendar.ending()), (vec![0, 1, 0], None));
    pass(&mut desk, SECOND * 2);
    assert_eq!((runs(), calendar.ending()), (vec![0, 1, 1], Some(Ending::ShutDown)));
    pass(&mut desk, HOUR * 480);
    assert_eq!((runs(), far.scheduled().ending()), (vec![1, 1, 1], Some(Ending::Done)));
    assert!(desk.scheduler.shutdown().is_empty());
}

#[test]
fn a_shutdown_returns_closures_that_a_closed_wheel_refused_a_timer() {
    let mut desk = before_noon(Builder::new().resolution(Duration::from_micros(1)));
    let (runs, closure) = counting();
    let far = desk.scheduler.after(HOUR * 480, || "far").unwrap();
    let later = desk.scheduler.by(noon(&desk.clock)).run(closure).unwrap();
    desk.scheduler.wheel().close();
    pass(&mut desk, HOUR * 48);
    assert!(desk.scheduler.wheel().is_empty());
    assert_eq!((runs.load(Relaxed), later.ending(), far.scheduled().ending()), (0, None, None));
    assert_eq!(later.reset(SECOND), Err(Refusal::Closed));
    let unrun = desk.scheduler.shutdown();
    assert_eq!((unrun.len(), later.ending()), (2, Some(Ending::ShutDown)));
    unrun.into_iter().for_each(Unrun::run);
    assert_eq!((runs.load(Relaxed), far.join().unwrap()), (1, "far"));
}

#[test]
fn a_calendar_runs_even_if_the_wheel_was_closed_since_its_last_check() {
    let mut desk = before_noon(Builder::new());
    desk.clock.advance(HOUR / 2 - SECOND * 30);
    let (runs, closure) = counting();
    let calendar = desk.scheduler.by(noon(&desk.clock)).run(closure).unwrap();
    desk.scheduler.wheel().close();
    pass(&mut desk, SECOND * 29);
    assert_eq!((runs.load(Relaxed), calendar.ending()), (0, None));
    pass(&mut desk, SECOND * 2);
    assert_eq!((runs.load(Relaxed), calendar.ending()), (1, Some(Ending::ShutDown)));
}

#[test]
fn a_run_that_is_due_follows_the_question_in_the_same_sweep() {
    let mut desk = before_noon(Builder::new());
    desk.clock.advance(HOUR / 2 - SECOND * 30);
    let (runs, closure) = counting();
    let calendar = desk.scheduler.by(noon(&desk.clock)).run(closure).unwrap();
    desk.advance(SECOND * 31);
    assert_eq!((runs.load(Relaxed), calendar.ending()), (1, None));
}

#[test]
fn a_shutdown_returns_closures_on_their_way() {
    let mut desk = before_noon(Builder::new().resolution(Duration::from_micros(1)));
    let (runs, closure) = counting();
    let calendar = desk.scheduler.by(noon(&desk.clock)).run(closure).unwrap();
    let far = desk.scheduler.after(HOUR * 480, || "far").unwrap();
    // The sweeper has taken the timers of a question and of a hop, and nothing has fired them.
    let mut timers = desk.take(SECOND * 60);
    assert_eq!(timers.len(), 1);
    timers.extend(desk.take(HOUR * 48));
    assert_eq!(timers.len(), 2);
    let unrun = desk.scheduler.shutdown();
    let whose: Vec<_> = unrun.iter().map(Unrun::scheduled).collect();
    assert!(whose.len() == 2 && whose.contains(&&calendar) && whose.contains(&far.scheduled()));
    timers.into_iter().for_each(|timer| desk.scheduler.fire(timer));
    assert_eq!((runs.load(Relaxed), calendar.ending()), (0, Some(Ending::ShutDown)));
    drop(unrun);
    assert!(matches!(far.join(), Err(JoinError::NotRun)));
    assert!(desk.scheduler.shutdown().is_empty());
}

/// A rule that calls a function when it is asked for the second time, and never runs.
struct Asked<F>(u32, F);

impl<F: FnMut() + Send + 'static> Rule for Asked<F> {
    fn next(&mut self, _last: &LastRun) -> Next {
        self.0 += 1;
        if self.0 == 2 {
            (self.1)();
        }
        Next::AskAfter(SECOND)
    }
}

#[test]
fn a_rule_may_shut_its_scheduler_down() {
    let mut desk = Desk::new();
    let scheduler = desk.scheduler.downgrade();
    let (send, handed_back) = mpsc::channel();
    let other = desk.scheduler.by(Asked(2, || ())).run(|| ()).unwrap();
    let rule = Asked(0, move || send.send(scheduler.shutdown()).unwrap());
    let asked = desk.scheduler.by(rule).run(|| ()).unwrap();
    // The first one that is fired is the rule that does nothing.
    desk.advance(SECOND);
    let unrun = handed_back.try_recv().unwrap();
    assert_eq!(unrun.iter().map(Unrun::scheduled).collect::<Vec<_>>(), [&other]);
    assert_eq!(asked.ending(), Some(Ending::ShutDown));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a rule is asked on one thread beside another")]
fn a_shutdown_waits_for_a_rule_that_is_being_asked() {
    let mut desk = Desk::new();
    let (ask, asked) = mpsc::channel();
    let (answer, answered) = mpsc::channel::<()>();
    let rule = Asked(0, move || {
        ask.send(()).unwrap();
        answered.recv().unwrap();
    });
    let scheduled = desk.scheduler.by(rule).run(|| ()).unwrap();
    let timer = desk.take(SECOND).pop().unwrap();
    let fires = desk.scheduler.clone();
    let firing = std::thread::spawn(move || fires.fire(timer));
    receive(&asked, 1);
    let shuts = desk.scheduler.clone();
    let shutting = std::thread::spawn(move || shuts.shutdown());
    while !desk.scheduler.wheel().is_closed() {
        std::thread::yield_now();
    }
    answer.send(()).unwrap();
    let unrun = shutting.join().unwrap();
    firing.join().unwrap();
    assert_eq!(unrun.iter().map(Unrun::scheduled).collect::<Vec<_>>(), [&scheduled]);
    assert_eq!(scheduled.ending(), Some(Ending::ShutDown));
}

#[test]
fn dropping_the_scheduler_ends_waits_for_parked_closures() {
    let builder = || Builder::new().resolution(Duration::from_micros(1));
    // The closure has no timer when the scheduler is dropped, and none afterwards.
    for closes_first in [true, false] {
        let mut desk = Desk::of(builder());
        let far = desk.scheduler.after(HOUR * 480, || ()).unwrap();
        let fires = desk.scheduler.downgrade();
        desk.scheduler.wheel().close();
        let timer = desk.take(HOUR * 48).pop().unwrap();
        let fire = |scheduler: &Scheduler| scheduler.fire(timer);
        let Desk { scheduler, sweeper, .. } = desk;
        match closes_first {
            true => {
                fire(&fires);
                assert_eq!(far.scheduled().ending(), None);
                drop(scheduler);
            }
            false => {
                drop(scheduler);
                assert_eq!(far.scheduled().ending(), None);
                fire(&fires);
            }
        }
        drop(sweeper);
        assert_eq!(far.scheduled().ending(), Some(Ending::ShutDown));
        assert!(matches!(far.join(), Err(JoinError::NotRun)));
    }
}

#[test]
fn a_calendar_that_was_cancelled_leaves_nothing_behind() {
    let desk = before_noon(Builder::new());
    let held = std::sync::Arc::new(());
    let holder = std::sync::Arc::clone(&held);
    let calendar: Scheduled =
        desk.scheduler.by(noon(&desk.clock)).run(move || drop(holder.clone())).unwrap();
    let _ = calendar.cancel();
    assert_eq!(std::sync::Arc::strong_count(&held), 1);
    assert!(desk.scheduler.shutdown().is_empty());
}

/// Minutes pass, and the calendar checks the clock.
#[test]
fn a_returned_calendar_is_due_at_its_run_and_not_at_its_next_check() {
    let mut desk = before_noon(Builder::new());
    let day = HOUR * 24;
    let yearly = Calendar::builder("0 0 1 1 *").wall_clock(desk.clock.clone()).build().unwrap();
    let (ran, year) = counting();
    let yearly = desk.scheduler.by(yearly).run(year).unwrap();
    let (done, at_noon) = counting();
    let daily = desk.scheduler.by(noon(&desk.clock)).run(at_noon).unwrap();
    let asked = desk.scheduler.by(Asked(2, || ())).run(|| ()).unwrap();
    let (new_year, at_noon) = (day * 365 - HOUR * 23 / 2, HOUR / 2);
    assert_eq!(desk.since_start(yearly.next_run()), Some(new_year));
    pass(&mut desk, SECOND * 100);
    let resolution = desk.scheduler.wheel().resolution();
    let near = |at: Option<Duration>, due| at.unwrap() >= due && at.unwrap() <= due + resolution;
    for (scheduled, due) in [(&yearly, new_year), (&daily, at_noon)] {
        assert!(near(desk.since_start(scheduled.next_run()), due), "{:?}", scheduled.next_run());
    }
    assert_eq!(asked.next_run(), None);
    let unrun = desk.scheduler.shutdown();
    for unrun in &unrun {
        let due = desk.since_start(unrun.due());
        match unrun.scheduled() {
            scheduled if *scheduled == yearly => {
                assert!(near(due, new_year));
                assert_eq!(unrun.time(), Some(SystemTime::UNIX_EPOCH + day * 365));
            }
            scheduled if *scheduled == daily => assert!(near(due, at_noon)),
            scheduled => assert_eq!((scheduled, due, unrun.time()), (&asked, None, None)),
        }
    }
    // The closures that were due within a day are run.
    let soon = desk.clock.now() + day;
    let due = |unrun: &Unrun| unrun.due().is_some_and(|due| due <= soon);
    unrun.into_iter().filter(due).for_each(Unrun::run);
    assert_eq!((ran.load(Relaxed), done.load(Relaxed)), (0, 1));
}

#[cfg(feature = "future")]
#[test]
fn a_future_that_sweeps_ends_with_the_last_handle_of_the_scheduler() {
    use std::pin::pin;
    use std::task::{Context, Waker};
    use tourbillon::future::undriven;

    let clock = ManualClock::new();
    let (wheel, undriven) = undriven(Builder::new().clock(clock.clone())).unwrap();
    let (scheduler, handler) = Scheduler::with_handler(wheel);
    let mut driving = pin!(undriven.drive_by(|_| std::future::pending::<()>(), handler));
    let mut poll = || driving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let soon = scheduler.after(SECOND, || 42).unwrap();
    let late = scheduler.after(HOUR, || 43).unwrap();
    clock.advance(SECOND);
    assert!(poll().is_pending());
    assert_eq!(soon.join().unwrap(), 42);
    let handle = scheduler.downgrade();
    drop(scheduler);
    assert!(matches!(late.join(), Err(JoinError::NotRun)));
    assert_eq!(handle.after(SECOND, || ()).unwrap_err().reason, Refusal::Closed);
    assert!(poll().is_ready());
}
