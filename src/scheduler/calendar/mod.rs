//! Times of the wall clock as a [`Rule`]: cron expressions in a time zone. The only place that
//! knows the wall clock, and the crates that know calendars (`croner`, `jiff`).
//!
//! The wheel runs on monotonic time, and the wall clock may be set at any moment. So nothing is
//! armed far ahead: the rule is asked again after [`POLL_INTERVAL`] at most, and each time looks at the wall
//! clock anew. What has run is remembered by its wall time.
//!
//! An `Expression` finds the times on a wall clock that never changes, and `Occurrences` maps them to
//! moments where the clocks change.

#![forbid(unsafe_code)]

mod builder;
mod dialect;
mod error;
mod exclusions;
mod expression;
mod field;
mod grammar;
mod listing;
mod occurrences;

pub use builder::{CalendarBuilder, MissedTimes};
pub use dialect::Dialect;
pub use error::CalendarError;
pub use listing::TimesAfter;

use super::rule::{LastRun, Next, Rule};
use crate::ManualClock;
use exclusions::Exclusions;
use expression::Expression;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use occurrences::Occurrences;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long a step of the wall clock may stay unnoticed.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// Where a [`Calendar`] and its clones read the time of day. Every `Fn() -> SystemTime` is one that
/// threads may share.
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
/// let hourly = Calendar::builder("0 * * * *").wall_clock(clock.clone()).build()?;
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
pub trait WallClock: Send + Sync + 'static {
    /// The time of day, which may be set forward and back.
    fn now(&self) -> SystemTime;
}

impl<F: Fn() -> SystemTime + Send + Sync + 'static> WallClock for F {
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
/// weekday of a month ([`Dialect`]). Those of Quartz are read too, which the
/// [`builder`](Self::builder) asks for.
///
/// **Where the clocks change**, it matters whether an expression means fixed times or a step. It
/// means a step if its second, minute or hour has a star (`*`, `*/10`), as in Vixie's cron, or an
/// open step (`0/10`); numbers, lists and ranges (`30 2,14 * * *`, `0 0-23 * * *`) are
/// fixed times.
///
/// * Where clocks go *forward*, fixed times that do not exist run at the first time that does,
///   once for all of them (02:30 runs at 03:00); a step leaves them out.
/// * Where they go *back*, a fixed time runs once, at the first of both; a step runs through both
///   hours. The same holds if the wall clock is set back.
///
/// **Time zones** come from the system's IANA database: in `TZDIR`, or in the usual places such as
/// `/usr/share/zoneinfo`. A container image without that (scratch, distroless and Alpine images
/// often are) knows no zone but UTC: install the package `tzdata`, or turn on the feature `tzdb`,
/// which compiles the database in, for where there is none.
///
/// **If the wall clock is set**, that is noticed within a minute. Set forward, or after the machine
/// has slept, what was passed over runs once, at once, however many times it was, unless
/// [`MissedTimes`] says otherwise. Set back by up to three hours, a step goes on by the new time,
/// and a fixed time is not repeated: it next runs after the latest time that has run. Set back by
/// more, the clock is taken to have been wrong, and the present one counts. Set back by less than a
/// second, or by less than passes until the next look at it, nothing is repeated.
///
/// **Several expressions** are combined into one calendar with [`CalendarBuilder::or`]. Times are
/// excluded with [`CalendarBuilder::except`] and [`CalendarBuilder::except_days`]. A custom rule
/// may also ask several calendars. Each of them counts a time as run once it has answered
/// [`Next::After`], and ignores the runs of the others.
///
/// A calendar whose last year is over goes on looking each minute, since the clock may be set back.
///
/// A run begins at its second or within two ticks of the wheel after it. For a list of times to
/// come ask a clone, by [`times_after`](Self::times_after). In virtual time,
/// give it [a clock](CalendarBuilder::wall_clock) too: the wheel's own [`ManualClock`] will do.
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
    /// At least one.
    times: Vec<Times>,
    except: Exclusions,
    zone: TimeZone,
    missed: MissedTimes,
    wall: Arc<dyn WallClock>,
    /// How long the calendar does not look at the wall clock before it is asked again.
    unpolled: Duration,
    /// The next run.
    upcoming: Option<Timestamp>,
    /// How many runs this rule knows of, its own and others'.
    runs: u64,
}

/// The times of one expression.
struct Times {
    expression: Expression,
    /// Up to here everything has run.
    passed: Option<Timestamp>,
}

impl Calendar {
    /// The times that a cron expression names, in the zone of this IANA name.
    ///
    /// # Errors
    ///
    /// The expression cannot be read, or names no time to come; the zone does not exist.
    pub fn new(expression: &str, zone: &str) -> Result<Self, CalendarError> {
        Self::builder(expression).zone(zone).build()
    }

    /// Begins to say more of a calendar than its expression: dialect, zone, missed times, clock.
    pub fn builder(expression: &str) -> CalendarBuilder<'_> {
        CalendarBuilder::new(expression)
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
        self.next_occurrence(time).map(SystemTime::from)
    }

    fn next_occurrence(&self, after: Timestamp) -> Option<Timestamp> {
        let Self { times, except, zone, .. } = self;
        let occurrences = times.iter().map(|times| times.occurrences(except, zone));
        occurrences.filter_map(|occurrences| occurrences.after(after)).min()
    }

    /// Returns what has no time to come: an expression whose times are all left out, or else all
    /// expressions. One of several whose last year is over may come when the clock is set back.
    fn without_occurrence(&self, now: Timestamp) -> Option<String> {
        let Self { times, except, zone, .. } = self;
        let has_some = |times: &Times| times.occurrences(except, zone).after(now).is_some();
        let is_left_out = |times: &&Times| {
            !has_some(times) && times.expression.next(&zone.to_datetime(now), false).is_some()
        };
        let texts =
            |times: &[Times]| texts(times.iter().map(|times| &times.expression)).join(" or ");
        match times.iter().find(is_left_out) {
            Some(left_out) => Some(texts(std::slice::from_ref(left_out))),
            None => (!times.iter().any(has_some)).then(|| texts(times)),
        }
    }
}

/// Creates the same calendar for another closure, without knowledge of earlier runs.
///
/// # Examples
///
/// ```
/// use tourbillon::scheduler::{Calendar, Scheduler};
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// let nightly = Calendar::new("30 2 * * *", "Europe/Berlin")?;
/// scheduler.by(nightly.clone()).run(|| println!("save"))?;
/// scheduler.by(nightly).run(|| println!("clean"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Clone for Calendar {
    fn clone(&self) -> Self {
        let anew = |times: &Times| Times { expression: times.expression.clone(), passed: None };
        Self {
            times: self.times.iter().map(anew).collect(),
            except: self.except.clone(),
            zone: self.zone.clone(),
            missed: self.missed,
            wall: Arc::clone(&self.wall),
            unpolled: Duration::ZERO,
            upcoming: None,
            runs: 0,
        }
    }
}

impl Times {
    fn occurrences<'c>(&'c self, except: &'c Exclusions, zone: &'c TimeZone) -> Occurrences<'c> {
        Occurrences { expression: &self.expression, except, zone }
    }
}

impl Rule for Calendar {
    fn next(&mut self, last: &LastRun) -> Next {
        self.upcoming = None;
        let unpolled = std::mem::replace(&mut self.unpolled, POLL_INTERVAL);
        // A wall clock that is out of its mind may come to itself.
        let Ok(now) = Timestamp::try_from(self.wall.now()) else {
            return Next::AskAfter(POLL_INTERVAL);
        };
        let has_run = std::mem::replace(&mut self.runs, last.runs) != last.runs;
        // A run that a handle has moved stands for all that had come by then. One that another rule
        // wanted, where a rule unites several, stands for nothing here.
        let moved = (has_run && last.moved).then_some(now);
        let left_out = self.missed_before(now);
        for times in &mut self.times {
            let occurrences = times.occurrences(&self.except, &self.zone);
            let passed =
                times.passed.map_or(now, |passed| occurrences.resume(passed, now, unpolled));
            let passed = [moved, left_out].into_iter().flatten().fold(passed, Timestamp::max);
            self.upcoming = self.upcoming.into_iter().chain(occurrences.after(passed)).min();
            times.passed = Some(passed);
        }
        let Some(next) = self.upcoming else { return Next::AskAfter(POLL_INTERVAL) };
        if next <= now {
            let passed = Some(if self.missed.is_one_each() { next } else { now });
            for times in &mut self.times {
                times.passed = times.passed.max(passed);
            }
            self.unpolled = Duration::ZERO;
            return Next::After(Duration::ZERO);
        }
        self.unpolled = next.duration_since(now).unsigned_abs().min(POLL_INTERVAL);
        Next::AskAfter(self.unpolled)
    }

    fn next_time(&self) -> Option<SystemTime> {
        self.upcoming.map(SystemTime::from)
    }

    fn next_delay(&self) -> Option<Duration> {
        // The clock may have come to that time since the question.
        let now = Timestamp::try_from(self.wall.now()).ok()?;
        Some(Duration::try_from(self.upcoming?.duration_since(now)).unwrap_or_default())
    }
}

impl Calendar {
    /// Up to here times are left out that did not run.
    fn missed_before(&self, now: Timestamp) -> Option<Timestamp> {
        let longest = SignedDuration::try_from(self.missed.longest()?).ok()?;
        // A time that came just so long ago counts.
        now.checked_sub(longest).ok()?.checked_sub(SignedDuration::from_nanos(1)).ok()
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calendar")
            .field("expressions", &texts(self.times.iter().map(|times| &times.expression)))
            .field("except", &texts(&self.except.expressions))
            .field("zone", &self.zone.iana_name())
            .finish_non_exhaustive()
    }
}

fn texts<'e>(expressions: impl IntoIterator<Item = &'e Expression>) -> Vec<&'e str> {
    expressions.into_iter().map(Expression::text).collect()
}
