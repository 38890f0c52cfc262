//! [`CalendarBuilder`] and [`MissedTimes`].

#![forbid(unsafe_code)]

use super::days::Days;
use super::dialect::Dialect;
use super::error::CalendarError;
use super::exclusions::Exclusions;
use super::expression::Expression;
use super::span::Span;
use super::zone::CalendarZone;
use super::{Calendar, Times, WallClock};
use crate::wall_now;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The behaviour of a calendar for times that were passed over, because a run took long, the
/// machine slept, nothing swept the wheel, or the wall clock was set forward.
///
/// The decision is made when the calendar notices that a time has come. A run that waits for its
/// thread after that is late, but not missed.
///
/// # Examples
///
/// A job at every full hour, on a machine that sleeps from 10:30 to 14:20:
///
/// ```
/// use std::sync::mpsc;
/// use std::time::{Duration, SystemTime};
/// use tourbillon::scheduler::{Calendar, MissedTimes, Scheduler};
/// use tourbillon::{Builder, ManualClock};
///
/// let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
/// for (missed, runs) in [
///     (MissedTimes::Once, 1),
///     (MissedTimes::AllWithin(minutes(24 * 60)), 4),
///     (MissedTimes::AllWithin(minutes(90)), 2),
///     (MissedTimes::Skip, 0),
///     (MissedTimes::Within(minutes(15)), 0),
///     (MissedTimes::Within(minutes(30)), 1),
/// ] {
///     let clock = ManualClock::new();
///     clock.set_wall(SystemTime::UNIX_EPOCH + minutes(10 * 60 + 30));
///     let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
///     let scheduler = Scheduler::new(wheel);
///     let hourly = Calendar::builder("0 * * * *").missed(missed).wall_clock(clock.clone());
///     let (send, ran) = mpsc::channel();
///     scheduler.by(hourly.build()?).run(move || drop(send.send("an hour")))?;
///     clock.advance(minutes(3 * 60 + 50));
///     while sweeper.sweep(|timer| scheduler.fire(timer)).expired > 0 {}
///     assert_eq!(ran.try_iter().count(), runs, "{missed:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTimes {
    /// Run once for all missed times, immediately.
    #[default]
    Once,
    /// Skip them. A run that cannot begin within a second of its time is skipped. On a wheel whose
    /// ticks are longer than that, use [`Within`](Self::Within) a few ticks.
    Skip,
    /// Run once and immediately for the times that were due at most this long ago, if there are
    /// any. (Kubernetes' `startingDeadlineSeconds`.)
    Within(Duration),
    /// Run once for each time that was due at most this long ago, one right after the other.
    ///
    /// The bound limits the number of runs after a wall clock was set forward by years, for example
    /// on a device that starts in 1970 and then obtains the time.
    AllWithin(Duration),
}

impl MissedTimes {
    /// Returns the maximum age of a missed time that counts, or `None` if the age does not matter.
    pub(super) fn longest(self) -> Option<Duration> {
        match self {
            Self::Once => None,
            Self::Skip => Some(Duration::from_secs(1)),
            Self::Within(longest) | Self::AllWithin(longest) => Some(longest),
        }
    }

    /// Returns `true` if one run covers one time, and not all times up to now.
    pub(super) fn is_one_each(self) -> bool {
        matches!(self, Self::AllWithin(_))
    }
}

/// A builder of a [`Calendar`]. Created by [`Calendar::builder`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::{Calendar, Dialect, MissedTimes, Scheduler};
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// let third_fridays = Calendar::builder("0 0 18 ? * FRI#3")
///     .dialect(Dialect::Quartz)
///     .zone("Europe/Berlin")
///     .missed(MissedTimes::Within(Duration::from_secs(3600)))
///     .build()?;
/// scheduler.by(third_fridays).run(|| println!("the meeting begins"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct CalendarBuilder<'e> {
    expressions: Vec<&'e str>,
    except: Vec<&'e str>,
    except_days: Vec<&'e str>,
    first: Option<SystemTime>,
    last: Option<SystemTime>,
    dialect: Dialect,
    zone: Zone<'e>,
    missed: MissedTimes,
    wall: Arc<dyn WallClock>,
}

/// The time zone, before it is looked up.
#[derive(Debug)]
enum Zone<'e> {
    Named(&'e str),
    System,
    Given(TimeZone),
}

impl<'e> CalendarBuilder<'e> {
    pub(super) fn new(expression: &'e str) -> Self {
        Self {
            expressions: vec![expression],
            except: Vec::new(),
            except_days: Vec::new(),
            first: None,
            last: None,
            dialect: Dialect::default(),
            zone: Zone::Named("UTC"),
            missed: MissedTimes::default(),
            wall: Arc::new(wall_now),
        }
    }

    /// Adds the times of another expression, in the same dialect and zone.
    ///
    /// A time that is part of several expressions runs once. Missed times of several expressions
    /// also run once, unless [`missed`](Self::missed) says otherwise. Each expression is classified
    /// as fixed times or a step separately.
    ///
    /// # Examples
    ///
    /// Every 90 minutes, which no single expression can describe:
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let calendar = Calendar::builder("0 0-21/3 * * *").or("30 1-22/3 * * *").build()?;
    /// let mut time = SystemTime::UNIX_EPOCH;
    /// for n in 1..=16 {
    ///     time = calendar.next_after(time).ok_or("there is a next time")?;
    ///     assert_eq!(time, SystemTime::UNIX_EPOCH + Duration::from_secs(90 * 60) * n);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn or(mut self, expression: &'e str) -> Self {
        self.expressions.push(expression);
        self
    }

    /// Excludes the times of an expression in the same dialect, on the wall clock of the zone.
    ///
    /// An expression without seconds excludes whole minutes, so `* * 24-26 12 *` excludes three
    /// whole days. In Quartz's dialect, which requires seconds, that is `* * * 24-26 12 ?`.
    ///
    /// Excluded days and hours cost little. An expression whose times are excluded 150,000 times in
    /// a row has no future occurrence.
    ///
    /// # Examples
    ///
    /// Every quarter of an hour, except during the lunch break of working days:
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let polling = Calendar::builder("*/15 * * * *").except("* 12 * * MON-FRI").build()?;
    /// let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(12 * 3600); // a Thursday
    /// let next = polling.next_after(noon - Duration::from_secs(1));
    /// assert_eq!(next, Some(noon + Duration::from_secs(3600)));
    /// # Ok::<(), tourbillon::scheduler::CalendarError>(())
    /// ```
    pub fn except(mut self, expression: &'e str) -> Self {
        self.except.push(expression);
        self
    }

    /// Excludes whole days of the zone, such as public holidays, each written as `2026-12-25`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let holidays = ["1970-01-01", "1970-01-02"];
    /// let opening = Calendar::builder("0 9 * * MON-FRI").except_days(holidays);
    /// let monday = SystemTime::UNIX_EPOCH + Duration::from_secs((4 * 24 + 9) * 3600);
    /// assert_eq!(opening.build()?.next_after(SystemTime::UNIX_EPOCH), Some(monday));
    /// # Ok::<(), tourbillon::scheduler::CalendarError>(())
    /// ```
    pub fn except_days(mut self, days: impl IntoIterator<Item = &'e str>) -> Self {
        self.except_days.extend(days);
        self
    }

    /// Leaves out all times before `first`. A time at `first` itself counts. (Quartz's `startAt`.)
    ///
    /// A `Timestamp` or `Zoned` of the crate `jiff` converts into a [`SystemTime`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let day = |day: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * day);
    /// let daily = Calendar::builder("0 0 * * *").starting_at(day(30_000)).build()?;
    /// assert_eq!(daily.next_after(day(1)), Some(day(30_000)));
    /// # Ok::<(), tourbillon::scheduler::CalendarError>(())
    /// ```
    pub fn starting_at(mut self, first: SystemTime) -> Self {
        self.first = Some(first);
        self
    }

    /// Leaves out all times after `last`. A time at `last` itself counts. (Quartz's `endAt`.)
    ///
    /// A repetition ends after the last time, even if the wall clock is set back later. A time up
    /// to `last` that was missed is handled as [`missed`](Self::missed) says, so its run may begin
    /// after `last`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let day = |day: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * day);
    /// let trial = Calendar::builder("0 0 * * *").starting_at(day(30_000)).until(day(30_002));
    /// let trial = trial.build()?;
    /// let times: Vec<_> = trial.times_after(day(1)).collect();
    /// assert_eq!(times, [day(30_000), day(30_001), day(30_002)]);
    /// # Ok::<(), tourbillon::scheduler::CalendarError>(())
    /// ```
    pub fn until(mut self, last: SystemTime) -> Self {
        self.last = Some(last);
        self
    }

    /// Sets the dialect of the expressions. The default is the dialect of Unix.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Sets the time zone by an IANA name, or as a fixed offset from UTC such as `+05:30`, of at
    /// most 18 hours. The default is UTC.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let noon = Calendar::builder("0 12 * * *").zone("+02:00").build()?;
    /// let ten = SystemTime::UNIX_EPOCH + Duration::from_secs(10 * 3600);
    /// assert_eq!(noon.next_after(SystemTime::UNIX_EPOCH), Some(ten));
    /// # Ok::<(), tourbillon::scheduler::CalendarError>(())
    /// ```
    pub fn zone(mut self, name: &'e str) -> Self {
        self.zone = Zone::Named(name);
        self
    }

    /// Sets a time zone of the crate `jiff`, for example from a POSIX rule or another database. The
    /// calendar keeps its rules, even if the database changes.
    ///
    /// # Examples
    ///
    /// ```
    /// use jiff::tz::TimeZone;
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3")?;
    /// let noon = Calendar::builder("0 12 * * *").time_zone(zone).build()?;
    /// let eleven = SystemTime::UNIX_EPOCH + Duration::from_secs(11 * 3600); // in winter
    /// assert_eq!(noon.next_after(SystemTime::UNIX_EPOCH), Some(eleven));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_zone(mut self, zone: TimeZone) -> Self {
        self.zone = Zone::Given(zone);
        self
    }

    /// Uses the time zone of the system at the time of [`build`](Self::build), given by the
    /// variable `TZ` or by `/etc/localtime`.
    pub fn system_zone(mut self) -> Self {
        self.zone = Zone::System;
        self
    }

    /// Sets the behaviour for missed times. By default they run once.
    pub fn missed(mut self, missed: MissedTimes) -> Self {
        self.missed = missed;
        self
    }

    /// Sets the source of the time of day. By default it is the system's, or the clock of a
    /// `testing::World` on the thread that created that world.
    pub fn wall_clock(mut self, wall: impl WallClock) -> Self {
        self.wall = Arc::new(wall);
        self
    }

    /// Builds the calendar.
    ///
    /// # Errors
    ///
    /// Fails if an expression or a day is invalid, if there is no future occurrence between the
    /// first and the last time, if the zone does not exist, or if the system's own zone cannot be
    /// determined.
    pub fn build(self) -> Result<Calendar, CalendarError> {
        let Self { expressions, except, except_days, first, last, dialect, zone, missed, wall } =
            self;
        let zone = match zone {
            Zone::Given(zone) => CalendarZone::given(zone),
            Zone::Named(name) => {
                CalendarZone::named(name).ok_or_else(|| CalendarError::Zone(name.to_owned()))?
            }
            Zone::System => CalendarZone::system()
                .map_err(|error| CalendarError::SystemZone(error.to_string()))?,
        };
        let read = |text: &&str| {
            let expression = Expression::read(text, dialect)?;
            Ok(Times { expression, passed: None })
        };
        let read_exclusion = |text: &str| Expression::read_exclusion(text, dialect);
        let calendar = Calendar {
            times: expressions.iter().map(read).collect::<Result<_, _>>()?,
            except: Exclusions {
                days: except_days.into_iter().map(parse_day).collect::<Result<_, _>>()?,
                expressions: except.into_iter().map(read_exclusion).collect::<Result<_, _>>()?,
            },
            span: Span::new(first, last),
            zone,
            missed,
            wall,
            unpolled: Duration::ZERO,
            upcoming: None,
            runs: 0,
        };
        let now = Timestamp::try_from(calendar.wall.now()).ok();
        // A wall clock outside the range of calendars may be corrected later.
        let known = now.filter(|now| now.to_zoned(TimeZone::UTC).year() < Days::END_YEAR);
        match known.and_then(|now| calendar.without_occurrence(now)) {
            Some(never) => Err(CalendarError::Never(never)),
            None => Ok(calendar),
        }
    }
}

/// Parses a day, which must be written as `2026-12-25`.
fn parse_day(text: &str) -> Result<Date, CalendarError> {
    let read = text.parse::<Date>().ok().filter(|day| day.to_string() == text);
    read.ok_or_else(|| CalendarError::Day(text.to_owned()))
}

impl fmt::Debug for CalendarBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CalendarBuilder")
            .field("expressions", &self.expressions)
            .field("except", &self.except)
            .field("except_days", &self.except_days)
            .field("first", &self.first)
            .field("last", &self.last)
            .field("dialect", &self.dialect)
            .field("zone", &self.zone)
            .field("missed", &self.missed)
            .finish_non_exhaustive()
    }
}
