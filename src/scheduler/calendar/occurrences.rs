//! [`Occurrences`]: when the times of an [`Expression`] come, where a time zone changes the clocks and
//! where the wall clock is set. The only place that treats fixed times and steps differently.
//!
//! Both follow Vixie's cron. A step follows the wall clock through an hour that comes again, and a
//! fixed time is not repeated in it, whether the zone or a user has set the clock back.

#![forbid(unsafe_code)]

use super::exclusions::Exclusions;
use super::expression::Expression;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Fixed times are not repeated after the wall clock is set back by up to so much. A clock that is
/// set back by more was wrong before.
const SET_BACK: SignedDuration = SignedDuration::from_hours(3);

/// Neither are steps after a correction of up to so much.
const CORRECTION: SignedDuration = SignedDuration::from_secs(1);

/// The moments at which the times of an expression come.
#[derive(Clone, Copy)]
pub(super) struct Occurrences<'c> {
    pub(super) expression: &'c Expression,
    pub(super) except: &'c Exclusions,
    pub(super) zone: &'c TimeZone,
}

impl Occurrences<'_> {
    /// Returns the first one after `after`.
    pub(super) fn after(self, after: Timestamp) -> Option<Timestamp> {
        if self.expression.fixed { self.fixed_after(after) } else { self.step_after(after) }
    }

    /// Returns the time up to which everything counts as run, where that was `passed` and the wall
    /// clock now reads `now`, after the calendar has not looked at it for the time `unseen`.
    pub(super) fn resume(self, passed: Timestamp, now: Timestamp, unpolled: Duration) -> Timestamp {
        let held = if self.expression.fixed { SET_BACK } else { CORRECTION };
        if passed.duration_since(now) <= held {
            return passed;
        }
        // The clock may have been set as early as the last look, and times have come since.
        now.checked_sub(unpolled).unwrap_or(now)
    }

    /// Returns the first moment after `after` at which the wall clock reaches a time of the
    /// expression, or leaps over it, and has not done so before.
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
            // In an hour that comes again, times that are still ahead have been reached before.
            if reached > after {
                return Some(reached);
            }
        }
    }

    /// Returns the first moment after `after` at which the wall clock says a time of the
    /// expression. Between two changes of clocks it runs evenly, so each such stretch is looked at
    /// alone.
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

    fn next_local(self, time: &DateTime, inclusive: bool) -> Option<DateTime> {
        self.except.next(self.expression, time, inclusive)
    }
}
