//! [`Exclusions`]: the times that a calendar excludes. Like expressions, they refer to a wall clock
//! that is never set.

#![forbid(unsafe_code)]

use super::expression::Expression;
use jiff::civil::{Date, DateTime};
use std::collections::BTreeSet;

/// The number of excluded times in a row that makes an expression count as having no occurrence. It
/// exceeds the number of days in 400 years, the period of the Gregorian calendar.
const MAX_IN_A_ROW: u32 = 150_000;

/// The days and the times of expressions that a calendar excludes.
#[derive(Clone, Default)]
pub(super) struct Exclusions {
    pub(super) days: BTreeSet<Date>,
    pub(super) expressions: Vec<Expression>,
}

impl Exclusions {
    /// Returns the first time of `expression` after `time` that is not excluded. If `inclusive`,
    /// `time` itself counts.
    pub(super) fn next(
        &self,
        expression: &Expression,
        time: &DateTime,
        inclusive: bool,
    ) -> Option<DateTime> {
        let mut next = expression.next(time, inclusive)?;
        for _ in 0..MAX_IN_A_ROW {
            let end = self.end(expression, next)?;
            if end == next {
                return Some(next);
            }
            next = expression.next(&end, true)?;
        }
        None
    }

    /// Returns a time such that all times of `expression` from `time` up to it are excluded, or
    /// `time` if that is not excluded itself.
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
