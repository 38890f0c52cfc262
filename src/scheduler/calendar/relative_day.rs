//! [`RelativeDay`], a day that depends on the month.

#![forbid(unsafe_code)]

use jiff::civil::{Date, Weekday};

/// A day that depends on the month.
#[derive(Clone, Copy)]
pub(super) enum RelativeDay {
    /// The number of days before the last of the month, `L` or `L-3`.
    BeforeLast(i8),
    /// The last day of the month from Monday to Friday, `LW`.
    LastWorkday,
    /// The day from Monday to Friday that is nearest to this day and in the same month, `15W`.
    NearestWorkday(u16),
    /// This weekday, counted from 0 for Sunday, for the nth time in the month, `5#3`.
    Nth(u16, u16),
    /// The last of this weekday in the month, `5L`.
    Last(u16),
}

impl RelativeDay {
    /// Returns `true` if `date` is this day of its month.
    pub(super) fn is(self, date: Date) -> bool {
        let (day, length) = (date.day(), date.days_in_month());
        match self {
            Self::BeforeLast(days) => day + days == length,
            Self::LastWorkday => nearest_workday(date, length) == Some(day),
            Self::NearestWorkday(wanted) => {
                let wanted = i8::try_from(wanted).unwrap_or(i8::MAX);
                nearest_workday(date, wanted) == Some(day)
            }
            Self::Nth(weekday, nth) => weekday_of(date) == weekday && number((day + 6) / 7) == nth,
            Self::Last(weekday) => weekday_of(date) == weekday && day + 7 > length,
        }
    }
}

/// Returns the day from Monday to Friday in the month of `date` that is nearest to `day`, or `None`
/// if the month is shorter.
fn nearest_workday(date: Date, day: i8) -> Option<i8> {
    let length = date.days_in_month();
    let wanted = date.with().day(day).build().ok()?;
    Some(match wanted.weekday() {
        Weekday::Saturday if day > 1 => day - 1,
        Weekday::Saturday => day + 2,
        Weekday::Sunday if day < length => day + 1,
        Weekday::Sunday => day - 2,
        _ => day,
    })
}

/// Returns the weekday, counted from 0 for Sunday.
pub(super) fn weekday_of(date: Date) -> u16 {
    number(date.weekday().to_sunday_zero_offset())
}

/// Converts a part of a date, which is not negative.
pub(super) fn number(part: i8) -> u16 {
    part.unsigned_abs().into()
}
