//! [`Redis`]: a store in Redis or Valkey, one node or a cluster, by the crate `redis`.
//!
//! ```text
//!  partition = hash of the id             {tb:NAME:p}:b:… records      one slot of a cluster,
//!  ┌───────┬───────┬───────┬──────┐       {tb:NAME:p}:s:… slices       so that one script does
//!  │   0   │   1   │   2   │  …   │  ──►  {tb:NAME:p}:slices           a whole transition
//!  └───────┴───────┴───────┴──────┘       …
//! ```
//!
//! **Each transition is an operation of a script** (`scripts/`): whole or not at all. Its time is
//! the server's. **The operations of a moment go together**, as a batch with a number, and a
//! partition keeps the answer to the last batch of each process: what is asked again after a lost
//! answer gets the first one (`batch.rs`). **Workers hear of near changes** by notices
//! (`pubsub.rs`), and ask a partition only when something may be due there (`idle.rs`).
//!
//! **Each partition has one owner** among the workers (`ownership.rs`), who alone loads its keys; the
//! lease of each timer decides who delivers it.
//!
//! The order of transactions is not known here, so that nobody is told that a key has gone: its
//! time comes, and the lease is refused.

#![forbid(unsafe_code)]

mod batch;
mod bytes;
mod cluster;
mod damaged;
mod fault;
mod identity;
mod idle;
mod keys;
mod link;
mod load;
mod mend;
mod node;
mod operations;
mod ownership;
mod policy;
mod pubsub;
mod queue;
mod reopen;
mod scripts;

use super::check::{Checked, Cursor};
use super::clock::{Millis, StoreClock};
use super::error::DurableError;
use super::key::{Key, Page};
use super::record::{Dead, Record};
use super::store::{Answer, AnyStore, Due, Finish, Insert, Inserted, Leasing, Stalled, Store};
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

/// The name of a store in Redis, and its layout.
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
    /// A store of that name with 16 partitions, by the server's clock. A name has 1 to 64 of
    /// `a-z A-Z 0-9 _ . -`.
    ///
    /// Several stores may lie in one Redis. All who give the same name share one, and each of their
    /// workers gets all of its timers: have a name for each kind of work.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), partitions: 16, clock: None, may_evict: false }
    }

    /// Over how many parts it is spread, 1 to 1024, if it is made now: a store that exists keeps
    /// its own for good ([`Redis::partitions`]). Have several for each worker that will ever run,
    /// in all processes, and for each master of a cluster: a partition is one worker's, so that
    /// workers beyond their number deliver nothing.
    ///
    /// The default is 16 rather than more, because calls share a request only within a partition:
    /// with 64 partitions, 64 callers at a time scheduled 8 to 47 % fewer timers a second, and an
    /// idle worker sent 42 commands a second instead of 18.
    #[must_use]
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = partitions;
        self
    }

    /// Another clock than the server's, which all who use the store must share. For tests in
    /// virtual time.
    #[must_use]
    pub fn clock(mut self, clock: impl StoreClock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Opens the store also on a server that may remove timers (`maxmemory-policy allkeys-…`):
    /// nobody is told of those that are lost. The server is not asked for its policy then, for
    /// which `INFO` is needed.
    #[must_use]
    pub fn allow_eviction(mut self) -> Self {
        self.may_evict = true;
        self
    }

    fn check(&self) -> Result<(), DurableError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(plain) {
            return Err(DurableError::Option("the name; 1 to 64 of a-z A-Z 0-9 _ . - are allowed"));
        }
        if !(1..=1024).contains(&self.partitions) {
            return Err(DurableError::Option("the number of partitions; 1 to 1024 are allowed"));
        }
        Ok(())
    }
}

impl From<&str> for RedisOptions {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// A store in Redis (from version 7.0 on) or Valkey, for any number of processes at a time.
///
/// It lives in the tokio runtime in which it is connected: its connections and tasks run there. The
/// futures of [`DurableTimers`](super::DurableTimers) and of its workers may be polled anywhere.
///
/// An acknowledged change is as durable as the server is set to make it: the [guide](crate::guide)
/// says what `appendfsync always`, `everysec` and replication promise. The server must not remove
/// keys when its memory is full: a `maxmemory-policy allkeys-…` is refused; `noeviction`, the
/// default, and `volatile-…` are allowed, as nothing of a store has a time to live.
///
/// While the server cannot be reached, a worker waits for it; another caller waits for five
/// seconds and then gets [`DurableError::Unreachable`].
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
    /// Connects to a store on one node, `redis://user:password@host:port/database`: by its name, or
    /// with further options.
    ///
    /// # Errors
    ///
    /// - [`Address`](DurableError::Address), [`Option`](DurableError::Option): the address or an
    ///   option is wrong, or this is not called within a tokio runtime.
    /// - [`Unreachable`](DurableError::Unreachable), [`Denied`](DurableError::Denied): the node
    ///   does not answer, or denies access.
    /// - [`Evicts`](DurableError::Evicts): it may remove timers.
    /// - [`Format`](DurableError::Format): the store there has another layout.
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

    /// Connects to a cluster, some of whose nodes are these.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
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

    /// Has it done in the runtime, also if nobody waits for it any more.
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
    Handle::try_current().map_err(|_| DurableError::Option("the runtime: connect within tokio's"))
}

fn client(url: &str) -> Result<Client, DurableError> {
    Client::open(url).map_err(|error| refused(&error))
}

impl Store for Redis {
    fn now(&self) -> Answer<Millis> {
        self.ask(|operations| async move { operations.time().await })
    }

    fn insert(&self, timer: Insert) -> Answer<Inserted> {
        self.operations.insert(timer)
    }

    fn cancel(&self, id: &str) -> Answer<bool> {
        self.operations.cancel(id)
    }

    fn reset(&self, id: &str, due: Due) -> Answer<bool> {
        self.operations.reset(id.to_owned(), due)
    }

    fn get(&self, id: &str) -> Answer<Option<Record>> {
        let id = id.to_owned();
        self.ask(|operations| async move { operations.get(id).await })
    }

    fn list(&self, after: Option<&str>, limit: usize) -> Answer<Vec<(String, Record)>> {
        let after = after.map(str::to_owned);
        self.ask(move |operations| async move { operations.list(after, limit).await })
    }

    fn len(&self) -> Answer<(u64, u64)> {
        self.ask(|operations| async move { operations.len().await })
    }

    fn join(&self, window: &Arc<Window>) -> u64 {
        self.operations.join(window)
    }

    fn load(&self, worker: u64, from: Key, until: Millis, limit: usize) -> Answer<Page> {
        let operations = Arc::clone(&self.operations);
        // Given up with its answer: a worker that has left must not be heard any more.
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
        self.operations.lease(key)
    }

    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<bool> {
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

/// Ends its task; what was asked for is still done.
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
