//! [`Exclusions`]: the times that a calendar leaves out. They are read off a wall clock that is
//! never set, as expressions are.

#![forbid(unsafe_code)]

use super::expression::Expression;
use jiff::civil::{Date, DateTime};
use std::collections::BTreeSet;

/// An expression whose times are left out so many times in a row has none to come. That is more
/// days than the 400 years after which the Gregorian calendar repeats.
const MOST_IN_A_ROW: u32 = 150_000;

/// Days, and times of expressions, that are left out.
#[derive(Clone, Default)]
pub(super) struct Exclusions {
    pub(super) days: BTreeSet<Date>,
    pub(super) expressions: Vec<Expression>,
}

impl Exclusions {
    /// Returns the first time of `expression` after `time`, or at it if that counts, that is not
    /// left out.
    pub(super) fn next(
        &self,
        expression: &Expression,
        time: &DateTime,
        inclusive: bool,
    ) -> Option<DateTime> {
        let mut next = expression.next(time, inclusive)?;
        for _ in 0..MOST_IN_A_ROW {
            let end = self.end(expression, next)?;
            if end == next {
                return Some(next);
            }
            next = expression.next(&end, true)?;
        }
        None
    }

    /// Returns a time up to which each time of `expression` from `time` on is left out: `time` if
    /// that is not left out itself.
    fn end(&self, expression: &Expression, time: DateTime) -> Option<DateTime> {
        if self.days.contains(&time.date()) {
            return Expression::midnight_after(time);
        }
        match self.expressions.iter().find(|out| out.names(&time)) {
            Some(out) if expression.is_within_hours_of(out) => Expression::midnight_after(time),
            Some(out) => out.unnamed_from(time),
            None => Some(time),
        }
    }
}
