//! [`History`], the log of the store, and [`Run`], an attempt as the API shows it.

#![forbid(unsafe_code)]

use super::config::HistoryBounds;
use super::metrics::NOT_RECORDED;
use super::problem::Problem;
use http::StatusCode;
use metrics::{Counter, counter};
use serde::Serialize;
use std::time::Duration;
use timers_web::Activity;
use tourbillon_durable::text::show_time;
use tourbillon_durable::{
    AttemptLog, DurableError, DurableTimers, Event, LogBounds, LoggedAttempt,
};
use utoipa::ToSchema;

/// A run, that is, an attempt that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Run {
    /// The id of the timer.
    pub(crate) id: String,
    /// The planned time of the delivery, RFC 3339.
    pub(crate) planned: String,
    /// The time when the run ended, RFC 3339.
    pub(crate) ended: String,
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

impl From<LoggedAttempt> for Run {
    fn from(logged: LoggedAttempt) -> Self {
        let millis = logged.duration.as_ref().map_or(0, Duration::as_millis);
        Self {
            id: logged.id,
            planned: show_time(logged.planned),
            ended: show_time(logged.ended),
            millis: millis.try_into().unwrap_or(u64::MAX),
            attempt: logged.attempt,
            outcome: logged.outcome,
            status: logged.status,
            error: logged.error,
        }
    }
}

/// The runs of a store.
#[derive(Clone, Debug)]
pub(crate) struct History {
    log: AttemptLog,
    activity: Activity,
    /// Counts the runs that are missing.
    lost: Counter,
}

impl History {
    pub(crate) fn new(timers: &DurableTimers, bounds: &HistoryBounds) -> Self {
        let bounds = LogBounds::new().max_attempts(bounds.most.get()).max_age(bounds.age);
        let (activity, lost) = (Activity::new(), counter!(NOT_RECORDED));
        Self { log: timers.attempt_log(bounds), activity, lost }
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> &AttemptLog {
        &self.log
    }

    /// Returns the calls of this process.
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Notes an event of a worker, and counts the runs that could not be recorded.
    pub(crate) fn note(&self, event: &Event) {
        self.activity.record(event);
        if let Event::LogFailed { lost, .. } = event {
            self.lost.increment(*lost);
        }
    }

    /// Returns up to `limit` runs, of one timer or of all, latest first.
    pub(crate) async fn latest(&self, id: Option<&str>, limit: usize) -> Result<Vec<Run>, Problem> {
        match self.log.latest(id, limit).await {
            Ok(attempts) => Ok(attempts.into_iter().map(Run::from).collect()),
            Err(error @ DurableError::Option(_)) => Err(error.into()),
            Err(error) => {
                let detail = format!("the history failed: {error}");
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).after(1))
            }
        }
    }
}
