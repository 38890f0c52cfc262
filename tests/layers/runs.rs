//! The description that a run receives: its number, its due instant, and its wall-clock time.

use crate::common::desk::Desk;
use std::pin::pin;
use std::sync::mpsc::{self, Receiver};
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};
use tourbillon::Clock;
use tourbillon::scheduler::{
    By, Calendar, MissedTimes, Overlap, Rule, Run, Scheduled, ScheduledTask, Unrun,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The descriptions that the runs of a repetition receive.
fn runs_of<R: Rule>(by: By<'_, R>) -> (Scheduled, Receiver<Run>) {
    let (send, runs) = mpsc::channel();
    (by.run_with(move |run| send.send(run).unwrap()).unwrap(), runs)
}

/// The hours of the first day that are made up for after a gap from 10:30 to 14:20.
fn hours_of(missed: MissedTimes) -> Vec<f64> {
    let mut desk = Desk::new();
    desk.clock.set_wall(SystemTime::UNIX_EPOCH + HOUR * 21 / 2);
    let hourly = Calendar::builder("0 * * * *").missed(missed).wall_clock(desk.clock.clone());
    let (_, received) = runs_of(desk.scheduler.by(hourly.build().unwrap()));
    desk.clock.advance(HOUR * 23 / 6);
    while desk.sweeper.sweep(|timer| desk.scheduler.fire(timer)).expired > 0 {}
    let hour = |run: Run| run.time.unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    received.try_iter().map(|run| hour(run).as_secs_f64() / 3600.0).collect()
}

#[test]
fn a_late_run_receives_its_own_time() {
    assert_eq!(hours_of(MissedTimes::AllWithin(HOUR * 24)), [11.0, 12.0, 13.0, 14.0]);
    assert_eq!(hours_of(MissedTimes::Once), [11.0]);
    assert_eq!(hours_of(MissedTimes::Within(HOUR)), [14.0]);
}

#[test]
fn a_run_receives_its_number_and_due_instant() {
    let mut desk = Desk::new();
    let start = desk.clock.start();
    let (rate, received) = runs_of(desk.scheduler.every(SECOND).jitter(SECOND / 2));
    desk.advance(SECOND * 3 / 2);
    desk.advance(SECOND * 3);
    let runs: Vec<Run> = received.try_iter().collect();
    let due: Vec<_> = runs.iter().map(|run| (run.number, run.due - start, run.time)).collect();
    assert_eq!(due, [(1, SECOND, None), (2, SECOND * 2, None)]);
    assert!(runs[0].late < SECOND && runs[1].late >= SECOND * 2, "{runs:?}");
    assert_eq!(rate.reset(SECOND * 10), Ok(true));
    desk.advance(SECOND * 10);
    let moved = received.try_recv().unwrap();
    let due = desk.clock.now() - start;
    assert_eq!((moved.number, moved.due - start, moved.moved), (3, due, true));
}

/// Each run begins a quarter of a second late.
#[test]
fn a_run_is_due_without_its_jitter_and_late_after_it() {
    let mut desk = Desk::new();
    let start = desk.clock.start();
    let (rate, received) = runs_of(desk.scheduler.every(SECOND * 10).jitter(SECOND * 2));
    for number in 1..=20 {
        let next = desk.since_start(rate.next_run()).unwrap();
        desk.advance(next + SECOND / 4 - desk.clock.elapsed());
        let run = received.try_recv().unwrap();
        assert_eq!((run.number, run.due - start), (u64::from(number), SECOND * 10 * number));
        assert!(run.late > SECOND / 5 && run.late <= SECOND / 4, "{run:?}");
    }
}

#[test]
fn a_returned_run_is_due_without_its_jitter() {
    let desk = Desk::new();
    let (rate, received) = runs_of(desk.scheduler.every(SECOND * 10).jitter(SECOND * 2));
    let delayed = desk.since_start(rate.next_run()).unwrap();
    assert!(delayed > SECOND * 10, "the jitter is included");
    desk.scheduler.shutdown().into_iter().for_each(Unrun::run);
    let run = received.try_recv().unwrap();
    assert_eq!((run.number, run.due - desk.clock.start()), (1, SECOND * 10));
}

#[test]
fn a_moved_run_has_no_wall_clock_time() {
    let mut desk = Desk::new();
    let hourly = Calendar::builder("0 * * * *").wall_clock(desk.clock.clone()).build().unwrap();
    let (moved, received) = runs_of(desk.scheduler.by(hourly));
    assert_eq!(moved.reset(SECOND), Ok(true));
    desk.advance(SECOND);
    let run = received.try_recv().unwrap();
    assert_eq!((run.number, run.time, run.moved), (1, None, true));
}

#[test]
fn a_returned_run_receives_its_time() {
    let mut desk = Desk::new();
    let start = desk.clock.wall();
    let hourly = Calendar::builder("0 * * * *").wall_clock(desk.clock.clone()).build().unwrap();
    let (_, received) = runs_of(desk.scheduler.by(hourly));
    (0..61).for_each(|_| desk.advance(SECOND * 60));
    assert_eq!(received.try_recv().unwrap().number, 1);
    desk.scheduler.shutdown().into_iter().for_each(Unrun::run);
    let run = received.try_recv().unwrap();
    let time = run.time.unwrap().duration_since(start).unwrap();
    assert!(time > HOUR && time <= HOUR * 2, "{time:?}");
    assert_eq!((run.number, run.moved, run.late), (2, false, Duration::ZERO));
    let ahead = run.due.duration_since(desk.clock.now());
    assert!(ahead > Duration::ZERO && ahead <= HOUR, "{ahead:?}");
}

#[test]
fn a_job_receives_the_run_of_its_task() {
    let mut desk = Desk::new();
    let (send, received) = mpsc::channel();
    let job = move |run: Run| {
        let send = send.clone();
        async move { send.send(run.number).unwrap() }
    };
    let spawn = |task: ScheduledTask| {
        assert!(pin!(task).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    };
    let every = desk.scheduler.every(SECOND);
    let _tasks = every.run_tasks_with(Overlap::Forbid, spawn, job).unwrap();
    let by = desk.scheduler.by(|last| Some(last + SECOND));
    let (send, by_rule) = mpsc::channel();
    let job = move |run: Run| {
        send.send(run.number).unwrap();
        std::future::ready(())
    };
    let _tasks = by.run_tasks_with(Overlap::Forbid, spawn, job).unwrap();
    desk.advance(SECOND);
    desk.advance(SECOND);
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(by_rule.try_iter().collect::<Vec<_>>(), [1, 2]);
}
