//! [`Span`]: the first and the last possible time of a calendar.

#![forbid(unsafe_code)]

use jiff::{SignedDuration, Timestamp};
use std::time::SystemTime;

/// The part of all time in which a calendar has its times. Both ends are part of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    /// The end of the times before the span, or `None` if the span has no start.
    before: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Span {
    /// Creates a span from `first` to `last`.
    pub(super) fn new(first: Option<SystemTime>, last: Option<SystemTime>) -> Self {
        let nanosecond = SignedDuration::from_nanos(1);
        let before = first.and_then(|first| timestamp(first).checked_sub(nanosecond).ok());
        Self { before, last: last.map(timestamp) }
    }

    /// Returns the time after which to search for the first time after `after`.
    pub(super) fn clip(self, after: Timestamp) -> Timestamp {
        self.before.map_or(after, |before| before.max(after))
    }

    /// Returns `true` if `time` is not past the end.
    pub(super) fn is_open_at(self, time: Timestamp) -> bool {
        self.last.is_none_or(|last| time <= last)
    }

    /// Returns `true` if the span has an end.
    pub(super) fn is_limited(self) -> bool {
        self.last.is_some()
    }
}

/// Returns the time as a timestamp, or the closest one if it is out of range.
fn timestamp(time: SystemTime) -> Timestamp {
    let is_before = time < SystemTime::UNIX_EPOCH;
    let closest = if is_before { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::try_from(time).unwrap_or(closest)
}
