//! [`Run`], and [`History`], the interface to stored runs.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::fmt;
use std::pin::Pin;
use utoipa::ToSchema;

/// A run, that is, an attempt that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Run {
    /// The id of the timer.
    pub(crate) id: String,
    /// The planned time of the delivery, RFC 3339.
    pub(crate) planned: String,
    /// The time when the run ended, RFC 3339.
    pub(crate) ended: String,
    /// The time when the run ended, in milliseconds since 1970.
    #[serde(skip)]
    pub(crate) ended_millis: u64,
    /// The duration of the call in milliseconds.
    pub(crate) millis: u64,
    /// The number of the attempt.
    pub(crate) attempt: u32,
    /// `acknowledged`, `retry`, `again`, `dead`, `missed`, `cancelled`, `too_late`, `unanswered`
    /// or `unreadable`.
    pub(crate) outcome: String,
    /// The status of the response, unless there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// The error of the attempt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) error: String,
}

#[cfg(test)]
impl Run {
    /// Returns a run of a timer that ended at a time.
    pub(super) fn example(id: &str, ended_millis: u64) -> Self {
        Self {
            id: id.to_owned(),
            planned: String::new(),
            ended: ended_millis.to_string(),
            ended_millis,
            millis: 7,
            attempt: 1,
            outcome: "acknowledged".to_owned(),
            status: Some(204),
            error: String::new(),
        }
    }
}

/// The error of a history.
#[derive(Debug)]
pub(crate) enum HistoryError {
    /// The store failed.
    Store(String),
    /// No timer of this store can have the id.
    Id(&'static str),
}

impl HistoryError {
    pub(super) fn of(error: impl fmt::Display) -> Self {
        Self::Store(error.to_string())
    }
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the history failed: {error}"),
            Self::Id(why) => write!(f, "id: {why}"),
        }
    }
}

/// The future of an operation.
pub(super) type Reply<T> = Pin<Box<dyn Future<Output = Result<T, HistoryError>> + Send>>;

/// A place for runs.
pub(crate) trait History: Send + Sync {
    /// Adds runs, and removes runs beyond the bounds.
    fn add(&self, runs: Vec<Run>) -> Reply<()>;

    /// Returns up to `limit` runs, of one timer or of all, latest first.
    fn latest(&self, id: Option<String>, limit: usize) -> Reply<Vec<Run>>;
}
