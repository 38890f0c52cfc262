//! [`Client`], the operations of a store of one process, sent by the engine that Redis and
//! PostgreSQL have.

use super::network::Cluster;
use super::process::{Process, ProcessHost};
use super::requests::{BatchRequest, Notice, Operation, Reply};
use super::server::Server;
use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::check::{Checked, Cursor};
use crate::model::clock::Millis;
use crate::model::durability::Durability;
use crate::model::key::{Change, Key, Page};
use crate::model::label::Label;
#[cfg(feature = "log")]
use crate::model::log::{LogBounds, LoggedAttempt};
use crate::model::record::{Dead, Record};
use crate::model::stats::Counts;
use crate::store::ownership::Ownership;
use crate::store::partitions::idle::{IdleHints, NOTIFY_AHEAD};
use crate::store::partitions::load::{load, time_by};
use crate::store::partitions::pages::PartitionPage;
use crate::store::partitions::{Heartbeat, Partitioned};
use crate::store::remote::answers::unexpected_reply;
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::host::Host;
use crate::store::remote::notices::{Listener, PING};
use crate::store::remote::queue::Queue;
use crate::store::remote::retry::{RetryPolicy, retry};
use crate::store::remote::sender::{Batch, Engine, Replies, RequestOf, Transport};
use crate::store::{Answer, Found, Ids, Insert, Inserted, Leasing, Letters, LettersOf};
use futures_channel::mpsc;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// The bounds of a batch in Redis.
const BATCH: (usize, usize) = (128, 1 << 18);

/// How long callers wait.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The operations of a store, of one process.
pub(crate) struct Client {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) process: Arc<Process>,
    pub(crate) engine: Engine<Self>,
    pub(crate) ownership: Ownership,
    pub(crate) idle: IdleHints,
    pub(crate) bounds: LetterBounds,
    pub(crate) partitions: u64,
}

/// Returns the error of an operation that no worker and no simulated caller needs.
pub(crate) fn left_out() -> DurableError {
    DurableError::Option("the simulator leaves this out")
}

/// Implements operations that are left out.
macro_rules! left_out {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $reply:ty;)*) => {$(
        #[allow(clippy::unused_async, reason = "the others wait for a server")]
        pub(crate) async fn $name(self: Arc<Self>, $($arg: $type),*) -> Result<$reply, DurableError> {
            let _ = ($($arg,)*);
            Err(left_out())
        }
    )*};
}

impl Client {
    left_out! {
        fn durability() -> Durability;
        fn pause(pauses: bool) -> ();
        fn is_paused() -> bool;
        fn get(id: String) -> Option<Record>;
        fn retries_until() -> Millis;
        fn due_counts(ranges: Vec<(Millis, Millis)>, most: u64) -> Vec<u64>;
        fn len() -> (u64, u64);
        fn letter(number: u64) -> Option<Dead>;
        fn redrive(number: u64) -> bool;
        fn discard(id: String) -> bool;
        fn label_ids(label: Label, ids: Ids, limit: usize) -> Vec<String>;
        fn label_len(label: Label) -> u64;
        fn get_each(ids: Vec<String>) -> Vec<(String, Option<Record>)>;
        fn copy_timers(timers: Vec<(String, Record)>) -> ();
        fn copy_letters(letters: Vec<Dead>) -> ();
        fn check(from: Cursor) -> Checked;
        fn repair() -> ();
        fn letter_ages(after: Option<u64>, limit: usize) -> Vec<(u64, Millis)>;
        fn dead(letters: Letters, limit: usize) -> Vec<(u64, Dead)>;
        fn letters_of(of: LettersOf, letters: Letters, limit: usize) -> Vec<u64>;
        fn find(from: Key, until: Millis, limit: usize) -> Found;
        fn list(after: Option<String>, limit: usize) -> Vec<(String, Record)>;
        fn stats() -> Counts;
    }

    #[cfg(feature = "log")]
    left_out! {
        fn log_add(attempts: Vec<LoggedAttempt>, bounds: LogBounds) -> ();
        fn log_latest(id: Option<String>, limit: usize) -> Vec<LoggedAttempt>;
    }

    pub(crate) async fn now(self: Arc<Self>) -> Result<Millis, DurableError> {
        time_by(&*self, 0..self.partitions.min(3)).await
    }

    pub(crate) async fn leave(self: Arc<Self>, worker: u64) -> Result<(), DurableError> {
        self.ask(RetryPolicy::Caller, 0, move |server| server.leave(worker)).await
    }

    pub(crate) async fn load(
        self: Arc<Self>,
        worker: u64,
        from: Key,
        until: Millis,
        limit: usize,
    ) -> Result<Page, DurableError> {
        load(&self, worker, from, until, limit).await
    }

    /// Sends a request without side effects, until a reply arrives.
    async fn ask<R: Send + 'static>(
        &self,
        policy: RetryPolicy,
        server: usize,
        serve: impl Fn(&mut Server) -> R + Clone + Send + Sync + 'static,
    ) -> Result<R, DurableError> {
        let once = |_| self.cluster.call(&self.process, server, serve.clone());
        retry(&self.engine.host, (policy, CALL_TIMEOUT), once, silence).await
    }

    pub(crate) fn change<R: Send + 'static>(
        self: &Arc<Self>,
        policy: RetryPolicy,
        id: &str,
        operation: Operation,
        skip_if_dropped: bool,
        read: impl FnOnce(&Self, Reply, Millis) -> Result<R, DurableError> + Send + Sync + 'static,
    ) -> Answer<R> {
        let place = usize::try_from(self.partition_of(id)).unwrap_or(usize::MAX);
        let limit = self.engine.limit(policy);
        let client = Arc::clone(self);
        let read = move |(reply, now)| read(&client, reply, now);
        let asked = Engine::ask(self, place, operation, limit.clone(), skip_if_dropped, read);
        let client = Arc::clone(self);
        Box::pin(async move { limit.within(&client.engine.host, asked, silence).await })
    }

    pub(crate) fn insert(self: &Arc<Self>, timer: Insert) -> Answer<Inserted> {
        let id = timer.id.clone();
        let operation = Operation::Insert(timer);
        let name = id.clone();
        self.change(RetryPolicy::Caller, &id, operation, false, move |client, reply, now| {
            let Reply::Inserted(inserted, due) = reply else { return Err(unexpected_reply()) };
            let inserted = inserted?;
            if let Inserted::New | Inserted::Replaced = inserted {
                client.notify_if_near(&name, due, now);
            }
            Ok(inserted)
        })
    }

    pub(crate) fn lease(self: &Arc<Self>, key: &Key) -> Answer<Leasing> {
        let (operation, id) = (Operation::Lease(key.clone()), key.1.to_string());
        let name = id.clone();
        self.change(RetryPolicy::Worker, &id, operation, true, move |client, reply, now| {
            let Reply::Leased(leasing) = reply else { return Err(unexpected_reply()) };
            if let Leasing::Taken(lease) = &leasing {
                client.notify_if_near(&name, lease.record.due, now);
            }
            Ok(leasing)
        })
    }

    fn notify(&self, id: &str, due: Millis) {
        let partition = self.partition_of(id);
        self.idle.notice(partition, due);
        let change = Change { removed: None, added: Some((due, Arc::from(id))) };
        self.ownership.notify(partition, change);
    }

    pub(crate) fn notify_if_near(&self, id: &str, due: Millis, now: Millis) {
        if due <= now + NOTIFY_AHEAD {
            self.notify(id, due);
        }
    }
}

fn silence() -> DurableError {
    DurableError::Unreachable("no reply".to_owned())
}

impl Transport for Client {
    type Operation = Operation;
    type Reply = (Reply, Millis);
    type Host = ProcessHost;

    fn engine(&self) -> &Engine<Self> {
        &self.engine
    }

    fn bounds(_place: usize) -> (usize, usize) {
        BATCH
    }

    fn weight(_operation: &Operation) -> usize {
        200
    }

    async fn send(
        &self,
        queue: &Queue<RequestOf<Self>>,
        batch: &Batch<Self>,
        _lost: u32,
    ) -> Result<Replies<Self>, RequestError> {
        let operations = batch.requests.iter();
        let operations =
            operations.map(|request| request.as_ref().map(|request| request.operation.clone()));
        let partition = queue.place as u64;
        let batch = BatchRequest {
            partition,
            process: queue.process,
            number: batch.number,
            settle: queue.is_ambiguous(),
            operations: operations.collect(),
        };
        let _in_flight = InFlight::begin(self, partition);
        let server = self.cluster.server_of(partition);
        let execute = move |server: &mut Server| server.execute(&batch);
        let (replies, now) = self.cluster.call(&self.process, server, execute).await??;
        let full = || DurableError::ReadOnly("the memory is full".to_owned());
        let reply = |reply| match reply {
            Reply::Refused => Err(RequestError { kind: Kind::Rejected, error: full() }),
            reply => Ok((reply, now)),
        };
        Ok(replies.into_iter().map(reply).collect())
    }
}

/// A batch whose reply is awaited.
struct InFlight<'a>(&'a Client, u64);

impl<'a> InFlight<'a> {
    fn begin(client: &'a Client, partition: u64) -> Self {
        client.cluster.audit.in_flight(client.process.number, partition, true);
        Self(client, partition)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.cluster.audit.in_flight(self.0.process.number, self.1, false);
    }
}

impl Listener for Client {
    /// The server, the number of the subscription, and the notices.
    type Subscription = (usize, u64, mpsc::UnboundedReceiver<Notice>);

    fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    fn forget(&self) {
        self.idle.forget();
    }

    /// Subscribes at the first server that accepts it.
    async fn subscribe(&self) -> Option<Self::Subscription> {
        for server in 0..self.cluster.servers() {
            let (cluster, process) = (Arc::clone(&self.cluster), Arc::clone(&self.process));
            // A subscription must stand before the reply is on its way.
            let begun = self
                .cluster
                .call(&self.process, server, move |_| cluster.subscribe(&process, server));
            if let Ok((number, notices)) = begun.await {
                return Some((server, number, notices));
            }
        }
        None
    }

    async fn follow(&self, (server, number, mut notices): Self::Subscription) -> bool {
        let host = &self.engine.host;
        loop {
            match select(notices.next(), pin!(host.sleep(PING))).await {
                Either::Left((None, _)) => return true,
                Either::Left((Some(Notice::Added((due, id))), _)) => self.notify(&id, due),
                Either::Left((Some(Notice::Left), _)) => self.ownership.request_checks(),
                Either::Right(_) => {
                    let cluster = Arc::clone(&self.cluster);
                    let ping = move |_: &mut Server| cluster.is_subscribed(number);
                    let ping = self.cluster.call(&self.process, server, ping);
                    match select(pin!(ping), pin!(host.sleep(PING))).await {
                        Either::Left((Ok(true), _)) => {}
                        _ => return true,
                    }
                }
            }
        }
    }
}

impl Partitioned for Client {
    fn partitions(&self) -> u64 {
        self.partitions
    }

    fn idle(&self) -> &IdleHints {
        &self.idle
    }

    fn partition_of(&self, id: &str) -> u64 {
        partition_of(id, self.partitions)
    }

    async fn beat(&self, worker: u64, known: Option<&str>) -> Result<Heartbeat, DurableError> {
        let (process, partitions) = (self.process.number, self.partitions);
        let known = known.map(str::to_owned);
        let beat =
            move |server: &mut Server| server.beat(worker, process, partitions, known.as_deref());
        self.ask(RetryPolicy::Probe, 0, beat).await
    }

    async fn reach_workers(&self) -> Result<(), DurableError> {
        self.ask(RetryPolicy::Page, 0, |server| server.now()).await.map(drop)
    }

    async fn now_of(&self, partition: u64, retry: RetryPolicy) -> Result<Millis, DurableError> {
        self.ask(retry, self.cluster.server_of(partition), |server| server.now()).await
    }

    async fn read_keys(
        &self,
        partition: u64,
        from: &Key,
        until: Millis,
        limit: usize,
        retry: RetryPolicy,
    ) -> Result<PartitionPage, DurableError> {
        let (server, from) = (self.cluster.server_of(partition), from.clone());
        let read = move |server: &mut Server| server.read_keys(partition, &from, until, limit);
        self.ask(retry, server, read).await
    }
}

/// Returns the partition that has a timer.
pub(crate) fn partition_of(id: &str, partitions: u64) -> u64 {
    u64::from(crc32fast::hash(id.as_bytes())) % partitions
}
