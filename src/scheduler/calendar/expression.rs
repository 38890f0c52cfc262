//! [`Expression`]: the times that a cron expression names. The only file that knows the crate that
//! finds them (`croner`), on a wall clock that is never set.

#![forbid(unsafe_code)]

use super::dialect::Dialect;
use super::error::CalendarError;
use super::grammar::Fields;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::SignedDuration;
use jiff::civil::{DateTime, Time};

/// A cron expression.
#[derive(Clone)]
pub(super) struct Expression {
    /// As it was given.
    text: String,
    cron: Cron,
    /// How many days before the last of a month it means, if it counts from there: then `cron`
    /// finds each day that may be so many before.
    before_last: Option<i8>,
    /// Whether it means fixed times, and not a step.
    pub(super) fixed: bool,
    /// A bit for each second, minute and hour that it names.
    time: [u64; 3],
}

/// All seconds, minutes and hours.
const ALWAYS: [u64; 3] = [(1 << 60) - 1, (1 << 60) - 1, (1 << 24) - 1];

impl Expression {
    /// From this year on no times are found.
    pub(super) const END_YEAR: i16 = 5000;

    /// Reads one that names times: at the full minute, if it tells no seconds.
    pub(super) fn read(text: &str, dialect: Dialect) -> Result<Self, CalendarError> {
        Self::of(text, Fields::read(text, dialect, "0")?)
    }

    /// Reads one that leaves times out: whole minutes, if it tells no seconds.
    pub(super) fn read_exclusion(text: &str, dialect: Dialect) -> Result<Self, CalendarError> {
        Self::of(text, Fields::read(text, dialect, "*")?)
    }

    fn of(text: &str, fields: Fields) -> Result<Self, CalendarError> {
        let Fields { text: canonical, time, fixed, before_last, both_days } = fields;
        let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Required);
        let text = text.to_owned();
        match parser.dom_and_dow(both_days).build().parse(&canonical) {
            Ok(cron) => Ok(Self { text, cron, before_last, fixed, time }),
            // All that the grammar lets through is read, unless another version of it is not.
            Err(_) => Err(CalendarError::Expression {
                part: text.clone(),
                expression: text,
                field: None,
                reason: "not supported",
                allowed: None,
            }),
        }
    }

    /// The first time after `time`, or at it if that counts.
    pub(super) fn next(&self, time: &DateTime, inclusive: bool) -> Option<DateTime> {
        let mut next = self.cron.find_next_occurrence(time, inclusive).ok()?;
        // One day of each month is the one; so this ends within the months that are asked for.
        while self.before_last.is_some_and(|days| next.day() != next.date().days_in_month() - days)
        {
            next = self.cron.find_next_occurrence(&Self::midnight_after(next)?, true).ok()?;
        }
        Some(next)
    }

    /// Returns `true` if `time` is one of its times.
    pub(super) fn names(&self, time: &DateTime) -> bool {
        let days = time.date().days_in_month() - time.day();
        self.before_last.is_none_or(|before| before == days)
            && self.cron.is_time_matching(time).unwrap_or(false)
    }

    /// Returns `time`, or the first time after it that is not one of its times.
    pub(super) fn unnamed_from(&self, mut time: DateTime) -> Option<DateTime> {
        while self.names(&time) {
            let [seconds, minutes, hours] = [0, 1, 2].map(|unit| self.time[unit] == ALWAYS[unit]);
            let of_day = time.time();
            time = match (seconds, minutes, hours) {
                (false, ..) => time.checked_add(SignedDuration::from_secs(1)).ok()?,
                (true, false, _) => {
                    let minute = of_day.with().second(0).build().ok()?;
                    time.date()
                        .to_datetime(minute)
                        .checked_add(SignedDuration::from_mins(1))
                        .ok()?
                }
                (true, true, false) => {
                    let hour = of_day.with().minute(0).second(0).build().ok()?;
                    time.date().to_datetime(hour).checked_add(SignedDuration::from_hours(1)).ok()?
                }
                (true, true, true) => Self::midnight_after(time)?,
            };
        }
        Some(time)
    }

    /// Returns `true` if each of its times of day is one of `other`.
    pub(super) fn is_within_hours_of(&self, other: &Self) -> bool {
        self.time.iter().zip(other.time).all(|(time, other)| time & !other == 0)
    }

    /// Returns the midnight at the end of the day of `time`.
    pub(super) fn midnight_after(time: DateTime) -> Option<DateTime> {
        Some(time.date().tomorrow().ok()?.to_datetime(Time::midnight()))
    }

    /// As it was given.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}
