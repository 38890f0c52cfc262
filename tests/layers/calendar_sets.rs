//! Calendars of several expressions, excluded times, and rules that combine calendars.

use crate::common::desk::{Desk, counting};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tourbillon::scheduler::{
    Calendar, CalendarBuilder, CalendarError, Dialect, Ending, LastRun, MissedTimes, Next, Rule,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A Thursday.
const START: &str = "2026-01-01T00:00:00Z";

fn at(time: &str) -> SystemTime {
    SystemTime::from(time.parse::<Timestamp>().unwrap())
}

fn build(calendar: CalendarBuilder<'_>) -> Calendar {
    calendar.wall_clock(|| at(START)).build().unwrap()
}

/// Times of a calendar after `from`, in RFC 3339.
fn times(calendar: CalendarBuilder<'_>, from: &str, count: usize) -> Vec<String> {
    let (calendar, mut time) = (build(calendar), at(from));
    let mut next = || {
        time = calendar.next_after(time).unwrap();
        Timestamp::try_from(time).unwrap().to_string()
    };
    (0..count).map(|_| next()).collect()
}

/// Advances the clock by minutes, and sweeps until nothing expires.
fn pass(desk: &mut Desk, minutes: u32) {
    for _ in 0..minutes * 2 {
        desk.advance(MINUTE / 2);
        desk.advance(Duration::ZERO);
    }
}

/// The times of six days.
fn until(calendar: &Calendar) -> Vec<SystemTime> {
    let end = at(START) + HOUR * 24 * 6;
    let next = |time: &SystemTime| calendar.next_after(*time).filter(|next| *next <= end);
    std::iter::successors(next(&at(START)), next).collect()
}

/// Compares several expressions and exclusions with one calendar for each.
#[test]
fn unions_and_exclusions_match_single_expressions() {
    let sets: [(&[&str], &[&str], &[&str]); 6] = [
        (&["*/20 * * * *", "15 9-17 * * MON-FRI"], &[], &[]),
        (&["*/20 * * * *", "30 11-13 * * *"], &["* 12 * * *"], &[]),
        (&["7 * * * *"], &["* 0-11 * * SAT", "* 12-23 * * SAT", "7 3 * * *"], &["2026-01-02"]),
        (&["* * * * *"], &["*/2 * * * *", "* * 4 1 *"], &["2026-01-01", "2026-01-02"]),
        (&["0 0 * * *", "0 12 1-2 * *"], &["* * 1 * *"], &["2026-01-04", "2026-01-03"]),
        (&["59 23 * * *", "0 0 * * *"], &["59 * * * FRI"], &["2026-01-05"]),
    ];
    for (included, excluded, days) in sets {
        let alone = |expressions: &[&str]| {
            let each = expressions.iter().flat_map(|alone| until(&build(Calendar::builder(alone))));
            each.collect::<BTreeSet<_>>()
        };
        let (each_included, each_excluded) = (alone(included), alone(excluded));
        let mut calendar = Calendar::builder(included[0]).except_days(days.iter().copied());
        for expression in &included[1..] {
            calendar = calendar.or(expression);
        }
        for expression in excluded {
            calendar = calendar.except(expression);
        }
        let calendar = build(calendar);
        let is_left_out = |time: &SystemTime| {
            let day = Timestamp::try_from(*time).unwrap().to_string();
            each_excluded.contains(time) || days.iter().any(|left_out| day.starts_with(left_out))
        };
        let expected: Vec<_> =
            each_included.iter().copied().filter(|time| !is_left_out(time)).collect();
        assert!(expected.len() >= 2, "{included:?}");
        assert_eq!(until(&calendar), expected, "{included:?}");
    }
}

#[test]
fn each_expression_handles_clock_changes_by_itself() {
    let both = || Calendar::builder("30 2 * * *").or("*/20 2 * * *").zone("Europe/Berlin");
    // The hour from 02:00 to 03:00 (01:00 UTC) does not exist on 29 March.
    assert_eq!(
        times(both(), "2026-03-28T12:00:00Z", 4),
        [
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:00:00Z",
            "2026-03-30T00:20:00Z",
            "2026-03-30T00:30:00Z",
        ],
    );
    // A time that does not exist is excluded by its own name, and not by the instant of its run.
    let after = "2026-03-28T12:00:00Z";
    assert_eq!(times(both().except("* 3 * * *"), after, 1), ["2026-03-29T01:00:00Z"]);
    assert_eq!(times(both().except("* 2 29 3 *"), after, 1), ["2026-03-30T00:00:00Z"]);
    assert_eq!(times(both().except_days(["2026-03-29"]), after, 1), ["2026-03-30T00:00:00Z"]);
    // Both occurrences of the repeated hour are excluded.
    let hourly = Calendar::builder("30 * * * *").zone("Europe/Berlin").except("* 2 * * *");
    assert_eq!(
        times(hourly, "2026-10-24T23:00:00Z", 2),
        ["2026-10-24T23:30:00Z", "2026-10-25T02:30:00Z"],
    );
}

#[test]
fn exclusions_cover_seconds_or_whole_minutes() {
    let quarters = || Calendar::builder("*/15 * * * * *");
    assert_eq!(
        times(quarters().except("1-59 * * * *"), START, 4),
        [
            "2026-01-01T00:00:15Z",
            "2026-01-01T00:00:30Z",
            "2026-01-01T00:00:45Z",
            "2026-01-01T01:00:00Z",
        ],
    );
    assert_eq!(
        times(quarters().except("15-40 0 * * * *"), START, 3),
        ["2026-01-01T00:00:45Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:15Z"],
    );
    let quartz = Calendar::builder("0 0 12 * * ?").dialect(Dialect::Quartz);
    assert_eq!(times(quartz.except("* * * 1-5 1 ?"), START, 1), ["2026-01-06T12:00:00Z"]);
    let last = Calendar::builder("0 0 12 * 1 ?").dialect(Dialect::Quartz).except("* * * L-3 * ?");
    assert_eq!(
        times(last, "2026-01-27T00:00:00Z", 2),
        ["2026-01-27T12:00:00Z", "2026-01-29T12:00:00Z"],
    );
    // Half a million minutes in a row.
    let january = Calendar::builder("* * * * *").except("0 * * * 2-12 *");
    assert_eq!(times(january, "2026-02-01T00:00:00Z", 1), ["2027-01-01T00:00:00Z"]);
}

#[test]
fn a_calendar_with_all_times_excluded_is_refused() {
    let noon = || Calendar::builder("0 12 * * *");
    for nothing in [
        noon().except("* * * * *"),
        noon().except("* 12 * * *"),
        noon().except("0 12 * * *"),
        noon().except("* 0-12 * * MON-FRI").except("* 12-23 * * SAT,SUN"),
    ] {
        let error = nothing.wall_clock(|| at(START)).build().unwrap_err();
        assert_eq!(error, CalendarError::Never("0 12 * * *".into()));
    }
    let never = Calendar::builder("0 0 30 2 *").or("0 0 31 4 *").build().unwrap_err();
    assert_eq!(never.to_string(), "\"0 0 30 2 * or 0 0 31 4 *\" has no future occurrence");
    let in_part = Calendar::builder("*/20 * * * *").or("30 12 * * *").except("* 12 * * *");
    let never = in_part.wall_clock(|| at(START)).build().unwrap_err();
    assert_eq!(never, CalendarError::Never("30 12 * * *".into()));
    let once = times(Calendar::builder("0 0 30 2 *").or("0 0 30 4 *"), START, 1);
    assert_eq!(once, ["2026-04-30T00:00:00Z"]);
    for day in ["2026-02-30", "20261225", "2026-12-25T00:00", "Christmas", ""] {
        let refused = noon().except_days(["2026-01-01", day]).build().unwrap_err();
        assert_eq!(refused, CalendarError::Day(day.into()));
    }
    for wrong in [noon().or("0 25 * * *"), noon().except("* 25 * * *")] {
        match wrong.build().unwrap_err() {
            CalendarError::Expression { field, .. } => assert_eq!(field, Some("hour")),
            other => panic!("{other}"),
        }
    }
}

/// Returns how often `10:00`, `10:10` or `0,30 10` runs if all times until 11:00 were missed.
fn runs_after_an_hour(missed: MissedTimes) -> u32 {
    let mut desk = Desk::new();
    desk.clock.set_wall(at("2026-01-01T09:30:00Z"));
    let calendar = Calendar::builder("0 10 * * *").or("10 10 * * *").or("0,30 10 * * *");
    let calendar = calendar.missed(missed).wall_clock(desk.clock.clone()).build().unwrap();
    let (runs, count) = counting();
    desk.scheduler.by(calendar).run(count).unwrap();
    desk.advance(HOUR * 3 / 2);
    for _ in 0..10 {
        desk.advance(Duration::ZERO);
    }
    runs.load(Relaxed)
}

#[test]
fn times_in_several_expressions_run_once() {
    assert_eq!(runs_after_an_hour(MissedTimes::Once), 1);
    assert_eq!(runs_after_an_hour(MissedTimes::AllWithin(HOUR)), 3);
    assert_eq!(runs_after_an_hour(MissedTimes::AllWithin(MINUTE * 50)), 2);
    assert_eq!(runs_after_an_hour(MissedTimes::Skip), 0);
}

#[test]
fn only_steps_repeat_when_the_wall_clock_is_set_back() {
    let mut desk = Desk::new();
    desk.clock.set_wall(at("2026-01-01T10:30:00Z"));
    let calendar = Calendar::builder("*/30 11 * * *").or("15 11 * * *");
    let calendar = calendar.wall_clock(desk.clock.clone()).build().unwrap();
    let (clock, minutes) = (desk.clock.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&minutes);
    let tell = move || {
        let day = clock.wall().duration_since(at(START)).unwrap();
        seen.lock().unwrap().push(day.as_secs() / 60);
    };
    desk.scheduler.by(calendar).run(tell).unwrap();
    pass(&mut desk, 80); // to 11:50
    desk.clock.set_wall(at("2026-01-01T10:45:00Z"));
    pass(&mut desk, 60); // to 11:45
    let eleven = 11 * 60;
    let expected = [0, 15, 30, 0, 30].map(|minute| eleven + minute);
    assert_eq!(*minutes.lock().unwrap(), expected);
}

#[test]
fn previous_before_matches_the_list_of_times() {
    let calendars = [
        Calendar::builder("*/20 2-3 * * *").or("30 2 * * *"),
        Calendar::builder("0 0 29 2 *"),
        Calendar::builder("*/7 * * * * *").except("1-58 * * * *"),
        Calendar::builder("0 0-23 * * *").except("* 3 * * *").except_days(["2026-10-24"]),
    ];
    for calendar in calendars {
        let calendar = build(calendar.zone("Europe/Berlin"));
        let from = at("2026-10-23T20:00:00Z");
        let times: Vec<_> = calendar.times_after(from).take(500).collect();
        assert_eq!(times.len(), 500);
        for pair in times.windows(2) {
            assert_eq!(calendar.previous_before(pair[1]), Some(pair[0]));
            // Windows counts the time of day in steps of 100 ns.
            let after = pair[0] + Duration::from_nanos(100);
            assert_eq!(calendar.previous_before(after), Some(pair[0]));
        }
    }
    let once = Calendar::builder("0 0 12 1 1 ? 2030").dialect(Dialect::Quartz);
    let once = build(once);
    assert_eq!(once.previous_before(at(START)), None);
    assert_eq!(once.times_after(at(START)).count(), 1);
    assert_eq!(once.previous_before(at("2040-01-01T00:00:00Z")), Some(at("2030-01-01T12:00:00Z")));
}

#[test]
fn a_clone_shares_no_runs() {
    let mut desk = Desk::new();
    desk.clock.set_wall(at("2026-01-01T09:59:00Z"));
    let daily = Calendar::builder("0 10 * * *").wall_clock(desk.clock.clone()).build().unwrap();
    let (first, count) = counting();
    desk.scheduler.by(daily.clone()).run(count).unwrap();
    let (second, count) = counting();
    desk.scheduler.by(daily).run(count).unwrap();
    pass(&mut desk, 2);
    assert_eq!((first.load(Relaxed), second.load(Relaxed)), (1, 1));
}

#[test]
fn a_zone_is_a_name_or_an_offset() {
    let noon = |zone| Calendar::builder("0 12 * * *").zone(zone).wall_clock(|| at(START)).build();
    for (zone, expected) in [
        ("+05:30", "2026-01-01T06:30:00Z"),
        ("-03", "2026-01-01T15:00:00Z"),
        ("Asia/Kathmandu", "2026-01-01T06:15:00Z"),
    ] {
        assert_eq!(noon(zone).unwrap().next_after(at(START)), Some(at(expected)), "{zone}");
    }
    for wrong in ["UTC+3", "+26:00", "+", "02:00", "+02:00 "] {
        assert_eq!(noon(wrong).unwrap_err(), CalendarError::Zone(wrong.into()));
    }
}

/// A rule that runs at the earlier of two calendars.
struct United(Vec<Calendar>);

impl Rule for United {
    fn next(&mut self, last: &LastRun) -> Next {
        let mut ask = Duration::MAX;
        for calendar in &mut self.0 {
            match calendar.next(last) {
                Next::AskAfter(delay) => ask = ask.min(delay),
                run => return run,
            }
        }
        Next::AskAfter(ask)
    }
}

/// The run of 10:00 takes until 10:20, which is past the other's time of 10:10.
#[test]
fn a_run_of_one_calendar_does_not_count_for_another() {
    let mut desk = Desk::new();
    desk.clock.set_wall(at("2026-01-01T09:59:00Z"));
    let daily =
        |expression| Calendar::builder(expression).wall_clock(desk.clock.clone()).build().unwrap();
    let rule = United(vec![daily("0 10 * * *"), daily("10 10 * * *")]);
    let (clock, (runs, mut count)) = (desk.clock.clone(), counting());
    let slow_at_first = move || {
        count();
        if clock.wall() < at("2026-01-01T10:05:00Z") {
            clock.advance(MINUTE * 20);
        }
    };
    desk.scheduler.by(rule).run(slow_at_first).unwrap();
    for (minutes, expected) in [(2, 2), (23 * 60, 2), (60, 4)] {
        pass(&mut desk, minutes);
        assert_eq!(runs.load(Relaxed), expected);
    }
}

fn is_never(refused: Result<Calendar, CalendarError>) -> bool {
    matches!(refused, Err(CalendarError::Never(_)))
}

#[test]
fn a_span_has_both_of_its_ends() {
    let hourly = || Calendar::builder("0 * * * *");
    let list = |calendar: CalendarBuilder<'_>| {
        let calendar = build(calendar);
        let times = calendar.times_after(at(START)).take(3).map(|time| {
            let hours = time.duration_since(at(START)).unwrap().as_secs() / 3600;
            (hours, calendar.previous_before(time).is_some())
        });
        times.collect::<Vec<_>>()
    };
    let hours = |hours: u32| at(START) + HOUR * hours;
    let nanosecond = Duration::from_nanos(1);
    assert_eq!(list(hourly().starting_at(hours(5))), [(5, false), (6, true), (7, true)]);
    // Windows counts the time of day in steps of 100 ns.
    assert_eq!(list(hourly().starting_at(hours(5) + nanosecond * 100))[0], (6, false));
    assert_eq!(list(hourly().until(hours(2))), [(1, true), (2, true)]);
    assert_eq!(list(hourly().until(hours(2) - nanosecond * 100)), [(1, true)]);
    assert_eq!(list(hourly().starting_at(hours(3)).until(hours(4))), [(3, false), (4, true)]);
    // A fixed time that does not exist counts at the instant of its run.
    let fixed = || Calendar::builder("30 2 * * *").zone("Europe/Berlin");
    let change = at("2026-03-29T01:00:00Z");
    assert_eq!(build(fixed().starting_at(change)).next_after(at(START)), Some(change));
    let last = build(fixed().until(change));
    assert_eq!(last.previous_before(at("2027-01-01T00:00:00Z")), Some(change));
}

#[test]
fn a_span_without_times_is_refused() {
    let noon = || Calendar::builder("0 12 * * *").wall_clock(|| at(START));
    assert!(is_never(noon().until(at(START)).build()));
    assert!(is_never(noon().starting_at(at(START) + HOUR * 24).until(at(START)).build()));
    let short = noon().starting_at(at(START) + HOUR * 13).until(at(START) + HOUR * 35);
    assert!(is_never(short.build()));
    // One of several expressions may lie outside.
    let both = noon().or("0 0 1 7 *").until(at(START) + HOUR * 24);
    assert_eq!(both.build().unwrap().times_after(at(START)).count(), 1);
}

/// The runs of an hourly calendar from 02:00 to 04:00, and its end.
#[test]
fn a_repetition_runs_within_its_span_and_then_ends() {
    let mut desk = Desk::new();
    desk.clock.set_wall(at(START));
    let calendar = Calendar::builder("0 * * * *").wall_clock(desk.clock.clone());
    let calendar = calendar.starting_at(at(START) + HOUR * 2).until(at(START) + HOUR * 4);
    let (runs, count) = counting();
    let job = desk.scheduler.by(calendar.build().unwrap()).run(count).unwrap();
    assert_eq!(job.next_time(), Some(at(START) + HOUR * 2));
    assert_eq!(desk.since_start(job.next_run()), Some(HOUR * 2));
    for (minutes, expected) in [(119, 0), (2, 1), (60, 2), (58, 2)] {
        pass(&mut desk, minutes);
        assert_eq!((runs.load(Relaxed), job.ending()), (expected, None));
    }
    pass(&mut desk, 2);
    assert_eq!((runs.load(Relaxed), job.ending()), (3, Some(Ending::Done)));
    assert_eq!(desk.scheduler.wheel().len(), 0);
}

#[test]
fn a_missed_last_time_is_made_up_for_after_the_end() {
    for (missed, expected) in [
        (MissedTimes::Once, 1),
        (MissedTimes::AllWithin(HOUR * 24), 3),
        (MissedTimes::Within(HOUR), 0),
        (MissedTimes::Skip, 0),
    ] {
        let mut desk = Desk::new();
        desk.clock.set_wall(at(START) + MINUTE * 90);
        let calendar = Calendar::builder("0 * * * *").wall_clock(desk.clock.clone());
        let calendar = calendar.until(at(START) + HOUR * 4).missed(missed).build().unwrap();
        let (runs, count) = counting();
        let job = desk.scheduler.by(calendar).run(count).unwrap();
        desk.advance(HOUR * 6);
        for _ in 0..10 {
            desk.advance(Duration::ZERO);
        }
        let ended = Some(Ending::Done);
        assert_eq!((runs.load(Relaxed), job.ending()), (expected, ended), "{missed:?}");
    }
}

#[test]
fn a_wall_clock_set_back_before_the_start_repeats_nothing_before_it() {
    let mut desk = Desk::new();
    desk.clock.set_wall(at(START) + MINUTE * 90);
    let calendar = Calendar::builder("*/30 * * * *").wall_clock(desk.clock.clone());
    let calendar = calendar.starting_at(at(START) + HOUR * 2).build().unwrap();
    let (runs, count) = counting();
    desk.scheduler.by(calendar).run(count).unwrap();
    pass(&mut desk, 61); // 02:00 and 02:30
    assert_eq!(runs.load(Relaxed), 2);
    desk.clock.set_wall(at(START) + MINUTE * 10);
    pass(&mut desk, 109); // to 01:59
    assert_eq!(runs.load(Relaxed), 2);
    pass(&mut desk, 2);
    assert_eq!(runs.load(Relaxed), 3);
}
