//! Batches of changing operations on one partition.
//!
//! ```text
//!   insert   ─┐   waiting            on its way
//!   cancel   ─┼─► ┌──┬──┬──┬──┐      ┌──┬──┬──┬──┐ number 7   one call of
//!   lease    ─┤   │  │  │  │  │ ───► │  │  │  │  │ ─────────► scripts/batch.lua
//!   finish   ─┘   └──┴──┴──┴──┘      └──┴──┴──┴──┘
//! ```
//!
//! **One batch per partition is in flight at a time**, and the next accumulates meanwhile. A single
//! operation is sent at once, and under load up to [`MAX_OPERATIONS`] operations share the cost of
//! a request. Each operation is atomic by itself, and has its own result or error.
//!
//! **Retried, executed once.** The batches of a process and partition are numbered consecutively. A
//! batch is resent under its number, with the same operations in the same positions, until a reply
//! arrives. The script keeps its last reply to each process, returns it on a resend, and rejects
//! lower numbers. It keeps no reply to a batch that changed nothing, unless a copy of the batch, or
//! of an abandoned batch, may still be in flight. That copy must then be rejected as late, whatever
//! others have changed meanwhile. An operation that was certainly not executed, because its key was
//! moving, leaves the batch and joins the end of the queue.
//!
//! **Callers that timed out** have already received `Unreachable`. Their operations are left out of
//! a resend. Dropping a future has no effect, and the operation is executed.

#![forbid(unsafe_code)]

use super::link::{self, no_reply};
use super::node::Connection;
use super::operation::{Operation, Request, Respond};
use super::operations::{Operations, unexpected_reply};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::store::Answer;
use crate::store::remote::error::Kind;
use crate::store::remote::host::Host;
use crate::store::remote::retry::{Pauses, RetryPolicy};
use futures_channel::oneshot;
use redis::{Cmd, RedisError, Value};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tourbillon::{Clock, MonotonicClock};

/// The maximum number of operations in a batch.
const MAX_OPERATIONS: usize = 128;

/// The maximum number of bytes in a batch, unless a single operation is longer.
const MAX_BYTES: usize = 1 << 18;

impl Operations {
    /// Executes an operation with the next batch, even if its caller has gone, unless the operation
    /// is marked otherwise. `read` converts the reply of the script.
    pub(super) fn change<R: Send + 'static>(
        self: &Arc<Self>,
        retry: RetryPolicy,
        operation: Operation,
        read: impl FnOnce(&Self, Value, Millis) -> Result<R, DurableError> + Send + 'static,
    ) -> Answer<R> {
        if let Err(error) = self.identity.check_usable() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let partition = operation.partition;
        let (reply, answer) = oneshot::channel();
        let respond: Respond<Self> = Box::new(move |operations, answered| {
            let answer = answered.and_then(|(value, now)| {
                read(operations, value, now).map_err(|error| operations.located(partition, error))
            });
            // The caller may have dropped the future.
            drop(reply.send(answer));
        });
        let deadline =
            retry.longest(self.link.call_timeout()).map(|limit| MonotonicClock.now() + limit);
        let waits = operation.skip_if_dropped.then(|| Arc::new(()));
        let waiter = waits.as_ref().map(Arc::downgrade);
        let mut queue = self.queues.queue(partition);
        queue.requests.push_back(Request { operation, deadline, waiter, respond });
        let begin = !std::mem::replace(&mut queue.sending, true);
        drop(queue);
        if begin {
            let operations = Arc::clone(self);
            let sender = Sender { operations, partition, why: String::new(), ended: false };
            Host::spawn(&self.queues.runtime, sender.run());
        }
        Box::pin(async move {
            let answer = answer.await.unwrap_or(Err(DurableError::Closed));
            drop(waits);
            answer
        })
    }
}

/// Operations that are sent together. An empty entry belonged to a caller that has timed out.
struct Batch {
    number: u64,
    requests: Vec<Option<Request<Operations>>>,
}

impl Batch {
    fn requests(&self) -> impl Iterator<Item = &Request<Operations>> {
        self.requests.iter().flatten()
    }
}

/// Sends the batches of a partition, one after another, until the queue is empty.
struct Sender {
    operations: Arc<Operations>,
    partition: u64,
    /// The reason why there was no reply the last time.
    why: String,
    ended: bool,
}

impl Sender {
    async fn run(mut self) {
        while let Some(batch) = self.next() {
            self.send(batch).await;
        }
    }

    fn next(&mut self) -> Option<Batch> {
        let mut queue = self.operations.queues.queue(self.partition);
        let (mut requests, mut bytes) = (Vec::new(), 0);
        while let Some(request) = queue.requests.front() {
            if request.is_abandoned() {
                queue.requests.pop_front();
                continue;
            }
            bytes += request.operation.words.len();
            if requests.len() == MAX_OPERATIONS || (bytes > MAX_BYTES && !requests.is_empty()) {
                break;
            }
            requests.push(queue.requests.pop_front());
        }
        if requests.is_empty() {
            (queue.sending, self.ended) = (false, true);
            return None;
        }
        queue.batches += 1;
        Some(Batch { number: queue.batches, requests })
    }

    /// Sends a batch until a reply arrives or all its callers have timed out.
    async fn send(&mut self, mut batch: Batch) {
        let mut pauses = Pauses::new();
        loop {
            let connection =
                self.operations.link.connection(&self.operations.keys.prefix(self.partition));
            let asked = {
                let (connection, operations) = (connection.clone(), Arc::clone(&self.operations));
                let command = self.command(&batch);
                async move { connection.evaluate(&operations.scripts.batch, command).await }
            };
            let answer = self.wait_for(&mut batch, asked).await;
            // A command that was sent while the queue was ambiguous has settled it.
            self.operations.queues.queue(self.partition).ambiguous = !matches!(answer, Some(Ok(_)));
            let Some(answer) = answer else { return };
            let error = match answer {
                Ok(answer) => {
                    if !self.complete(batch, answer, &connection) {
                        Pauses::new().wait(&self.operations.queues.runtime).await;
                    }
                    return;
                }
                Err(error) => error,
            };
            let failed = self.operations.link.failed(&connection, &error);
            match failed.kind {
                Kind::Fatal => return self.fail(batch, &failed.error),
                Kind::Rejected => {
                    // Callers get the error, and workers wait.
                    batch = self.fail_callers(batch, &failed.error);
                    if batch.requests().next().is_none() {
                        // Requests that have arrived meanwhile get the error as well, or succeed.
                        return;
                    }
                }
                _ => {}
            }
            self.why = failed.reason();
            let paused = pauses.wait(&self.operations.queues.runtime);
            if self.wait_for(&mut batch, paused).await.is_none() {
                return;
            }
        }
    }

    fn command(&self, batch: &Batch) -> Cmd {
        let Operations { keys, queues, scripts, .. } = &*self.operations;
        let mut command = link::call(&scripts.batch, &keys.common(self.partition));
        command.arg(keys.prefix(self.partition)).arg(self.operations.word_of_time());
        command.arg(&queues.process[..]).arg(batch.number).arg(keys.channel());
        let ambiguous = queues.queue(self.partition).ambiguous;
        command.arg(if ambiguous { "settle" } else { "" });
        let nothing = Operation::new(self.partition, "nothing");
        for request in &batch.requests {
            let operation = request.as_ref().map_or(&nothing, |request| &request.operation);
            command.arg(&operation.words);
        }
        command
    }

    /// Waits for a future, and meanwhile fails the requests whose deadline passes. Returns `None`
    /// if no request of the batch remains.
    async fn wait_for<T>(
        &self,
        batch: &mut Batch,
        something: impl Future<Output = T>,
    ) -> Option<T> {
        let mut something = pin!(something);
        loop {
            let deadline = tokio::time::Instant::from_std(self.deadline(batch));
            if let Ok(done) = tokio::time::timeout_at(deadline, &mut something).await {
                return Some(done);
            }
            self.expire(batch);
            batch.requests().next()?;
        }
    }

    /// Returns the first deadline of this batch and of the queue.
    fn deadline(&self, batch: &Batch) -> Instant {
        let queue = self.operations.queues.queue(self.partition);
        let first =
            batch.requests().chain(&queue.requests).filter_map(|request| request.deadline).min();
        first.unwrap_or_else(|| MonotonicClock.now() + self.operations.link.call_timeout())
    }

    fn expire(&self, batch: &mut Batch) {
        let now = MonotonicClock.now();
        let mut queue = self.operations.queues.queue(self.partition);
        let requests = std::mem::take(&mut queue.requests);
        let (late, waiting): (Vec<Request<_>>, Vec<Request<_>>) =
            requests.into_iter().partition(|request| request.has_expired(now));
        queue.requests = waiting.into();
        drop(queue);
        let here = batch
            .requests
            .iter_mut()
            .filter_map(|request| request.take_if(|request| request.has_expired(now)));
        let error = if self.why.is_empty() {
            let prefix = self.operations.keys.prefix(self.partition);
            no_reply(&self.operations.link.connection(&prefix).node)
        } else {
            DurableError::Unreachable(self.why.clone())
        };
        for request in here.chain(late) {
            request.respond(&self.operations, Err(error.clone()));
        }
    }

    /// Completes a batch. Returns `true` if all of it was executed. Other operations join the end
    /// of the queue, because the operations before them may be executable.
    fn complete(&mut self, batch: Batch, answer: Value, connection: &Connection) -> bool {
        let Some((now, answers)) = split_reply(answer, batch.requests.len()) else {
            self.fail(batch, &unexpected_reply().at(&connection.node.address()));
            return true;
        };
        let mut not_executed = Vec::new();
        for (request, answer) in batch.requests.into_iter().zip(answers) {
            let Some(request) = request else { continue };
            let Value::BulkString(text) = answer else {
                request.respond(&self.operations, Ok((answer, now)));
                continue;
            };
            let failed = self.operations.link.failed(connection, &failed(&text));
            let is_final = match failed.kind {
                Kind::Fatal => true,
                Kind::Rejected => request.deadline.is_some(),
                _ => false,
            };
            if is_final {
                request.respond(&self.operations, Err(failed.error));
            } else {
                self.why = failed.reason();
                not_executed.push(request);
            }
        }
        let done = not_executed.is_empty();
        if done {
            connection.node.trouble.succeeded(true);
        }
        self.operations.queues.queue(self.partition).requests.extend(not_executed);
        done
    }

    fn fail_callers(&self, mut batch: Batch, error: &DurableError) -> Batch {
        let callers = batch.requests.iter_mut();
        for request in
            callers.filter_map(|request| request.take_if(|request| request.deadline.is_some()))
        {
            request.respond(&self.operations, Err(error.clone()));
        }
        batch
    }

    fn fail(&self, batch: Batch, error: &DurableError) {
        for request in batch.requests.into_iter().flatten() {
            request.respond(&self.operations, Err(error.clone()));
        }
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

/// Fails all waiting requests if the runtime has ended or the task has panicked.
impl Drop for Sender {
    fn drop(&mut self) {
        if !self.ended {
            let mut queue = self.operations.queues.queue(self.partition);
            queue.sending = false;
            let requests = std::mem::take(&mut queue.requests);
            drop(queue);
            drop(requests);
        }
    }
}
