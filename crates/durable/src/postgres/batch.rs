//! Batches of operations.
//!
//! ```text
//!   insert   ─┐   waiting            on its way
//!   cancel   ─┼─► ┌──┬──┬──┬──┐      ┌──┬──┬──┬──┐ number 7   one statement,
//!   lease    ─┤   │  │  │  │  │ ───► │  │  │  │  │ ─────────► sql/batch.sql
//!   finish   ─┘   └──┴──┴──┴──┘      └──┴──┴──┴──┘
//! ```
//!
//! **One batch per lane is in flight at a time**, and the next accumulates meanwhile. A single
//! operation is sent at once, and under load many share a statement and its transaction. There are
//! a few lanes, so that the server executes one batch while another waits for the disk.
//!
//! **Retried, executed once.** The batches of a lane are numbered. The server keeps the reply to
//! the last batch in a row that it writes in the same transaction. A batch is resent under its
//! number until a reply arrives, and gets the kept reply if it was executed, whether the connection
//! broke before, during or after the commit. A lower number is rejected.
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
//!
//! **Callers that timed out** have already received `Unreachable`. Their operations are left out of
//! a resend.

#![forbid(unsafe_code)]

use super::link::reply_timeout;
use super::operation::{HELD, LANES, LOCKED, Lane, Operation, Reply, Request, ZERO};
use super::operations::Operations;
use super::rows::{Columns, reply};
use crate::error::DurableError;
use crate::panics::ignore_poison;
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::retry::{MAX_PAUSE, Pauses, REPLY_TIMEOUT, RetryPolicy};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The maximum number of operations in a batch.
const MAX_OPERATIONS: usize = 256;

/// The maximum number of operations in a batch of the lane [`HELD`], where each may wait for 2 ms.
const MAX_HELD: usize = 32;

/// The maximum number of bytes in a batch, unless a single operation is longer.
const MAX_BYTES: usize = 1 << 20;

/// The lane and the number of a batch, whether it must not be executed any more, and whether its
/// operations are protected from each other.
#[derive(Clone, Copy)]
struct Batch {
    process: i64,
    number: i64,
    settles: bool,
    careful: bool,
}

impl Operations {
    /// Executes an operation with the next batch of its lane, and repeats it while another
    /// transaction keeps it from being executed. Gives up after a while if `retry` says so. If the
    /// future is dropped, the operation is left out of a batch that is not sent yet.
    pub(super) async fn change(
        self: &Arc<Self>,
        retry: RetryPolicy,
        operation: Operation,
    ) -> Result<Reply, DurableError> {
        let (operation, why) = (Arc::new(operation), Arc::default());
        let asked = async {
            let (mut pauses, mut held) = (Pauses::new(), None);
            loop {
                let reply = self.ask(retry, &operation, &why).await?;
                if reply.answer != LOCKED {
                    return Ok(reply);
                }
                let what = format!("{}: another transaction has locked it", self.link.address());
                *ignore_poison(why.lock()) = what;
                if operation.may_wait() {
                    held.get_or_insert_with(|| self.held.wait(&operation.id));
                }
                pauses.wait(&Handle::current()).await;
            }
        };
        self.within(retry, &why, asked).await
    }

    /// Executes an operation of a worker with the next batch of its lane. The answer is [`LOCKED`]
    /// if another transaction keeps it from being executed.
    pub(super) async fn change_unless_locked(
        self: &Arc<Self>,
        retry: RetryPolicy,
        operation: Operation,
    ) -> Result<Reply, DurableError> {
        let (operation, why) = (Arc::new(operation), Arc::default());
        self.within(retry, &why, self.ask(retry, &operation, &why)).await
    }

    /// Waits for a reply, as long as `retry` says.
    async fn within(
        &self,
        retry: RetryPolicy,
        why: &Mutex<String>,
        asked: impl Future<Output = Result<Reply, DurableError>>,
    ) -> Result<Reply, DurableError> {
        match retry.longest(self.link.call_timeout()) {
            None => asked.await,
            Some(limit) => match timeout(limit, asked).await {
                Ok(answered) => answered,
                Err(_) => Err(DurableError::Unreachable(self.reason(why))),
            },
        }
    }

    /// Adds an operation to its lane, and waits for its reply.
    async fn ask(
        self: &Arc<Self>,
        retry: RetryPolicy,
        operation: &Arc<Operation>,
        why: &Arc<Mutex<String>>,
    ) -> Result<Reply, DurableError> {
        check_text(operation)?;
        let is_held = operation.may_wait() && self.held.has(&operation.id);
        let lane = if is_held { HELD } else { lane_of(operation) };
        let (request, answer) =
            Request::new(Arc::clone(operation), matches!(retry, RetryPolicy::Worker), why);
        if self.lanes[lane].push(request) {
            let sender = Sender { operations: Arc::clone(self), lane, ended: false };
            tokio::spawn(sender.run());
        }
        answer.await.unwrap_or(Err(DurableError::Closed))
    }

    fn reason(&self, why: &Mutex<String>) -> String {
        let why = ignore_poison(why.lock());
        if why.is_empty() { format!("{}: no reply", self.link.address()) } else { why.clone() }
    }

    /// Sends a batch once. The replies are empty if it was settled and not executed.
    async fn send(
        &self,
        Batch { process, number, settles, careful }: Batch,
        requests: &[Option<Request>],
        answer: Duration,
    ) -> Result<Vec<Reply>, RequestError> {
        let nothing = Operation::new("nothing", String::new());
        let operations = requests.iter();
        let operations = operations.map(|it| it.as_ref().map_or(&nothing, |it| &*it.operation));
        let columns = Columns::of(operations);
        let at = self.at();
        let (most, age) = self.bounds();
        let params = columns.params(
            [&self.process, &process, &number],
            [&settles, &careful],
            [&at, &most, &age],
        );
        let rows = self.link.once(answer, true, &self.statements.batch, &params).await?;
        let replies = rows.iter().zip(requests).map(|(row, request)| {
            let id = request.as_ref().map_or("", |request| &request.operation.id);
            reply(row, id, self.link.address())
        });
        let replies: Option<Vec<Reply>> = replies.collect();
        let has_all = |replies: &Vec<Reply>| {
            replies.len() == requests.len() || (settles && replies.is_empty())
        };
        replies.filter(has_all).ok_or_else(|| {
            let error = DurableError::corrupt("unexpected reply to a batch");
            RequestError { kind: Kind::Fatal, error }.at(self.link.address())
        })
    }

    /// Notifies the workers of this process, and then the callers.
    fn complete(&self, requests: Vec<Option<Request>>, replies: Vec<Reply>) {
        for (request, reply) in requests.into_iter().zip(replies) {
            let Some(request) = request else { continue };
            if let Some(due) = reply.due {
                self.notify_if_near(&request.operation.id, reply.part, due, reply.now);
            }
            request.respond(Ok(reply));
        }
    }

    /// Executes a batch by its number. Returns its requests if they must be executed one by one.
    async fn execute(
        self: &Arc<Self>,
        lane: &Lane,
        number: i64,
        mut requests: Vec<Option<Request>>,
        alone: bool,
    ) -> Option<Vec<Option<Request>>> {
        let (mut pauses, mut lost) = (Pauses::new(), 0);
        let careful = self.lanes[HELD].process == lane.process;
        let mut batch = Batch { process: lane.process, number, settles: false, careful };
        loop {
            let answer = reply_timeout(RetryPolicy::Worker, lost);
            let error = match self.send(batch, &requests, answer).await {
                Ok(replies) => {
                    lane.set_ambiguous(false);
                    self.complete(requests, replies);
                    return None;
                }
                Err(error) => error,
            };
            // One of the requests may be the cause.
            let may_be_one = match error.kind {
                Kind::Fatal => true,
                Kind::Rejected => matches!(error.error, DurableError::Io(_)),
                _ => false,
            };
            match error.kind {
                _ if may_be_one && requests.len() > 1 => return Some(requests),
                Kind::Slow if !alone => return Some(requests),
                Kind::Locked if !batch.careful => {
                    batch.careful = true;
                    continue;
                }
                Kind::Fatal => {
                    respond(&mut requests, |_| true, &error.error);
                    return None;
                }
                Kind::Rejected => {
                    respond(&mut requests, |request| !request.waits, &error.error);
                    // A single operation may have caused any other error.
                    if matches!(error.error, DurableError::ReadOnly(_)) {
                        lane.reject(&error.error);
                    }
                }
                Kind::Ambiguous => {
                    lane.set_ambiguous(true);
                    lost += 1;
                }
                _ => {}
            }
            let why = error.reason();
            requests.iter().flatten().for_each(|request| request.tell(&why));
            lane.tell(&why);
            pauses.wait(&Handle::current()).await;
            for request in &mut requests {
                drop(request.take_if(|request| request.is_abandoned()));
            }
            if requests.iter().all(Option::is_none) {
                return None;
            }
        }
    }

    /// Executes each request of a batch by itself, unless the batch was executed.
    async fn execute_each(
        self: &Arc<Self>,
        lane: &Lane,
        number: i64,
        mut requests: Vec<Option<Request>>,
    ) {
        let batch = Batch { process: lane.process, number, settles: true, careful: false };
        while lane.is_ambiguous() {
            match self.send(batch, &requests, REPLY_TIMEOUT).await {
                Ok(replies) => {
                    lane.set_ambiguous(false);
                    if !replies.is_empty() {
                        return self.complete(requests, replies);
                    }
                }
                // This executes no operation, so the store itself cannot be used.
                Err(error) if error.kind == Kind::Fatal => {
                    return respond(&mut requests, |_| true, &error.error);
                }
                Err(_) => tokio::time::sleep(MAX_PAUSE).await,
            }
        }
        for request in requests.into_iter().flatten() {
            let operations = Arc::clone(self);
            tokio::spawn(async move {
                let lane = Lane::new();
                operations.execute(&lane, 1, vec![Some(request)], true).await
            });
        }
    }
}

/// Sends the batches of a lane, one after another, until none is waiting.
struct Sender {
    operations: Arc<Operations>,
    lane: usize,
    ended: bool,
}

impl Sender {
    async fn run(mut self) {
        let operations = Arc::clone(&self.operations);
        let lane = &operations.lanes[self.lane];
        let most = if self.lane == HELD { MAX_HELD } else { MAX_OPERATIONS };
        while let Some((number, requests)) = lane.take(most, MAX_BYTES) {
            if let Some(requests) = operations.execute(lane, number, requests, false).await {
                operations.execute_each(lane, number, requests).await;
            }
        }
        self.ended = true;
    }
}

/// Fails all waiting requests if the runtime has ended or the task has panicked.
impl Drop for Sender {
    fn drop(&mut self) {
        if !self.ended {
            self.operations.lanes[self.lane].close();
        }
    }
}

/// Fails some requests.
fn respond(
    requests: &mut [Option<Request>],
    which: impl Fn(&Request) -> bool,
    error: &DurableError,
) {
    for request in requests.iter_mut().filter_map(|request| request.take_if(|it| which(it))) {
        request.respond(Err(error.clone()));
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
