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
//! ask a partition only if something may be due there (`idle.rs`).
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
mod idle;
mod keys;
mod leases;
mod letters;
mod link;
mod load;
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
use crate::model::bounds::LetterBounds;
use crate::model::check::{Checked, Cursor};
use crate::model::clock::Millis;
use crate::model::condition::Condition;
use crate::model::durability::Durability;
use crate::model::event::Event;
use crate::model::key::{Key, Page};
use crate::model::options::Existing;
use crate::model::record::{Dead, Record};
use crate::model::stats::Counts;
use crate::store::window::Window;
use crate::store::{
    Answer, AnyStore, Cancelled, Due, Finish, Finished, Found, Insert, Inserted, Leasing, Letters,
    Renewed, Stalled, Store,
};
use operations::Operations;
pub use options::RedisOptions;
pub use sentinel::Sentinels;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "redis-tls")]
pub use tls::certificates;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};

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
pub struct Redis {
    operations: Arc<Operations>,
    runtime: Handle,
    listening: AbortHandle,
    bounds: LetterBounds,
}

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
        self.operations.identity.partitions()
    }

    /// Runs an operation in the runtime, even if its caller has gone.
    fn ask<R, F>(&self, operation: impl FnOnce(Arc<Operations>) -> F + Send + 'static) -> Answer<R>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, DurableError>> + Send + 'static,
    {
        let operations = Arc::clone(&self.operations);
        let task = self.runtime.spawn(async move {
            operations.identity.check_usable()?;
            operation(operations).await
        });
        Box::pin(async move { task.await.unwrap_or(Err(DurableError::Closed)) })
    }
}

impl Store for Redis {
    fn durability(&self) -> Answer<Durability> {
        self.ask(|operations| async move { server::durability(&operations.link).await })
    }

    fn now(&self) -> Answer<Millis> {
        self.ask(|operations| async move { operations.time().await })
    }

    fn insert(&self, timer: Insert) -> Answer<Inserted> {
        if timer.existing == Existing::Update || timer.over.is_some() {
            self.ask(move |operations| operations.insert_over(timer))
        } else {
            self.operations.insert(timer, None)
        }
    }

    fn cancel(&self, id: &str, only: Option<Condition>) -> Answer<Cancelled> {
        let Some(only) = only else { return self.operations.cancel(id, None) };
        let id = id.to_owned();
        self.ask(move |operations| operations.cancel_only(id, only))
    }

    fn reset(&self, id: &str, due: Due) -> Answer<bool> {
        self.operations.reset(id.to_owned(), due)
    }

    fn pause_timer(&self, id: &str, pauses: bool) -> Answer<bool> {
        self.operations.pause_timer(id, pauses)
    }

    fn pause(&self, pauses: bool) -> Answer<()> {
        self.ask(move |operations| async move { operations.pause(pauses).await })
    }

    fn is_paused(&self) -> Answer<bool> {
        self.ask(|operations| async move { operations.is_paused().await })
    }

    fn get(&self, id: &str) -> Answer<Option<Record>> {
        let id = id.to_owned();
        self.ask(|operations| async move { operations.get(id).await })
    }

    fn list(&self, after: Option<&str>, limit: usize) -> Answer<Vec<(String, Record)>> {
        let after = after.map(str::to_owned);
        self.ask(move |operations| async move { operations.list(after, limit).await })
    }

    fn find(&self, from: Key, until: Millis, limit: usize) -> Answer<Found> {
        self.ask(move |operations| async move { operations.find(from, until, limit).await })
    }

    fn len(&self) -> Answer<(u64, u64)> {
        self.ask(|operations| async move { operations.len().await })
    }

    fn stats(&self, _from: Key) -> Answer<Counts> {
        self.ask(|operations| async move { operations.stats().await })
    }

    fn join(&self, window: &Arc<Window>) -> u64 {
        self.operations.join(window)
    }

    fn load(&self, worker: u64, from: Key, until: Millis, limit: usize) -> Answer<Page> {
        let operations = Arc::clone(&self.operations);
        // The task is dropped with the future, because a worker that has left must not send a
        // heartbeat any more.
        let mut task = JoinSet::new();
        let load = async move { operations.load(worker, from, until, limit).await };
        task.spawn_on(load, &self.runtime);
        Box::pin(async move {
            let loaded = task.join_next().await;
            loaded.and_then(Result::ok).unwrap_or(Err(DurableError::Closed))
        })
    }

    fn leave(&self, worker: u64) -> Answer<()> {
        self.operations.ownership.leave(worker);
        self.ask(move |operations| async move { operations.leave(worker).await })
    }

    fn lease(&self, key: &Key) -> Answer<Leasing> {
        self.operations.lease(key, false)
    }

    fn take_over(&self, key: &Key) -> Answer<Leasing> {
        self.operations.lease(key, true)
    }

    fn renew(&self, id: &str, fence: u64) -> Answer<Renewed> {
        self.operations.renew(id, fence)
    }

    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<Finished> {
        self.operations.finish(id.to_owned(), fence, finish, self.bounds)
    }

    fn trouble(&self) -> Option<DurableError> {
        self.operations.link.trouble()
    }

    fn take_events(&self, worker: u64) -> Vec<Event> {
        self.operations.ownership.take_events(worker)
    }

    fn stalled(&self, worker: u64, id: &str) -> Option<Stalled> {
        Some(Box::new(Operations::stalled(&self.operations, worker, id)))
    }

    fn is_withheld(&self, worker: u64, id: &str) -> bool {
        self.operations.is_withheld(worker, id)
    }

    fn is_spare(&self, worker: u64) -> bool {
        self.operations.ownership.is_spare(worker)
    }

    fn dead(&self, letters: Letters, limit: usize) -> Answer<Vec<(u64, Dead)>> {
        self.ask(move |operations| async move { operations.dead(letters, limit).await })
    }

    fn letter_bounds(&self) -> LetterBounds {
        self.bounds
    }

    fn letter_ages(&self, after: Option<u64>, limit: usize) -> Answer<Vec<(u64, Millis)>> {
        self.ask(move |operations| async move { operations.letter_ages(after, limit).await })
    }

    fn redrive(&self, number: u64) -> Answer<bool> {
        self.ask(move |operations| operations.redrive(number))
    }

    fn letter(&self, number: u64) -> Answer<Option<Dead>> {
        self.ask(move |operations| async move { operations.letter(number).await })
    }

    fn delete_dead_letter(&self, number: u64) -> Answer<bool> {
        self.operations.delete_dead_letter(number)
    }

    fn discard(&self, id: &str) -> Answer<bool> {
        let id = id.to_owned();
        self.ask(move |operations| operations.discard(id))
    }

    fn copy_timers(&self, timers: Vec<(String, Record)>) -> Answer<()> {
        self.ask(move |operations| operations.copy_timers(timers))
    }

    fn copy_letters(&self, letters: Vec<Dead>) -> Answer<()> {
        self.ask(move |operations| operations.copy_letters(letters))
    }

    fn check(&self, from: Cursor) -> Answer<Checked> {
        self.ask(move |operations| async move { operations.check(from, false).await })
    }

    fn repair(&self) -> Answer<()> {
        self.ask(|operations| async move { operations.repair().await })
    }
}

impl From<Redis> for AnyStore {
    fn from(store: Redis) -> Self {
        Self(Arc::new(store))
    }
}

/// Ends the background task. Pending operations are still executed.
impl Drop for Redis {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("keys", &self.operations.keys).finish_non_exhaustive()
    }
}
