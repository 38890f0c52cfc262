//! [`Operation`], an operation as `sql/batch.sql` takes it, and its [`Reply`].

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::condition::Condition;
use crate::model::record::{Record, Settings};
use crate::store::Due;
use std::sync::Arc;

/// The number of lanes that operations are divided among by their ids.
pub(super) const LANES: usize = 2;

/// The lane of operations that had to wait for a transaction of a caller.
pub(super) const HELD: usize = LANES;

/// The place of each queue that a single operation has for itself.
pub(super) const ALONE: usize = HELD + 1;

/// The answer of an operation that another transaction keeps from being executed.
pub(super) const LOCKED: i32 = -1;

/// The error of a text that the server cannot store.
pub(super) const ZERO: &str =
    "PostgreSQL cannot store the character U+0000 in an id, a header or a rule";

/// An operation of `sql/batch.sql`, with its arguments.
#[derive(Debug, Default)]
pub(super) struct Operation {
    pub(super) kind: &'static str,
    pub(super) id: String,
    pub(super) due: Option<Millis>,
    pub(super) wait: Option<Millis>,
    /// A fencing token, or the number of a dead letter.
    pub(super) fence: Option<u64>,
    pub(super) how: Option<&'static str>,
    /// The error of an attempt, or the condition of an insert, a cancel or a pause.
    pub(super) note: Option<String>,
    pub(super) flag: Option<bool>,
    pub(super) reason: Option<i32>,
    pub(super) body: Option<Body>,
}

/// The options and the payload of a timer to insert.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) settings: Settings,
    pub(super) payload: Arc<Vec<u8>>,
}

impl Operation {
    pub(super) fn new(kind: &'static str, id: String) -> Self {
        Self { kind, id, ..Self::default() }
    }

    /// Sets the due time, or the delay that it is computed from.
    pub(super) fn due(self, due: Due) -> Self {
        match due {
            Due::At(time) | Due::ByRule(time) => Self { due: Some(time), ..self },
            Due::After(delay) => Self { due: Some(0), wait: Some(delay), ..self },
        }
    }

    /// Sets the condition that the timer must meet.
    pub(super) fn only(self, only: Option<Condition>) -> Result<Self, DurableError> {
        let (name, value) = match only {
            None => return Ok(self),
            Some(Condition::Label(label)) => {
                let note = serde_json::json!({ "label": label.as_str() }).to_string();
                return Ok(Self { note: Some(note), ..self });
            }
            Some(Condition::Header { name, value }) => (name, value),
        };
        if [Some(&name), value.as_ref()].into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(DurableError::Option(ZERO));
        }
        Ok(Self { note: Some(serde_json::json!([name, value]).to_string()), ..self })
    }

    /// Returns `true` if it can be kept waiting by a lock that it cannot see, such as the lock of
    /// an id that another transaction has inserted.
    pub(super) fn may_wait(&self) -> bool {
        !matches!(self.kind, "lease" | "renew" | "finish" | "cancel" | "reset" | "run" | "pause")
    }

    /// Returns the approximate number of bytes.
    pub(super) fn weight(&self) -> usize {
        let payload = self.body.as_ref().map_or(0, |body| body.payload.len());
        128 + self.id.len() + payload
    }
}

/// The reply to an operation.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) now: Millis,
    pub(super) answer: i32,
    /// The time in the key of the timer, if it may have changed.
    pub(super) due: Option<Millis>,
    pub(super) part: u64,
    pub(super) fence: Option<u64>,
    pub(super) before: Option<Millis>,
    /// The record of a timer that was leased, or the error if it cannot be read.
    pub(super) record: Option<Result<Record, DurableError>>,
}
