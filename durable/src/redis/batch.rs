//! Batches: the operations that change something, of a partition, asked for together.
//!
//! ```text
//!   insert   ─┐   waiting            on its way
//!   cancel   ─┼─► ┌──┬──┬──┬──┐      ┌──┬──┬──┬──┐ number 7   one call of
//!   lease    ─┤   │  │  │  │  │ ───► │  │  │  │  │ ─────────► scripts/batch.lua
//!   finish   ─┘   └──┴──┴──┴──┘      └──┴──┴──┴──┘
//! ```
//!
//! **One batch of a partition is on its way at a time**; while it is, the next gathers. So an
//! operation that comes alone goes at once, and among many the costs of a request are shared by up to
//! [`MAX_OPERATIONS`] of them. Each operation is whole or not at all for itself, and has its own answer or
//! error.
//!
//! **Asked again, done once.** A batch has a number, one greater than the last of this process and
//! partition, and goes again under that number, the same operations at the same places, until there
//! is an answer. The script keeps the answer to the last batch of each process, gives it to that
//! number again, and refuses a lower one. Where nothing was changed it keeps none; unless a copy
//! of the batch, or of one that was given up, may still be on its way: that must find that it comes
//! too late, whatever others have changed meanwhile. An operation that surely was not done, as its
//! key was moving, leaves the batch and waits again, behind all others.
//!
//! **Who does not wait any more** has had its answer: that there is none. Its operation stays away
//! when the batch goes again. A future that was dropped changes nothing: the operation is done.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::super::error::DurableError;
use super::super::store::Answer;
use super::fault::Fault;
use super::link::{self, CALLER, RetryPolicy};
use super::node::{Connection, PAUSES};
use super::operations::{Operations, unexpected_reply};
use super::queue::{Operation, Request, Respond};
use futures_channel::oneshot;
use redis::{Cmd, RedisError, Value};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tourbillon::{Clock, MonotonicClock};

/// How many operations go together at most.
const MAX_OPERATIONS: usize = 128;

/// How many bytes of them, unless one alone has more.
const MAX_BYTES: usize = 1 << 18;

impl Operations {
    /// Has an operation done with the next batch, also if nobody waits for it any more, unless it
    /// says otherwise. `read` makes the answer of what the script said.
    pub(super) fn change<R: Send + 'static>(
        self: &Arc<Self>,
        retry: RetryPolicy,
        operation: Operation,
        read: impl FnOnce(&Self, Value, Millis) -> Result<R, DurableError> + Send + 'static,
    ) -> Answer<R> {
        if let Err(error) = self.identity.check_usable() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (reply, answer) = oneshot::channel();
        let respond: Respond<Self> = Box::new(move |operations, answered| {
            let answer = answered.and_then(|(value, now)| read(operations, value, now));
            // Who does not wait any more need not know.
            drop(reply.send(answer));
        });
        let deadline = retry.limit().map(|limit| MonotonicClock.now() + limit);
        let partition = operation.partition;
        let waits = operation.skip_if_dropped.then(|| Arc::new(()));
        let waiter = waits.as_ref().map(Arc::downgrade);
        let mut queue = self.queues.queue(partition);
        queue.requests.push_back(Request { operation, deadline, waiter, respond });
        let begin = !std::mem::replace(&mut queue.sending, true);
        drop(queue);
        if begin {
            let operations = Arc::clone(self);
            let sender = Sender { operations, partition, why: String::new(), ended: false };
            self.queues.runtime.spawn(sender.run());
        }
        Box::pin(async move {
            let answer = answer.await.unwrap_or(Err(DurableError::Closed));
            drop(waits);
            answer
        })
    }
}

/// Operations that go together; an empty place is of one that nobody waits for any more.
struct Batch {
    number: u64,
    requests: Vec<Option<Request<Operations>>>,
}

impl Batch {
    fn requests(&self) -> impl Iterator<Item = &Request<Operations>> {
        self.requests.iter().flatten()
    }
}

/// Asks for the batches of a partition, one after another, until nothing waits.
struct Sender {
    operations: Arc<Operations>,
    partition: u64,
    /// Why there was no answer the last time.
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

    /// Asks for a batch until there is an answer, or nobody waits for it any more.
    async fn send(&mut self, mut batch: Batch) {
        let mut pause = PAUSES[0];
        loop {
            let connection =
                self.operations.link.connection(&self.operations.keys.prefix(self.partition));
            let asked = {
                let (connection, operations) = (connection.clone(), Arc::clone(&self.operations));
                let command = self.command(&batch);
                async move { connection.evaluate(&operations.scripts.batch, command).await }
            };
            let answer = self.wait_for(&mut batch, asked).await;
            // A command that was sent after it had become ambiguous has settled it.
            self.operations.queues.queue(self.partition).ambiguous = !matches!(answer, Some(Ok(_)));
            let Some(answer) = answer else { return };
            let error = match answer {
                Ok(answer) => {
                    if !self.complete(batch, answer, &connection) {
                        tokio::time::sleep(PAUSES[0]).await;
                    }
                    return;
                }
                Err(error) => error,
            };
            match self.operations.link.fault(&connection, &error) {
                Fault::Fatal(error) => return self.fail(batch, &error),
                Fault::Rejected(error) => {
                    // Callers are told so, and workers wait.
                    batch = self.fail_callers(batch, &error);
                    if batch.requests().next().is_none() {
                        // Those who have come meanwhile are to be told as well, or let through.
                        return;
                    }
                    self.why = error.to_string();
                }
                Fault::NotExecuted(why) | Fault::Ambiguous(why) => self.why = why,
            }
            let paused = tokio::time::sleep(pause);
            if self.wait_for(&mut batch, paused).await.is_none() {
                return;
            }
            pause = (pause * 2).min(PAUSES[1]);
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

    /// Waits for something, and meanwhile tells those whose time runs out. `None`: nobody of the
    /// batch waits any more.
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

    /// When the first time runs out, of this batch and of those that wait for the next.
    fn deadline(&self, batch: &Batch) -> Instant {
        let queue = self.operations.queues.queue(self.partition);
        let first =
            batch.requests().chain(&queue.requests).filter_map(|request| request.deadline).min();
        first.unwrap_or_else(|| MonotonicClock.now() + CALLER)
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
        for request in here.chain(late) {
            request.respond(&self.operations, Err(DurableError::Unreachable(self.why.clone())));
        }
    }

    /// Answers a batch. Returns `true` if all of it was done. Operations that were not
    /// done wait again, behind all others, because those may go where they cannot.
    fn complete(&mut self, batch: Batch, answer: Value, connection: &Connection) -> bool {
        let Some((now, answers)) = split_reply(answer, batch.requests.len()) else {
            self.fail(batch, &unexpected_reply());
            return true;
        };
        let mut not_executed = Vec::new();
        for (request, answer) in batch.requests.into_iter().zip(answers) {
            let Some(request) = request else { continue };
            let Value::BulkString(text) = answer else {
                request.respond(&self.operations, Ok((answer, now)));
                continue;
            };
            match self.operations.link.fault(connection, &failed(&text)) {
                Fault::Rejected(error) if request.deadline.is_none() => {
                    self.why = error.to_string();
                    not_executed.push(request);
                }
                Fault::Fatal(error) | Fault::Rejected(error) => {
                    request.respond(&self.operations, Err(error))
                }
                Fault::NotExecuted(why) | Fault::Ambiguous(why) => {
                    self.why = why;
                    not_executed.push(request);
                }
            }
        }
        let done = not_executed.is_empty();
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

/// The time and the answers of a batch of so many.
fn split_reply(answer: Value, count: usize) -> Option<(Millis, impl Iterator<Item = Value>)> {
    let Value::Array(answers) = answer else { return None };
    let whole = answers.len() == count + 1;
    let mut answers = answers.into_iter();
    match answers.next() {
        Some(Value::Int(now)) if whole => Some((Millis::try_from(now).ok()?, answers)),
        _ => None,
    }
}

/// The error of an operation, as if it were that of its command.
fn failed(text: &[u8]) -> RedisError {
    let line: Vec<u8> = text.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
    match redis::parse_redis_value(&[b"-", &line[..], b"\r\n"].concat()) {
        Ok(Value::ServerError(error)) => error.into(),
        Err(error) => error,
        Ok(_) => (redis::ErrorKind::Parse, "no error").into(),
    }
}

/// The runtime has ended, or this has panicked: nobody is left without an answer.
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
