//! [`Operations`], the operations of a store in Redis. Each transition is an operation of a batch
//! (`batch.rs`), each read a script or a command.

#![forbid(unsafe_code)]

use super::bytes::{self, Encoded, Stored};
use super::damaged::Damaged;
use super::identity::Identity;
use super::keys::{BUCKETS, Keys, LATER, Location, OWN, long_field, slice};
use super::link::{self, Link};
use super::node::Connection;
use super::operation::Operation;
use super::scripts::Scripts;
use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::clock::{Millis, StoreClock, present};
use crate::model::label::Label;
use crate::model::options::Existing;
use crate::model::record::Record;
use crate::store::ownership::Ownership;
use crate::store::partitions::Partitioned;
use crate::store::partitions::idle::IdleHints;
use crate::store::remote::answers::{self, unexpected_reply};
use crate::store::remote::retry::RetryPolicy;
use crate::store::remote::sender::Engine;
use crate::store::{Answer, Cancelled, Due, Insert, Inserted, MAX_LIST_BYTES};
use futures_util::future::try_join_all;
use redis::{Cmd, FromRedisValue, Script, Value, cmd};
use std::sync::Arc;

pub(super) struct Operations {
    pub(super) link: Link,
    pub(super) keys: Keys,
    pub(super) clock: Option<Arc<dyn StoreClock>>,
    pub(super) scripts: Scripts,
    pub(super) bounds: LetterBounds,
    pub(super) ownership: Ownership,
    pub(super) idle: IdleHints,
    pub(super) engine: Engine<Self>,
    pub(super) identity: Identity,
    pub(super) damaged: Damaged,
    /// The connections of the log, once it is used.
    #[cfg(feature = "log")]
    pub(super) log: futures_util::lock::Mutex<Option<Link>>,
}

pub(super) fn text(value: impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
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
    /// Runs a script on a partition, outside of a batch. It must be idempotent.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        partition: u64,
        args: &[Vec<u8>],
        retry: RetryPolicy,
    ) -> Result<T, DurableError> {
        let place = [self.keys.prefix(partition), self.keys.channel_of(partition)];
        self.evaluate(script, &self.keys.common(partition), &place, args, retry).await
    }

    /// Runs a script on the keys of the store, outside of a batch. The script must be idempotent.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        args: &[Vec<u8>],
        retry: RetryPolicy,
    ) -> Result<T, DurableError> {
        let place = [String::new(), self.keys.channel()];
        self.evaluate(script, keys, &place, args, retry).await
    }

    /// Runs a script with the prefix of its keys, and the channel of its notices.
    async fn evaluate<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        [prefix, channel]: &[String; 2],
        args: &[Vec<u8>],
        retry: RetryPolicy,
    ) -> Result<T, DurableError> {
        let ask = |connection: Connection| {
            let mut call = link::call(script, keys);
            call.arg(prefix).arg(self.word_of_time()).arg("").arg("").arg(channel).arg(args);
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
    pub(super) fn located_by_id(&self, id: &str, error: DurableError) -> DurableError {
        self.located(self.keys.location(id).partition, error)
    }

    pub(super) fn record(&self, id: &str, stored: Stored) -> Result<Record, DurableError> {
        let damaged = || self.located_by_id(id, DurableError::corrupt_timer(id));
        bytes::record(id, stored).ok_or_else(damaged)
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

    /// Inserts a timer. An update refuses an id that exists, because the existing record has to be
    /// read for it. If the record is given, the timer must exist with this record, and has
    /// otherwise [changed](DurableError::Changed).
    pub(super) fn insert(
        self: &Arc<Self>,
        timer: Insert,
        found: Option<&[u8]>,
    ) -> Answer<Inserted> {
        let Insert { id, payload, due, existing, settings, .. } = timer;
        let existing = match existing {
            Existing::Update => Existing::Refuse,
            existing => existing,
        };
        let time = known(due);
        let record = Record::resting(time, settings, Arc::unwrap_or_clone(payload));
        let Encoded { record, payload, .. } = bytes::encode(&id, &record);
        let operation = self.of_id("insert", &id).text(existing.word().as_bytes()).due(due);
        let operation = match due {
            Due::At(time) | Due::ByRule(time) => operation.number(slice(time)),
            Due::After(_) => operation.text(b""),
        };
        let operation = operation.text(&record).text(payload);
        let operation = operation.text(found.unwrap_or_default());
        self.change(RetryPolicy::Caller, operation, move |operations, answer, now| {
            let (answer, due): (i32, Millis) = match answer {
                Value::Int(_) => (read(answer)?, time),
                delayed => read(delayed)?,
            };
            let inserted = answers::inserted(answer)?;
            if let Inserted::New | Inserted::Replaced = inserted {
                // The damaged timer with this id was replaced.
                operations.damaged.remove(&id);
                operations.notify_if_near(&id, due, now);
            }
            Ok(inserted)
        })
    }

    /// Cancels a timer. If the record or a label is given, the timer must exist with it, and has
    /// otherwise [changed](DurableError::Changed).
    pub(super) fn cancel(
        self: &Arc<Self>,
        id: &str,
        found: Option<&[u8]>,
        label: Option<&Label>,
    ) -> Answer<Cancelled> {
        let operation = self.of_id("cancel", id).text(found.unwrap_or_default());
        let operation = operation.text(label.map_or("", Label::as_str).as_bytes());
        self.change(RetryPolicy::Caller, operation, |_, answer, _| {
            answers::cancelled(read(answer)?)
        })
    }

    pub(super) fn reset(self: &Arc<Self>, id: String, due: Due) -> Answer<bool> {
        let operation = self.of_id("reset", &id).due(due);
        self.change(RetryPolicy::Caller, operation, move |operations, answer, now| {
            operations.is_moved(&id, answer, now)
        })
    }

    pub(super) fn run_now(self: &Arc<Self>, id: &str) -> Answer<bool> {
        let (operation, id) = (self.of_id("run", id), id.to_owned());
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
        let (answer, due) = read(answer)?;
        let moved = answers::changed(answer)?;
        if moved {
            self.notify_if_near(id, due, now);
        }
        Ok(moved)
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
            let enough = [text(limit - list.len()), text(MAX_LIST_BYTES - length)];
            let args = [&[text(bucket), text(BUCKETS)][..], &enough].concat();
            type Timers = Vec<(String, Vec<u8>, Vec<u8>, Vec<u8>)>;
            let (more, found): (u8, Timers) =
                self.call(&self.scripts.list, partition, &args, RetryPolicy::Caller).await?;
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

    pub(super) async fn discard(self: Arc<Self>, id: String) -> Result<bool, DurableError> {
        let found = self.stored(&id).await?.unwrap_or_default();
        let operation = self.of_id("discard", &id).text(&found.record);
        if bytes::record(&id, found).is_some() {
            return Ok(false);
        }
        self.damaged.remove(&id);
        let discarded = |_: &Self, answer, _| answers::changed(read(answer)?);
        self.change(RetryPolicy::Caller, operation, discarded).await
    }
}
