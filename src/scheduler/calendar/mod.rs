//! Calendars as a [`Rule`]: cron expressions in a time zone. Only this module knows the wall clock
//! and the crate for calendars (`jiff`).
//!
//! The wheel runs on monotonic time, but the wall clock may be set at any moment. Therefore nothing
//! is armed far ahead. The rule asks to be asked again after [`POLL_INTERVAL`] at most, and reads
//! the wall clock each time. It remembers how far it has run, in wall-clock time. It distinguishes
//! runs by their number and not by their instants, because two questions may refer to one run at
//! different instants, and two runs may come at the same instant.
//!
//! An `Expression` finds times on a wall clock that is never changed, and `Occurrences` maps them
//! to instants in a time zone whose clocks change.

#![forbid(unsafe_code)]

mod builder;
mod days;
mod dialect;
mod error;
mod exclusions;
mod expression;
mod field;
mod grammar;
mod listing;
mod occurrences;
mod relative_day;
mod span;
mod zone;

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
use span::Span;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use zone::CalendarZone;

/// The maximum time before a change of the wall clock is noticed.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// The source of the time of day for a [`Calendar`] and its clones. Every `Fn() -> SystemTime` that
/// threads can share is a wall clock.
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
    /// Returns the time of day, which may jump forward and back.
    fn now(&self) -> SystemTime;
}

impl<F: Fn() -> SystemTime + Send + Sync + 'static> WallClock for F {
    fn now(&self) -> SystemTime {
        self()
    }
}

/// Returns the [time of day](ManualClock::wall) of the clock.
impl WallClock for ManualClock {
    fn now(&self) -> SystemTime {
        self.wall()
    }
}

/// A cron expression in a time zone. A calendar is a [`Rule`] for
/// [`Scheduler::by`](super::Scheduler::by).
///
/// **Expressions** have five fields (minute, hour, day of the month, month, day of the week), or
/// six with seconds first. They support lists, ranges, steps, names, `L` for the last day and `#`
/// for the nth weekday of a month ([`Dialect`]). The [`builder`](Self::builder) also reads
/// expressions of Quartz.
///
/// **If a zone changes its clocks**, it matters whether an expression means fixed times or a step.
/// It means a step if its second, minute or hour has a star (`*`, `*/10`), as in Vixie's cron, or
/// an open step (`0/10`). Numbers, lists and ranges (`30 2,14 * * *`, `0 0-23 * * *`) are fixed
/// times.
///
/// * If clocks go *forward*, fixed times that do not exist run at the first time that does, once
///   for all of them (02:30 runs at 03:00). A step skips them.
/// * If clocks go *back*, a fixed time runs once, at the first of its two occurrences, while a step
///   runs through both hours. The same applies if the wall clock is set back.
///
/// **Time zones** come from the system's IANA database, which is found by `TZDIR` or in the usual
/// places such as `/usr/share/zoneinfo`. A container image without it (scratch, distroless and
/// Alpine images often lack it) knows no zone except UTC. Install the package `tzdata`, or enable
/// the feature `tzdb`, which compiles in a database. That database is used for the zones that the
/// system lacks. Some systems have former names such as `US/Pacific` in the package `tzdata-legacy`
/// only. An update of the system's database takes effect within some minutes, without a restart.
///
/// **If the wall clock is set**, the calendar notices within a minute.
///
/// * If it is set *forward*, or after the machine has slept, the times that were passed over run
///   once and immediately, however many they are, unless [`MissedTimes`] says otherwise.
/// * If it is set *back by up to three hours*, a step continues by the new time. A fixed time is
///   not repeated, and the next run is after the latest time that has run.
/// * If it is set *back by more*, the clock is assumed to have been wrong, and the new time counts.
/// * If it is set *back by less than a second*, or by less than the time until the next check,
///   nothing is repeated.
///
/// **Several expressions** are combined into one calendar with [`CalendarBuilder::or`]. Times are
/// excluded with [`CalendarBuilder::except`] and [`CalendarBuilder::except_days`]. A custom rule
/// may also ask several calendars. Each of them counts a time as run once it has returned
/// [`Next::After`], and ignores the runs of the others.
///
/// **A first and a last time** limit a calendar ([`CalendarBuilder::starting_at`] and
/// [`CalendarBuilder::until`]).
///
/// A calendar whose last year is over continues to check the clock every minute, because the clock
/// may be set back. A calendar with a last time ends its repetition after it.
///
/// A run begins at its second or within two ticks of the wheel after it. To list future times, call
/// [`times_after`](Self::times_after) on a clone. In virtual time, give the calendar [a
/// clock](CalendarBuilder::wall_clock) as well, such as the wheel's own [`ManualClock`]. A leap to
/// the next timer then stops at each check, once a minute, so a test of a year takes half a million
/// leaps. [Set the time of day](ManualClock::set_wall) shortly before the run that is tested, and
/// then schedule it.
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
    /// One or more.
    times: Vec<Times>,
    except: Exclusions,
    span: Span,
    zone: CalendarZone,
    missed: MissedTimes,
    wall: Arc<dyn WallClock>,
    /// The time between the last check of the wall clock and the next.
    unpolled: Duration,
    /// The wall-clock time of the next run.
    upcoming: Option<Timestamp>,
    /// The number of runs that this rule knows of, including runs of other rules.
    runs: u64,
}

/// One expression of a calendar.
struct Times {
    expression: Expression,
    /// Everything up to this time has run.
    passed: Option<Timestamp>,
}

impl Calendar {
    /// Creates a calendar of one expression, in the time zone with this IANA name.
    ///
    /// # Errors
    ///
    /// Fails if the expression is invalid or has no future occurrence, or if the zone does not
    /// exist.
    pub fn new(expression: &str, zone: &str) -> Result<Self, CalendarError> {
        Self::builder(expression).zone(zone).build()
    }

    /// Creates a builder, which also sets the dialect, the zone, the behaviour for missed times,
    /// and the clock.
    pub fn builder(expression: &str) -> CalendarBuilder<'_> {
        CalendarBuilder::new(expression)
    }

    /// Returns the first time of the calendar after `time`, or `None` if there is none.
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

    /// Returns the first occurrence after `after`. Unlike [`Rule::next`] it does not change the
    /// calendar.
    fn next_occurrence(&self, after: Timestamp) -> Option<Timestamp> {
        let Self { times, except, span, zone, .. } = self;
        let rules = zone.rules();
        let occurrences = times.iter().map(|times| times.occurrences(except, *span, &rules));
        occurrences.filter_map(|occurrences| occurrences.after(after)).min()
    }

    /// Returns the expressions without a future occurrence, if the calendar must be refused because
    /// of them: one whose times are all excluded, or otherwise all of them. A single expression
    /// whose last year is over, or without a time in the span, is accepted among others, because
    /// the clock may be set back.
    fn without_occurrence(&self, now: Timestamp) -> Option<String> {
        let Self { times, except, span, zone, .. } = self;
        let rules = zone.rules();
        let has_some =
            |times: &Times, span| times.occurrences(except, span, &rules).after(now).is_some();
        let is_left_out = |times: &&Times| {
            !has_some(times, Span::default())
                && times.expression.next(&rules.to_datetime(now), false).is_some()
        };
        let texts =
            |times: &[Times]| texts(times.iter().map(|times| &times.expression)).join(" or ");
        match times.iter().find(is_left_out) {
            Some(left_out) => Some(texts(std::slice::from_ref(left_out))),
            None => (!times.iter().any(|times| has_some(times, *span))).then(|| texts(times)),
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
        let fresh = |times: &Times| Times { expression: times.expression.clone(), passed: None };
        Self {
            times: self.times.iter().map(fresh).collect(),
            except: self.except.clone(),
            span: self.span,
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
    /// Returns the occurrences of the expression by the rules of a zone.
    fn occurrences<'c>(
        &'c self,
        except: &'c Exclusions,
        span: Span,
        zone: &'c TimeZone,
    ) -> Occurrences<'c> {
        Occurrences { expression: &self.expression, except, span, zone }
    }
}

impl Rule for Calendar {
    fn next(&mut self, last: &LastRun) -> Next {
        self.upcoming = None;
        let unpolled = std::mem::replace(&mut self.unpolled, POLL_INTERVAL);
        // The wall clock is out of `Timestamp`'s range. Ask again later, because it may be
        // corrected.
        let Ok(now) = Timestamp::try_from(self.wall.now()) else {
            return Next::AskAfter(POLL_INTERVAL);
        };
        let has_run = std::mem::replace(&mut self.runs, last.runs) != last.runs;
        // A run that a handle has moved covers all times up to now. If several rules are combined
        // and another one caused the run, the run covers no occurrence of this calendar.
        let moved = (has_run && last.moved).then_some(now);
        let left_out = self.missed_before(now);
        let rules = self.zone.refresh();
        for times in &mut self.times {
            let occurrences = times.occurrences(&self.except, self.span, &rules);
            let passed =
                times.passed.map_or(now, |passed| occurrences.resume(passed, now, unpolled));
            let passed = [moved, left_out].into_iter().flatten().fold(passed, Timestamp::max);
            self.upcoming = self.upcoming.into_iter().chain(occurrences.after(passed)).min();
            times.passed = Some(passed);
        }
        let Some(next) = self.upcoming else {
            // Without an end, the last year of the expressions is over, and the clock may be set
            // back.
            return if self.span.is_limited() { Next::End } else { Next::AskAfter(POLL_INTERVAL) };
        };
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
        // The clock may have reached that time since the question.
        let now = Timestamp::try_from(self.wall.now()).ok()?;
        Some(Duration::try_from(self.upcoming?.duration_since(now)).unwrap_or_default())
    }
}

impl Calendar {
    /// Returns the end of the times that are skipped if they did not run.
    fn missed_before(&self, now: Timestamp) -> Option<Timestamp> {
        let longest = SignedDuration::try_from(self.missed.longest()?).ok()?;
        // A time exactly that long ago still counts.
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

/// Returns the texts of the expressions.
fn texts<'e>(expressions: impl IntoIterator<Item = &'e Expression>) -> Vec<&'e str> {
    expressions.into_iter().map(Expression::text).collect()
}
