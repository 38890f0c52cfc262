//! The dead letters of a store in Redis.

#![forbid(unsafe_code)]

use super::bytes::{self, Encoded};
use super::keys::Location;
use super::operation::Operation;
use super::operations::{Operations, read};
use crate::error::DurableError;
use crate::model::record::{Dead, Record};
use crate::store::remote::answers;
use crate::store::remote::retry::RetryPolicy;
use crate::store::{Answer, Letters, MAX_LIST_BYTES};
use futures_util::StreamExt;
use futures_util::stream;
use redis::cmd;
use std::sync::Arc;

/// The number of dead letters that are requested at a time, and so the number that may be read in
/// excess of a page.
const LETTERS: usize = 8;

impl Operations {
    /// Combines a partition and a letter's number there to a number in the order of time.
    pub(super) fn number(&self, partition: u64, inner: u64) -> u64 {
        inner * self.keys.partitions() + partition
    }

    pub(super) fn of_number(&self, number: u64) -> (u64, u64) {
        (number % self.keys.partitions(), number / self.keys.partitions())
    }

    pub(super) async fn dead(
        &self,
        mut letters: Letters,
        limit: usize,
    ) -> Result<Vec<(u64, Dead)>, DurableError> {
        let (mut page, mut length) = (Vec::new(), 0);
        loop {
            let numbers = self.letter_numbers(letters, limit).await?;
            let last = numbers.last().copied();
            let found = numbers.into_iter().map(|number| async move {
                Ok::<_, DurableError>((number, self.letter_bytes(number).await?))
            });
            let mut found = stream::iter(found).buffered(LETTERS);
            while length < MAX_LIST_BYTES
                && let Some(next) = found.next().await
            {
                let (number, bytes) = next?;
                // A letter that was deleted in the meantime is left out.
                let Some(bytes) = bytes else { continue };
                length += bytes.len();
                page.push((number, self.dead_letter(number, &bytes)?));
            }
            // Only the end of the list is an empty page.
            match last {
                Some(last) if page.is_empty() => letters = letters.beyond(last),
                _ => return Ok(page),
            }
        }
    }

    pub(super) async fn letter(&self, number: u64) -> Result<Option<Dead>, DurableError> {
        let found = self.letter_bytes(number).await?;
        found.map(|bytes| self.dead_letter(number, &bytes)).transpose()
    }

    async fn letter_bytes(&self, number: u64) -> Result<Option<Vec<u8>>, DurableError> {
        let (partition, inner) = self.of_number(number);
        let [letters, _] = self.keys.dead(partition);
        let mut command = cmd("HGET");
        command.arg(&letters).arg(inner);
        self.query(&letters, command).await
    }

    pub(super) async fn redrive(self: Arc<Self>, number: u64) -> Result<bool, DurableError> {
        let Some(dead) = self.letter(number).await? else { return Ok(false) };
        let (_, inner) = self.of_number(number);
        let Dead { id, record, .. } = dead;
        let Record { mut settings, planned, error, payload, .. } = record;
        settings.time_to_live = None;
        let record = Record { planned, error, ..Record::resting(0, settings, payload) };
        let Location { partition, bucket } = self.keys.location(&id);
        let operation = Operation::new(partition, "redrive").number(inner).text(id.as_bytes());
        let Encoded { record, payload, .. } = bytes::encode(&id, &record);
        let operation = operation.number(bucket).text(&record).text(payload);
        let redriven =
            self.change(RetryPolicy::Caller, operation, move |operations, answer, now| {
                operations.is_moved(&id, answer, now)
            });
        redriven.await
    }

    pub(super) fn delete_dead_letter(self: &Arc<Self>, number: u64) -> Answer<bool> {
        let (partition, inner) = self.of_number(number);
        let operation = Operation::new(partition, "delete_letter").number(inner);
        self.change(RetryPolicy::Caller, operation, |_, answer, _| answers::changed(read(answer)?))
    }

    fn dead_letter(&self, number: u64, bytes: &[u8]) -> Result<Dead, DurableError> {
        let partition = self.of_number(number).0;
        let damaged = || self.located(partition, DurableError::corrupt_letter(number));
        bytes::letter(bytes).ok_or_else(damaged)
    }
}
