//! Bytes per timer by the length of its payload and, in Redis, by the number of timers in a
//! partition.

use crate::postgres_server::PostgresServer;
use crate::servers::Server;
use std::path::Path;
use std::time::SystemTime;
use tourbillon_durable::{DurableTimers, Options, Postgres, Redis, RedisOptions};
use tourbillon_durable_measure::each;
use tourbillon_durable_measure::subject::{after, due, id};

/// The head of the table.
pub(crate) const HEAD: &str = "\
| payload, bytes | Redis, bytes per timer of a partition | PostgreSQL | file |
|---:|---:|---:|---:|";

/// The head of the table of partitions in Redis.
pub(crate) const HEAD_OF_DENSITIES: &str = "\
| timers in a partition in Redis | bytes per timer, due within a month | within a day |
|---:|---:|---:|";

/// The days of a month.
pub(crate) const MONTH: u64 = 30;

/// The milliseconds of a day.
const DAY: u64 = 86_400_000;

/// The number of callers that insert.
const CALLERS: usize = 1024;

/// Returns a row of the table.
pub(crate) async fn measure(timers: usize, payload: usize) -> String {
    let redis = in_redis(timers, payload, MONTH).await;
    let postgres = in_postgres(timers, payload).await;
    let file = in_file(timers, payload).await;
    format!("| {payload} | {redis:.0} | {postgres:.0} | {file:.0} |")
}

/// Inserts timers that are due within so many days, thirty at most.
pub(crate) async fn fill(store: &DurableTimers, timers: usize, payload: usize, days: u64) {
    let (store, start) = (store.clone(), SystemTime::now());
    let insert = move |number| {
        let store = store.clone();
        async move {
            let (first, all) = (due(0), due(number) - due(0));
            let (payload, at) = (vec![7; payload], after(start, first + all % (days * DAY)));
            store.insert(&id(number), payload, at, Options::new()).await.expect("it is inserted");
        }
    };
    each(CALLERS, timers, insert).await;
}

/// Returns the bytes per timer of a single partition, whose timers are due within so many days.
pub(crate) async fn in_redis(timers: usize, payload: usize, days: u64) -> f64 {
    let server = Server::start(&["--appendonly", "no"]).expect("redis-server is on the path");
    let options = RedisOptions::new("timers").partitions(1);
    let store = Redis::connect(&server.url(), options).await.unwrap();
    let bytes = || server.figure("memory", "used_memory").unwrap().parse::<f64>().unwrap();
    let before = bytes();
    fill(&DurableTimers::spawn(store).unwrap(), timers, payload, days).await;
    (bytes() - before) / timers as f64
}

async fn in_postgres(timers: usize, payload: usize) -> f64 {
    let server = PostgresServer::start(&["shared_buffers=1GB", "max_wal_size=4GB"]);
    let server = server.expect("PostgreSQL is installed");
    let store = Postgres::connect(&server.url(), "timers").await.unwrap();
    let size = "select pg_database_size('postgres')";
    let bytes = || server.order(size).trim().parse::<f64>().unwrap();
    let before = bytes();
    fill(&DurableTimers::spawn(store).unwrap(), timers, payload, MONTH).await;
    (bytes() - before) / timers as f64
}

/// The length of the file, which grows in large steps.
async fn in_file(timers: usize, payload: usize) -> f64 {
    let name = format!("tourbillon-payloads-{}-{payload}", std::process::id());
    let file = std::env::temp_dir().join(name);
    let store = DurableTimers::open(&file).unwrap();
    fill(&store, timers, payload, MONTH).await;
    drop(store);
    let bytes = length(&file);
    std::fs::remove_file(&file).unwrap();
    bytes / timers as f64
}

fn length(file: &Path) -> f64 {
    std::fs::metadata(file).unwrap().len() as f64
}
