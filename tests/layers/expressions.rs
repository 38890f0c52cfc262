//! The grammar of expressions: ranges that wrap around, steps from a number, and errors.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::time::SystemTime;
use tourbillon::scheduler::{Calendar, CalendarBuilder, CalendarError, Dialect};

/// A Sunday, at midnight.
const START: &str = "2023-01-01T00:00:00Z";

fn start() -> SystemTime {
    SystemTime::from(START.parse::<Timestamp>().unwrap())
}

/// The times of a calendar from the start until `end`.
fn times(expression: &str, dialect: Dialect, end: DateTime) -> Vec<DateTime> {
    let calendar = Calendar::builder(expression).dialect(dialect).wall_clock(start);
    let calendar = calendar.build().unwrap_or_else(|error| panic!("{expression}: {error}"));
    let civil = |time| TimeZone::UTC.to_datetime(Timestamp::try_from(time).unwrap());
    let next = |time: &SystemTime| calendar.next_after(*time).filter(|next| civil(*next) < end);
    // Windows counts the time of day in steps of 100 ns.
    let before = start() - std::time::Duration::from_nanos(100);
    std::iter::successors(next(&before), next).map(civil).collect()
}

/// A field, and a period when its values occur one after the other.
struct Circle {
    /// The expression with `{}` for the field, in the dialects of Unix and of Quartz.
    expressions: [&'static str; 2],
    /// The first value in both dialects, and the number of values.
    low: [i32; 2],
    count: i32,
    end: DateTime,
    /// The value of a time, counted from 0.
    value: fn(DateTime) -> i32,
}

const fn end(year: i16, month: i8, day: i8, hour: i8, minute: i8) -> DateTime {
    jiff::civil::datetime(year, month, day, hour, minute, 0, 0)
}

fn circles() -> [Circle; 6] {
    [
        Circle {
            expressions: ["{} 0 0 1 1 *", "{} 0 0 1 1 ?"],
            low: [0, 0],
            count: 60,
            end: end(2023, 1, 1, 0, 1),
            value: |time| time.second().into(),
        },
        Circle {
            expressions: ["{} 0 1 1 *", "0 {} 0 1 1 ?"],
            low: [0, 0],
            count: 60,
            end: end(2023, 1, 1, 1, 0),
            value: |time| time.minute().into(),
        },
        Circle {
            expressions: ["0 {} 1 1 *", "0 0 {} 1 1 ?"],
            low: [0, 0],
            count: 24,
            end: end(2023, 1, 2, 0, 0),
            value: |time| time.hour().into(),
        },
        Circle {
            expressions: ["0 0 {} 1 *", "0 0 0 {} 1 ?"],
            low: [1, 1],
            count: 31,
            end: end(2023, 2, 1, 0, 0),
            value: |time| i32::from(time.day()) - 1,
        },
        Circle {
            expressions: ["0 0 1 {} *", "0 0 0 1 {} ?"],
            low: [1, 1],
            count: 12,
            end: end(2024, 1, 1, 0, 0),
            value: |time| i32::from(time.month()) - 1,
        },
        Circle {
            expressions: ["0 0 * * {}", "0 0 0 ? * {}"],
            low: [0, 1],
            count: 7,
            end: end(2023, 1, 8, 0, 0),
            value: |time| time.weekday().to_sunday_zero_offset().into(),
        },
    ]
}

impl Circle {
    /// Compares the times with a walk over all values that `names` selects.
    fn check(&self, field: &dyn Fn(i32) -> String, names: &dyn Fn(i32) -> bool) {
        for dialect in [Dialect::Unix, Dialect::Quartz] {
            self.check_in(dialect, field, names);
        }
    }

    fn check_in(
        &self,
        dialect: Dialect,
        field: &dyn Fn(i32) -> String,
        names: &dyn Fn(i32) -> bool,
    ) {
        let expected: Vec<i32> = (0..self.count).filter(|value| names(*value)).collect();
        let n = usize::from(dialect == Dialect::Quartz);
        let expression = self.expressions[n].replace("{}", &field(self.low[n]));
        let times = times(&expression, dialect, self.end);
        let values: Vec<i32> = times.into_iter().map(self.value).collect();
        assert_eq!(values, expected, "{expression}");
    }
}

#[test]
fn each_range_matches_a_walk_around_the_field() {
    for circle in circles() {
        let count = circle.count;
        // All pairs of a small field, and some of a large one.
        let stride = if count > 31 { 7 } else { 1 };
        for from in (0..count).step_by(stride) {
            for to in (0..count).rev().step_by(stride) {
                let length = (to - from).rem_euclid(count);
                for step in [1, 2, 5] {
                    let written = |low: i32| match step {
                        1 => format!("{}-{}", from + low, to + low),
                        _ => format!("{}-{}/{step}", from + low, to + low),
                    };
                    let names = |value: i32| {
                        let walked = (value - from).rem_euclid(count);
                        walked <= length && walked % step == 0
                    };
                    circle.check(&written, &names);
                }
            }
        }
    }
}

#[test]
fn each_step_from_a_number_continues_to_the_end_of_the_field() {
    for circle in circles() {
        for from in 0..circle.count {
            for step in [1, 2, 3, 7, 11].into_iter().filter(|step| *step <= circle.count) {
                let written = |low: i32| format!("{}/{step}", from + low);
                let names = |value: i32| value >= from && (value - from) % step == 0;
                // Programs differ about the Sunday that has the number 7.
                if circle.count == 7 && from > 0 && (7 - from) % step == 0 {
                    let [unix, _] = circle.expressions.map(|text| text.replace("{}", &written(0)));
                    assert!(Calendar::new(&unix, "UTC").is_err(), "{unix}");
                    circle.check_in(Dialect::Quartz, &written, &names);
                } else {
                    circle.check(&written, &names);
                }
            }
        }
    }
}

#[test]
fn names_are_read_as_their_numbers() {
    let names = ["SUN", "Mon", "tue", "WED", "THU", "FRI", "sat"];
    let week = &circles()[5];
    for (first, from) in names.iter().zip(0_i32..) {
        for (last, to) in names.iter().zip(0_i32..) {
            let written = |_| format!("{first}-{last}");
            let length = (to - from).rem_euclid(7);
            week.check(&written, &|value: i32| (value - from).rem_euclid(7) <= length);
        }
    }
    let year = &circles()[4];
    year.check(&|_| "NOV-feb,JUN".to_owned(), &|month| [10, 11, 0, 1, 5].contains(&month));
    year.check(&|_| "OCT-MAR/3".to_owned(), &|month| [9, 0].contains(&month));
    // Sunday is 0 and 7 on Unix.
    let week = |days: &str| times(&format!("0 0 * * {days}"), Dialect::Unix, end(2023, 1, 8, 0, 0));
    for (sevens, plain) in
        [("7", "0"), ("7-2", "0-2"), ("5-7", "5,6,0"), ("0-7", "*"), ("7/2", "*/2"), ("*/7", "0")]
    {
        assert_eq!(week(sevens), week(plain), "{sevens}");
    }
}

#[test]
fn nicknames_are_read_in_both_dialects() {
    let end = end(2023, 3, 1, 0, 0);
    for (nickname, expression) in [
        ("@midnight", "0 0 * * *"),
        ("@daily", "0 0 * * *"),
        ("@Weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        (" @hourly ", "0 * * * *"),
    ] {
        let expected = times(expression, Dialect::Unix, end);
        assert!(!expected.is_empty());
        for dialect in [Dialect::Unix, Dialect::Quartz] {
            assert_eq!(times(nickname, dialect, end), expected, "{nickname}");
        }
    }
}

fn quartz(expression: &str) -> CalendarBuilder<'_> {
    Calendar::builder(expression).dialect(Dialect::Quartz)
}

/// The bounds of the allowed numbers.
type Allowed = Option<(u16, u16)>;

/// Invalid expressions of the Unix dialect, with the field, the invalid part, and what is allowed.
const UNIX: [(&str, &str, &str, Allowed); 29] = [
    // A name and a digit.
    ("0 0 1 JAN1 *", "month", "JAN1", Some((1, 12))),
    ("0 0 1 1JAN *", "month", "1JAN", Some((1, 12))),
    ("0 0 1 JAN,FEB0 *", "month", "FEB0", Some((1, 12))),
    ("0 0 * * sun1", "day of the week", "sun1", Some((0, 7))),
    ("0 0 * * MONDAY", "day of the week", "MONDAY", Some((0, 7))),
    // Empty parts.
    ("0,,30 * * * *", "minute", "0,,30", None),
    ("0, * * * *", "minute", "0,", None),
    (", * * * *", "minute", ",", None),
    ("0 0 * * MON,", "day of the week", "MON,", None),
    ("-5 * * * *", "minute", "-5", Some((0, 59))),
    ("5- * * * *", "minute", "5-", Some((0, 59))),
    // Steps.
    ("*/90 * * * *", "minute", "*/90", Some((1, 59))),
    ("0/60 * * * *", "minute", "0/60", Some((1, 59))),
    ("0 */24 * * *", "hour", "*/24", Some((1, 23))),
    ("0 0 1-5/32 * *", "day of the month", "1-5/32", Some((1, 31))),
    ("0 0 1 */13 *", "month", "*/13", Some((1, 12))),
    ("0 0 * * */8", "day of the week", "*/8", Some((1, 7))),
    ("*/0 * * * *", "minute", "*/0", Some((1, 59))),
    ("*/ * * * *", "minute", "*/", Some((1, 59))),
    ("1/2/3 * * * *", "minute", "1/2/3", Some((1, 59))),
    ("/5 * * * *", "minute", "/5", None),
    // Numbers.
    ("0 12-24 * * *", "hour", "12-24", Some((0, 23))),
    ("0 +1 * * *", "hour", "+1", Some((0, 23))),
    ("0 99999999999 * * *", "hour", "99999999999", Some((0, 23))),
    ("0 0 0 * *", "day of the month", "0", Some((1, 31))),
    ("0 0 32W * *", "day of the month", "32W", Some((1, 31))),
    ("0 0 * * 8", "day of the week", "8", Some((0, 7))),
    ("0 0 * * MON#6", "day of the week", "MON#6", Some((1, 5))),
    ("0 0 ? * MON-FRI#2", "day of the week", "MON-FRI#2", Some((0, 7))),
];

/// Invalid expressions of Quartz's dialect.
const QUARTZ: [(&str, &str, &str, Allowed); 10] = [
    ("0 0 12 * * 0", "day of the week", "0", Some((1, 7))),
    ("0 0 12 ? * 1-8", "day of the week", "1-8", Some((1, 7))),
    ("0 0/70 12 * * ?", "minute", "0/70", Some((1, 59))),
    ("0 0 12 * * *", "day of the week", "*", None),
    ("0 0 12 ? * ?", "day of the week", "?", None),
    ("0 0 12 1 * MON", "day of the week", "MON", None),
    ("0 0 12 L-31 * ?", "day of the month", "L-31", Some((0, 30))),
    ("0 0 12 L-3W * ?", "day of the month", "L-3W", None),
    ("0 0 12 * * ? 1969", "year", "1969", Some((1970, 4999))),
    ("0 0 12 * * ? 2030-2026", "year", "2030-2026", None),
];

#[test]
fn an_error_names_the_part_and_what_is_allowed() {
    let check = |calendar: CalendarBuilder<'_>, text: &str, name, wrong, bounds: Allowed| {
        let error = calendar.build().unwrap_err();
        let message = error.to_string();
        let CalendarError::Expression { expression, field, part, allowed, .. } = error else {
            panic!("{text}: {error}")
        };
        let allowed = allowed.map(|allowed| allowed.into_inner());
        assert_eq!((field, part.as_str(), allowed), (Some(name), wrong, bounds), "{message}");
        assert_eq!(expression, text);
        assert!(message.contains(wrong) && message.contains(name), "{message}");
        if let Some((low, high)) = bounds {
            assert!(message.ends_with(&format!("({low} to {high})")), "{message}");
        }
    };
    for (text, name, part, allowed) in UNIX {
        check(Calendar::builder(text), text, name, part, allowed);
    }
    for (text, name, part, allowed) in QUARTZ {
        check(quartz(text), text, name, part, allowed);
    }
}

#[test]
fn a_message_says_why_a_part_is_refused() {
    for (text, part, reason) in [
        ("0 25 * * *", "hour \"25\"", "out of range (0 to 23)"),
        ("0 x * * *", "hour \"x\"", "not a number (0 to 23)"),
        ("*/90 * * * *", "minute \"*/90\"", "step out of range (1 to 59)"),
        ("*/x * * * *", "minute \"*/x\"", "the step is not a number (1 to 59)"),
        ("/5 * * * *", "minute \"/5\"", "a step needs a start, such as `*`"),
        ("1,,2 * * * *", "minute \"1,,2\"", "the list has an empty item"),
        ("0 0 0 * *", "day of the month \"0\"", "out of range (1 to 31)"),
        ("0 0 1 JAN1 *", "month \"JAN1\"", "expected a number or a name such as `JAN` (1 to 12)"),
        ("0 0 * * MON,8", "day of the week \"8\"", "out of range, where Sunday is 0 or 7 (0 to 7)"),
        ("0 0 * * MON#6", "day of the week \"MON#6\"", "out of range after `#` (1 to 5)"),
    ] {
        let message = Calendar::new(text, "UTC").unwrap_err().to_string();
        assert_eq!(message, format!("invalid {part} in {text:?}: {reason}"));
    }
}

#[test]
fn foreign_syntax_is_refused_with_an_alternative() {
    for (text, part, instead) in [
        ("@reboot", "@reboot", "Scheduler::after"),
        ("@every 5m", "@every", "Scheduler::every"),
        ("@Every 1h30m", "@Every", "Scheduler::every"),
        ("CRON_TZ=Europe/Berlin 0 12 * * *", "CRON_TZ=Europe/Berlin", "CalendarBuilder::zone"),
        ("TZ=UTC 0 12 * * *", "TZ=UTC", "CalendarBuilder::zone"),
        ("0 12 * * * # noon", "#", "comment"),
        ("# noon", "#", "comment"),
        ("@fortnightly", "@fortnightly", "`@weekly`"),
        ("0 0 12 * * * 2030", "2030", "dialect of Quartz"),
        ("0 12 * *", "0 12 * *", "five fields"),
        ("", "", "five fields"),
    ] {
        match Calendar::new(text, "UTC").unwrap_err() {
            CalendarError::Expression { expression, field: None, part: wrong, reason, .. } => {
                assert_eq!((expression.as_str(), wrong.as_str()), (text, part));
                assert!(reason.contains(instead), "{text}: {reason}");
            }
            other => panic!("{text}: {other}"),
        }
    }
    let seven = quartz("0 12 * * ?").build().unwrap_err().to_string();
    assert!(seven.contains("six fields"), "{seven}");
}
