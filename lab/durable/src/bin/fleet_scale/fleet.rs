//! Fleets of workers at rest, and how long they take to share the partitions again.

use crate::payloads::{MONTH, fill};
use crate::postgres_server::PostgresServer;
use crate::servers::Server;
use crate::slow_line::slow_line;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tourbillon_durable::{AnyStore, DurableError, DurableTimers, Postgres, Redis, RedisOptions};
use tourbillon_durable_measure::median;

/// The head of the table.
pub(crate) const HEAD: &str = "\
| store | partitions | workers | connections | commands per second at rest | round trip, ms | join, ms | leave, ms | death, ms |
|---|---:|---:|---:|---:|---:|---:|---:|---:|";

/// A worker with a client of its own.
struct Work {
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<(), DurableError>>,
}

impl Work {
    fn start(store: impl Into<AnyStore>) -> Self {
        let timers = DurableTimers::spawn(store).unwrap();
        let (end, ends) = oneshot::channel::<()>();
        let worker = timers.worker().until(async move { drop(ends.await) });
        let run = worker.run(|_| std::future::ready(Ok::<(), String>(())));
        Self { end, task: tokio::spawn(run) }
    }

    async fn stop(self) {
        drop(self.end);
        self.task.await.unwrap().unwrap();
    }
}

/// Returns how long it takes from `begun` until the condition holds, in milliseconds.
async fn until(begun: Instant, mut so: impl FnMut() -> bool) -> f64 {
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never is so");
        // The look takes a while, so that others can run.
        tokio::task::yield_now().await;
    }
    begun.elapsed().as_secs_f64() * 1000.0
}

/// A fleet on one server of Redis.
struct Fleet {
    server: Server,
    /// The address for workers.
    url: String,
    partitions: u16,
    workers: Vec<Work>,
}

impl Fleet {
    async fn start((partitions, workers): (u16, usize), latency: Duration) -> Self {
        let server = Server::start(&["--appendonly", "no"]).expect("redis-server is on the path");
        let url = if latency.is_zero() {
            server.url()
        } else {
            format!("redis://127.0.0.1:{}/", slow_line(server.port, latency).await)
        };
        let mut fleet = Self { server, url, partitions, workers: Vec::new() };
        for _ in 0..workers {
            let store = fleet.connect(&fleet.url).await;
            fleet.workers.push(Work::start(store));
        }
        until(Instant::now(), || fleet.shares(workers)).await;
        fleet
    }

    async fn connect(&self, url: &str) -> Redis {
        let options = RedisOptions::new("timers").partitions(self.partitions);
        Redis::connect(url, options).await.unwrap()
    }

    /// Adds a worker that is connected. Returns how long it takes until all share the partitions.
    async fn join(&mut self) -> f64 {
        let store = self.connect(&self.url).await;
        let begun = Instant::now();
        self.workers.push(Work::start(store));
        until(begun, || self.shares(self.workers.len())).await
    }

    /// Ends a worker. Returns how long it takes until the others share the partitions.
    async fn leave(&mut self) -> f64 {
        let begun = Instant::now();
        let leaving = self.workers.pop().unwrap().stop();
        let shared = until(begun, || self.shares(self.workers.len()));
        tokio::join!(leaving, shared).1
    }

    /// Adds a worker that is dead. Returns how long it takes from its last heartbeat until the
    /// others share the partitions.
    async fn die(&mut self) -> f64 {
        let begun = Instant::now();
        self.add_dead();
        until(begun, || self.shares(self.workers.len())).await
    }

    /// Returns how long it takes after a worker has joined, left and died until the others share
    /// the partitions: the medians of joins and leaves, and the mean of deaths.
    async fn changes(&mut self, rounds: u32) -> [f64; 3] {
        let pause = Duration::from_millis(1500);
        let (mut joined, mut left, mut died) = (Vec::new(), Vec::new(), 0.0);
        for round in 0..rounds {
            // Out of step with the heartbeats, which are a second apart.
            tokio::time::sleep(pause + Duration::from_secs(1) * round / rounds).await;
            joined.push(self.join().await);
            tokio::time::sleep(pause).await;
            left.push(self.leave().await);
            tokio::time::sleep(pause).await;
            died += self.die().await / f64::from(rounds);
        }
        [median(joined), median(left), died]
    }

    /// Returns how long a request of a worker and its reply take, in milliseconds.
    async fn round_trip(&self) -> f64 {
        let client = redis::Client::open(&*self.url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut all = Vec::new();
        for _ in 0..50 {
            let begun = Instant::now();
            let _: String = redis::cmd("PING").query_async(&mut connection).await.unwrap();
            all.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
        median(all)
    }

    /// Returns `true` if this many workers share all partitions.
    fn shares(&self, workers: usize) -> bool {
        let mut owned = BTreeMap::new();
        for worker in self.server.order("HVALS {tb:timers}:owners").lines() {
            if !worker.starts_with(['*', '$']) {
                *owned.entry(worker.to_owned()).or_insert(0) += 1;
            }
        }
        let all = usize::from(self.partitions);
        owned.len() == workers
            && owned.values().all(|count| *count >= all / workers)
            && owned.values().sum::<usize>() == all
    }

    /// Adds a worker that has sent one heartbeat, taken its share, and died.
    fn add_dead(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        self.server.order(&format!("ZADD {{tb:timers}}:workers {now} dead"));
        for partition in (0..self.partitions).step_by(self.workers.len() + 1) {
            self.server.order(&format!("HSET {{tb:timers}}:owners {partition} dead"));
        }
        self.server.order("HSET {tb:timers} round dead");
    }

    fn figure(&self, section: &str, name: &str) -> f64 {
        self.server.figure(section, name).unwrap().parse().unwrap()
    }

    async fn commands(&self, seconds: u64) -> f64 {
        let before = self.figure("stats", "total_commands_processed");
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        // One of the commands read this figure.
        let commands = self.figure("stats", "total_commands_processed") - before - 1.0;
        commands / seconds as f64
    }
}

/// Returns a row of the table for a fleet on one server of Redis.
pub(crate) async fn in_redis(
    (partitions, workers): (u16, usize),
    seconds: u64,
    rounds: u32,
    latency: Duration,
) -> String {
    let mut fleet = Fleet::start((partitions, workers), latency).await;
    let timers = DurableTimers::spawn(fleet.connect(&fleet.server.url()).await).unwrap();
    fill(&timers, 1000 * usize::from(partitions), 16, MONTH).await;
    drop(timers);
    tokio::time::sleep(Duration::from_secs(2)).await;
    // One of the clients asks.
    let connections = (fleet.figure("clients", "connected_clients") - 1.0) / workers as f64;
    let commands = fleet.commands(seconds).await;

    let [joined, left, died] = fleet.changes(rounds).await;
    let round_trip = fleet.round_trip().await;
    for work in fleet.workers {
        work.stop().await;
    }
    format!(
        "| Redis | {partitions} | {workers} | {connections:.1} | {commands:.1} | {round_trip:.1} | {joined:.1} \
         | {left:.1} | {died:.0} |"
    )
}

/// Returns a row of the table for a fleet on PostgreSQL, whose parts are computed and not kept.
pub(crate) async fn in_postgres(workers: usize, seconds: u64) -> String {
    let server = PostgresServer::start(&["max_connections=300"]).expect("PostgreSQL is installed");
    let number = |sql: &str| server.order(sql).trim().parse::<f64>().unwrap();
    let mut fleet = Vec::new();
    for _ in 0..workers {
        fleet.push(Work::start(Postgres::connect(&server.url(), "timers").await.unwrap()));
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let clients = "select count(*) from pg_stat_activity where backend_type = 'client backend' \
                   and pid <> pg_backend_pid()";
    let done = "select sum(xact_commit + xact_rollback) from pg_stat_database";
    let (connections, before) = (number(clients), number(done));
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let transactions = (number(done) - before - 1.0) / seconds as f64;
    for work in fleet {
        work.stop().await;
    }
    let connections = connections / workers as f64;
    format!("| PostgreSQL | 64 | {workers} | {connections:.1} | {transactions:.1} | | | | |")
}
