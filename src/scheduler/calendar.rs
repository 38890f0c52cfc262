//! Times of the wall clock as a [`Rule`]: cron expressions in a time zone. The only file that knows
//! the wall clock, and the crates that know calendars (`croner`, `jiff`).
//!
//! The wheel runs on monotonic time, and the wall clock may be set at any moment. So nothing is
//! armed far ahead: the rule is asked again after [`LOOK`] at most, and each time looks at the wall
//! clock anew. What has run is remembered by its wall time.
//!
//! `croner` reads the expressions and finds the times on a wall clock that nobody changes. What
//! becomes of them where the clocks change is decided here, as Vixie's cron does.

#![forbid(unsafe_code)]

use super::rule::{LastRun, Next, Rule};
use crate::ManualClock;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, TimeZone};
use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

/// How long a step of the wall clock may stay unnoticed.
const LOOK: Duration = Duration::from_secs(60);

/// A wall clock set back by more was wrong before; one set back by less will pass the same times
/// again.
const SET_BACK: Duration = Duration::from_secs(3 * 3600);

/// Where a [`Calendar`] reads the time of day. Every `Fn() -> SystemTime` is one.
///
/// # Examples
///
/// Three hours of a calendar, in virtual time:
///
/// ```
/// use std::sync::mpsc;
/// use std::time::{Duration, SystemTime};
/// use tourbillon::scheduler::{Calendar, Scheduler};
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let scheduler = Scheduler::new(wheel);
/// let hourly = Calendar::with_wall_clock("0 * * * *", "UTC", clock.clone())?;
/// let (send, runs) = mpsc::channel();
/// scheduler.by(hourly).run(move || drop(send.send("an hour has passed")))?;
///
/// for _minute in 0..180 {
///     clock.advance(Duration::from_secs(60));
///     while sweeper.sweep(|timer| scheduler.fire(timer)).expired > 0 {}
/// }
/// assert_eq!(runs.try_iter().count(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait WallClock: Send + 'static {
    /// The time of day, which may be set forward and back.
    fn now(&self) -> SystemTime;
}

impl<F: Fn() -> SystemTime + Send + 'static> WallClock for F {
    fn now(&self) -> SystemTime {
        self()
    }
}

/// Its [time of day](ManualClock::wall).
impl WallClock for ManualClock {
    fn now(&self) -> SystemTime {
        self.wall()
    }
}

/// A cron expression in a time zone: a [`Rule`] for [`Scheduler::by`](super::Scheduler::by).
///
/// **Expressions** have five fields (minute, hour, day of the month, month, day of the week) or
/// six, with seconds first; lists, ranges, steps, names, `L` for the last day and `#` for the nth
/// weekday of a month (the dialect of the crate `croner`). If both days are given, either will do.
///
/// **Where the clocks change**, it matters whether an expression means fixed times or a step. It
/// means a step if its second, minute or hour has a star (`*`, `*/10`), as in Vixie's cron;
/// numbers, lists and ranges (`30 2,14 * * *`, `0 0-23 * * *`) are fixed times.
///
/// * Where clocks go *forward*, fixed times that do not exist run at the first time that does,
///   once for all of them (02:30 runs at 03:00); a step leaves them out.
/// * Where they go *back*, a fixed time runs once, at the first of both; a step runs through both
///   hours.
///
/// **Time zones** come from the system's IANA database: in `TZDIR`, or in the usual places such as
/// `/usr/share/zoneinfo`. A container image without that (scratch, distroless and Alpine images
/// often are) knows no zone but UTC: install the package `tzdata`, or have the program depend on
/// `jiff` with its feature `tzdb-bundle-always`, which compiles the database in.
///
/// **If the wall clock is set**, that is noticed within a minute. Set forward, or after the machine
/// has slept, what was passed over runs once, at once, however many times it was. Set back by up
/// to three hours, nothing runs twice: it waits until the time comes again. Set back by more, the
/// clock is taken to have been wrong, and the present one counts.
///
/// A run begins at its second or within two ticks of the wheel after it. For a list of times to
/// come make another calendar, and ask it by [`next_after`](Self::next_after). In virtual time,
/// give it [a clock](Self::with_wall_clock) too: the wheel's own [`ManualClock`] will do.
///
/// # Examples
///
/// ```
/// use tourbillon::Builder;
/// use tourbillon::scheduler::{Calendar, Scheduler};
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let nightly = Calendar::new("30 2 * * *", "Europe/Berlin")?;
/// scheduler.by(nightly).run(|| println!("good night"))?;
///
/// let wrong = Calendar::new("30 25 * * *", "Europe/Berlin").unwrap_err();
/// assert!(wrong.to_string().contains("hour"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Calendar {
    cron: Cron,
    /// Whether it means fixed times, and not a step.
    fixed: bool,
    zone: TimeZone,
    wall: Box<dyn WallClock>,
    /// Up to here everything has run.
    passed: Option<Timestamp>,
    /// How many runs this rule knows of.
    runs: u64,
    /// Whether the next run is this rule's own: a handle may let it run at other times.
    answered: bool,
}

/// Why there is no such calendar.
///
/// # Examples
///
/// ```
/// use tourbillon::scheduler::{Calendar, CalendarError};
///
/// match Calendar::new("30 25 * * *", "UTC") {
///     Err(CalendarError::Expression { field, .. }) => assert_eq!(field, Some("hour")),
///     other => panic!("{other:?}"),
/// }
/// let error = Calendar::new("30 2 * * *", "Europe/Nowhere").unwrap_err();
/// assert_eq!(error.to_string(), "there is no time zone \"Europe/Nowhere\"");
/// let thirtieth = Calendar::new("0 0 30 2 *", "UTC"); // of February
/// assert!(matches!(thirtieth, Err(CalendarError::Never(_))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CalendarError {
    /// The expression cannot be read.
    Expression {
        /// The field that is wrong, if it is one.
        field: Option<&'static str>,
        /// What is wrong with it.
        reason: String,
    },
    /// The IANA database knows no such zone.
    Zone(String),
    /// The expression names no time that ever comes.
    Never(String),
}

impl Calendar {
    /// The times that a cron expression names, in the zone of this IANA name.
    ///
    /// # Errors
    ///
    /// The expression cannot be read, or names no time to come; the zone does not exist.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the time of day")]
    pub fn new(expression: &str, zone: &str) -> Result<Self, CalendarError> {
        Self::with_wall_clock(expression, zone, SystemTime::now)
    }

    /// As [`new`](Self::new), by another wall clock than the system's.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_wall_clock(
        expression: &str,
        zone: &str,
        wall: impl WallClock,
    ) -> Result<Self, CalendarError> {
        let parser =
            CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron =
            parser.parse(expression).map_err(|error| unreadable(&parser, expression, &error))?;
        let zone = TimeZone::get(zone).map_err(|_| CalendarError::Zone(zone.to_owned()))?;
        let times = [&cron.pattern.seconds, &cron.pattern.minutes, &cron.pattern.hours];
        let fixed = !times.iter().any(|field| field.from_wildcard);
        let wall = Box::new(wall);
        let calendar = Self { cron, fixed, zone, wall, passed: None, runs: 0, answered: false };
        match calendar.next_after(calendar.wall.now()) {
            Some(_) => Ok(calendar),
            None => Err(CalendarError::Never(expression.to_owned())),
        }
    }

    /// The first time of the calendar after `time`; `None` if none comes.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let noon = Calendar::new("0 12 * * *", "UTC")?;
    /// let day = Duration::from_secs(86_400);
    /// let next = noon.next_after(SystemTime::UNIX_EPOCH + day);
    /// assert_eq!(next, Some(SystemTime::UNIX_EPOCH + day + day / 2));
    /// # Ok::<(), tourbillon::scheduler::CalendarError>(())
    /// ```
    #[must_use]
    pub fn next_after(&self, time: SystemTime) -> Option<SystemTime> {
        let time = Timestamp::try_from(time).ok()?;
        self.next(time).map(SystemTime::from)
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        if self.fixed { self.next_fixed(after) } else { self.next_step(after) }
    }

    /// The first moment after `after` at which the wall clock reaches a time of the expression, or
    /// leaps over it, and has not done so before.
    fn next_fixed(&self, after: Timestamp) -> Option<Timestamp> {
        let mut time = self.zone.to_datetime(after);
        loop {
            time = self.cron.find_next_occurrence(&time, false).ok()?;
            let ambiguous = self.zone.to_ambiguous_timestamp(time);
            let reached = match ambiguous.offset() {
                AmbiguousOffset::Gap { after, .. } => {
                    let before = ambiguous.earlier().ok()?;
                    let mut changes = self.zone.following(before);
                    changes.find(|change| change.offset() == after)?.timestamp()
                }
                _ => ambiguous.earlier().ok()?,
            };
            // In an hour that comes again, times that are still ahead have been reached before.
            if reached > after {
                return Some(reached);
            }
        }
    }

    /// The first moment after `after` at which the wall clock says a time of the expression.
    /// Between two changes of clocks it runs evenly, so each such stretch is looked at alone.
    fn next_step(&self, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (after, false);
        loop {
            let offset = self.zone.to_offset(from);
            let time = offset.to_datetime(from);
            let time = self.cron.find_next_occurrence(&time, inclusive).ok()?;
            let next = offset.to_timestamp(time).ok()?;
            match self.zone.following(from).next() {
                Some(change) if change.timestamp() <= next => {
                    (from, inclusive) = (change.timestamp(), true);
                }
                _ => return Some(next),
            }
        }
    }
}

impl Rule for Calendar {
    fn next(&mut self, last: &LastRun) -> Next {
        // A wall clock that is out of its mind may come to itself.
        let Ok(now) = Timestamp::try_from(self.wall.now()) else { return Next::AskAfter(LOOK) };
        let passed = match self.passed {
            Some(passed) if passed <= now => passed,
            Some(passed) if passed.duration_since(now).unsigned_abs() <= SET_BACK => passed,
            _ => now,
        };
        let has_run = std::mem::replace(&mut self.runs, last.runs) != last.runs;
        let own = std::mem::take(&mut self.answered);
        // A run at another time stands for all that had come by then.
        let passed = if has_run && !own { passed.max(now) } else { passed };
        self.passed = Some(passed);
        let Some(next) = Calendar::next(self, passed) else { return Next::AskAfter(LOOK) };
        if next <= now {
            self.passed = Some(now);
            self.answered = true;
            return Next::After(Duration::ZERO);
        }
        Next::AskAfter(next.duration_since(now).unsigned_abs().min(LOOK))
    }
}

/// The fields of an expression, of six; one of five has no seconds.
const FIELDS: [&str; 6] =
    ["second", "minute", "hour", "day of the month", "month", "day of the week"];

/// Finds the field that is wrong: the first that cannot be read among fields that can.
fn unreadable(parser: &CronParser, expression: &str, error: &CronError) -> CalendarError {
    let given: Vec<&str> = expression.split_whitespace().collect();
    let names: &[&str] = match given.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS,
        _ => &[],
    };
    let wrong = names.iter().zip(&given).enumerate().find_map(|(place, field)| {
        let (name, text) = field;
        let mut alone = vec!["*"; given.len()];
        *alone.get_mut(place)? = text;
        let error = parser.parse(&alone.join(" ")).err()?;
        Some((*name, error))
    });
    match wrong {
        Some((name, error)) => {
            CalendarError::Expression { field: Some(name), reason: error.to_string() }
        }
        None => CalendarError::Expression { field: None, reason: error.to_string() },
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calendar")
            .field("expression", &self.cron.as_str())
            .field("zone", &self.zone.iana_name())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalendarError::Expression { field: Some(field), reason } => {
                write!(f, "the field for the {field} cannot be read: {reason}")
            }
            CalendarError::Expression { field: None, reason } => {
                f.write_str(
                    "the expression cannot be read, of five fields, or six with seconds: ",
                )?;
                f.write_str(reason)
            }
            CalendarError::Zone(name) => write!(f, "there is no time zone {name:?}"),
            CalendarError::Never(expression) => write!(f, "{expression:?} names no time to come"),
        }
    }
}

impl Error for CalendarError {}
