//! [`Occurrences`]: the instants of an [`Expression`]'s times, in a time zone that changes its
//! clocks and on a wall clock that may be set. Only this file treats fixed times and steps
//! differently.
//!
//! Both follow Vixie's cron. A step follows the wall clock through a repeated hour, while a fixed
//! time is not repeated in it, whether the zone or a user has set the clock back. An expression
//! with a star is a step, and every other expression has fixed times.

#![forbid(unsafe_code)]

use super::exclusions::Exclusions;
use super::expression::Expression;
use super::span::Span;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// The longest set-back of the wall clock that does not repeat fixed times. A clock that is set
/// back by more was wrong before.
const SET_BACK: SignedDuration = SignedDuration::from_hours(3);

/// The longest correction of the wall clock that does not repeat steps.
const CORRECTION: SignedDuration = SignedDuration::from_secs(1);

/// The occurrences of an expression in a time zone.
#[derive(Clone, Copy)]
pub(super) struct Occurrences<'c> {
    pub(super) expression: &'c Expression,
    pub(super) except: &'c Exclusions,
    pub(super) zone: &'c TimeZone,
    pub(super) span: Span,
}

impl Occurrences<'_> {
    /// Returns the first occurrence after `after`.
    pub(super) fn after(self, after: Timestamp) -> Option<Timestamp> {
        let after = self.span.clip(after);
        let is_fixed = self.expression.is_fixed();
        let next = if is_fixed { self.fixed_after(after) } else { self.step_after(after) };
        next.filter(|next| self.span.is_open_at(*next))
    }

    /// Returns the latest time that counts as run, with all times before it. It was `passed`, the
    /// wall clock now reads `now`, and the calendar had not checked it for the time `unpolled`.
    pub(super) fn resume(self, passed: Timestamp, now: Timestamp, unpolled: Duration) -> Timestamp {
        let held = if self.expression.is_fixed() { SET_BACK } else { CORRECTION };
        if passed.duration_since(now) <= held {
            return passed;
        }
        // The clock may have been set right after the last check, and times have come since.
        now.checked_sub(unpolled).unwrap_or(now)
    }

    /// Returns the first instant after `after` when the wall clock reaches a time of the
    /// expression, or jumps over it, for the first time.
    fn fixed_after(self, after: Timestamp) -> Option<Timestamp> {
        let mut time = self.zone.to_datetime(after);
        loop {
            time = self.next_local(&time, false)?;
            let ambiguous = self.zone.to_ambiguous_timestamp(time);
            let reached = match ambiguous.offset() {
                AmbiguousOffset::Gap { after, .. } => {
                    let before = ambiguous.earlier().ok()?;
                    let mut changes = self.zone.following(before);
                    changes.find(|change| change.offset() == after)?.timestamp()
                }
                _ => ambiguous.earlier().ok()?,
            };
            // In a repeated hour, times that are still ahead have already been reached once.
            if reached > after {
                return Some(reached);
            }
        }
    }

    /// Returns the first instant after `after` when the wall clock shows a time of the expression.
    /// Between two changes of its offset the clock runs evenly, so each such interval is searched
    /// by itself.
    fn step_after(self, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (after, false);
        loop {
            let offset = self.zone.to_offset(from);
            let time = offset.to_datetime(from);
            let time = self.next_local(&time, inclusive)?;
            let next = offset.to_timestamp(time).ok()?;
            match self.zone.following(from).next() {
                Some(change) if change.timestamp() <= next => {
                    (from, inclusive) = (change.timestamp(), true);
                }
                _ => return Some(next),
            }
        }
    }

    /// Returns the next local time that is not excluded.
    fn next_local(self, time: &DateTime, inclusive: bool) -> Option<DateTime> {
        self.except.next(self.expression, time, inclusive)
    }
}
