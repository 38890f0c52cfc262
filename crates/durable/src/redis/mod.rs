//! [`Redis`], a store in Redis or Valkey, on one node or a cluster, built on the crate `redis`.
//!
//! ```text
//!  partition = hash of the id             {tb:NAME:p}:b:… records      one slot of a cluster,
//!  ┌───────┬───────┬───────┬──────┐       {tb:NAME:p}:s:… slices       so that one script does
//!  │   0   │   1   │   2   │  …   │  ──►  {tb:NAME:p}:slices           a whole transition
//!  └───────┴───────┴───────┴──────┘       …
//! ```
//!
//! **Each transition is an operation of a script** (`scripts/`) and atomic. Its time is the
//! server's. **Concurrent operations are sent together**, as a numbered batch. A partition keeps
//! its reply to the last batch of each process, so a resend after a lost reply gets the same reply
//! (`batch.rs`). **Workers are notified of changes in their window** by pub/sub (`pubsub.rs`), and
//! ask a partition only if something may be due there (`store/partitions`).
//!
//! **Each partition has one owner** among the workers, which alone loads its keys (`ownership.rs`
//! of the crate). The lease of each timer decides which worker delivers it.
//!
//! The order of transactions is not known here, so windows are not notified of removed keys. Such a
//! key fires, and its lease is rejected.

#![forbid(unsafe_code)]

mod batch;
mod bytes;
mod cluster;
mod connect;
mod copying;
mod damaged;
mod errors;
mod find;
mod identity;
mod keys;
mod labels;
mod leases;
mod letters;
mod link;
mod load;
#[cfg(feature = "log")]
mod log;
mod mend;
mod node;
mod operation;
mod operations;
mod options;
mod pause;
mod pubsub;
mod reopen;
mod scripts;
mod sentinel;
mod server;
mod stats;
#[cfg(feature = "redis-tls")]
mod tls;
mod update;

use crate::error::DurableError;
use crate::model::condition::Condition;
use crate::model::key::Key;
use crate::model::label::Label;
use crate::model::options::Existing;
use crate::store::partitions::Partitioned;
use crate::store::partitions::load::Stall;
use crate::store::remote::store::{RemoteStore, common};
use crate::store::{
    Answer, AnyStore, Cancelled, Due, Finish, Finished, Insert, Inserted, Leasing, Renewed,
    Stalled, Store,
};
use operations::Operations;
pub use options::RedisOptions;
use std::fmt;
use std::sync::Arc;

/// A store in Redis (7.0 or later) or Valkey, for any number of concurrent processes.
///
/// The connections and tasks of the store run in the tokio runtime where it was connected. The
/// futures of [`DurableTimers`](crate::DurableTimers) and its workers can be polled anywhere.
///
/// An acknowledged change is as durable as the server's configuration makes it. The
/// [limits](crate::limits#durability-in-redis) list the possible loss with `appendfsync always`,
/// `everysec` and replication. The server must not evict keys when its memory is full. A
/// `maxmemory-policy` of `allkeys-…` is rejected. `noeviction` (the default) and `volatile-…` are
/// allowed, because no key of a store has a time to live.
///
/// While the server cannot be reached, workers wait for it. Other calls are retried for five
/// seconds, or [as long as you choose](RedisOptions::call_timeout), and then fail with
/// [`DurableError::Unreachable`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Options, Redis};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Redis::connect("redis://127.0.0.1/", "reminders").await?;
/// let timers = DurableTimers::spawn(store)?;
/// timers.insert("order 7", "unpaid", Duration::from_secs(86_400), Options::new()).await?;
/// # Ok(())
/// # }
/// ```
pub struct Redis(RemoteStore<Operations>);

impl Redis {
    /// Returns the number of partitions of the store, which the process that created it has chosen.
    /// Workers beyond this number, in all processes, deliver nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tourbillon_durable::{Redis, RedisOptions};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let workers = 20;
    /// let options = RedisOptions::new("reminders").partitions(128);
    /// let store = Redis::connect("redis://127.0.0.1/", options).await?;
    /// if store.partitions() < workers {
    ///     eprintln!("{workers} workers share {} partitions", store.partitions());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn partitions(&self) -> u64 {
        self.0.operations.identity.partitions()
    }
}

impl Store for Redis {
    common!();

    fn insert(&self, timer: Insert) -> Answer<Inserted> {
        if timer.existing == Existing::Update || timer.over.is_some() {
            self.0.ask(move |operations| operations.insert_over(timer))
        } else {
            self.0.operations.insert(timer, None)
        }
    }

    fn cancel(&self, id: &str, only: Option<Condition>) -> Answer<Cancelled> {
        match only {
            None => self.0.operations.cancel(id, None, None),
            Some(Condition::Label(label)) => self.0.operations.cancel(id, None, Some(&label)),
            Some(only) => {
                let id = id.to_owned();
                self.0.ask(move |operations| operations.cancel_only(id, only))
            }
        }
    }

    fn reset(&self, id: &str, due: Due) -> Answer<bool> {
        self.0.operations.reset(id.to_owned(), due)
    }

    fn run_now(&self, id: &str) -> Answer<bool> {
        self.0.operations.run_now(id)
    }

    fn pause_timer(&self, id: &str, pauses: bool, label: Option<Label>) -> Answer<bool> {
        self.0.operations.pause_timer(id, pauses, label.as_ref())
    }

    fn lease(&self, key: &Key) -> Answer<Leasing> {
        self.0.operations.lease(key, false)
    }

    fn take_over(&self, key: &Key) -> Answer<Leasing> {
        self.0.operations.lease(key, true)
    }

    fn renew(&self, id: &str, fence: u64) -> Answer<Renewed> {
        self.0.operations.renew(id, fence)
    }

    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<Finished> {
        self.0.operations.finish(id.to_owned(), fence, finish)
    }

    fn trouble(&self) -> Option<DurableError> {
        self.0.operations.link.trouble()
    }

    fn stalled(&self, worker: u64, id: &str) -> Option<Stalled> {
        Some(Box::new(Stall::begin(&self.0.operations, worker, id)))
    }

    fn is_withheld(&self, worker: u64, id: &str) -> bool {
        let operations = &self.0.operations;
        operations.ownership.is_withheld(worker, operations.partition_of(id))
    }

    fn is_spare(&self, worker: u64) -> bool {
        self.0.operations.ownership.is_spare(worker)
    }

    fn delete_dead_letter(&self, number: u64) -> Answer<bool> {
        self.0.operations.delete_dead_letter(number)
    }
}

impl From<Redis> for AnyStore {
    fn from(store: Redis) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("keys", &self.0.operations.keys).finish_non_exhaustive()
    }
}
