//! [`Expression`]: the times of a cron expression, on a wall clock that is never set. Only this
//! file knows the crate that finds them (`croner`).

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
    /// The text as it was given.
    text: String,
    cron: Cron,
    /// The number of days before the last of a month, if the expression counts from there. `cron`
    /// then finds every day of a month that the expression can select.
    before_last: Option<i8>,
    /// `true` for fixed times, `false` for a step.
    pub(super) fixed: bool,
    /// One bit for each second, minute and hour of the expression.
    time: [u64; 3],
}

/// All seconds, minutes and hours.
const ALWAYS: [u64; 3] = [(1 << 60) - 1, (1 << 60) - 1, (1 << 24) - 1];

impl Expression {
    /// The first year without times.
    pub(super) const END_YEAR: i16 = 5000;

    /// Parses an expression that selects times. Without seconds, it selects the full minutes.
    pub(super) fn read(text: &str, dialect: Dialect) -> Result<Self, CalendarError> {
        Self::of(text, Fields::read(text, dialect, "0")?)
    }

    /// Parses an expression that excludes times. Without seconds, it excludes whole minutes.
    pub(super) fn read_exclusion(text: &str, dialect: Dialect) -> Result<Self, CalendarError> {
        Self::of(text, Fields::read(text, dialect, "*")?)
    }

    /// Creates an expression from its parsed fields.
    fn of(text: &str, fields: Fields) -> Result<Self, CalendarError> {
        let Fields { text: canonical, time, fixed, before_last, both_days } = fields;
        let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Required);
        let text = text.to_owned();
        match parser.dom_and_dow(both_days).build().parse(&canonical) {
            Ok(cron) => Ok(Self { text, cron, before_last, fixed, time }),
            // The crate reads everything that the grammar accepts, unless its version differs.
            Err(_) => Err(CalendarError::Expression {
                part: text.clone(),
                expression: text,
                field: None,
                reason: "not supported",
                allowed: None,
            }),
        }
    }

    /// Returns the first time after `time`. If `inclusive`, `time` itself counts.
    pub(super) fn next(&self, time: &DateTime, inclusive: bool) -> Option<DateTime> {
        let mut next = self.cron.find_next_occurrence(time, inclusive).ok()?;
        // One day of each month matches, so this ends within the selected months.
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

    /// Returns `true` if each of its times of day is also in `other`.
    pub(super) fn is_within_hours_of(&self, other: &Self) -> bool {
        self.time.iter().zip(other.time).all(|(time, other)| time & !other == 0)
    }

    /// Returns the midnight at the end of the day of `time`.
    pub(super) fn midnight_after(time: DateTime) -> Option<DateTime> {
        Some(time.date().tomorrow().ok()?.to_datetime(Time::midnight()))
    }

    /// Returns the text as it was given.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}
