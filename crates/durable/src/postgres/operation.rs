//! [`Lane`], where [operations](Operation) wait for their batch. [`batch`](super::batch) sends the
//! batches.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::condition::Condition;
use crate::model::record::{Record, Settings};
use crate::panics::ignore_poison;
use crate::panics::quietly;
use crate::store::Due;
use futures_channel::oneshot;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};

/// The number of lanes that operations are divided among by their ids.
pub(super) const LANES: usize = 2;

/// The lane of operations that had to wait for a transaction of a caller.
pub(super) const HELD: usize = LANES;

/// The answer of an operation that another transaction keeps from being executed.
pub(super) const LOCKED: i32 = -1;

/// The answer of an operation on a timer that does not meet its condition.
pub(super) const CHANGED: i32 = 7;

/// The error of a text that the server cannot store.
pub(super) const ZERO: &str =
    "PostgreSQL cannot store the character U+0000 in an id, a header or a rule";

/// An operation of `sql/batch.sql`, with its arguments.
#[derive(Debug, Default)]
pub(super) struct Operation {
    pub(super) kind: &'static str,
    pub(super) id: String,
    pub(super) due: Option<Millis>,
    pub(super) wait: Option<Millis>,
    /// A fencing token, or the number of a dead letter.
    pub(super) fence: Option<u64>,
    pub(super) how: Option<&'static str>,
    /// The error of an attempt, or the condition of an insert or a cancel.
    pub(super) note: Option<String>,
    pub(super) flag: Option<bool>,
    pub(super) reason: Option<i32>,
    pub(super) body: Option<Body>,
}

/// The options and the payload of a timer to insert.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) settings: Settings,
    pub(super) payload: Arc<Vec<u8>>,
}

impl Operation {
    pub(super) fn new(kind: &'static str, id: String) -> Self {
        Self { kind, id, ..Self::default() }
    }

    /// Sets the due time, or the delay that it is computed from.
    pub(super) fn due(self, due: Due) -> Self {
        match due {
            Due::At(time) | Due::ByRule(time) => Self { due: Some(time), ..self },
            Due::After(delay) => Self { due: Some(0), wait: Some(delay), ..self },
        }
    }

    /// Sets the condition that the timer must meet.
    pub(super) fn only(self, only: Option<Condition>) -> Result<Self, DurableError> {
        let Some(Condition { name, value }) = only else { return Ok(self) };
        if [Some(&name), value.as_ref()].into_iter().flatten().any(|text| text.contains('\0')) {
            return Err(DurableError::Option(ZERO));
        }
        Ok(Self { note: Some(serde_json::json!([name, value]).to_string()), ..self })
    }

    /// Returns `true` if it can be kept waiting by a lock that it cannot see, such as the lock of
    /// an id that another transaction has inserted.
    pub(super) fn may_wait(&self) -> bool {
        !matches!(self.kind, "lease" | "renew" | "finish" | "cancel" | "reset" | "pause")
    }

    /// Returns the approximate number of bytes.
    fn weight(&self) -> usize {
        let payload = self.body.as_ref().map_or(0, |body| body.payload.len());
        128 + self.id.len() + payload
    }
}

/// The reply to an operation.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) now: Millis,
    pub(super) answer: i32,
    /// The time in the key of the timer, if it may have changed.
    pub(super) due: Option<Millis>,
    pub(super) part: u64,
    pub(super) fence: Option<u64>,
    pub(super) before: Option<Millis>,
    /// The record of a timer that was leased, or the error if it cannot be read.
    pub(super) record: Option<Result<Record, DurableError>>,
}

/// An operation with the caller that waits for it.
pub(super) struct Request {
    pub(super) operation: Arc<Operation>,
    reply: oneshot::Sender<Result<Reply, DurableError>>,
    /// The last reason why there was no reply, which the caller reports when it gives up.
    why: Arc<Mutex<String>>,
    /// Set if the caller waits until the operation can be executed.
    pub(super) waits: bool,
}

impl Request {
    /// Returns a request, and the reply that its caller waits for.
    pub(super) fn new(
        operation: Arc<Operation>,
        waits: bool,
        why: &Arc<Mutex<String>>,
    ) -> (Self, oneshot::Receiver<Result<Reply, DurableError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { operation, reply, why: Arc::clone(why), waits }, answer)
    }

    /// Returns `true` if the caller has given up.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_canceled()
    }

    pub(super) fn respond(self, reply: Result<Reply, DurableError>) {
        // A waker that panics must not end the task of the lane.
        quietly(|| drop(self.reply.send(reply)));
    }

    /// Tells the caller why there is no reply yet.
    pub(super) fn tell(&self, why: &str) {
        *ignore_poison(self.why.lock()) = why.to_owned();
    }
}

/// Operations that wait for their batch. All operations of an id are in the same lane.
pub(super) struct Lane {
    /// The number of this lane among the users of the store.
    pub(super) process: i64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    /// Set while a task sends them.
    sending: bool,
    /// The number of batches so far.
    batches: i64,
    /// Set if a batch that was sent without a reply may still be executed.
    ambiguous: bool,
}

impl Lane {
    pub(super) fn new() -> Self {
        // A generator's state would be copied by a fork, and numbers must differ.
        let process = RandomState::new().hash_one(std::process::id()).cast_signed();
        Self { process, waiting: Mutex::default() }
    }

    /// Adds a request. Returns `true` if a task has to be started that sends it.
    pub(super) fn push(&self, request: Request) -> bool {
        let mut waiting = self.lock();
        waiting.requests.push_back(request);
        !std::mem::replace(&mut waiting.sending, true)
    }

    /// Takes requests with up to this number of bytes, at least one if any waits, with the number
    /// of their batch. If none waits, the task that sends them must end.
    pub(super) fn take(&self, most: usize, bytes: usize) -> Option<(i64, Vec<Option<Request>>)> {
        let mut waiting = self.lock();
        let (mut requests, mut weight) = (Vec::new(), 0);
        while let Some(request) = waiting.requests.front() {
            if request.is_abandoned() {
                waiting.requests.pop_front();
                continue;
            }
            weight += request.operation.weight();
            if requests.len() == most || (weight > bytes && !requests.is_empty()) {
                break;
            }
            requests.push(waiting.requests.pop_front());
        }
        if requests.is_empty() {
            waiting.sending = false;
            return None;
        }
        waiting.batches += 1;
        Some((waiting.batches, requests))
    }

    /// Tells the callers of all waiting requests why there is no reply yet.
    pub(super) fn tell(&self, why: &str) {
        self.lock().requests.iter().for_each(|request| request.tell(why));
    }

    /// Fails the waiting requests of callers that do not wait for a store that cannot be written.
    pub(super) fn reject(&self, error: &DurableError) {
        let mut waiting = self.lock();
        let requests = std::mem::take(&mut waiting.requests);
        let (kept, rejected): (VecDeque<_>, VecDeque<_>) =
            requests.into_iter().partition(|request| request.waits);
        waiting.requests = kept;
        drop(waiting);
        rejected.into_iter().for_each(|request| request.respond(Err(error.clone())));
    }

    /// Returns `true` if a batch that was sent may still be executed.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.lock().ambiguous
    }

    /// Records whether an earlier batch may still be executed.
    pub(super) fn set_ambiguous(&self, ambiguous: bool) {
        self.lock().ambiguous = ambiguous;
    }

    /// Fails all waiting requests, because the task that sends them has ended.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.sending = false;
        let requests = std::mem::take(&mut waiting.requests);
        drop(waiting);
        drop(requests);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        ignore_poison(self.waiting.lock())
    }
}

/// The ids that operations wait for because another transaction has inserted or locked them.
/// Further inserts of such an id are sent in the lane [`HELD`].
#[derive(Default)]
pub(super) struct HeldIds(Mutex<BTreeMap<String, usize>>);

impl HeldIds {
    /// Returns `true` if an operation waits for this id.
    pub(super) fn has(&self, id: &str) -> bool {
        ignore_poison(self.0.lock()).contains_key(id)
    }

    /// Counts an operation that waits for this id, until the returned value is dropped.
    pub(super) fn wait(&self, id: &str) -> HeldId<'_> {
        *ignore_poison(self.0.lock()).entry(id.to_owned()).or_default() += 1;
        HeldId { ids: self, id: id.to_owned() }
    }
}

/// An operation that waits for an id.
pub(super) struct HeldId<'a> {
    ids: &'a HeldIds,
    id: String,
}

impl Drop for HeldId<'_> {
    fn drop(&mut self) {
        let mut ids = ignore_poison(self.ids.0.lock());
        if let Some(count) = ids.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                ids.remove(&self.id);
            }
        }
    }
}
