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
//! its reply to the last batch of each process, so a resend after a lost reply gets the same one
//! (`batch.rs`). **Workers are notified of changes in their window** by pub/sub (`pubsub.rs`), and
//! ask a partition only if something may be due there (`idle.rs`).
//!
//! **Each partition has one owner** among the workers, which alone loads its keys (`ownership.rs`).
//! The lease of each timer decides which worker delivers it.
//!
//! The order of transactions is not known here, so windows are not notified of removed keys. Such a
//! key fires, and its lease is rejected.

#![forbid(unsafe_code)]

mod batch;
mod bytes;
mod cluster;
mod copying;
mod damaged;
mod fault;
mod find;
mod identity;
mod idle;
mod keys;
mod link;
mod load;
mod mend;
mod node;
mod operations;
mod ownership;
mod pause;
mod policy;
mod pubsub;
mod queue;
mod reopen;
mod scripts;
mod update;

use super::check::{Checked, Cursor};
use super::clock::{Millis, StoreClock};
use super::error::DurableError;
use super::key::{Key, Page};
use super::options::Existing;
use super::record::{Dead, Record};
use super::store::{
    Answer, AnyStore, Cancelled, Due, Finish, Finished, Found, Insert, Inserted, Leasing, Renewed,
    Stalled, Store,
};
use super::window::Window;
use damaged::Damaged;
use fault::refused;
use futures_util::future::join;
use identity::Identity;
use idle::IdleHints;
use keys::Keys;
use link::Link;
use operations::Operations;
use ownership::Ownership;
use pubsub::{Subscriber, listen, subscribe};
use queue::Queues;
use redis::Client;
use scripts::Scripts;
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};

/// The name and the layout of a store in Redis.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::RedisOptions;
///
/// let options = RedisOptions::new("reminders").partitions(64);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct RedisOptions {
    name: String,
    partitions: u16,
    clock: Option<Arc<dyn StoreClock>>,
    may_evict: bool,
}

impl RedisOptions {
    /// Creates options for a store with this name, 16 partitions, and the server's clock. A name
    /// has 1 to 64 characters of `a-z A-Z 0-9 _ . -`.
    ///
    /// One Redis can hold several stores. All processes that use the same name share a store, and
    /// each of their workers gets all of its timers, so choose a name for each kind of work.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), partitions: 16, clock: None, may_evict: false }
    }

    /// Sets the number of partitions, 1 to 1024, of a store that is created now. An existing store
    /// keeps its number forever ([`Redis::partitions`]). Choose several for each worker that will
    /// ever run, in all processes, and for each master of a cluster. A partition belongs to one
    /// worker, so workers beyond the number of partitions deliver nothing.
    ///
    /// The default is only 16, because calls share a request only within a partition. With 64
    /// partitions, 64 concurrent callers inserted 8 to 47 % fewer timers per second, and an idle
    /// worker sent 42 commands per second instead of 18.
    #[must_use]
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets another clock than the server's, for tests in virtual time. All users of the store must
    /// share it.
    #[must_use]
    pub fn clock(mut self, clock: impl StoreClock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Opens the store even on a server that may evict timers without notice (`maxmemory-policy
    /// allkeys-…`). The policy is then not read, so the permission for `INFO` is not needed.
    #[must_use]
    pub fn allow_eviction(mut self) -> Self {
        self.may_evict = true;
        self
    }

    fn check(&self) -> Result<(), DurableError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(plain) {
            return Err(DurableError::Option(
                "the store name must have 1 to 64 of a-z A-Z 0-9 _ . -",
            ));
        }
        if !(1..=1024).contains(&self.partitions) {
            return Err(DurableError::Option("the number of partitions must be 1 to 1024"));
        }
        Ok(())
    }
}

impl From<&str> for RedisOptions {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// A store in Redis (7.0 or later) or Valkey, for any number of concurrent processes.
///
/// The connections and tasks of the store run in the tokio runtime in which it was connected. The
/// futures of [`DurableTimers`](super::DurableTimers) and its workers can be polled anywhere.
///
/// An acknowledged change is as durable as the server's configuration makes it. The
/// [guide](crate::guide) describes the guarantees of `appendfsync always`, `everysec` and
/// replication. The server must not evict keys when its memory is full. A `maxmemory-policy` of
/// `allkeys-…` is rejected. `noeviction` (the default) and `volatile-…` are allowed, because no key
/// of a store has a time to live.
///
/// While the server cannot be reached, workers wait for it. Other callers wait for five seconds and
/// then get [`DurableError::Unreachable`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_durable::{DurableTimers, Options, Redis};
/// use tourbillon::future::Timer;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Redis::connect("redis://127.0.0.1/", "reminders").await?;
/// let timers = DurableTimers::new(store, &Timer::spawn(Builder::new().driver())?);
/// timers.insert("order 7", "unpaid", Duration::from_secs(86_400), Options::new()).await?;
/// # Ok(())
/// # }
/// ```
pub struct Redis {
    operations: Arc<Operations>,
    runtime: Handle,
    listening: AbortHandle,
}

impl Redis {
    /// Connects to a store on one node, `redis://user:password@host:port/database`, by its name or
    /// with options.
    ///
    /// # Errors
    ///
    /// - [`Address`](DurableError::Address) or [`Option`](DurableError::Option) if the address or
    ///   an option is invalid, or the call is outside of a tokio runtime.
    /// - [`Unreachable`](DurableError::Unreachable) or [`Denied`](DurableError::Denied) if the node
    ///   does not reply, or denies access.
    /// - [`Evicts`](DurableError::Evicts) if the node may evict timers.
    /// - [`Format`](DurableError::Format) if the store has another layout.
    pub async fn connect(
        url: &str,
        options: impl Into<RedisOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        options.check()?;
        runtime()?;
        let client = client(url)?;
        Self::open(Link::node(client).await?, options).await
    }

    /// Connects to a cluster through some of its nodes.
    ///
    /// # Errors
    ///
    /// Fails like [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tourbillon_durable::{Redis, RedisOptions};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = ["redis://10.0.0.1:6379/", "redis://10.0.0.2:6379/"];
    /// let options = RedisOptions::new("reminders").partitions(64);
    /// let store = Redis::connect_cluster(nodes, options).await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_cluster<'a>(
        urls: impl IntoIterator<Item = &'a str>,
        options: impl Into<RedisOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        options.check()?;
        runtime()?;
        let clients = urls.into_iter().map(client).collect::<Result<_, _>>()?;
        Self::open(Link::cluster(clients).await?, options).await
    }

    /// Returns the number of partitions of the store, which was chosen by the process that created
    /// it. Workers of all processes beyond this number deliver nothing.
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

    async fn open(link: Link, options: RedisOptions) -> Result<Self, DurableError> {
        let runtime = runtime()?;
        let RedisOptions { name, partitions, clock, may_evict } = options;
        if !may_evict {
            policy::check(&link).await?;
        }
        let scripts = Scripts::new();
        let identity =
            Identity::open(&link, &scripts.open, name.clone(), partitions.into()).await?;
        let partitions = identity.partitions();
        let (keys, idle) = (Keys::new(&name, partitions), IdleHints::new(partitions));
        let channel = keys.channel();
        let subscription = subscribe(&link, &channel).await.map_err(|error| refused(&error))?;
        let (ownership, queues) = (Ownership::default(), Queues::new(partitions, runtime.clone()));
        let follows = link.clone();
        let damaged = Damaged::default();
        let operations =
            Operations { link, keys, clock, scripts, ownership, idle, queues, identity, damaged };
        let operations = Arc::new(operations);
        let subscriber: Arc<dyn Subscriber> = Arc::<Operations>::clone(&operations);
        let (opened, listens) =
            (Arc::clone(&operations), listen(follows, channel, subscription, subscriber));
        let listening = runtime.spawn(async move { join(listens, opened.keep_open()).await });
        let listening = listening.abort_handle();
        Ok(Self { operations, runtime, listening })
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

fn runtime() -> Result<Handle, DurableError> {
    Handle::try_current().map_err(|_| DurableError::Option("connect needs a tokio runtime"))
}

fn client(url: &str) -> Result<Client, DurableError> {
    Client::open(url).map_err(|error| refused(&error))
}

impl Store for Redis {
    fn now(&self) -> Answer<Millis> {
        self.ask(|operations| async move { operations.time().await })
    }

    fn insert(&self, timer: Insert) -> Answer<Inserted> {
        match timer.existing {
            Existing::Update => self.ask(move |operations| operations.update(timer)),
            _ => self.operations.insert(timer),
        }
    }

    fn cancel(&self, id: &str) -> Answer<Cancelled> {
        self.operations.cancel(id)
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
        self.operations.finish(id.to_owned(), fence, finish)
    }

    fn stalled(&self, worker: u64, id: &str) -> Option<Stalled> {
        Some(Box::new(Operations::stalled(&self.operations, worker, id)))
    }

    fn is_withheld(&self, worker: u64, id: &str) -> bool {
        self.operations.is_withheld(worker, id)
    }

    fn dead(&self, after: Option<u64>, limit: usize) -> Answer<Vec<(u64, Dead)>> {
        self.ask(move |operations| async move { operations.dead(after, limit).await })
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
