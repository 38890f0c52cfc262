//! The dead letters of a store in Redis.

#![forbid(unsafe_code)]

use super::bytes::{self, Encoded};
use super::keys::Location;
use super::operation::Operation;
use super::operations::{Operations, read};
use crate::error::DurableError;
use crate::model::record::{Dead, Record};
use crate::store::remote::answers::{self, unexpected_reply};
use crate::store::remote::retry::RetryPolicy;
use crate::store::{Answer, Letters, LettersOf, MAX_LIST_BYTES};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream;
use redis::{Cmd, cmd};
use std::sync::Arc;

/// The number of dead letters that are requested at a time, and so the number that may be read in
/// excess of a page.
const LETTERS: usize = 8;

/// The byte between a name and a number in the index of letters, which no text in UTF-8 has.
const BETWEEN: u8 = 255;

/// The number of digits of a number there.
const DIGITS: usize = 20;

/// Returns the first or the last numbers, as the order of `letters` says.
pub(super) fn in_order(mut numbers: Vec<u64>, letters: Letters, limit: usize) -> Vec<u64> {
    numbers.sort_unstable();
    if let Letters::Before(_) = letters {
        numbers.reverse();
    }
    numbers.truncate(limit);
    numbers
}

/// Returns the command that reads members of the index of letters with a name. Their numbers are
/// beyond the bound of `letters`, for which `first` returns the number in the partition.
fn named(key: &str, name: &[u8], letters: Letters, first: impl Fn(u64) -> u64) -> Cmd {
    let member = |bound: &str, end: &[u8]| [bound.as_bytes(), name, &[BETWEEN], end].concat();
    let numbered = |bound, number| member(bound, format!("{number:0DIGITS$}").as_bytes());
    let (least, greatest) = (member("[", b""), member("(", &[BETWEEN]));
    let (name, from, to) = match letters {
        Letters::After(number) => {
            let from = number.map(|number| numbered("[", first(number.saturating_add(1))));
            ("ZRANGEBYLEX", from.unwrap_or(least), greatest)
        }
        Letters::Before(number) => {
            let from = number.map(|number| numbered("(", first(number)));
            ("ZREVRANGEBYLEX", from.unwrap_or(greatest), least)
        }
    };
    let mut command = cmd(name);
    command.arg(key).arg(from).arg(to);
    command
}

impl Operations {
    /// Combines a partition and a letter's number there to a number in the order of time.
    pub(super) fn number(&self, partition: u64, inner: u64) -> u64 {
        inner * self.keys.partitions() + partition
    }

    pub(super) fn of_number(&self, number: u64) -> (u64, u64) {
        (number % self.keys.partitions(), number / self.keys.partitions())
    }

    /// Returns the first number in a partition that is not less than a number of the store.
    pub(super) fn first_inner(&self, partition: u64, number: u64) -> u64 {
        let (last, inner) = self.of_number(number);
        inner + u64::from(partition < last)
    }

    pub(super) async fn letters_of(
        &self,
        of: LettersOf,
        letters: Letters,
        limit: usize,
    ) -> Result<Vec<u64>, DurableError> {
        let (name, partitions) = match of {
            LettersOf::Id(id) => {
                let partition = self.keys.location(&id).partition;
                (format!("i:{id}"), partition..partition + 1)
            }
            LettersOf::Label(label) => (format!("l:{label}"), 0..self.keys.partitions()),
        };
        let each = partitions.map(|partition| {
            let key = self.keys.letter_names(partition);
            let first = |number| self.first_inner(partition, number);
            let mut command = named(&key, name.as_bytes(), letters, first);
            command.arg("LIMIT").arg(0).arg(limit);
            async move {
                let found: Vec<Vec<u8>> = self.query(&key, command).await?;
                let number = |member: &Vec<u8>| {
                    let digits = member.get(member.len().checked_sub(DIGITS)?..)?;
                    let inner = std::str::from_utf8(digits).ok()?.parse().ok()?;
                    Some(self.number(partition, inner))
                };
                let numbers: Option<Vec<u64>> = found.iter().map(number).collect();
                numbers.ok_or_else(|| self.located(partition, unexpected_reply()))
            }
        });
        let numbers = try_join_all(each).await?.into_iter().flatten();
        Ok(in_order(numbers.collect(), letters, limit))
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
