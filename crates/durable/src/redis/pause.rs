//! Pausing timers and the store.
//!
//! Each partition has a mark that makes it grant no lease. The store has another mark, which
//! workers read with their heartbeat, so that they do not ask for leases in vain. It is set after
//! the marks of the partitions and removed before them. While it is set, every partition is
//! therefore paused.

#![forbid(unsafe_code)]

use super::operation::Operation;
use super::operations::{Operations, read, text};
use crate::error::DurableError;
use crate::model::label::Label;
use crate::store::Answer;
use crate::store::remote::retry::RetryPolicy;
use futures_util::future::try_join_all;
use redis::cmd;
use std::sync::Arc;

fn word(pauses: bool) -> &'static str {
    if pauses { "1" } else { "" }
}

impl Operations {
    /// Pauses or resumes a timer. If there is a label, the timer must have it, and has otherwise
    /// [changed](crate::error::DurableError::Changed).
    pub(super) fn pause_timer(
        self: &Arc<Self>,
        id: &str,
        pauses: bool,
        label: Option<&Label>,
    ) -> Answer<bool> {
        let operation = self.of_id("pause", id).text(word(pauses).as_bytes());
        let operation = operation.text(label.map_or("", Label::as_str).as_bytes());
        let id = id.to_owned();
        self.change(RetryPolicy::Caller, operation, move |operations, answer, now| {
            operations.is_moved(&id, answer, now)
        })
    }

    pub(super) async fn pause(self: &Arc<Self>, pauses: bool) -> Result<(), DurableError> {
        if !pauses {
            self.mark(pauses).await?;
        }
        let each = (0..self.keys.partitions()).map(|partition| {
            let operation = Operation::new(partition, "hold").text(word(pauses).as_bytes());
            self.change(RetryPolicy::Caller, operation, |_, answer, _| read::<u8>(answer))
        });
        try_join_all(each).await?;
        if pauses {
            self.mark(pauses).await?;
        }
        Ok(())
    }

    /// Sets or removes the mark of the store.
    async fn mark(&self, pauses: bool) -> Result<(), DurableError> {
        let (script, keys) = (&self.scripts.hold, [self.keys.description()]);
        let _: u8 = self.run(script, &keys, &[text(word(pauses))], RetryPolicy::Caller).await?;
        Ok(())
    }

    pub(super) async fn is_paused(&self) -> Result<bool, DurableError> {
        let key = self.keys.description();
        let mut command = cmd("HEXISTS");
        command.arg(&key).arg("paused");
        self.query(&key, command).await
    }
}
