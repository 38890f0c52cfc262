//! [`Cluster`], the servers of a store, and the network between them and the processes.
//!
//! A request takes a while to arrive, and so does its reply. Requests of a process to a server keep
//! their order while their connection lasts. A request without a reply ends the connection, and may
//! still arrive after requests on the next one. A cut, a server that stands still and a lossy
//! network make requests and replies wait, vanish or break their connection.

use super::audit::Audit;
use super::fleets::processor::Processor;
use super::process::{Process, ProcessHost};
use super::server::Server;
use super::world::{MILLISECOND, Nanos, World};
use crate::error::DurableError;
use crate::panics::ignore_poison;
use crate::store::partitions::channels::Notice;
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::host::Host;
use crate::store::remote::retry::REPLY_TIMEOUT;
use futures_channel::{mpsc, oneshot};
use futures_util::future::{Either, select};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

/// The shortest time between a process and a server.
const LEAST_LATENCY: Nanos = MILLISECOND / 5;

/// The servers of a store.
pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) audit: Arc<Audit>,
    hosts: Vec<Mutex<HostState>>,
    /// The usual latency beyond the shortest.
    latency: Nanos,
    conditions: Mutex<Conditions>,
    subscriptions: Mutex<Subscriptions>,
}

/// A server, and whether it runs.
struct HostState {
    server: Server,
    /// Set while it refuses connections.
    is_down: bool,
    /// The time until which it stands still, and executes nothing.
    stands_until: Nanos,
    processor: Processor,
}

/// The state of the network.
#[derive(Default)]
struct Conditions {
    /// The number of cuts of the way from a process to a server, and of the way back.
    cuts: BTreeMap<(u64, usize, Way), u32>,
    /// The number of requests in a thousand that are lost, lose their reply, break their
    /// connection, or are held back.
    faulty: u32,
    /// The greatest additional latency.
    slow: Nanos,
    /// The part that all latencies share beyond the shortest.
    distance: Nanos,
    /// The additional latency of processes.
    slow_processes: BTreeMap<u64, Nanos>,
    /// When the last request of a connection arrives, by process and server.
    arrivals: BTreeMap<(u64, usize), Nanos>,
}

/// A way between a process and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    To,
    Back,
}

#[derive(Default)]
struct Subscriptions {
    last: u64,
    /// By number: the process, the server, the notices, and when the last of them arrives.
    all: BTreeMap<u64, Subscriber>,
    /// The numbers of subscriptions to the channel of each partition, and of some that have left.
    channels: BTreeMap<u64, BTreeSet<u64>>,
}

impl Subscriptions {
    /// Adds a subscription to the channels of partitions.
    fn enter(&mut self, number: u64, partitions: &BTreeSet<u64>) {
        for partition in partitions {
            self.channels.entry(*partition).or_default().insert(number);
        }
    }

    /// Returns the numbers of the subscriptions that may get one of these notices, in order.
    fn receivers(&mut self, published: &[(Option<u64>, Notice)]) -> BTreeSet<u64> {
        let mut numbers = BTreeSet::new();
        for (channel, _) in published {
            let Some(partition) = channel else { return self.all.keys().copied().collect() };
            let Some(entered) = self.channels.get_mut(partition) else { continue };
            let stands = |it: &Subscriber| it.partitions.contains(partition);
            entered.retain(|number| self.all.get(number).is_some_and(stands));
            numbers.extend(entered.iter().copied());
        }
        numbers
    }
}

struct Subscriber {
    process: Arc<Process>,
    server: usize,
    /// The partitions to whose channels it is subscribed.
    partitions: BTreeSet<u64>,
    notices: mpsc::UnboundedSender<Notice>,
    arrival: Nanos,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    Lost,
    LosesReply,
    /// The connection breaks before the request arrives, or after that.
    Breaks {
        executed: bool,
    },
    /// Arrives after so long.
    HeldBack(Nanos),
}

impl Cluster {
    pub(crate) fn new(
        world: &World,
        audit: &Arc<Audit>,
        servers: Vec<Server>,
        latency: Nanos,
    ) -> Arc<Self> {
        let host = |server| {
            let processor = Processor::default();
            Mutex::new(HostState { server, is_down: false, stands_until: 0, processor })
        };
        Arc::new(Self {
            world: world.clone(),
            audit: Arc::clone(audit),
            hosts: servers.into_iter().map(host).collect(),
            latency,
            conditions: Mutex::default(),
            subscriptions: Mutex::default(),
        })
    }

    pub(crate) fn servers(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the server that has a partition.
    pub(crate) fn server_of(&self, partition: u64) -> usize {
        usize::try_from(partition).unwrap_or(0) % self.hosts.len()
    }

    /// Looks at a server, or changes it.
    pub(crate) fn with<R>(&self, server: usize, look: impl FnOnce(&mut Server) -> R) -> R {
        look(&mut self.host(server).server)
    }

    pub(crate) fn set_down(&self, server: usize, is_down: bool) {
        self.host(server).is_down = is_down;
        if is_down {
            self.unsubscribe(server);
        }
    }

    /// Ends all subscriptions at a server.
    pub(crate) fn unsubscribe(&self, server: usize) {
        ignore_poison(self.subscriptions.lock()).all.retain(|_, it| it.server != server);
    }

    pub(crate) fn stand_until(&self, server: usize, time: Nanos) {
        let mut host = self.host(server);
        host.stands_until = host.stands_until.max(time);
    }

    pub(crate) fn set_cut(&self, process: u64, server: usize, way: Way, cut: bool) {
        let mut conditions = self.conditions();
        let count = conditions.cuts.entry((process, server, way)).or_default();
        *count = if cut { *count + 1 } else { count.saturating_sub(1) };
    }

    fn is_cut(&self, process: u64, server: usize, way: Way) -> bool {
        let key = (process, server, way);
        self.conditions().cuts.get(&key).is_some_and(|count| *count > 0)
    }

    /// Makes some of a thousand requests fail.
    pub(crate) fn set_faulty(&self, faulty: u32) {
        self.conditions().faulty = faulty;
    }

    /// Sets the greatest additional latency.
    pub(crate) fn set_slow(&self, slow: Nanos) {
        self.conditions().slow = slow;
    }

    /// Sets the part that all latencies share beyond the shortest.
    pub(crate) fn set_distance(&self, distance: Nanos) {
        self.conditions().distance = distance;
    }

    /// Sets the additional latency of a process.
    pub(crate) fn set_slow_process(&self, process: u64, slow: Nanos) {
        self.conditions().slow_processes.insert(process, slow);
    }

    /// Returns the highest number of requests that have waited for a server since the last call.
    pub(crate) fn take_most_waiting(&self, server: usize) -> usize {
        self.host(server).processor.take_most_waiting()
    }

    /// Sends a request to a server, and waits for its reply. The request arrives even if the future
    /// is dropped.
    pub(crate) async fn call<R: Send + 'static>(
        self: &Arc<Self>,
        process: &Arc<Process>,
        server: usize,
        serve: impl FnOnce(&mut Server) -> R + Send + 'static,
    ) -> Result<R, RequestError> {
        let host = ProcessHost(Arc::clone(process));
        let (send, reply) = oneshot::channel();
        let fate = self.fate();
        self.send(process, server, fate, send, serve);
        match select(reply, pin!(host.sleep(REPLY_TIMEOUT))).await {
            Either::Left((Ok(reply), _)) => reply,
            Either::Left((Err(_), timeout)) => {
                timeout.await;
                Err(self.no_reply(process, server))
            }
            Either::Right(_) => Err(self.no_reply(process, server)),
        }
    }

    fn no_reply(&self, process: &Process, server: usize) -> RequestError {
        // The next request is on another connection.
        self.conditions().arrivals.remove(&(process.number, server));
        failed(Kind::Ambiguous, "no reply")
    }

    fn send<R: Send + 'static>(
        self: &Arc<Self>,
        process: &Arc<Process>,
        server: usize,
        fate: Fate,
        reply: oneshot::Sender<Result<R, RequestError>>,
        serve: impl FnOnce(&mut Server) -> R + Send + 'static,
    ) {
        let number = process.number;
        let latency = self.latency(number);
        if process.is_dead() || fate == Fate::Lost {
            return;
        }
        if let Fate::Breaks { executed: false } = fate {
            self.world
                .after(latency, move || drop(reply.send(Err(failed(Kind::Ambiguous, "broke")))));
            return;
        }
        let mut arrival = self.world.now() + latency;
        if let Fate::HeldBack(time) = fate {
            arrival += time;
        } else {
            let mut conditions = self.conditions();
            let last = conditions.arrivals.entry((number, server)).or_default();
            arrival = arrival.max(*last);
            *last = arrival;
        }
        let (cluster, process) = (Arc::clone(self), Arc::clone(process));
        self.world.at(arrival, move || cluster.arrive(&process, server, fate, reply, serve));
    }

    fn arrive<R: Send + 'static>(
        self: &Arc<Self>,
        process: &Arc<Process>,
        server: usize,
        fate: Fate,
        reply: oneshot::Sender<Result<R, RequestError>>,
        serve: impl FnOnce(&mut Server) -> R + Send + 'static,
    ) {
        if self.is_cut(process.number, server, Way::To) {
            return;
        }
        let mut host = self.host(server);
        let until = host.stands_until;
        if until > self.world.now() {
            drop(host);
            let (cluster, process) = (Arc::clone(self), Arc::clone(process));
            self.world.at(until, move || cluster.arrive(&process, server, fate, reply, serve));
            return;
        }
        if host.processor.is_busy() {
            let (cluster, process) = (Arc::clone(self), Arc::clone(process));
            let later = move || cluster.arrive(&process, server, fate, reply, serve);
            host.processor.wait(Box::new(later));
            return;
        }
        let result = if host.is_down {
            Err(failed(Kind::NotExecuted, "connection refused"))
        } else {
            Ok(serve(&mut host.server))
        };
        let notices = std::mem::take(&mut host.server.published);
        drop(host);
        self.publish(&notices);
        let took = self.occupy(server);
        if fate == Fate::LosesReply {
            return;
        }
        let (cluster, process) = (Arc::clone(self), Arc::clone(process));
        self.world.after(took + self.latency(process.number), move || {
            if !cluster.is_cut(process.number, server, Way::Back) {
                let result = match fate {
                    Fate::Breaks { .. } => Err(failed(Kind::Ambiguous, "broke")),
                    _ => result,
                };
                drop(reply.send(result));
            }
        });
    }

    /// Occupies the processor of a server with what it has executed. Returns how long that takes.
    fn occupy(self: &Arc<Self>, server: usize) -> Nanos {
        let mut host = self.host(server);
        let took = host.server.usage.take_time();
        if took > 0 {
            host.processor.set_busy(true);
            let cluster = Arc::clone(self);
            self.world.after(took, move || {
                cluster.host(server).processor.set_busy(false);
                cluster.execute_next(server);
            });
        }
        took
    }

    /// Executes requests that wait, until one of them occupies the processor.
    fn execute_next(&self, server: usize) {
        loop {
            let next = self.host(server).processor.next();
            let Some(next) = next else { return };
            next();
        }
    }

    /// Subscribes a process to the notices of some partitions that a server forwards.
    pub(crate) fn subscribe(
        &self,
        process: &Arc<Process>,
        server: usize,
        partitions: BTreeSet<u64>,
    ) -> (u64, mpsc::UnboundedReceiver<Notice>) {
        let (notices, receiver) = mpsc::unbounded();
        let mut subscriptions = ignore_poison(self.subscriptions.lock());
        subscriptions.last += 1;
        let number = subscriptions.last;
        subscriptions.enter(number, &partitions);
        let process = Arc::clone(process);
        let subscriber = Subscriber { process, server, partitions, notices, arrival: 0 };
        subscriptions.all.insert(number, subscriber);
        (number, receiver)
    }

    /// Returns `true` if a subscription stands.
    pub(crate) fn is_subscribed(&self, number: u64) -> bool {
        ignore_poison(self.subscriptions.lock()).all.contains_key(&number)
    }

    /// Adds partitions to a subscription. Returns `true` if it stands.
    pub(crate) fn join(&self, number: u64, partitions: BTreeSet<u64>) -> bool {
        let mut subscriptions = ignore_poison(self.subscriptions.lock());
        subscriptions.enter(number, &partitions);
        let subscriber = subscriptions.all.get_mut(&number);
        subscriber.map(|subscriber| subscriber.partitions.extend(partitions)).is_some()
    }

    /// Removes partitions from a subscription. Returns `true` if it stands.
    pub(crate) fn leave(&self, number: u64, partitions: &BTreeSet<u64>) -> bool {
        let mut subscriptions = ignore_poison(self.subscriptions.lock());
        let subscriber = subscriptions.all.get_mut(&number);
        let remove = |all: &mut BTreeSet<u64>| all.retain(|one| !partitions.contains(one));
        subscriber.map(|subscriber| remove(&mut subscriber.partitions)).is_some()
    }

    /// Sends notices to the subscribers of their channels, in order. A subscription whose notice is
    /// lost has broken.
    fn publish(self: &Arc<Self>, published: &[(Option<u64>, Notice)]) {
        if published.is_empty() {
            return;
        }
        let mut subscriptions = ignore_poison(self.subscriptions.lock());
        for number in subscriptions.receivers(published) {
            let Some(subscriber) = subscriptions.all.get_mut(&number) else { continue };
            let is_sent = |channel: &Option<u64>| {
                channel.is_none_or(|partition| subscriber.partitions.contains(&partition))
            };
            let sent = published.iter().filter(|(channel, _)| is_sent(channel));
            let notices: Vec<Notice> = sent.map(|(_, notice)| notice.clone()).collect();
            if notices.is_empty() {
                continue;
            }
            let fate = self.fate();
            let is_cut = self.is_cut(subscriber.process.number, subscriber.server, Way::Back);
            if is_cut || subscriber.process.is_dead() || fate == Fate::Lost {
                subscriptions.all.remove(&number);
                continue;
            }
            self.with(subscriber.server, |server| server.usage.add_notices(notices.len() as u64));
            let latency = self.latency(subscriber.process.number);
            subscriber.arrival = subscriber.arrival.max(self.world.now() + latency);
            let sender = subscriber.notices.clone();
            self.world.at(subscriber.arrival, move || {
                for notice in notices {
                    // The process may have unsubscribed.
                    let _ = sender.unbounded_send(notice);
                }
            });
        }
    }

    fn fate(&self) -> Fate {
        let faulty = self.conditions().faulty;
        if faulty == 0 {
            return Fate::Fine;
        }
        self.world.draw(|random| {
            if random.u32(..1000) >= faulty {
                return Fate::Fine;
            }
            match random.u32(..5) {
                0 => Fate::Lost,
                1 => Fate::LosesReply,
                2 => Fate::Breaks { executed: false },
                3 => Fate::Breaks { executed: true },
                _ => Fate::HeldBack(random.u64(..8000) * MILLISECOND),
            }
        })
    }

    fn latency(&self, process: u64) -> Nanos {
        let conditions = self.conditions();
        let own = conditions.slow_processes.get(&process).copied().unwrap_or(0);
        let (slow, least) = (conditions.slow, LEAST_LATENCY + conditions.distance + own);
        drop(conditions);
        self.world.draw(|random| least + random.u64(..self.latency) + random.u64(..=slow))
    }

    fn conditions(&self) -> MutexGuard<'_, Conditions> {
        ignore_poison(self.conditions.lock())
    }

    fn host(&self, server: usize) -> MutexGuard<'_, HostState> {
        ignore_poison(self.hosts[server].lock())
    }
}

fn failed(kind: Kind, what: &str) -> RequestError {
    RequestError { kind, error: DurableError::Unreachable(what.to_owned()) }
}
