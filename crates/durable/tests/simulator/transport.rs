//! What a [`Client`] needs to send batches, to listen to notices and to load keys.

use super::client::Client;
use super::fleets::commands::PLAIN;
use super::fleets::usage::Request;
use super::network::Cluster;
use super::process::{Process, ProcessHost};
use super::requests::{Answered, BatchRequest, Call, Reply};
use super::server::Server;
use super::world::{MILLISECOND, Nanos};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::store::ownership::{Ownership, Round};
use crate::store::partitions::channels::{Channels, Notice, Subscription, follow};
use crate::store::partitions::idle::IdleHints;
use crate::store::partitions::pages::PartitionPage;
use crate::store::partitions::{Heartbeat, Partitioned};
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::host::Host;
use crate::store::remote::notices::Listener;
use crate::store::remote::queue::Queue;
use crate::store::remote::retry::RetryPolicy;
use crate::store::remote::sender::{Batch, Engine, Replies, RequestOf, Transport};
use futures_channel::mpsc;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection with subscriptions may take to send a request. A key that is added
/// meanwhile is loaded as soon as the audit expects.
const MOST_BEHIND: Nanos = 200 * MILLISECOND;

/// The bounds of a batch in Redis.
const BATCH: (usize, usize) = (128, 1 << 18);

impl Transport for Client {
    type Operation = Call;
    /// The number of the call that is answered, the reply, and the time of the server.
    type Reply = (u64, Reply, Millis);
    type Host = ProcessHost;

    fn engine(&self) -> &Engine<Self> {
        &self.engine
    }

    fn bounds(_place: usize) -> (usize, usize) {
        BATCH
    }

    fn weight(_call: &Call) -> usize {
        200
    }

    async fn send(
        &self,
        queue: &Queue<RequestOf<Self>>,
        batch: &Batch<Self>,
        _lost: u32,
    ) -> Result<Replies<Self>, RequestError> {
        let calls = batch.requests.iter();
        let calls = calls.map(|request| request.as_ref().map(|request| request.operation.clone()));
        let partition = queue.place as u64;
        let batch = BatchRequest {
            partition,
            process: queue.process,
            number: batch.number,
            settle: queue.is_ambiguous(),
            calls: calls.collect(),
        };
        let _in_flight = InFlight::begin(self, partition);
        let server = self.cluster.server_of(partition);
        let execute = move |server: &mut Server| server.execute(&batch);
        let (replies, now) = self.cluster.call(&self.process, server, execute).await??;
        let full = || DurableError::ReadOnly("the memory is full".to_owned());
        let reply = |answered: Answered| match answered.reply {
            Reply::Refused => Err(RequestError { kind: Kind::Rejected, error: full() }),
            reply => Ok((answered.number, reply, now)),
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
    type Subscription = Subscription<SubscribedTo, mpsc::UnboundedReceiver<Notice>>;

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
            let (partitions, channels) = (self.ownership.owned(), self.ownership.owned());
            // A subscription must stand before the reply is on its way.
            let begin = move |asked: &mut Server| {
                asked.usage.add(Request::Plain, PLAIN);
                cluster.subscribe(&process, server, channels)
            };
            let begun = self.cluster.call(&self.process, server, begin);
            if let Ok((number, notices)) = begun.await {
                let (cluster, process) = (Arc::clone(&self.cluster), Arc::clone(&self.process));
                let channels = SubscribedTo { cluster, process, server, number };
                return Some(Subscription { channels, notices, partitions });
            }
        }
        None
    }

    async fn follow(&self, subscription: Self::Subscription) -> bool {
        follow(self, subscription).await;
        true
    }
}

/// A subscription at a server, with a number.
pub(crate) struct SubscribedTo {
    cluster: Arc<Cluster>,
    process: Arc<Process>,
    server: usize,
    number: u64,
}

impl SubscribedTo {
    /// Sends a request about the subscription. Returns `false` if it has ended.
    async fn ask(&self, change: impl FnOnce(&Cluster, u64) -> bool + Send + 'static) -> bool {
        let (cluster, number) = (Arc::clone(&self.cluster), self.number);
        let serve = move |server: &mut Server| {
            server.usage.add(Request::Plain, PLAIN);
            change(&cluster, number)
        };
        self.cluster.call(&self.process, self.server, serve).await.unwrap_or(false)
    }
}

impl Channels for SubscribedTo {
    /// The request may arrive much later than other requests, which have other connections.
    async fn join(&mut self, partitions: &BTreeSet<u64>) -> bool {
        let partitions = partitions.clone();
        let late = self.process.world.draw(|random| random.u64(..MOST_BEHIND));
        ProcessHost(Arc::clone(&self.process)).sleep(Duration::from_nanos(late)).await;
        self.ask(move |cluster, number| cluster.join(number, partitions)).await
    }

    async fn leave(&mut self, partitions: &BTreeSet<u64>) -> bool {
        let partitions = partitions.clone();
        self.ask(move |cluster, number| cluster.leave(number, &partitions)).await
    }

    async fn ping(&mut self) -> bool {
        self.ask(Cluster::is_subscribed).await
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

    async fn beat(&self, worker: u64, known: Option<&Round>) -> Result<Heartbeat, DurableError> {
        let (process, partitions) = (self.process.number, self.partitions);
        let known = known.cloned();
        let beat =
            move |server: &mut Server| server.beat(worker, process, partitions, known.as_ref());
        self.ask(RetryPolicy::Probe, 0, beat).await
    }

    async fn reach_workers(&self) -> Result<(), DurableError> {
        self.ask(RetryPolicy::Page, 0, Server::read_time).await.map(drop)
    }

    async fn now_of(&self, partition: u64, retry: RetryPolicy) -> Result<Millis, DurableError> {
        self.ask(retry, self.cluster.server_of(partition), Server::read_time).await
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
