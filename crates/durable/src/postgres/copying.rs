//! Writing timers and dead letters as they are in another store.

#![forbid(unsafe_code)]

use super::operation::{Body, Operation};
use super::operations::Operations;
use super::rows::storable;
use crate::error::DurableError;
use crate::model::record::{Dead, Record};
use crate::store::remote::retry::RetryPolicy;
use futures_util::future::try_join_all;
use std::sync::Arc;

impl Operations {
    /// Writes timers, in place of existing ones.
    pub(super) async fn copy_timers(
        self: &Arc<Self>,
        timers: Vec<(String, Record)>,
    ) -> Result<(), DurableError> {
        let each = timers.iter().map(|(id, record)| {
            let operation =
                Operation { fence: record.fence, how: state(record), ..copied("copy", id, record) };
            self.change(RetryPolicy::Count, operation)
        });
        try_join_all(each).await?;
        let next = |(id, record): &(String, Record)| {
            let next = record.next.as_ref()?;
            Some(self.change(RetryPolicy::Count, copied("follow", id, next)))
        };
        try_join_all(timers.iter().filter_map(next)).await?;
        let plan = |(id, record): &(String, Record)| {
            let plan = record.plan?;
            let operation = Operation { due: Some(plan), ..Operation::new("plan", id.clone()) };
            Some(self.change(RetryPolicy::Count, operation))
        };
        try_join_all(timers.iter().filter_map(plan)).await?;
        Ok(())
    }

    /// Writes dead letters that do not exist yet.
    pub(super) async fn copy_letters(
        self: &Arc<Self>,
        letters: Vec<Dead>,
    ) -> Result<(), DurableError> {
        // One after another, so that letters of one millisecond keep their order.
        for dead in &letters {
            let how = Some(["0", "1", "2", "3"][usize::from(dead.reason.number())]);
            let number = Some(dead.first_number());
            let operation =
                Operation { fence: number, how, ..copied("letter", &dead.id, &dead.record) };
            self.change(RetryPolicy::Count, operation).await?;
        }
        Ok(())
    }
}

/// Returns the operation that writes a record.
fn copied(kind: &'static str, id: &str, record: &Record) -> Operation {
    let Record { due, planned, attempt, settings, error, payload, .. } = record;
    let body = Body { settings: settings.clone(), payload: Arc::new(payload.clone()) };
    Operation {
        due: Some(*due),
        wait: Some(*planned),
        reason: Some(i32::try_from(*attempt).unwrap_or(i32::MAX)),
        note: Some(storable(error).into_owned()),
        body: Some(body),
        ..Operation::new(kind, id.to_owned())
    }
}

/// Returns the state of a timer in letters: `p` if it is paused, `r` if it is to run now, `c` if it
/// was cancelled, and `-` if it has another state. `None` if it rests as if it had just been
/// inserted.
fn state(record: &Record) -> Option<&'static str> {
    let has_state = record.fence.is_some()
        || record.attempt > 0
        || !record.error.is_empty()
        || record.next.is_some()
        || record.plan.is_some();
    match (record.paused, record.cancelled) {
        (true, true) if record.run_now => Some("prc"),
        (true, false) if record.run_now => Some("pr"),
        (true, true) => Some("pc"),
        (true, false) => Some("p"),
        (false, true) => Some("c"),
        (false, false) => has_state.then_some("-"),
    }
}
