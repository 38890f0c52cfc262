//! Lists of the times of a [`Calendar`]: the future ones, and the previous one.

#![forbid(unsafe_code)]

use super::Calendar;
use jiff::{SignedDuration, Timestamp};
use std::iter::FusedIterator;
use std::time::SystemTime;

/// 3 January of the year 1, UTC. No times are found before it.
const FIRST: Timestamp = Timestamp::constant(-62_135_424_000, 0);

impl Calendar {
    /// Returns an iterator over the times of the calendar after `time`. Most calendars never end.
    /// Each time costs a few microseconds.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let noon = Calendar::new("0 12 * * *", "UTC")?;
    /// let hours = |hours: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600);
    /// let coming: Vec<_> = noon.times_after(hours(12)).take(3).collect();
    /// assert_eq!(coming, [hours(36), hours(60), hours(84)]);
    /// # Ok::<(), tourbillon::scheduler::CalendarError>(())
    /// ```
    pub fn times_after(&self, time: SystemTime) -> TimesAfter<'_> {
        TimesAfter { calendar: self, last: Timestamp::try_from(time).ok() }
    }

    /// Returns the last time of the calendar before `time`, or `None` if there is none since the
    /// year 1. Costs as much as a few dozen future times.
    ///
    /// # Examples
    ///
    /// The run that was missed by a program that starts at one o'clock:
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::scheduler::Calendar;
    ///
    /// let noon = Calendar::new("0 12 * * *", "UTC")?;
    /// let hours = |hours: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600);
    /// assert_eq!(noon.previous_before(hours(25)), Some(hours(12)));
    /// # Ok::<(), tourbillon::scheduler::CalendarError>(())
    /// ```
    #[must_use]
    pub fn previous_before(&self, time: SystemTime) -> Option<SystemTime> {
        let before = Timestamp::try_from(time).ok()?;
        let next = |from| self.next_occurrence(from).filter(|next| *next < before);
        let mut span = SignedDuration::from_secs(1);
        let mut found = loop {
            let from = before.checked_sub(span).unwrap_or(FIRST).max(FIRST);
            match next(from) {
                Some(found) => break found,
                None if from == FIRST => return None,
                None => span = span.saturating_mul(2),
            }
        };
        // `found` is a time of the calendar. There is none from `none` on.
        let mut none = before;
        while let Some(later) = next(found) {
            found = later;
            let middle = found.checked_add(none.duration_since(found) / 2).ok()?;
            match next(middle) {
                Some(later) => found = later,
                None => none = middle,
            }
        }
        Some(SystemTime::from(found))
    }
}

/// An iterator over the future times of a [`Calendar`]. Created by [`Calendar::times_after`].
#[derive(Clone, Debug)]
#[must_use = "an iterator does nothing unless it is asked"]
pub struct TimesAfter<'c> {
    calendar: &'c Calendar,
    last: Option<Timestamp>,
}

impl Iterator for TimesAfter<'_> {
    type Item = SystemTime;

    fn next(&mut self) -> Option<SystemTime> {
        self.last = self.calendar.next_occurrence(self.last?);
        self.last.map(SystemTime::from)
    }
}

impl FusedIterator for TimesAfter<'_> {}
