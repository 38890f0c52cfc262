//! The [`Transport`] of a store in PostgreSQL, which sends a batch as one statement,
//! `sql/batch.sql`.
//!
//! A batch is one transaction, which writes the kept reply as well. It may have been executed
//! whether the connection broke before, during or after the commit. There are a few lanes, so that
//! the server executes one batch while another waits for the disk.
//!
//! **A batch waits for no caller.** A caller's transaction may stay open for long. An operation
//! whose timer such a transaction has locked is answered with [`LOCKED`], and sent again after a
//! pause, by itself. A lock that cannot be seen, such as the lock of an id that was inserted and
//! not committed, makes a batch fail after 10 ms. It is then sent again with each of its operations
//! protected from the others. Until that id is free, all operations that may wait for it are sent
//! in a separate lane.
//!
//! **Operations that fail together are sent one by one.** A transaction is atomic, so one
//! operation that the server rejects, or a time limit for statements, would keep the others of its
//! batch from being executed. Such a batch is taken apart, and each of its operations is sent as
//! its own batch by its own task. If it was sent before without a reply, it is settled first,
//! because that copy may have been executed, or may still arrive.

#![forbid(unsafe_code)]

use super::link::reply_timeout;
use super::operation::{ALONE, HELD, LANES, LOCKED, Operation, Reply, ZERO};
use super::operations::Operations;
use super::params::params;
use super::rows::{Columns, reply};
use crate::error::DurableError;
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::host::Host;
use crate::store::remote::queue::Queue;
use crate::store::remote::retry::{Limit, MAX_PAUSE, Pauses, RetryPolicy};
use crate::store::remote::sender::{Batch, Engine, Replies, RequestOf, Sender, Transport};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::runtime::Handle;

/// The maximum number of operations in a batch.
const MAX_OPERATIONS: usize = 256;

/// The maximum number of operations in a batch of the lane [`HELD`], where each may wait for 2 ms.
const MAX_HELD: usize = 32;

/// The maximum number of bytes in a batch, unless a single operation is longer.
const MAX_BYTES: usize = 1 << 20;

/// How a batch is sent.
#[derive(Clone, Copy, Default)]
struct Mode {
    /// The batch must not be executed any more.
    settles: bool,
    /// Its operations are protected from each other.
    careful: bool,
}

impl Operations {
    /// Executes an operation with the next batch of its lane, and repeats it while another
    /// transaction keeps it from being executed. Gives up after a while if the policy says so. If
    /// the future is dropped, the operation is left out of a batch that is not sent yet.
    pub(super) async fn change(
        self: &Arc<Self>,
        policy: RetryPolicy,
        operation: Operation,
    ) -> Result<Reply, DurableError> {
        let (limit, operation) = (self.engine.limit(policy), Arc::new(operation));
        let asked = async {
            let (mut pauses, mut held) = (Pauses::new(), None);
            loop {
                let reply = self.ask(&limit, &operation).await?;
                if reply.answer != LOCKED {
                    return Ok(reply);
                }
                limit.note(&format!("{}: another transaction has locked it", self.link.address()));
                if operation.may_wait() {
                    held.get_or_insert_with(|| self.held.wait(&operation.id));
                }
                pauses.wait(&self.engine.host).await;
            }
        };
        limit.within(&self.engine.host, asked, || self.link.silence()).await
    }

    /// Executes an operation of a worker with the next batch of its lane. The answer is [`LOCKED`]
    /// if another transaction keeps it from being executed.
    pub(super) async fn change_unless_locked(
        self: &Arc<Self>,
        policy: RetryPolicy,
        operation: Operation,
    ) -> Result<Reply, DurableError> {
        let (limit, operation) = (self.engine.limit(policy), Arc::new(operation));
        let asked = self.ask(&limit, &operation);
        limit.within(&self.engine.host, asked, || self.link.silence()).await
    }

    /// Adds an operation to its lane, and waits for its reply.
    async fn ask(
        self: &Arc<Self>,
        limit: &Limit,
        operation: &Arc<Operation>,
    ) -> Result<Reply, DurableError> {
        check_text(operation)?;
        let is_held = operation.may_wait() && self.held.has(&operation.id);
        let lane = if is_held { HELD } else { lane_of(operation) };
        Engine::ask(self, lane, Arc::clone(operation), limit.clone(), true, Ok).await
    }

    /// Sends a batch once, and notifies the workers of this process. There are no replies if the
    /// batch was settled and not executed.
    async fn send_once(
        &self,
        queue: &Queue<RequestOf<Self>>,
        Batch { number, requests }: &Batch<Self>,
        Mode { settles, careful }: Mode,
        lost: u32,
    ) -> Result<Replies<Self>, RequestError> {
        let nothing = Operation::new("nothing", String::new());
        let operations =
            || requests.iter().map(|it| it.as_ref().map_or(&nothing, |it| &*it.operation));
        let columns = Columns::of(operations());
        let (process, number) = (queue.process.cast_signed(), number.cast_signed());
        let at = self.at();
        let (most, age) = self.bounds();
        let first = params![self.process, process, number, settles, careful, at, most, age];
        let params = columns.params(first);
        let answer = reply_timeout(RetryPolicy::Worker, lost);
        let rows = self.link.once(answer, true, &self.batch, &params).await?;
        let address = self.link.address();
        let replies = rows.iter().zip(operations());
        let replies = replies.map(|(row, operation)| reply(row, &operation.id, address));
        let replies = replies
            .collect::<Result<Vec<Reply>, _>>()
            .ok()
            .filter(|replies| replies.len() == requests.len() || (settles && replies.is_empty()));
        let Some(replies) = replies else {
            let error = DurableError::corrupt("unexpected reply to a batch");
            return Err(RequestError { kind: Kind::Fatal, error }.at(address));
        };
        for (reply, operation) in replies.iter().zip(operations()) {
            if let Some(due) = reply.due {
                self.notify_if_near(&operation.id, reply.part, due, reply.now);
            }
        }
        Ok(replies.into_iter().map(Ok).collect())
    }
}

impl Transport for Operations {
    type Operation = Arc<Operation>;
    type Reply = Reply;
    type Host = Handle;

    fn engine(&self) -> &Engine<Self> {
        &self.engine
    }

    fn bounds(lane: usize) -> (usize, usize) {
        (if lane == HELD { MAX_HELD } else { MAX_OPERATIONS }, MAX_BYTES)
    }

    fn weight(operation: &Arc<Operation>) -> usize {
        operation.weight()
    }

    async fn send(
        &self,
        queue: &Queue<RequestOf<Self>>,
        batch: &Batch<Self>,
        lost: u32,
    ) -> Result<Replies<Self>, RequestError> {
        let mut mode = Mode { careful: queue.place == HELD, ..Mode::default() };
        match self.send_once(queue, batch, mode, lost).await {
            Err(error) if error.kind == Kind::Locked && !mode.careful => {
                mode.careful = true;
                self.send_once(queue, batch, mode, lost).await
            }
            replies => replies,
        }
    }

    /// Executes each request of a batch by itself if one of them may be the cause of the error,
    /// unless the batch was executed.
    async fn recover(
        sender: &Sender<Self>,
        mut batch: Batch<Self>,
        error: RequestError,
    ) -> Option<(Batch<Self>, RequestError)> {
        let Sender { transport, queue, .. } = sender;
        let is_taken_apart = match error.kind {
            Kind::Fatal => batch.requests.len() > 1,
            Kind::Rejected => {
                batch.requests.len() > 1 && matches!(error.error, DurableError::Io(_))
            }
            Kind::Slow => queue.place != ALONE,
            _ => false,
        };
        if !is_taken_apart {
            return Some((batch, error));
        }
        let mode = Mode { settles: true, ..Mode::default() };
        while queue.is_ambiguous() {
            match transport.send_once(queue, &batch, mode, 0).await {
                Ok(replies) => {
                    queue.set_ambiguous(false);
                    if !replies.is_empty() {
                        sender.complete(batch, replies);
                        return None;
                    }
                }
                // This executes no operation, so the store itself cannot be used.
                Err(error) if error.kind == Kind::Fatal => {
                    batch.fail(&error.error, |_| true);
                    return None;
                }
                Err(_) => transport.engine.host.sleep(MAX_PAUSE).await,
            }
        }
        for request in batch.requests.into_iter().flatten() {
            sender.execute_alone(request, ALONE);
        }
        None
    }
}

/// Returns the lane of an operation.
fn lane_of(operation: &Operation) -> usize {
    let mut hasher = DefaultHasher::new();
    operation.id.hash(&mut hasher);
    operation.fence.filter(|_| operation.id.is_empty()).hash(&mut hasher);
    usize::try_from(hasher.finish() % LANES as u64).unwrap_or_default()
}

/// Rejects texts that the server cannot store.
fn check_text(operation: &Operation) -> Result<(), DurableError> {
    let settings = operation.body.as_ref().map(|body| &body.settings);
    let has_zero = settings.is_some_and(super::rows::has_zero);
    if has_zero || operation.id.contains('\0') {
        return Err(DurableError::Option(ZERO));
    }
    Ok(())
}
