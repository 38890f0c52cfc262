//! [`Runs`], which records attempts in the history.

#![forbid(unsafe_code)]

use super::history::{Recorder, Run};
use http::StatusCode;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tourbillon_durable::text::{reason_name, show_time};
use tourbillon_durable::{Delivery, Event, Outcome};

#[derive(Debug)]
pub(crate) struct Runs {
    /// `None` once the history is closed.
    recorder: Mutex<Option<Recorder>>,
    /// The statuses of calls whose attempts have not ended in the store yet.
    statuses: Mutex<HashMap<Call, StatusCode>>,
}

/// The id, the planned time and the number of an attempt.
type Call = (String, SystemTime, u32);

impl Runs {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { recorder: Mutex::new(Some(recorder)), statuses: Mutex::default() }
    }

    /// Notes the status of a response until the end of the attempt is reported.
    pub(crate) fn note(&self, delivery: &Delivery, status: StatusCode) {
        let Delivery { id, planned, attempt, .. } = delivery;
        self.statuses().insert((id.clone(), *planned, *attempt), status);
    }

    /// Forgets the calls of a worker that has failed, because their ends are not reported.
    pub(crate) fn forget(&self) {
        self.statuses().clear();
    }

    fn statuses(&self) -> MutexGuard<'_, HashMap<Call, StatusCode>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an attempt that has ended.
    pub(crate) fn report(&self, event: &Event) {
        let Event::Attempt(attempt) = event else { return };
        let call = (attempt.id.clone(), attempt.planned, attempt.attempt);
        let status = self.statuses().remove(&call);
        // No attempt was made, or it has not ended.
        if matches!(attempt.outcome, Outcome::GivenBack) {
            return;
        }
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(recorder) = &*recorder else { return };
        let took = attempt.duration.unwrap_or_default();
        let now = now();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        recorder.record(Run {
            id: attempt.id.clone(),
            planned: show_time(attempt.planned),
            ended: show_time(now),
            ended_millis: since.as_millis().try_into().unwrap_or(u64::MAX),
            millis: took.as_millis().try_into().unwrap_or(u64::MAX),
            attempt: attempt.attempt,
            outcome: attempt.outcome.name().to_owned(),
            status: status.map(|status| status.as_u16()),
            error: error_of(&attempt.outcome),
        });
    }

    /// Ends the history, which then writes its last runs.
    pub(crate) fn close(&self) {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[allow(clippy::disallowed_methods, reason = "the history has the times of this machine")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Returns the error of an attempt, or an empty string.
fn error_of(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Dead { reason, error } if error.is_empty() => reason_name(*reason).to_owned(),
        Outcome::Retry { error, .. }
        | Outcome::Dead { error, .. }
        | Outcome::Cancelled { error }
        | Outcome::Unreadable { error } => error.clone(),
        _ => String::new(),
    }
}
