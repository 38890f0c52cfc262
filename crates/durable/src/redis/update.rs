//! Operations that depend on the existing record. The record is read here, because scripts can
//! compare neither rules nor headers, nor compute a checksum. The operation is then executed only
//! if the record has not changed meanwhile.

#![forbid(unsafe_code)]

use super::bytes;
use super::operations::{Operations, known};
use crate::error::DurableError;
use crate::model::condition::Condition;
use crate::model::options::Existing;
use crate::model::record::Record;
use crate::store::partitions::Partitioned;
use crate::store::remote::retry::RetryPolicy;
use crate::store::{Cancelled, Due, Insert, Inserted};
use std::sync::Arc;

impl Operations {
    /// Updates a timer, inserts it if there is none, or inserts it over a timer that meets its
    /// condition.
    pub(super) async fn insert_over(
        self: Arc<Self>,
        timer: Insert,
    ) -> Result<Inserted, DurableError> {
        loop {
            let found = self.read_if(&timer.id, timer.over.as_ref()).await?;
            let inserted = match (found, timer.existing) {
                (None, _) => self.insert(timer.clone(), None).await,
                (Some((found, before)), Existing::Update) => {
                    self.update_found(&timer, &found, &before).await
                }
                (Some((found, _)), _) => self.insert(timer.clone(), Some(&found)).await,
            };
            match inserted {
                // The timer was inserted or changed meanwhile.
                Err(DurableError::Exists | DurableError::Changed) => {}
                inserted => return inserted,
            }
        }
    }

    /// Cancels a timer that meets a condition.
    pub(super) async fn cancel_only(
        self: Arc<Self>,
        id: String,
        only: Condition,
    ) -> Result<Cancelled, DurableError> {
        loop {
            let found = self.read_if(&id, Some(&only)).await?;
            let found = found.as_ref().map(|(found, _)| &found[..]);
            match self.cancel(&id, found, None).await {
                // The timer was changed meanwhile.
                Err(DurableError::Changed) => {}
                cancelled => return cancelled,
            }
        }
    }

    /// Reads a timer, and returns the stored bytes and the record. Fails with
    /// [`DurableError::Changed`] if the timer does not meet the condition.
    async fn read_if(
        &self,
        id: &str,
        condition: Option<&Condition>,
    ) -> Result<Option<(Vec<u8>, Record)>, DurableError> {
        let found = match self.stored(id).await? {
            Some(stored) => Some((stored.record.clone(), self.record(id, stored)?)),
            None => None,
        };
        Condition::check(condition, found.as_ref().map(|(_, record)| record))?;
        Ok(found)
    }

    /// Updates a timer. Fails with [`DurableError::Changed`] if its record was changed meanwhile.
    async fn update_found(
        self: &Arc<Self>,
        timer: &Insert,
        found: &[u8],
        before: &Record,
    ) -> Result<Inserted, DurableError> {
        // Only a rule needs the current time.
        let now = match timer.due {
            Due::ByRule(_) => {
                let partition = self.keys.location(&timer.id).partition;
                self.now_of(partition, RetryPolicy::Caller).await?
            }
            Due::At(_) | Due::After(_) => 0,
        };
        let mut after = before.updated(timer, known(timer.due), now);
        let id = timer.id.clone();
        let next = after.next.take();
        let next = next.as_deref().map(|next: &Record| bytes::encode(&id, next));
        let (next, later) = next.map_or((Vec::new(), &[][..]), |next| (next.record, next.payload));
        let after = bytes::encode(&id, &after);
        let operation = self.of_id("update", &id).text(found);
        let operation = operation.text(&after.record).text(after.payload).text(&next).text(later);
        let operation = match timer.due {
            Due::After(_) => operation.due(timer.due),
            Due::ByRule(_) | Due::At(_) => operation.text(b""),
        };
        let written =
            self.change(RetryPolicy::Caller, operation, move |operations, answer, now| {
                operations.is_moved(&id, answer, now)
            });
        if written.await? { Ok(Inserted::Updated) } else { Err(DurableError::Changed) }
    }
}
