//! [`Operations`], the operations of a store in Redis. Each transition is an operation of a batch
//! (`batch.rs`), each read a script or a command.

#![forbid(unsafe_code)]

use super::bytes::{self, Encoded, Stored};
use super::damaged::Damaged;
use super::identity::Identity;
use super::idle::{IdleHints, NOTIFY_AHEAD};
use super::keys::{BUCKETS, Keys, LATER, Location, OWN, long_field, slice};
use super::link::{self, Link, RetryPolicy};
use super::node::Connection;
use super::pubsub::Subscriber;
use super::queue::{Operation, Queues};
use super::scripts::Scripts;
use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::clock::{LATEST, Millis, StoreClock, present, system};
use crate::model::event::Event;
use crate::model::key::{Change, Key};
use crate::model::options::Existing;
use crate::model::record::{Dead, DeadReason, Record};
use crate::store::ownership::Ownership;
use crate::store::{
    Answer, Cancelled, Due, Finish, Finished, Insert, Inserted, Lease, Leasing, Letters,
    MAX_LIST_BYTES, Renewed,
};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream;
use redis::{Cmd, FromRedisValue, Script, Value, cmd};
use std::sync::Arc;

/// The number of dead letters that are requested at a time, and so the number that may be read in
/// excess of a page.
const LETTERS: usize = 8;

pub(super) struct Operations {
    pub(super) link: Link,
    pub(super) keys: Keys,
    pub(super) clock: Option<Arc<dyn StoreClock>>,
    pub(super) scripts: Scripts,
    pub(super) ownership: Ownership,
    pub(super) idle: IdleHints,
    pub(super) queues: Queues<Self>,
    pub(super) identity: Identity,
    pub(super) damaged: Damaged,
}

/// The reply to a request for a lease.
enum Leased {
    Readable(Leasing),
    /// The lease was granted but the record cannot be read, and will be restored.
    Damaged(Operation, DurableError),
    /// The index has a key without a record.
    Missing,
}

/// A script with the keys and arguments that not all scripts have.
pub(super) struct ScriptCall<'a> {
    pub(super) script: &'a Script,
    pub(super) partition: u64,
    pub(super) args: Vec<Vec<u8>>,
    pub(super) retry: RetryPolicy,
}

pub(super) fn text(value: impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}

pub(super) fn beyond() -> DurableError {
    DurableError::BeyondRange { latest: system(LATEST) }
}

pub(super) fn unexpected_reply() -> DurableError {
    DurableError::corrupt("unexpected reply of a script")
}

pub(super) fn read<T: FromRedisValue>(answer: Value) -> Result<T, DurableError> {
    redis::from_redis_value(answer).map_err(|_| unexpected_reply())
}

/// Returns the due time of a record, or 0 if the store computes it from a delay.
pub(super) fn known(due: Due) -> Millis {
    match due {
        Due::At(time) | Due::ByRule(time) => time,
        Due::After(_) => 0,
    }
}

impl Operations {
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        call: ScriptCall<'_>,
    ) -> Result<T, DurableError> {
        let ScriptCall { script, partition, args, retry } = call;
        let (keys, prefix) = (self.keys.common(partition), self.keys.prefix(partition));
        self.run(script, &keys, &prefix, &args, retry).await
    }

    /// Runs a script outside of a batch. It must be idempotent.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        prefix: &str,
        args: &[Vec<u8>],
        retry: RetryPolicy,
    ) -> Result<T, DurableError> {
        let ask = |connection: Connection| {
            let mut call = link::call(script, keys);
            call.arg(prefix).arg(self.word_of_time()).arg("").arg("").arg(self.keys.channel());
            call.arg(args);
            connection.evaluate(script, call)
        };
        self.link.ask(&keys[0], retry, ask).await
    }

    /// Adds the address of the server of a partition to an error.
    pub(super) fn located(&self, partition: u64, error: DurableError) -> DurableError {
        let connection = self.link.connection(&self.keys.prefix(partition));
        error.at(&connection.node.address())
    }

    /// Adds the address of the server of a timer to an error.
    fn located_by_id(&self, id: &str, error: DurableError) -> DurableError {
        self.located(self.keys.location(id).partition, error)
    }

    pub(super) fn record(&self, id: &str, stored: Stored) -> Result<Record, DurableError> {
        let damaged = || self.located_by_id(id, DurableError::corrupt_timer(id));
        bytes::record(id, stored).ok_or_else(damaged)
    }

    fn dead_letter(&self, number: u64, bytes: &[u8]) -> Result<Dead, DurableError> {
        let partition = self.of_number(number).0;
        let damaged = || self.located(partition, DurableError::corrupt_letter(number));
        bytes::letter(bytes).ok_or_else(damaged)
    }

    /// Sends a read-only command about a key.
    pub(super) async fn query<T: FromRedisValue>(
        &self,
        key: &str,
        command: Cmd,
    ) -> Result<T, DurableError> {
        let ask = |connection: Connection| connection.command(command.clone());
        self.link.ask(key, RetryPolicy::Caller, ask).await
    }

    /// Returns the time argument of a script, which is empty for the server's clock.
    pub(super) fn word_of_time(&self) -> String {
        self.clock.as_ref().map_or(String::new(), |clock| present(clock.now()).to_string())
    }

    pub(super) fn of_id(&self, name: &str, id: &str) -> Operation {
        let Location { partition, bucket } = self.keys.location(id);
        Operation::new(partition, name).text(id.as_bytes()).number(bucket)
    }

    /// Notifies the workers of this process of a key, in addition to its notice.
    fn notify(&self, id: &str, due: Millis) {
        let Location { partition, .. } = self.keys.location(id);
        self.idle.notice(partition, due);
        self.ownership
            .notify(partition, Change { removed: None, added: Some((due, Arc::from(id))) });
    }

    /// Notifies the workers if the key is in their window, as the script does.
    pub(super) fn notify_if_near(&self, id: &str, due: Millis, now: Millis) {
        if due <= now + NOTIFY_AHEAD {
            self.notify(id, due);
        }
    }

    /// Returns the time of the server that has a partition.
    pub(super) async fn now(
        &self,
        partition: u64,
        retry: RetryPolicy,
    ) -> Result<Millis, DurableError> {
        if let Some(clock) = &self.clock {
            return Ok(present(clock.now()));
        }
        let script = &self.scripts.now;
        self.call(ScriptCall { script, partition, args: Vec::new(), retry }).await
    }

    /// Inserts a timer. An update refuses an id that exists, because the existing record has to be
    /// read for it. If the record is given, the timer must exist with this record, and has
    /// otherwise [changed](DurableError::Changed).
    pub(super) fn insert(
        self: &Arc<Self>,
        timer: Insert,
        found: Option<&[u8]>,
    ) -> Answer<Inserted> {
        let Insert { id, payload, due, existing, settings, .. } = timer;
        let existing: &[u8] = match existing {
            Existing::Keep => b"keep",
            Existing::Replace => b"replace",
            Existing::Refuse | Existing::Update => b"refuse",
        };
        let time = known(due);
        let Encoded { record, payload, .. } =
            bytes::resting(&id, &settings, time, time, "", &payload);
        let operation = self.of_id("insert", &id).text(existing).due(due);
        let operation = match due {
            Due::At(time) | Due::ByRule(time) => operation.number(slice(time)),
            Due::After(_) => operation.text(b""),
        };
        let operation = operation.text(&record).text(payload);
        let operation = operation.text(found.unwrap_or_default());
        self.change(RetryPolicy::Caller, operation, move |operations, answer, now| {
            let (answer, due): (u8, Millis) = match answer {
                Value::Int(_) => (read(answer)?, time),
                delayed => read(delayed)?,
            };
            let scheduled = match answer {
                0 => Inserted::New,
                1 => return Ok(Inserted::Kept),
                2 => Inserted::Replaced,
                3 => return Err(DurableError::Exists),
                4 => return Err(beyond()),
                5 => return Ok(Inserted::Next),
                6 => return Err(DurableError::Changed),
                _ => return Err(unexpected_reply()),
            };
            // The damaged timer with this id was replaced.
            operations.damaged.remove(&id);
            operations.notify_if_near(&id, due, now);
            Ok(scheduled)
        })
    }

    /// Cancels a timer. If the record is given, the timer must exist with this record, and has
    /// otherwise [changed](DurableError::Changed).
    pub(super) fn cancel(self: &Arc<Self>, id: &str, found: Option<&[u8]>) -> Answer<Cancelled> {
        let operation = self.of_id("cancel", id).text(found.unwrap_or_default());
        self.change(RetryPolicy::Caller, operation, |_, answer, _| match read(answer)? {
            0 => Ok(Cancelled::NotFound),
            1 => Ok(Cancelled::Removed),
            2 => Ok(Cancelled::Running),
            3 => Err(DurableError::Changed),
            _ => Err(unexpected_reply()),
        })
    }

    pub(super) fn reset(self: &Arc<Self>, id: String, due: Due) -> Answer<bool> {
        let operation = self.of_id("reset", &id).due(due);
        self.change(RetryPolicy::Caller, operation, move |operations, answer, now| {
            operations.is_moved(&id, answer, now)
        })
    }

    /// Reads the reply to an operation that may have moved a timer. Returns `false` if it has
    /// changed nothing.
    pub(super) fn is_moved(
        &self,
        id: &str,
        answer: Value,
        now: Millis,
    ) -> Result<bool, DurableError> {
        let (answer, due): (u8, Millis) = read(answer)?;
        match answer {
            0 => return Ok(false),
            1 => self.notify_if_near(id, due, now),
            4 => return Err(beyond()),
            _ => return Err(unexpected_reply()),
        }
        Ok(true)
    }

    pub(super) async fn get(&self, id: String) -> Result<Option<Record>, DurableError> {
        let found = self.stored(&id).await?;
        found.map(|stored| self.record(&id, stored)).transpose()
    }

    /// Returns a timer as it is stored.
    pub(super) async fn stored(&self, id: &str) -> Result<Option<Stored>, DurableError> {
        let bucket = self.keys.bucket(self.keys.location(id));
        let mut command = cmd("HMGET");
        command.arg(&bucket).arg(id).arg(long_field(OWN, id)).arg(long_field(LATER, id));
        type Fields = (Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>);
        let (record, payload, next): Fields = self.query(&bucket, command).await?;
        let (payload, next) = (payload.unwrap_or_default(), next.unwrap_or_default());
        Ok(record.map(|record| Stored { record, payload, next }))
    }

    /// Lists timers in the order of partitions, buckets and ids.
    pub(super) async fn list(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<(String, Record)>, DurableError> {
        let after = after.map(|id| (self.keys.location(&id), id));
        let start = after.as_ref().map_or(0, |(location, _)| location.partition);
        let (mut list, mut length) = (Vec::new(), 0);
        for partition in start..self.keys.partitions() {
            let from = after.as_ref().filter(|(location, _)| location.partition == partition);
            let bucket = from.map_or(0, |(location, _)| location.bucket);
            let (script, retry) = (&self.scripts.list, RetryPolicy::Caller);
            let enough = [text(limit - list.len()), text(MAX_LIST_BYTES - length)];
            let args = [&[text(bucket), text(BUCKETS)][..], &enough].concat();
            let call = ScriptCall { script, partition, args, retry };
            type Timers = Vec<(String, Vec<u8>, Vec<u8>, Vec<u8>)>;
            let (more, found): (u8, Timers) = self.call(call).await?;
            let found = found.into_iter().map(|(id, record, payload, next)| {
                ((self.keys.location(&id), id), Stored { record, payload, next })
            });
            let mut found: Vec<_> = found.filter(|(key, _)| Some(key) > after.as_ref()).collect();
            found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            for ((_, id), stored) in found {
                length += stored.len();
                let record = self.record(&id, stored)?;
                list.push((id, record));
            }
            if more == 1 || list.len() >= limit || length >= MAX_LIST_BYTES {
                break;
            }
        }
        list.truncate(limit);
        Ok(list)
    }

    pub(super) async fn len(&self) -> Result<(u64, u64), DurableError> {
        let each = (0..self.keys.partitions()).map(|partition| async move {
            let (counters, [letters, _]) =
                (self.keys.counters(partition), self.keys.dead(partition));
            let (mut timers, mut dead) = (cmd("HGET"), cmd("HLEN"));
            timers.arg(&counters).arg("timers");
            dead.arg(&letters);
            let timers: Option<u64> = self.query(&counters, timers).await?;
            let dead: u64 = self.query(&letters, dead).await?;
            Ok::<_, DurableError>((timers.unwrap_or(0), dead))
        });
        let counts = try_join_all(each).await?;
        Ok(counts.into_iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1)))
    }

    /// Requests a lease. With `takes_over`, a paused store still grants the lease of a timer whose
    /// last lease has expired.
    pub(super) fn lease(self: &Arc<Self>, key: &Key, takes_over: bool) -> Answer<Leasing> {
        let (due, id) = (key.0, key.1.to_string());
        if self.damaged.has(&id) {
            return Box::pin(std::future::ready(Ok(Leasing::NotFound)));
        }
        let operation = self.of_id("lease", &id).number(due);
        let operation = operation.text(if takes_over { b"1" } else { b"" }).skip_if_dropped();
        let name = id.clone();
        let retry = if takes_over { RetryPolicy::Caller } else { RetryPolicy::Worker };
        let leasing = self.change(retry, operation, move |operations, answer, now| {
            operations.leased(&name, read(answer)?, now)
        });
        let operations = Arc::clone(self);
        Box::pin(async move {
            let error = match leasing.await {
                Ok(Leased::Readable(leasing)) => return Ok(leasing),
                Ok(Leased::Missing) => {
                    operations.located_by_id(&id, DurableError::missing_timer(&id))
                }
                Err(DurableError::Corrupt { .. }) => {
                    operations.located_by_id(&id, DurableError::corrupt_timer(&id))
                }
                Err(error) => return Err(error),
                Ok(Leased::Damaged(restore, error)) => {
                    // Whatever else is wrong with the timer, it is not delivered.
                    let _ = operations.change(RetryPolicy::Worker, restore, |_, _, _| Ok(())).await;
                    error
                }
            };
            let new = operations.damaged.add(&id);
            Ok(if new { Leasing::Unreadable(error) } else { Leasing::NotFound })
        })
    }

    fn leased(
        &self,
        id: &str,
        mut answer: Vec<Value>,
        now: Millis,
    ) -> Result<Leased, DurableError> {
        let number = |place: usize| match answer.get(place) {
            Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| unexpected_reply()),
            _ => Err(unexpected_reply()),
        };
        Ok(Leased::Readable(match number(0)? {
            0 => Leasing::NotFound,
            1 => Leasing::NotDue { due: number(1)?, now },
            2 => {
                let (fence, overrun) = (number(1)?, number(2)? == 1);
                let (due, was) = (number(3)?, number(4)?);
                let mut fields = answer.drain(5..).map(|field| match field {
                    Value::BulkString(bytes) => Ok(bytes),
                    _ => Err(unexpected_reply()),
                });
                let mut field = || fields.next().unwrap_or_else(|| Err(unexpected_reply()));
                let stored = Stored { record: field()?, payload: field()?, next: field()? };
                let record = match self.record(id, stored) {
                    Ok(record) => record,
                    Err(error) => {
                        let restore = self.of_id("restore", id).number(fence).number(due);
                        let restore = restore.number(was).number(u64::from(!overrun));
                        return Ok(Leased::Damaged(restore, error));
                    }
                };
                self.notify_if_near(id, record.due, now);
                Leasing::Taken(Box::new(Lease { fence, now, due, overrun, record }))
            }
            3 => return Ok(Leased::Missing),
            4 => Leasing::Paused,
            _ => return Err(unexpected_reply()),
        }))
    }

    /// A renewal whose attempt has ended is not sent any more.
    pub(super) fn renew(self: &Arc<Self>, id: &str, fence: u64) -> Answer<Renewed> {
        let operation = self.of_id("renew", id).number(fence).skip_if_dropped();
        self.change(RetryPolicy::Worker, operation, |_, answer, _| match read(answer)? {
            (0, _) => Ok(Renewed::Lost),
            (1, length) => Ok(Renewed::Held { length, cancelled: false }),
            (2, length) => Ok(Renewed::Held { length, cancelled: true }),
            _ => Err(unexpected_reply()),
        })
    }

    pub(super) fn finish(
        self: &Arc<Self>,
        id: String,
        fence: u64,
        finish: Finish,
        bounds: LetterBounds,
    ) -> Answer<Finished> {
        let trims = matches!(finish, Finish::Dead { .. }) && !bounds.is_unbounded();
        let name = if trims { "finish_bounded" } else { "finish" };
        let operation = self.of_id(name, &id).number(fence);
        let planned = |operation: Operation, next: Option<Millis>| match next {
            Some(next) => operation.due(Due::At(next)),
            None => operation.text(b""),
        };
        let operation = match finish {
            Finish::Done { next } => {
                planned(operation.text(b"done"), next).text(b"").number(0).number(0)
            }
            Finish::Retry { wait, error, counted } => {
                let how: &[u8] = if counted { b"retry" } else { b"again" };
                let operation = operation.text(how).due(Due::After(wait));
                operation.text(error.as_bytes()).number(0).number(0)
            }
            Finish::Dead { reason, error, next } => {
                // The repetition continues without this delivery, unless its rule was the reason.
                let clear = u64::from(reason != DeadReason::Rule);
                let operation = planned(operation.text(b"dead"), next).text(error.as_bytes());
                let operation = operation.number(bytes::reason(reason)).number(clear);
                if trims { operation.number(bounds.most).number(bounds.age) } else { operation }
            }
        };
        self.change(RetryPolicy::Worker, operation, move |operations, answer, now| {
            let (answer, due): (u8, Millis) = read(answer)?;
            if due != 0 {
                operations.notify_if_near(&id, due, now);
            }
            match answer {
                0 => Ok(Finished::TooLate),
                1 => Ok(Finished::Accepted),
                2 => Ok(Finished::Cancelled),
                _ => Err(unexpected_reply()),
            }
        })
    }

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
        let Dead { id, mut record, .. } = dead;
        record.settings.time_to_live = None;
        let Record { settings, planned, error, payload, .. } = &record;
        let Location { partition, bucket } = self.keys.location(&id);
        let operation = Operation::new(partition, "redrive").number(inner).text(id.as_bytes());
        let Encoded { record, payload, .. } =
            bytes::resting(&id, settings, 0, *planned, error, payload);
        let operation = operation.number(bucket).text(&record).text(payload);
        let redriven =
            self.change(RetryPolicy::Caller, operation, move |operations, answer, now| {
                let (answer, due): (u8, Millis) = read(answer)?;
                match answer {
                    0 => return Ok(false),
                    1 => operations.notify_if_near(&id, due, now),
                    3 => return Err(DurableError::Exists),
                    _ => return Err(unexpected_reply()),
                }
                Ok(true)
            });
        redriven.await
    }

    pub(super) fn delete_dead_letter(self: &Arc<Self>, number: u64) -> Answer<bool> {
        let (partition, inner) = self.of_number(number);
        let operation = Operation::new(partition, "delete_letter").number(inner);
        self.change(RetryPolicy::Caller, operation, |_, answer, _| Ok(read::<u8>(answer)? == 1))
    }

    pub(super) async fn discard(self: Arc<Self>, id: String) -> Result<bool, DurableError> {
        let found = self.stored(&id).await?.unwrap_or_default();
        let operation = self.of_id("discard", &id).text(&found.record);
        if bytes::record(&id, found).is_some() {
            return Ok(false);
        }
        self.damaged.remove(&id);
        let discarded = |_: &Self, answer, _| Ok(read::<u8>(answer)? == 1);
        self.change(RetryPolicy::Caller, operation, discarded).await
    }
}

impl Subscriber for Operations {
    fn subscription(&self, stands: bool) {
        self.ownership.tell(if stands { &Event::NoticesRestored } else { &Event::NoticesLost });
    }

    fn key_added(&self, due: Millis, id: &str) {
        self.notify(id, due);
    }

    fn worker_left(&self) {
        self.ownership.request_checks();
    }

    fn notices_lost(&self) {
        self.idle.forget();
        self.ownership.invalidate();
    }

    fn unsubscribed(&self) {
        self.idle.forget();
        self.ownership.reload();
    }
}
