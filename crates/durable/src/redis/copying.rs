//! Writing timers and dead letters as they are in another store.

#![forbid(unsafe_code)]

use super::bytes::{self, Encoded};
use super::operation::Operation;
use super::operations::{Operations, read};
use crate::error::DurableError;
use crate::model::record::{Dead, Record};
use crate::store::remote::retry::RetryPolicy;
use futures_util::future::try_join_all;
use redis::Value;
use std::sync::Arc;

impl Operations {
    /// Writes timers, in place of existing ones.
    pub(super) async fn copy_timers(
        self: Arc<Self>,
        timers: Vec<(String, Record)>,
    ) -> Result<(), DurableError> {
        let each = timers.iter().map(|(id, record)| {
            let Encoded { record, payload, next } = bytes::encode(id, record);
            let operation = self.of_id("copy_timer", id).text(&record).text(payload).text(next);
            self.change(RetryPolicy::Caller, operation, is_done)
        });
        try_join_all(each).await.map(drop)
    }

    /// Writes dead letters that do not exist yet, in order.
    pub(super) async fn copy_letters(
        self: Arc<Self>,
        letters: Vec<Dead>,
    ) -> Result<(), DurableError> {
        // The operations of a partition are executed in the order they are sent.
        let each = letters.iter().map(|dead| {
            let partition = self.keys.location(&dead.id).partition;
            let operation = Operation::new(partition, "copy_letter").number(dead.first_number());
            let operation = operation.text(&bytes::encode_letter(dead));
            self.change(RetryPolicy::Caller, operation, is_done)
        });
        try_join_all(each).await.map(drop)
    }
}

fn is_done(_: &Operations, answer: Value, _: u64) -> Result<(), DurableError> {
    read::<u8>(answer).map(drop)
}
