//! [`LoggedAttempt`], an attempt as the log of a store keeps it, and [`LogBounds`].

#![forbid(unsafe_code)]

use crate::model::clock::{Millis, millis_up, present, system, whole_millis};
use crate::model::event::{Attempt, Outcome};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// The bounds of a log of attempts. The oldest attempts beyond them are deleted when others are
/// added.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::LogBounds;
///
/// let week = Duration::from_secs(7 * 86_400);
/// let bounds = LogBounds::new().max_attempts(10_000).max_age(week);
/// # let _ = bounds;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct LogBounds {
    pub(crate) most: u64,
    pub(crate) age: Millis,
}

impl LogBounds {
    /// Creates bounds of 100,000 attempts and 30 days.
    pub fn new() -> Self {
        Self { most: 100_000, age: 30 * 86_400_000 }
    }

    /// Sets the maximum number of attempts. Zero is treated as 1.
    pub fn max_attempts(mut self, most: u64) -> Self {
        self.most = most.max(1);
        self
    }

    /// Sets how long an attempt is kept, by the store's clock.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.age = millis_up(age);
        self
    }
}

impl Default for LogBounds {
    fn default() -> Self {
        Self::new()
    }
}

/// An attempt that has ended, as [`AttemptLog::latest`](crate::AttemptLog::latest) returns it.
/// Times are rounded down to milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedAttempt {
    /// The timer's id.
    pub id: String,
    /// The planned time of the delivery.
    pub planned: SystemTime,
    /// The time when the attempt ended, by the store's clock. The due time of a timer that
    /// [cannot be read](Outcome::Unreadable).
    pub ended: SystemTime,
    /// The duration of the handler, or `None` if it was not called.
    pub duration: Option<Duration>,
    /// The number of the attempt.
    pub attempt: u32,
    /// The [name](Outcome::name) of the outcome.
    pub outcome: String,
    /// The status that the handler has noted
    /// ([`Delivery::note_status`](crate::Delivery::note_status)).
    pub status: Option<u16>,
    /// The error of the attempt, or an empty string. If a dead letter has no error, the
    /// [name](crate::DeadReason::name) of its reason.
    pub error: String,
}

impl LoggedAttempt {
    pub(crate) fn new(attempt: &Attempt) -> Self {
        let Attempt { id, planned, due, attempt, outcome, lateness, duration, status } = attempt;
        let ended = *due + *lateness + duration.unwrap_or_default();
        let error = match outcome {
            Outcome::Dead { reason, error } if error.is_empty() => reason.name(),
            Outcome::Retry { error, .. }
            | Outcome::Dead { error, .. }
            | Outcome::Cancelled { error }
            | Outcome::Unreadable { error } => error,
            _ => "",
        };
        Self {
            id: id.clone(),
            planned: *planned,
            ended: system(present(ended)),
            duration: duration.map(|duration| Duration::from_millis(whole_millis(duration))),
            attempt: *attempt,
            outcome: outcome.name().to_owned(),
            status: *status,
            error: error.to_owned(),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let stored = Stored {
            id: self.id.clone(),
            planned: present(self.planned),
            ended: present(self.ended),
            duration: self.duration.map(whole_millis),
            attempt: self.attempt,
            outcome: self.outcome.clone(),
            status: self.status,
            error: self.error.clone(),
        };
        // Numbers and texts are always JSON.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Returns `None` if the text is not an attempt, for example because of another program.
    pub(crate) fn of_json(text: &[u8]) -> Option<Self> {
        let stored: Stored = serde_json::from_slice(text).ok()?;
        let Stored { id, planned, ended, duration, attempt, outcome, status, error } = stored;
        let (planned, ended) = (system(planned), system(ended));
        let duration = duration.map(Duration::from_millis);
        Some(Self { id, planned, ended, duration, attempt, outcome, status, error })
    }
}

/// The JSON of an attempt. Times are in milliseconds.
#[derive(Serialize, Deserialize)]
struct Stored {
    id: String,
    planned: Millis,
    ended: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration: Option<Millis>,
    attempt: u32,
    outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_clock_beside_the_store_is_read() {
        let attempt = Attempt {
            id: "id".to_owned(),
            planned: system(7),
            due: system(7),
            attempt: 0,
            outcome: Outcome::Unreadable { error: "no record".to_owned() },
            lateness: Duration::ZERO,
            duration: None,
            status: None,
        };
        assert_eq!(LoggedAttempt::new(&attempt).ended, system(7));
    }
}
