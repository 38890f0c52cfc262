//! Cron expressions in time zones, across clock changes and steps of the wall clock.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tourbillon::scheduler::{Calendar, CalendarError, Due, Ending, Scheduled, Scheduler};
use tourbillon::{Builder, ManualClock, Sweeper};

const HOUR: i64 = 3600;

/// The first times of a calendar, in RFC 3339.
fn times(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let calendar = Calendar::builder(expression).zone(zone).wall_clock(at(from)).build().unwrap();
    let mut time = at(from)();
    let mut next = || {
        time = calendar.next_after(time).unwrap();
        Timestamp::try_from(time).unwrap().to_string()
    };
    (0..count).map(|_| next()).collect()
}

/// A wall clock that stands still.
fn at(time: &str) -> impl Fn() -> SystemTime + Send + 'static {
    let time = SystemTime::from(time.parse::<Timestamp>().unwrap());
    move || time
}

#[test]
fn half_past_two_in_berlin_across_the_changes_of_clocks() {
    // 02:30 does not exist on 29 March. The first time that does is 03:00 (01:00 UTC).
    assert_eq!(
        times("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3),
        ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
    );
    // It occurs twice on 25 October. The first occurrence counts.
    assert_eq!(
        times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
    );
}

#[test]
fn a_step_skips_missing_hours_and_runs_through_repeated_ones() {
    assert_eq!(
        times("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z", 3),
        ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
    );
    assert_eq!(
        times("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z", 5),
        [
            "2026-10-25T00:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z",
        ],
    );
}

#[test]
fn lists_and_ranges_of_fixed_times_are_fixed_times() {
    // The first time that exists on 29 March is 03:00 (01:00 UTC).
    assert_eq!(
        times("30 2,14 * * *", "Europe/Berlin", "2026-03-28T22:30:00Z", 3),
        ["2026-03-29T01:00:00Z", "2026-03-29T12:30:00Z", "2026-03-30T00:30:00Z"],
    );
    assert_eq!(
        times("0,30 2 * * *", "Europe/Berlin", "2026-03-28T22:30:00Z", 2),
        ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"],
    );
    assert_eq!(
        times("0 1-4 * * *", "Europe/Berlin", "2026-03-28T22:30:00Z", 4),
        [
            "2026-03-29T00:00:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T02:00:00Z",
            "2026-03-29T23:00:00Z"
        ],
    );
    // On 25 October each of them runs once, at its first occurrence.
    assert_eq!(
        times("30 2,14 * * *", "Europe/Berlin", "2026-10-24T22:30:00Z", 3),
        ["2026-10-25T00:30:00Z", "2026-10-25T13:30:00Z", "2026-10-26T01:30:00Z"],
    );
    assert_eq!(
        times("0,30 2 * * *", "Europe/Berlin", "2026-10-24T22:30:00Z", 3),
        ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:00:00Z"],
    );
    // Even if asked in the middle of the repeated hour.
    assert_eq!(
        times("0,30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1),
        ["2026-10-26T01:00:00Z"],
    );
}

#[test]
fn a_day_that_a_zone_skips_ends_nothing() {
    // Apia had no 30 December. The 31st began at 10:00 UTC.
    assert_eq!(
        times("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3),
        ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"],
    );
    assert_eq!(
        times("*/30 12 * * *", "Pacific/Apia", "2011-12-29T22:10:00Z", 2),
        ["2011-12-29T22:30:00Z", "2011-12-30T22:00:00Z"],
    );
}

/// A reference by minutes: a step runs if the wall clock shows its time, and a fixed time if the
/// wall clock has reached it for the first time.
fn by_minutes(calendar: &str, step: bool, zone: &TimeZone, from: Timestamp) -> Vec<Timestamp> {
    let day = Calendar::builder(calendar).wall_clock(at(START)).build().unwrap();
    let matches = |time: DateTime| {
        let time = SystemTime::from(TimeZone::UTC.to_timestamp(time).unwrap());
        day.next_after(time - Duration::from_nanos(100)) == Some(time)
    };
    let minute = SignedDuration::from_mins(1);
    let mut reached = zone.to_datetime(from);
    let mut runs = Vec::new();
    for n in 1..=MINUTES {
        let now = from + minute * n;
        let time = zone.to_datetime(now);
        let mut runs_now = step && matches(time);
        while reached < time {
            reached += minute;
            runs_now |= !step && matches(reached);
        }
        runs.extend(runs_now.then_some(now));
    }
    runs
}

const MINUTES: i32 = 2 * 24 * 60;

#[test]
fn every_clock_change_matches_a_search_by_minutes() {
    let changes = [
        ("Europe/Berlin", "2026-03-28T12:00:00Z"),
        ("Europe/Berlin", "2026-10-24T12:00:00Z"),
        ("Africa/Cairo", "2026-04-23T12:00:00Z"), // at midnight
        ("Africa/Cairo", "2026-10-29T12:00:00Z"), // to the day before
        ("Australia/Lord_Howe", "2026-10-03T00:00:00Z"), // by half an hour
        ("Australia/Lord_Howe", "2026-04-04T00:00:00Z"),
        ("Pacific/Apia", "2011-12-29T10:00:00Z"), // by a day
        ("Kwajalein", "1969-09-30T00:00:00Z"),    // back by most of a day
        ("Africa/Casablanca", "2026-02-14T12:00:00Z"),
    ];
    let expressions = [
        ("30 2 * * *", false),
        ("0,30 0-3 * * *", false),
        ("15 2,23 * * *", false),
        ("0 0-23 * * *", false),
        ("*/17 * * * *", true),
        ("*/20 2 * * *", true),
        ("5 * * * *", true),
        ("5 */2 * * *", true),
        ("30 2 */1 * *", false),  // of days, not of hours
        ("*/20 2 25 10 *", true), // once a year, on a day when clocks go back
    ];
    for (zone, from) in changes {
        let tz = TimeZone::get(zone).unwrap();
        let from: Timestamp = from.parse().unwrap();
        for (expression, step) in expressions {
            let calendar =
                Calendar::builder(expression).zone(zone).wall_clock(at(START)).build().unwrap();
            let expected = by_minutes(expression, step, &tz, from);
            // Asked at the run before, and at every minute.
            let next = |time: Timestamp| {
                let next = calendar.next_after(SystemTime::from(time)).unwrap();
                Timestamp::try_from(next).unwrap()
            };
            for n in 0..MINUTES {
                let now = from + SignedDuration::from_mins(1) * n;
                let Some(run) = expected.iter().find(|run| **run > now) else { break };
                assert_eq!(next(now), *run, "{expression} in {zone} after {now}");
            }
        }
    }
}

#[test]
fn months_end_and_years_leap() {
    assert_eq!(
        times("0 0 L * *", "UTC", "2028-01-31T12:00:00Z", 3),
        ["2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z", "2028-04-30T00:00:00Z"],
    );
    assert_eq!(
        times("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2),
        ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"],
    );
    assert_eq!(
        times("5-59/20 59 23 31 12 *", "Asia/Kathmandu", "2026-01-01T00:00:00Z", 2),
        ["2026-12-31T18:14:05Z", "2026-12-31T18:14:25Z"],
    );
}

/// A scheduler in virtual time, and a wall clock that runs with it and can be set.
struct Desk {
    clock: ManualClock,
    sweeper: Sweeper<Due>,
    scheduler: Scheduler,
    /// The time that passes at each reading of the wall clock.
    look: Duration,
    runs: Arc<AtomicU32>,
}

const START: &str = "2026-06-01T10:00:00Z";

impl Desk {
    fn new() -> Self {
        let clock = ManualClock::new();
        clock.set_wall(at(START)());
        let (wheel, sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
        let scheduler = Scheduler::new(wheel);
        Self { clock, sweeper, scheduler, look: Duration::ZERO, runs: Arc::default() }
    }

    /// Sets the wall clock to an offset in seconds from the correct time.
    fn set(&self, seconds: i64) {
        let (truth, step) = (at(START)() + self.clock.elapsed(), seconds.unsigned_abs());
        let step = Duration::from_secs(step);
        self.clock.set_wall(if seconds < 0 { truth - step } else { truth + step });
    }

    /// Schedules a run at noon, UTC, and counts its runs.
    fn at_noon(&self) -> Scheduled {
        self.count("0 12 * * *")
    }

    /// Schedules runs by an expression, in UTC, and counts them.
    fn count(&self, expression: &str) -> Scheduled {
        let (clock, look) = (self.clock.clone(), self.look);
        let wall = move || {
            let now = clock.wall();
            clock.advance(look);
            now
        };
        let calendar = Calendar::builder(expression).wall_clock(wall).build().unwrap();
        let runs = Arc::clone(&self.runs);
        let counting = move || {
            runs.fetch_add(1, Relaxed);
        };
        self.scheduler.by(calendar).run(counting).unwrap()
    }

    /// Advances the clock by seconds, one at a time. Returns after how many seconds each run began.
    fn pass(&mut self, seconds: i64) -> Vec<i64> {
        let mut at = Vec::new();
        for second in 1..=seconds {
            self.clock.advance(Duration::from_millis(997));
            let before = self.sweep();
            self.clock.advance(Duration::from_millis(3));
            let after = self.sweep();
            at.extend((0..before).map(|_| second - 1).chain((0..after).map(|_| second)));
        }
        at
    }

    fn sweep(&mut self) -> u32 {
        let before = self.runs.load(Relaxed);
        // A timer that a sweep arms without a delay expires at the next sweep.
        for _ in 0..2 {
            let _ = self.sweeper.sweep(|timer| self.scheduler.fire(timer));
        }
        self.runs.load(Relaxed) - before
    }
}

#[test]
fn a_day_passes_and_noon_comes_at_noon() {
    let mut desk = Desk::new();
    let noon = desk.at_noon();
    assert_eq!(desk.pass(28 * HOUR), [2 * HOUR, 26 * HOUR]);
    assert_eq!(noon.ending(), None);
}

/// The clock advances between the first question and the second, as a precise clock does.
#[test]
fn a_first_run_less_than_a_minute_ahead_comes() {
    for look in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(100)] {
        let mut desk = Desk::new();
        desk.look = look;
        desk.clock.advance(Duration::from_secs(2 * 3600 - 30));
        let noon = desk.at_noon();
        assert_eq!(desk.pass(HOUR), [30], "with {look:?} a look");
        assert_eq!(noon.ending(), None);
    }
}

#[test]
fn a_wall_clock_set_forward_is_noticed_within_a_minute_and_runs_once() {
    let mut desk = Desk::new();
    let _noon = desk.at_noon();
    desk.pass(HOUR);
    desk.set(74 * HOUR); // over four noons, to 13:00
    let runs = desk.pass(24 * HOUR);
    assert!(runs.len() == 2 && runs[0] <= 60, "{runs:?}");
    assert_eq!(runs[1], 23 * HOUR);
}

#[test]
fn a_wall_clock_set_back_runs_nothing_twice() {
    let mut desk = Desk::new();
    let _noon = desk.at_noon();
    assert_eq!(desk.pass(3 * HOUR), [2 * HOUR]);
    desk.set(-2 * HOUR); // to 11:00
    assert_eq!(desk.pass(26 * HOUR), [25 * HOUR]);
}

#[test]
fn a_step_continues_after_the_wall_clock_is_set_back() {
    let minutes = |count: i64| (1..=count).map(|minute| 60 * minute).collect::<Vec<_>>();
    for back in [121, 2 * HOUR, 4 * HOUR] {
        let mut desk = Desk::new();
        let _minutely = desk.count("* * * * *");
        assert_eq!(desk.pass(600), minutes(10));
        desk.set(-back);
        // The new time may be at another second of its minute.
        let runs = desk.pass(3 * HOUR);
        let regular: Vec<i64> = (1..=180).map(|minute| 60 * minute + back % 60).collect();
        let late = runs.iter().position(|run| *run == regular[1]).unwrap();
        assert!(late <= 2 && runs[0] <= 60, "{back}: {runs:?}");
        assert_eq!(runs[late..], regular[1..regular.len() - usize::from(back % 60 > 0)]);
    }
    let mut desk = Desk::new();
    let _each_second = desk.count("* * * * * *");
    assert_eq!(desk.pass(10), (1..=10).collect::<Vec<_>>());
    desk.set(-60);
    assert_eq!(desk.pass(180), (1..=180).collect::<Vec<_>>());
}

#[test]
fn setting_the_wall_clock_back_treats_steps_and_fixed_times_as_a_zone_does() {
    let mut desk = Desk::new();
    let _step = desk.count("*/30 11 * * *");
    let _fixed = desk.count("0,30 11 * * *");
    // Both runs, at 11:00 and 11:30.
    assert_eq!(desk.pass(2 * HOUR), [HOUR, HOUR, HOUR * 3 / 2, HOUR * 3 / 2]);
    desk.set(-HOUR - HOUR / 4); // from 12:00 to 10:45
    assert_eq!(desk.pass(2 * HOUR), [HOUR / 4, HOUR * 3 / 4]);
}

#[test]
fn a_time_before_a_backward_step_is_noticed_runs_within_a_minute() {
    let mut desk = Desk::new();
    let _step = desk.count("*/10 * * * *");
    assert_eq!(desk.pass(605), [600]);
    desk.set(-610); // from 10:10:05 to 09:59:55
    let runs = desk.pass(600);
    assert!(runs.len() == 1 && (5..=60).contains(&runs[0]), "{runs:?}");

    let mut desk = Desk::new();
    desk.set(1000 * 24 * HOUR);
    let _noon = desk.at_noon();
    assert_eq!(desk.pass(HOUR + 5), [0; 0]);
    desk.set(HOUR - 10); // to 11:59:55, a thousand days before
    let runs = desk.pass(HOUR);
    assert!(runs.len() == 1 && (5..=60).contains(&runs[0]), "{runs:?}");
}

#[test]
fn a_correction_of_the_wall_clock_during_a_run_repeats_nothing() {
    let mut desk = Desk::new();
    let (clock, runs) = (desk.clock.clone(), Arc::clone(&desk.runs));
    let minutely = Calendar::builder("* * * * *").wall_clock(clock.clone()).build().unwrap();
    let correcting = move || {
        if runs.fetch_add(1, Relaxed) == 0 {
            clock.set_wall(clock.wall() - Duration::from_millis(500));
        }
    };
    desk.scheduler.by(minutely).run(correcting).unwrap();
    assert_eq!(desk.pass(200), [60, 120, 180]);
}

#[test]
fn a_wall_clock_that_was_far_ahead_does_not_count() {
    let mut desk = Desk::new();
    desk.set(1000 * 24 * HOUR);
    let _noon = desk.at_noon();
    assert_eq!(desk.pass(3 * HOUR), [2 * HOUR]);
    desk.set(-2 * HOUR); // to 11:00, a thousand days before
    assert_eq!(desk.pass(2 * HOUR), [HOUR]);
}

#[test]
fn a_moved_run_counts_for_all_earlier_times() {
    let mut desk = Desk::new();
    let noon = desk.at_noon();
    assert_eq!(desk.pass(2 * HOUR - 30), [0; 0]);
    assert_eq!(noon.reset(Duration::from_secs(600)), Ok(true));
    assert_eq!(desk.pass(25 * HOUR), [600, 24 * HOUR + 30]);
}

#[test]
fn a_wall_clock_out_of_range_may_be_corrected() {
    let mut desk = Desk::new();
    let _noon = desk.at_noon();
    desk.set(9000 * 365 * 24 * HOUR);
    assert_eq!(desk.pass(HOUR), [0; 0]);
    desk.set(0);
    assert_eq!(desk.pass(2 * HOUR), [HOUR]);
}

#[test]
fn a_bad_expression_points_at_its_field() {
    let refused = |expression| match Calendar::new(expression, "UTC").unwrap_err() {
        CalendarError::Expression { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(refused("61 * * * *"), Some("minute"));
    assert_eq!(refused("* 25 * * *"), Some("hour"));
    assert_eq!(refused("* * 32 * *"), Some("day of the month"));
    assert_eq!(refused("* * * NOV-XYZ *"), Some("month"));
    assert_eq!(refused("* * * * 9"), Some("day of the week"));
    assert_eq!(refused("99 * * * * *"), Some("second"));
    assert_eq!(refused("* * *"), None);
    assert_eq!(refused("* * * * * * 2030"), None);
    assert_eq!(refused(""), None);
    let zone = Calendar::new("* * * * *", "Europe/Nowhere").unwrap_err();
    assert_eq!(zone, CalendarError::Zone("Europe/Nowhere".into()));
    let never = Calendar::new("0 0 30 2 *", "UTC").unwrap_err();
    assert_eq!(never.to_string(), "\"0 0 30 2 *\" has no future occurrence");
}

#[test]
fn a_calendar_ends_with_its_scheduler() {
    let mut desk = Desk::new();
    let noon = desk.at_noon();
    assert_eq!(desk.scheduler.shutdown().len(), 1);
    assert_eq!(desk.pass(3 * HOUR), [0; 0]);
    assert_eq!(noon.ending(), Some(Ending::ShutDown));
}
