//! [`Existing::Update`](crate::Existing::Update), which reads a changes it here because
//! scripts cannot compare rules, and writes it unless it was changed meanwhile.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::super::record::Record;
use super::super::store::{Due, Insert, Inserted};
use super::bytes::{self, Stored};
use super::link::RetryPolicy;
use super::operations::{Operations, known};
use std::sync::Arc;

impl Operations {
    /// Updates a timer, or inserts it if there is none.
    pub(super) async fn update(self: Arc<Self>, timer: Insert) -> Result<Inserted, DurableError> {
        loop {
            let Some(found) = self.stored(&timer.id).await? else {
                match self.insert(timer.clone()).await {
                    Err(DurableError::Exists) => continue,
                    inserted => return inserted,
                }
            };
            if self.update_found(&timer, found).await? {
                return Ok(Inserted::Updated);
            }
        }
    }

    /// Updates a record. Returns `false` if it was changed meanwhile.
    async fn update_found(
        self: &Arc<Self>,
        timer: &Insert,
        found: Stored,
    ) -> Result<bool, DurableError> {
        let operation = self.of_id("update", &timer.id).text(&found.record);
        let before = self.record(&timer.id, found)?;
        // Only a rule needs the current time.
        let now = match timer.due {
            Due::ByRule(_) => {
                let partition = self.keys.location(&timer.id).partition;
                self.now(partition, RetryPolicy::Caller).await?
            }
            Due::At(_) | Due::After(_) => 0,
        };
        let mut after = before.updated(timer, known(timer.due), now);
        let next = after.next.take();
        let next = next.as_deref().map(|next: &Record| bytes::encode(&timer.id, next));
        let (next, later) = next.map_or((Vec::new(), &[][..]), |next| (next.record, next.payload));
        let after = bytes::encode(&timer.id, &after);
        let operation = operation.text(&after.record).text(after.payload).text(&next).text(later);
        let operation = match timer.due {
            Due::After(_) => operation.due(timer.due),
            Due::At(_) | Due::ByRule(_) => operation.text(b""),
        };
        let id = timer.id.clone();
        let updated =
            self.change(RetryPolicy::Caller, operation, move |operations, answer, now| {
                operations.is_moved(&id, answer, now)
            });
        updated.await
    }
}
