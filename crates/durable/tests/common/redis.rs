//! A store on a Redis server, in virtual time, and the processes of several in real time.

use super::bench::{self, Bench, Bounds, Place, SECOND};
use super::host::Host;
use super::process::{PATIENCE, Process, runtime};
use super::proxy::Proxy;
use super::servers::{Cluster, Server};
use std::time::Duration;
use std::time::SystemTime;
use tokio::runtime::Runtime;
use tourbillon::ManualClock;
use tourbillon_durable::{AnyStore, DurableError, Redis, RedisOptions};

/// A store on one node, in virtual time.
pub(crate) struct OneNode {
    // Dropped before the server, so that its connections end first.
    runtime: Runtime,
    pub(crate) server: Server,
    clock: ManualClock,
    partitions: u16,
}

impl OneNode {
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        let server = Server::start(options)?;
        Some(Self { runtime: runtime(), server, clock: bench::clock(), partitions: 16 })
    }

    /// Starts a server for a store with another clock and number of partitions.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn beside(clock: &ManualClock, partitions: u16) -> Option<Self> {
        Some(Self { clock: clock.clone(), partitions, ..Self::start(&[])? })
    }

    /// Creates timers on a server with its defaults.
    pub(crate) fn bench() -> Option<Bench<Self>> {
        Self::start(&[]).map(Bench::new)
    }

    pub(crate) fn try_open(&self) -> Result<AnyStore, DurableError> {
        self.try_open_with(Bounds::NONE)
    }

    fn try_open_with(&self, bounds: Bounds) -> Result<AnyStore, DurableError> {
        let options = RedisOptions::new("timers").partitions(self.partitions);
        let options = options.store(bounds.options(&self.clock)).call_timeout(PATIENCE);
        let store = self.runtime.block_on(Redis::connect(&self.server.url(), options));
        store.map(AnyStore::from)
    }
}

impl Place for OneNode {
    fn open_with(&self, bounds: Bounds) -> AnyStore {
        self.try_open_with(bounds).expect("the store opens")
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl Host for Server {
    fn start_host() -> Option<Self> {
        Self::start(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    fn start_with_clock() -> Option<Self> {
        Self::with_clock()
    }

    fn set_clock(&self, ahead: i64) {
        self.set_clock(ahead);
    }

    fn now(&self) -> SystemTime {
        self.now()
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn process_with(&self, port: u16, call_timeout: Duration) -> Process {
        let options = RedisOptions::new("timers").call_timeout(call_timeout);
        Process::with(&format!("redis://127.0.0.1:{port}/"), options)
    }

    fn proxy(&self) -> Proxy {
        Proxy::before(self.port)
    }

    fn kill(&self) {
        self.kill();
    }

    fn resume(&self) {
        self.resume();
    }

    fn pause(&self) {
        self.pause();
    }

    fn go_on(&self) {
        self.go_on();
    }

    fn cut(&self) {
        assert!(self.say("CLIENT KILL TYPE normal").is_some());
    }

    fn cut_notices(&self) {
        assert!(self.say("CLIENT KILL TYPE pubsub").is_some());
    }

    fn executed(&self) -> u64 {
        self.figure("stats", "total_commands_processed").unwrap().parse().unwrap()
    }
}

impl Process {
    pub(crate) fn new(server: &Server) -> Self {
        Self::at(&server.url())
    }

    pub(crate) fn at(url: &str) -> Self {
        Self::with(url, RedisOptions::new("timers").call_timeout(PATIENCE))
    }

    pub(crate) fn with(url: &str, options: RedisOptions) -> Self {
        let runtime = runtime();
        let store = runtime.block_on(Redis::connect(url, options)).unwrap();
        Self::of(store, runtime)
    }

    pub(crate) fn of_cluster(cluster: &Cluster) -> Self {
        Self::of_nodes(cluster.nodes.iter().map(Server::url).collect())
    }

    pub(crate) fn of_nodes(urls: Vec<String>) -> Self {
        let runtime = runtime();
        let options = RedisOptions::new("timers").partitions(6).call_timeout(PATIENCE);
        let urls = urls.iter().map(String::as_str);
        let connected = async {
            tokio::time::timeout(30 * SECOND, Redis::connect_cluster(urls, options)).await
        };
        let store = runtime.block_on(connected).expect("in time").unwrap();
        Self::of(store, runtime)
    }
}
