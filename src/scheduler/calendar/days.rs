//! [`Days`]: the days that an expression selects, in the Gregorian calendar.

#![forbid(unsafe_code)]

use super::field::FieldValues;
use super::relative_day::{number, weekday_of};
use jiff::civil::Date;

/// The days that an expression selects.
#[derive(Clone)]
pub(super) struct Days {
    pub(super) of_month: FieldValues,
    pub(super) months: FieldValues,
    pub(super) of_week: FieldValues,
    pub(super) years: FieldValues,
    /// `true` if a date must match both days, `false` if one of them is enough. A day that can be
    /// any day restricts nothing.
    pub(super) both: bool,
}

impl Days {
    /// The first year without times.
    pub(super) const END_YEAR: i16 = 5000;

    /// Returns `true` if `date` is selected.
    pub(super) fn select(&self, date: Date) -> bool {
        self.select_year(date) && self.select_month(date) && self.select_day(date)
    }

    /// Returns the first selected date from `date` on.
    pub(super) fn first_from(&self, mut date: Date) -> Option<Date> {
        while date.year() < Self::END_YEAR {
            date = if !self.select_year(date) {
                date.last_of_year().tomorrow().ok()?
            } else if !self.select_month(date) {
                date.last_of_month().tomorrow().ok()?
            } else if !self.select_day(date) {
                date.tomorrow().ok()?
            } else {
                return Some(date);
            };
        }
        None
    }

    fn select_year(&self, date: Date) -> bool {
        self.years.select(date.year().unsigned_abs(), date)
    }

    fn select_month(&self, date: Date) -> bool {
        self.months.select(number(date.month()), date)
    }

    fn select_day(&self, date: Date) -> bool {
        let Self { of_month, of_week, both, .. } = self;
        let [month_day, weekday] =
            [of_month.select(number(date.day()), date), of_week.select(weekday_of(date), date)];
        if *both || of_month.any || of_week.any {
            month_day && weekday
        } else {
            month_day || weekday
        }
    }
}
