//! The [`Transport`] of a store in Redis, which sends a batch of operations on a partition as one
//! call of `scripts/batch.lua`.
//!
//! Each operation is atomic by itself. The script keeps no reply to a batch that changed nothing,
//! unless a copy of the batch, or of an abandoned batch, may still be in flight. That copy must
//! then be rejected as late, whatever others have changed meanwhile. An operation whose key is
//! moving to another node was not executed, and joins the end of its queue.

#![forbid(unsafe_code)]

use super::link;
use super::operation::Operation;
use super::operations::Operations;
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::store::Answer;
use crate::store::remote::answers::unexpected_reply;
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::queue::Queue;
use crate::store::remote::retry::RetryPolicy;
use crate::store::remote::sender::{Batch, Engine, Replies, RequestOf, Transport};
use redis::{Cmd, RedisError, Value};
use std::sync::Arc;
use tokio::runtime::Handle;

/// The maximum number of operations in a batch.
const MAX_OPERATIONS: usize = 128;

/// The maximum number of bytes in a batch, unless a single operation is longer.
const MAX_BYTES: usize = 1 << 18;

/// The operation in place of one whose caller has timed out.
const NOTHING: &[u8] = b"\x07\0\0\0nothing";

impl Operations {
    /// Executes an operation with the next batch, even if its caller has gone, unless the operation
    /// is marked otherwise. `read` converts the reply of the script.
    pub(super) fn change<R: Send + 'static>(
        self: &Arc<Self>,
        policy: RetryPolicy,
        operation: Operation,
        read: impl FnOnce(&Self, Value, Millis) -> Result<R, DurableError> + Send + Sync + 'static,
    ) -> Answer<R> {
        if let Err(error) = self.check_usable() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (partition, skips) = (operation.partition, operation.skip_if_dropped);
        let place = usize::try_from(partition).unwrap_or(usize::MAX);
        let limit = self.engine.limit(policy);
        let operations = Arc::clone(self);
        let read = move |(value, now)| {
            let answer = read(&operations, value, now);
            answer.map_err(|error| operations.located(partition, error))
        };
        let asked = Engine::ask(self, place, operation, limit.clone(), skips, read);
        let operations = Arc::clone(self);
        Box::pin(async move {
            let silence = || operations.link.silence(&operations.keys.prefix(partition));
            limit.within(&operations.engine.host, asked, silence).await
        })
    }

    fn command(&self, queue: &Queue<RequestOf<Self>>, batch: &Batch<Self>) -> Cmd {
        let partition = queue.place as u64;
        let mut command = link::call(&self.scripts.batch, &self.keys.common(partition));
        command.arg(self.keys.prefix(partition)).arg(self.word_of_time());
        command.arg(&queue.process.to_le_bytes()[..]).arg(batch.number);
        command.arg(self.keys.channel_of(partition));
        command.arg(if queue.is_ambiguous() { "settle" } else { "" });
        for request in &batch.requests {
            command.arg(request.as_ref().map_or(NOTHING, |request| &request.operation.words));
        }
        command
    }
}

impl Transport for Operations {
    type Operation = Operation;
    /// The reply of the script, and the time of the store's clock.
    type Reply = (Value, Millis);
    type Host = Handle;

    fn engine(&self) -> &Engine<Self> {
        &self.engine
    }

    fn check_usable(&self) -> Result<(), DurableError> {
        self.identity.check_usable()
    }

    fn bounds(_place: usize) -> (usize, usize) {
        (MAX_OPERATIONS, MAX_BYTES)
    }

    fn weight(operation: &Operation) -> usize {
        operation.words.len()
    }

    async fn send(
        &self,
        queue: &Queue<RequestOf<Self>>,
        batch: &Batch<Self>,
        _lost: u32,
    ) -> Result<Replies<Self>, RequestError> {
        let connection = self.link.connection(&self.keys.prefix(queue.place as u64));
        let command = self.command(queue, batch);
        let answer = connection.clone().evaluate(&self.scripts.batch, command).await;
        let answer = answer.map_err(|error| self.link.failed(&connection, &error))?;
        connection.node.trouble.succeeded(true);
        let Some((now, answers)) = split_reply(answer, batch.requests.len()) else {
            let error = unexpected_reply().at(&connection.node.address());
            return Err(RequestError { kind: Kind::Fatal, error });
        };
        let reply = |answer| match answer {
            Value::BulkString(text) => Err(self.link.failed(&connection, &failed(&text))),
            answer => Ok((answer, now)),
        };
        Ok(answers.map(reply).collect())
    }
}

/// Splits the reply to a batch of `count` operations into the time and the results.
fn split_reply(answer: Value, count: usize) -> Option<(Millis, impl Iterator<Item = Value>)> {
    let Value::Array(answers) = answer else { return None };
    let whole = answers.len() == count + 1;
    let mut answers = answers.into_iter();
    match answers.next() {
        Some(Value::Int(now)) if whole => Some((Millis::try_from(now).ok()?, answers)),
        _ => None,
    }
}

/// Converts the error text of an operation, as if it were the error of its command.
fn failed(text: &[u8]) -> RedisError {
    let line: Vec<u8> = text.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
    match redis::parse_redis_value(&[b"-", &line[..], b"\r\n"].concat()) {
        Ok(Value::ServerError(error)) => error.into(),
        Err(error) => error,
        Ok(_) => (redis::ErrorKind::Parse, "no error").into(),
    }
}
