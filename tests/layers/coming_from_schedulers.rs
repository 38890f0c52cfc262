//! The rows of `docs/COMING-FROM.md` for Quartz and tokio-cron-scheduler.

use crate::common::desk::{Desk, counting};
use jiff::Timestamp;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};
use tourbillon::scheduler::{
    Calendar, CalendarBuilder, Cancel, Dialect, MissedTimes, Overlap, Scheduled, ScheduledTask,
    Tasks,
};

const MINUTE: Duration = Duration::from_secs(60);

/// A Thursday, half past ten.
const START: &str = "2026-01-01T10:30:00Z";

fn at(time: &str) -> SystemTime {
    SystemTime::from(time.parse::<Timestamp>().unwrap())
}

fn quartz(expression: &str) -> CalendarBuilder<'_> {
    Calendar::builder(expression).dialect(Dialect::Quartz)
}

fn next(calendar: CalendarBuilder<'_>) -> SystemTime {
    calendar.build().unwrap().next_after(at(START)).unwrap()
}

/// A scheduler in virtual time, at half past ten.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.clock.set_wall(at(START));
    desk
}

/// Advances the clock by minutes, and sweeps until nothing expires.
fn pass(desk: &mut Desk, minutes: u32) {
    for _ in 0..minutes * 2 {
        desk.advance(MINUTE / 2);
        desk.advance(Duration::ZERO);
    }
}

// Quartz

#[test]
fn quartz_weekdays() {
    assert_eq!(next(quartz("0 15 10 ? * MON-FRI")), at("2026-01-02T10:15:00Z"));
    assert_eq!(next(quartz("0 15 10 ? * 2-6")), at("2026-01-02T10:15:00Z"));
}

/// A fixed time runs after the gap if clocks go forward, and at its first occurrence if they go
/// back.
#[test]
fn quartz_changes_of_clocks() {
    let half_past_two = |from: &str| {
        let calendar = quartz("0 30 2 * * ?").zone("Europe/Berlin").build().unwrap();
        calendar.next_after(at(from)).unwrap()
    };
    assert_eq!(half_past_two("2026-03-28T12:00:00Z"), at("2026-03-29T01:00:00Z"));
    assert_eq!(half_past_two("2026-10-24T12:00:00Z"), at("2026-10-25T00:30:00Z"));
}

#[test]
fn quartz_time_zone() {
    let noon = quartz("0 0 12 * * ?").zone("America/New_York");
    assert_eq!(next(noon), at("2026-01-01T17:00:00Z"));
}

/// A job every hour, on a machine that has slept for a day.
fn misfire(missed: MissedTimes) -> u32 {
    let mut desk = desk();
    let (runs, count) = counting();
    let hourly = quartz("0 0 * * * ?").missed(missed).wall_clock(desk.clock.clone());
    desk.scheduler.by(hourly.build().unwrap()).run(count).unwrap();
    desk.advance(MINUTE * 60 * 24);
    for _ in 0..30 {
        desk.advance(Duration::ZERO);
    }
    runs.load(Relaxed)
}

#[test]
fn quartz_misfire_instructions() {
    assert_eq!(misfire(MissedTimes::Once), 1);
    assert_eq!(misfire(MissedTimes::AllWithin(MINUTE * 60 * 24)), 24);
    assert_eq!(misfire(MissedTimes::Skip), 0);
}

/// Tasks every minute that never end, and the list that their runtime has of them.
fn tasks(overlap: Overlap) -> (Desk, Tasks, Arc<Mutex<Vec<ScheduledTask>>>) {
    let desk = desk();
    let spawned = Arc::<Mutex<Vec<ScheduledTask>>>::default();
    let runtime = Arc::clone(&spawned);
    let spawn = move |task| runtime.lock().unwrap().push(task);
    let minutely = Calendar::builder("* * * * *").wall_clock(desk.clock.clone()).build().unwrap();
    let by = desk.scheduler.by(minutely);
    let tasks = by.run_tasks(overlap, spawn, std::future::pending).unwrap();
    (desk, tasks, spawned)
}

#[test]
fn quartz_calendars() {
    let noon = || quartz("0 0 12 * * ?");
    assert_eq!(next(noon().except_days(["2026-01-01", "2026-01-02"])), at("2026-01-03T12:00:00Z"));
    assert_eq!(next(noon().except("* * * ? * 5-6")), at("2026-01-03T12:00:00Z"));
}

#[test]
fn quartz_start_and_end() {
    let noon = quartz("0 0 12 * * ?").wall_clock(|| at(START));
    let noon = noon.starting_at(at("2026-01-02T12:00:00Z")).until(at("2026-01-03T12:00:00Z"));
    let calendar = noon.build().unwrap();
    let times: Vec<_> = calendar.times_after(at(START)).collect();
    assert_eq!(times, [at("2026-01-02T12:00:00Z"), at("2026-01-03T12:00:00Z")]);
}

#[test]
fn quartz_disallow_concurrent_execution() {
    let (mut desk, tasks, spawned) = tasks(Overlap::Forbid);
    pass(&mut desk, 5);
    assert_eq!((tasks.working(), spawned.lock().unwrap().len()), (1, 1));
}

fn hourly(desk: &Desk) -> Scheduled {
    let hourly = Calendar::builder("0 * * * *").wall_clock(desk.clock.clone()).build().unwrap();
    desk.scheduler.by(hourly).run(|| ()).unwrap()
}

#[test]
fn quartz_next_fire_time() {
    let desk = desk();
    assert_eq!(hourly(&desk).next_time(), Some(at("2026-01-01T11:00:00Z")));
}

#[test]
fn quartz_scheduled_fire_time() {
    let mut desk = desk();
    let hourly = quartz("0 0 * * * ?").wall_clock(desk.clock.clone()).build().unwrap();
    let times = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&times);
    desk.scheduler.by(hourly).run_with(move |run| told.lock().unwrap().push(run.time)).unwrap();
    desk.advance(MINUTE * 50);
    assert_eq!(*times.lock().unwrap(), [Some(at("2026-01-01T11:00:00Z"))]);
}

#[test]
fn quartz_pause_and_resume() {
    let mut desk = desk();
    let (runs, count) = counting();
    let hourly = quartz("0 0 * * * ?").wall_clock(desk.clock.clone()).build().unwrap();
    let hourly = desk.scheduler.by(hourly).run(count).unwrap();
    assert!(hourly.pause());
    desk.advance(MINUTE * 200);
    assert_eq!(runs.load(Relaxed), 0);
    assert_eq!(hourly.resume(), Ok(true));
    desk.advance(Duration::ZERO);
    assert_eq!(runs.load(Relaxed), 1, "one for all that were missed");
}

// tokio-cron-scheduler

#[test]
fn tokio_cron_job_new() {
    let mut desk = desk();
    let (runs, count) = counting();
    let calendar = Calendar::builder("1/20 * * * * *");
    let calendar = calendar.wall_clock(desk.clock.clone()).build().unwrap();
    desk.scheduler.by(calendar).run(count).unwrap();
    for _ in 0..120 {
        desk.advance(MINUTE / 60);
        desk.advance(Duration::ZERO);
    }
    assert_eq!(runs.load(Relaxed), 6);
}

#[test]
fn tokio_cron_seven_fields() {
    let calendar = Calendar::new("0 0 2 * * * *", "UTC").unwrap();
    let two = SystemTime::UNIX_EPOCH + MINUTE * 120;
    let times: Vec<_> = calendar.times_after(SystemTime::UNIX_EPOCH).take(2).collect();
    assert_eq!(times, [two, two + MINUTE * 1440]);
    let refused = Calendar::new("0 0 2 * * * 2030", "UTC").unwrap_err().to_string();
    assert!(
        refused.contains("the dialect of Quartz, in which one of the two days is `?`"),
        "{refused}"
    );
}

#[test]
fn tokio_cron_job_new_async() {
    let (mut desk, tasks, spawned) = tasks(Overlap::Allow);
    pass(&mut desk, 3);
    assert_eq!((tasks.working(), spawned.lock().unwrap().len()), (3, 3));
}

#[test]
fn tokio_cron_remove() {
    let (mut desk, tasks, spawned) = tasks(Overlap::Allow);
    pass(&mut desk, 2);
    assert_eq!(tasks.abort(), Cancel::Prevented);
    let mut context = Context::from_waker(Waker::noop());
    spawned.lock().unwrap().retain_mut(|task| pin!(task).poll(&mut context).is_pending());
    pass(&mut desk, 2);
    assert_eq!((tasks.working(), spawned.lock().unwrap().len()), (0, 0));
}

#[test]
fn tokio_cron_next_tick_for_job() {
    let desk = desk();
    assert_eq!(hourly(&desk).next_time(), Some(at("2026-01-01T11:00:00Z")));
}

#[test]
fn tokio_cron_new_repeated() {
    let mut desk = desk();
    let (runs, count) = counting();
    desk.scheduler.every(MINUTE).run(count).unwrap();
    pass(&mut desk, 3);
    assert_eq!(runs.load(Relaxed), 3);
}

#[test]
fn tokio_cron_new_one_shot() {
    let mut desk = desk();
    let answer = desk.scheduler.after(MINUTE, || 42).unwrap();
    pass(&mut desk, 1);
    assert_eq!(answer.join().unwrap(), 42);
}
