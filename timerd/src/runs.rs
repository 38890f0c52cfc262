//! [`Runs`], which counts attempts and records them in the history.

#![forbid(unsafe_code)]

use super::history::{Recorder, Run};
use metrics::{counter, histogram};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use timers::{reason_name, show_time};
use tourbillon_durable::{Attempt, Event, Outcome};

#[derive(Debug)]
pub(crate) struct Runs {
    /// `None` without a history, or once it is closed.
    recorder: Mutex<Option<Recorder>>,
}

impl Runs {
    pub(crate) fn new(recorder: Option<Recorder>) -> Self {
        Self { recorder: Mutex::new(recorder) }
    }

    /// Counts what a worker reports, and records the attempts.
    pub(crate) fn report(&self, event: &Event) {
        match event {
            Event::Attempt(attempt) => self.end(attempt),
            event => tracing::warn!(?event, "the worker reports"),
        }
    }

    fn end(&self, attempt: &Attempt) {
        let (outcome, error) = described(&attempt.outcome);
        counter!("timerd_attempts_total", "outcome" => outcome).increment(1);
        if attempt.attempt == 1 {
            histogram!("timerd_lateness_seconds").record(attempt.lateness);
        }
        let took = attempt.duration.unwrap_or_default();
        histogram!("timerd_attempt_seconds").record(took);
        tracing::info!(id = attempt.id, attempt = attempt.attempt, outcome, error, ?took, "run");
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(recorder) = &*recorder else { return };
        let now = now();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        recorder.record(Run {
            id: attempt.id.clone(),
            planned: show_time(attempt.planned),
            ended: show_time(now),
            ended_millis: since.as_millis().try_into().unwrap_or(u64::MAX),
            millis: took.as_millis().try_into().unwrap_or(u64::MAX),
            attempt: attempt.attempt,
            outcome: outcome.to_owned(),
            error,
        });
    }

    /// Ends the history, which then writes what it has.
    pub(crate) fn close(&self) {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[allow(clippy::disallowed_methods, reason = "the history has the times of this machine")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Returns the name of an outcome, and its error.
fn described(outcome: &Outcome) -> (&'static str, String) {
    match outcome {
        Outcome::Acknowledged => ("acknowledged", String::new()),
        Outcome::Retry { error, .. } => ("retry", error.clone()),
        Outcome::Again { .. } => ("again", String::new()),
        Outcome::Dead { reason, error } if error.is_empty() => {
            ("dead", reason_name(*reason).to_owned())
        }
        Outcome::Dead { error, .. } => ("dead", error.clone()),
        Outcome::Missed { .. } => ("missed", String::new()),
        Outcome::Cancelled { error } => ("cancelled", error.clone()),
        Outcome::GivenBack => ("given_back", String::new()),
        Outcome::TooLate => ("too_late", String::new()),
        Outcome::Unanswered => ("unanswered", String::new()),
        Outcome::Unreadable { error } => ("unreadable", error.clone()),
        other => ("other", format!("{other:?}")),
    }
}
