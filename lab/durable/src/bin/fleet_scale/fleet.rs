//! Fleets of workers at rest, and how long they take to share the partitions again.

use crate::payloads::fill;
use crate::postgres_server::PostgresServer;
use crate::servers::Server;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tourbillon_durable::{AnyStore, DurableError, DurableTimers, Postgres, Redis, RedisOptions};

/// The head of the table.
pub(crate) const HEAD: &str = "\
| store | partitions | workers | connections | commands per second at rest | join, s | leave, s | death, s |
|---|---:|---:|---:|---:|---:|---:|---:|";

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

/// Returns how long it takes until the condition holds, in seconds.
async fn until(mut so: impl FnMut() -> bool) -> f64 {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never is so");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed().as_secs_f64()
}

/// A fleet on one server of Redis.
struct Fleet {
    server: Server,
    partitions: u16,
    workers: Vec<Work>,
}

impl Fleet {
    async fn start(partitions: u16, workers: usize) -> Self {
        let server = Server::start(&["--appendonly", "no"]).expect("redis-server is on the path");
        let mut fleet = Self { server, partitions, workers: Vec::new() };
        for _ in 0..workers {
            fleet.join().await;
        }
        until(|| fleet.shares(workers)).await;
        fleet
    }

    async fn connect(&self) -> Redis {
        let options = RedisOptions::new("timers").partitions(self.partitions);
        Redis::connect(&self.server.url(), options).await.unwrap()
    }

    async fn join(&mut self) {
        self.workers.push(Work::start(self.connect().await));
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
pub(crate) async fn in_redis(partitions: u16, workers: usize, seconds: u64) -> String {
    let mut fleet = Fleet::start(partitions, workers).await;
    let timers = DurableTimers::spawn(fleet.connect().await).unwrap();
    fill(&timers, 1000 * usize::from(partitions), 16).await;
    drop(timers);
    tokio::time::sleep(Duration::from_secs(2)).await;
    // One of the clients asks.
    let connections = (fleet.figure("clients", "connected_clients") - 1.0) / workers as f64;
    let commands = fleet.commands(seconds).await;

    let begun = Instant::now();
    fleet.join().await;
    until(|| fleet.shares(workers + 1)).await;
    let joined = begun.elapsed().as_secs_f64();
    fleet.workers.pop().unwrap().stop().await;
    let left = until(|| fleet.shares(workers)).await;
    fleet.add_dead();
    let died = until(|| fleet.shares(workers)).await;
    for work in fleet.workers {
        work.stop().await;
    }
    format!(
        "| Redis | {partitions} | {workers} | {connections:.1} | {commands:.1} | {joined:.2} \
         | {left:.2} | {died:.2} |"
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
    format!("| PostgreSQL | 64 | {workers} | {connections:.1} | {transactions:.1} | | | |")
}
