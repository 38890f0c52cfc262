//! Settings of a calendar other than a Unix expression: Quartz's dialect, zones, and missed times.

use crate::common::desk::{Desk, counting};
use jiff::Timestamp;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tourbillon::scheduler::{
    Calendar, CalendarBuilder, CalendarError, Dialect, MissedTimes, Scheduled,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn at(time: &str) -> SystemTime {
    SystemTime::from(time.parse::<Timestamp>().unwrap())
}

/// Times of a calendar from 1 January 2026 on, in RFC 3339.
fn times(calendar: CalendarBuilder<'_>, count: usize) -> Vec<String> {
    let mut time = at("2026-01-01T00:00:00Z");
    let calendar = calendar.wall_clock(move || time).build().unwrap();
    let mut next = || {
        time = calendar.next_after(time).unwrap();
        Timestamp::try_from(time).unwrap().to_string()
    };
    (0..count).map(|_| next()).collect()
}

fn quartz(expression: &str) -> CalendarBuilder<'_> {
    Calendar::builder(expression).dialect(Dialect::Quartz)
}

/// The days of times that are at noon.
fn days(expression: &str, count: usize) -> Vec<String> {
    let times = times(quartz(expression), count);
    times.iter().map(|time| time.strip_suffix("T12:00:00Z").unwrap().to_owned()).collect()
}

#[test]
fn quartz_counts_weekdays_from_sunday_as_one() {
    // 1 January 2026 is a Thursday.
    assert_eq!(days("0 0 12 ? * 1", 2), ["2026-01-04", "2026-01-11"]);
    assert_eq!(days("0 0 12 ? * 7", 1), ["2026-01-03"]);
    assert_eq!(days("0 0 12 ? * SUN", 1), ["2026-01-04"]);
    assert_eq!(days("0 0 12 ? * 2-6", 3), ["2026-01-01", "2026-01-02", "2026-01-05"]);
    assert_eq!(days("0 0 12 ? * 2-6", 3), days("0 0 12 ? * MON-FRI", 3));
    assert_eq!(times(Calendar::builder("0 12 * * 1"), 1), ["2026-01-05T12:00:00Z"]);
}

#[test]
fn quartz_has_steps_from_a_number_and_years() {
    assert_eq!(
        times(quartz("0 5/20 12 * * ?"), 4),
        [
            "2026-01-01T12:05:00Z",
            "2026-01-01T12:25:00Z",
            "2026-01-01T12:45:00Z",
            "2026-01-02T12:05:00Z",
        ],
    );
    assert_eq!(days("0 0 12 1 6 ? 2027-2028", 2), ["2027-06-01", "2028-06-01"]);
    // Steps of years count from 1970.
    for every_second in ["*/2", "/2", "1970/2", "2030,*/2"] {
        let june = format!("0 0 12 1 6 ? {every_second}");
        assert_eq!(days(&june, 3), ["2026-06-01", "2028-06-01", "2030-06-01"]);
    }
}

#[test]
fn quartz_has_days_that_depend_on_the_month() {
    assert_eq!(days("0 0 12 ? * 6#3", 3), ["2026-01-16", "2026-02-20", "2026-03-20"]);
    assert_eq!(days("0 0 12 ? * 6L", 3), ["2026-01-30", "2026-02-27", "2026-03-27"]);
    assert_eq!(days("0 0 12 ? * L", 2), ["2026-01-03", "2026-01-10"]);
    assert_eq!(days("0 0 12 L * ?", 2), ["2026-01-31", "2026-02-28"]);
    assert_eq!(days("0 0 12 LW * ?", 3), ["2026-01-30", "2026-02-27", "2026-03-31"]);
    assert_eq!(days("0 0 12 L-3 * ?", 4), ["2026-01-28", "2026-02-25", "2026-03-28", "2026-04-27"]);
    assert_eq!(days("0 0 12 l-3 2 ? 2026-2028", 3), ["2026-02-25", "2027-02-25", "2028-02-26"]);
    assert_eq!(days("0 0 12 L-30 * ?", 2), ["2026-01-01", "2026-03-01"]);
    assert_eq!(days("0 0 12 L-0 * ?", 2), days("0 0 12 L * ?", 2));
    let quarters = times(quartz("0 0/30 23 L-1 1,2 ?"), 4);
    assert_eq!(
        quarters,
        [
            "2026-01-30T23:00:00Z",
            "2026-01-30T23:30:00Z",
            "2026-02-27T23:00:00Z",
            "2026-02-27T23:30:00Z",
        ],
    );
    assert_eq!(days("0 0 12 15W 1,2,8 ?", 3), ["2026-01-15", "2026-02-16", "2026-08-14"]);
}

#[test]
fn errors_of_quartz_name_the_field() {
    let refused = |calendar: CalendarBuilder<'_>| match calendar.build().unwrap_err() {
        CalendarError::Expression { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(refused(quartz("0 0 12 1 * MON")), Some("day of the week"));
    assert_eq!(refused(quartz("0 0 12 ? * 8")), Some("day of the week"));
    assert_eq!(refused(quartz("0 0 12 ? * 0")), Some("day of the week"));
    for day in ["L-3W", "L-31", "L--3", "L-+3", "L-3,5"] {
        assert_eq!(
            refused(quartz(&format!("0 0 12 {day} * ?"))),
            Some("day of the month"),
            "{day}"
        );
    }
    assert_eq!(refused(Calendar::builder("0 12 L-3 * *")), Some("day of the month"));
    assert_eq!(refused(quartz("0 0 12 * * ? 1066x")), Some("year"));
    assert_eq!(refused(quartz("0 12 * * ?")), None);
    for never in ["0 0 12 * * ? 2020", "0 0 12 L-30 2 ?"] {
        assert_eq!(quartz(never).build().unwrap_err(), CalendarError::Never(never.into()));
    }
}

/// As in Vixie's cron.
#[test]
fn both_days_must_match_if_one_is_a_step_from_a_star() {
    let noons = |days: &str| times(Calendar::builder(&format!("0 12 {days}")), 3);
    let first_sundays = ["2026-01-04T12:00:00Z", "2026-02-01T12:00:00Z", "2026-03-01T12:00:00Z"];
    assert_eq!(noons("1-7 * */7"), first_sundays);
    let odd_mondays = ["2026-01-05T12:00:00Z", "2026-01-19T12:00:00Z", "2026-02-09T12:00:00Z"];
    assert_eq!(noons("*/2 * 1"), odd_mondays);
    let either = ["2026-01-01T12:00:00Z", "2026-01-05T12:00:00Z", "2026-01-12T12:00:00Z"];
    assert_eq!(noons("1 * 1"), either);
    let odd_days = ["2026-01-01T12:00:00Z", "2026-01-03T12:00:00Z", "2026-01-05T12:00:00Z"];
    assert_eq!(noons("*/2 * *"), odd_days);
}

/// In Berlin, the hour from 02:00 to 03:00 does not exist on 29 March 2026.
#[test]
fn an_open_step_is_a_step_where_clocks_change() {
    let before = at("2026-03-28T23:10:00Z");
    let next = |calendar: CalendarBuilder<'_>| {
        let calendar = calendar.zone("Europe/Berlin").wall_clock(move || before).build().unwrap();
        Timestamp::try_from(calendar.next_after(before).unwrap()).unwrap().to_string()
    };
    assert_eq!(next(quartz("0 30/15 2 ? * *")), "2026-03-30T00:30:00Z");
    assert_eq!(next(quartz("0 30,45 2 ? * *")), "2026-03-29T01:00:00Z");
    assert_eq!(next(quartz("0 30-59/15 2 ? * *")), "2026-03-29T01:00:00Z");
}

/// In another process, because the variable is read when the calendar is built.
#[test]
fn the_systems_zone_is_the_one_it_is_in() {
    let noon = || Calendar::builder("0 12 * * *").system_zone();
    if std::env::var("TZ").as_deref() == Ok("Asia/Kathmandu") {
        assert_eq!(times(noon(), 1), ["2026-01-01T06:15:00Z"]);
        return;
    }
    let this = std::env::current_exe().unwrap();
    let name = "dialects::the_systems_zone_is_the_one_it_is_in";
    let child = std::process::Command::new(this)
        .args(["--exact", name])
        .env("TZ", "Asia/Kathmandu")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

#[cfg(feature = "tzdb")]
#[test]
fn zones_are_available_if_the_system_has_none() {
    let zones = jiff::tz::TimeZoneDatabase::bundled();
    assert!(zones.get("Asia/Kathmandu").is_ok());
}

/// Returns how often an hourly calendar runs after a period was passed over at once.
fn runs_after(missed: MissedTimes, asleep: Duration) -> u32 {
    let mut desk = Desk::new();
    desk.clock.set_wall(at("2026-01-01T10:30:00Z"));
    let hourly = Calendar::builder("0 * * * *").missed(missed).wall_clock(desk.clock.clone());
    let (runs, count) = counting();
    let scheduled = desk.scheduler.by(hourly.build().unwrap()).run(count).unwrap();
    desk.advance(asleep);
    for _ in 0..10 {
        desk.advance(Duration::ZERO);
    }
    let count = runs.load(Relaxed);
    // The next hour runs, whatever was skipped.
    let next = scheduled.next_time().unwrap();
    while desk.clock.wall() < next + Duration::from_millis(2) {
        desk.advance(MINUTE / 4);
        desk.advance(Duration::ZERO);
    }
    assert_eq!(runs.load(Relaxed), count + 1, "{missed:?}");
    count
}

#[test]
fn missed_times_run_as_configured() {
    // To 14:20: past 11, 12, 13 and 14 o'clock.
    let asleep = HOUR * 4 - MINUTE * 10;
    assert_eq!(runs_after(MissedTimes::Once, asleep), 1);
    assert_eq!(runs_after(MissedTimes::AllWithin(Duration::MAX), asleep), 4);
    assert_eq!(runs_after(MissedTimes::AllWithin(MINUTE * 19), asleep), 0);
    assert_eq!(runs_after(MissedTimes::AllWithin(MINUTE * 140), asleep), 3);
    assert_eq!(runs_after(MissedTimes::Skip, asleep), 0);
    assert_eq!(runs_after(MissedTimes::Within(MINUTE * 19), asleep), 0);
    assert_eq!(runs_after(MissedTimes::Within(MINUTE * 20), asleep), 1);
    assert_eq!(runs_after(MissedTimes::Within(HOUR * 10), asleep), 1);
    assert_eq!(runs_after(MissedTimes::Within(Duration::MAX), asleep), 1);
    // A run that is slightly late, as timers are, has not been missed.
    let on_time = MINUTE * 30 + Duration::from_millis(2);
    for missed in [MissedTimes::Once, MissedTimes::AllWithin(MINUTE), MissedTimes::Skip] {
        assert_eq!(runs_after(missed, on_time), 1, "{missed:?}");
    }
}

/// A device starts in 1970 and obtains the time later.
#[test]
fn runs_made_up_for_after_decades_are_bounded() {
    let mut desk = Desk::new();
    let minutely = Calendar::builder("* * * * *").missed(MissedTimes::AllWithin(HOUR));
    let minutely = minutely.wall_clock(desk.clock.clone()).build().unwrap();
    let (runs, count) = counting();
    desk.scheduler.by(minutely).run(count).unwrap();
    desk.clock.set_wall(at("2026-01-01T10:30:30Z"));
    desk.advance(MINUTE);
    for _ in 0..1000 {
        desk.advance(Duration::ZERO);
    }
    // From 09:32 to 10:31.
    assert_eq!(runs.load(Relaxed), 60);
    desk.advance(MINUTE);
    desk.advance(Duration::ZERO);
    assert_eq!(runs.load(Relaxed), 61);
}

/// A run of 11:00 takes until 13:30. It moves the next run, which is due by then, to 14:30.
#[test]
fn a_moved_run_counts_for_all_earlier_times() {
    let mut desk = Desk::new();
    desk.clock.set_wall(at("2026-01-01T10:30:00Z"));
    let hourly = Calendar::builder("0 * * * *").wall_clock(desk.clock.clone()).build().unwrap();
    let handle = Arc::new(Mutex::new(None::<Scheduled>));
    let (moves, clock, (runs, mut count)) = (Arc::clone(&handle), desk.clock.clone(), counting());
    let scheduled = desk.scheduler.by(hourly).run(move || {
        count();
        if let Some(scheduled) = moves.lock().unwrap().take() {
            clock.advance(HOUR * 5 / 2);
            assert_eq!(scheduled.reset(HOUR), Ok(true));
        }
    });
    *handle.lock().unwrap() = Some(scheduled.unwrap());
    desk.advance(MINUTE * 30);
    desk.advance(Duration::ZERO);
    assert_eq!(runs.load(Relaxed), 1);
    for _ in 0..HOUR.as_secs() / 60 * 3 / 2 - 1 {
        desk.advance(MINUTE);
        desk.advance(Duration::ZERO);
    }
    // At 14:30, and not at 15:00 yet.
    assert_eq!(runs.load(Relaxed), 2);
    desk.advance(MINUTE * 2);
    desk.advance(Duration::ZERO);
    assert_eq!(runs.load(Relaxed), 3);
}

#[test]
fn a_wall_clock_out_of_range_refuses_no_calendar() {
    for years in [4_000, 20_000] {
        let wall = SystemTime::UNIX_EPOCH + HOUR * 24 * 366 * years;
        assert!(Calendar::builder("0 * * * *").wall_clock(move || wall).build().is_ok());
    }
}

/// The crate that parses expressions would take Monday for one o'clock, for example.
#[test]
fn texts_without_a_meaning_in_their_field_are_refused() {
    let wrong = [
        ("0 MON * * *", "hour"),
        ("JAN 0 * * *", "minute"),
        ("0 12 * MON *", "month"),
        ("0 12 * * JAN", "day of the week"),
        ("0 12 * * MON,L", "day of the week"),
        ("0 12 * * l", "day of the week"),
        ("0 12 15W3 * *", "day of the month"),
        ("0 12 L,LW * *", "day of the month"),
        ("0 12 15WW * *", "day of the month"),
        ("0 12 * * MON#1L", "day of the week"),
        ("0 12 * * 2#99l", "day of the week"),
        ("0 12 1 * +MON", "day of the week"),
        ("0 12 ?/2 * 1", "day of the month"),
    ];
    for (expression, name) in wrong {
        let with_seconds = format!("0 {expression}");
        for expression in [expression, with_seconds.as_str()] {
            match Calendar::builder(expression).build() {
                Err(CalendarError::Expression { field: Some(field), .. }) if field == name => {}
                other => panic!("{expression}: {other:?}"),
            }
        }
    }
    let right = ["0 12 1,15,L jan-mar,DEC *", "0 12 * * mon-FRI,6", "0 12 15W * *", "0 12 lw * *"];
    for expression in right.into_iter().chain(["@daily", "0 12 * * MON#2,friL", "0 12 * * 5L"]) {
        assert!(Calendar::builder(expression).build().is_ok(), "{expression}");
    }
}

#[test]
fn next_time_is_the_wall_clock_time() {
    let mut desk = Desk::new();
    desk.clock.set_wall(at("2026-01-01T10:30:00Z"));
    let noon = Calendar::builder("0 12 * * *").wall_clock(desk.clock.clone()).build().unwrap();
    let scheduled = desk.scheduler.by(noon).run(|| ()).unwrap();
    assert_eq!(scheduled.next_time(), Some(at("2026-01-01T12:00:00Z")));
    for _ in 0..100 {
        desk.advance(MINUTE);
        desk.advance(Duration::ZERO);
    }
    assert_eq!(scheduled.next_time(), Some(at("2026-01-02T12:00:00Z")));
    scheduled.reset(HOUR).unwrap();
    assert_eq!(scheduled.next_time(), None, "it was moved");
    let every = desk.scheduler.every(HOUR).run(|| ()).unwrap();
    assert_eq!(every.next_time(), None, "it does not go by the wall clock");
}
