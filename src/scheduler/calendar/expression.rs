//! [`Expression`]: the times of a cron expression, on a wall clock that is never set.

#![forbid(unsafe_code)]

use super::dialect::Dialect;
use super::error::CalendarError;
use super::grammar::Fields;
use jiff::SignedDuration;
use jiff::civil::{DateTime, Time};

/// A cron expression.
#[derive(Clone)]
pub(super) struct Expression {
    /// The text as it was given.
    text: String,
    fields: Fields,
}

/// All seconds, minutes and hours.
const ALWAYS: [u64; 3] = [(1 << 60) - 1, (1 << 60) - 1, (1 << 24) - 1];

impl Expression {
    /// Parses an expression that selects times. Without seconds, it selects the full minutes.
    pub(super) fn read(text: &str, dialect: Dialect) -> Result<Self, CalendarError> {
        Ok(Self { text: text.to_owned(), fields: Fields::read(text, dialect, "0")? })
    }

    /// Parses an expression that excludes times. Without seconds, it excludes whole minutes.
    pub(super) fn read_exclusion(text: &str, dialect: Dialect) -> Result<Self, CalendarError> {
        Ok(Self { text: text.to_owned(), fields: Fields::read(text, dialect, "*")? })
    }

    /// Returns `true` for fixed times, `false` for a step.
    pub(super) fn is_fixed(&self) -> bool {
        self.fields.fixed
    }

    /// Returns the first time after `time`. If `inclusive`, `time` itself counts.
    pub(super) fn next(&self, time: &DateTime, inclusive: bool) -> Option<DateTime> {
        let whole = time.date().to_datetime(time.time().with().subsec_nanosecond(0).build().ok()?);
        let seconds = SignedDuration::from_secs(if inclusive { 0 } else { 1 });
        let from = whole.checked_add(seconds).ok()?;
        let days = &self.fields.days;
        let mut date = days.first_from(from.date())?;
        if date == from.date() {
            match self.time_from(from.time()) {
                Some(time) => return Some(date.to_datetime(time)),
                None => date = days.first_from(date.tomorrow().ok()?)?,
            }
        }
        Some(date.to_datetime(self.time_from(Time::midnight())?))
    }

    /// Returns the first time of day from `time` on.
    fn time_from(&self, time: Time) -> Option<Time> {
        let [seconds, minutes, hours] = self.fields.time;
        let at = |hour: Option<i8>, minute: Option<i8>, second: Option<i8>| {
            Time::new(hour?, minute?, second?, 0).ok()
        };
        let hour = Some(time.hour()).filter(|hour| selects(hours, *hour));
        let minute = Some(time.minute()).filter(|minute| selects(minutes, *minute));
        at(hour, minute, first(seconds, time.second()))
            .or_else(|| at(hour, first(minutes, time.minute() + 1), first(seconds, 0)))
            .or_else(|| at(first(hours, time.hour() + 1), first(minutes, 0), first(seconds, 0)))
    }

    /// Returns `true` if `time` is one of its times.
    pub(super) fn names(&self, time: &DateTime) -> bool {
        let Fields { time: [seconds, minutes, hours], days, .. } = &self.fields;
        selects(*seconds, time.second())
            && selects(*minutes, time.minute())
            && selects(*hours, time.hour())
            && days.select(time.date())
    }

    /// Returns `time`, or the first time after it that is not one of its times.
    pub(super) fn unnamed_from(&self, mut time: DateTime) -> Option<DateTime> {
        while self.names(&time) {
            let [seconds, minutes, hours] =
                [0, 1, 2].map(|unit| self.fields.time[unit] == ALWAYS[unit]);
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
        self.fields.time.iter().zip(other.fields.time).all(|(time, other)| time & !other == 0)
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

/// Returns `true` if `bits` has a bit for this second, minute or hour.
fn selects(bits: u64, number: i8) -> bool {
    bits >> number & 1 == 1
}

/// Returns the first second, minute or hour from `number` on that `bits` has a bit for.
fn first(bits: u64, number: i8) -> Option<i8> {
    (number..60).find(|&number| selects(bits, number))
}
