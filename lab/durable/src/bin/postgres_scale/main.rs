//! Durable timers in PostgreSQL at full size. Measures the inserts and cancels per second with many
//! callers in flight, the cost of millions of resting timers, the lateness of timers that fire, and
//! all of that while a transaction of another client stays open, so that nothing that was deleted
//! meanwhile can be vacuumed away.
//!
//! The program starts its own server on this machine, so both share the processors. Each commit is
//! on the disk before its caller continues.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real time is measured here")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

mod held;
mod late;
mod locked;
#[path = "../../../../../crates/durable/tests/common/postgres_server.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod postgres_server;
mod report;
#[path = "../../../../../crates/durable/tests/common/servers.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod servers;
mod stream;

use clap::Parser;
use postgres_server::PostgresServer;
use report::{Calls, Report};
use std::path::PathBuf;
use std::time::{Instant, SystemTime};
use tourbillon_durable::{Cancelled, Postgres};
use tourbillon_durable_measure::each;
use tourbillon_durable_measure::subject::{Figures, Subject, after, due, id, own_cpu};

/// The settings of the server that differ from its defaults.
const SETTINGS: [&str; 3] = ["shared_buffers=1GB", "max_wal_size=4GB", "wal_keep_size=0"];

/// Inserts resting timers as the store does, without a call for each. The numbers and the due times
/// are the same as in the other measurements.
const FILL: &str = "insert into timers.timers
    (due, planned, first, most, attempts, lease, jitter, id, payload)
    select due, due, 1000, 600000, 8, 15000, true, 'timer ' || number, decode(repeat('07', 16), 'hex')
    from (select number, (extract(epoch from clock_timestamp()) * 1000)::bigint + 3600000
        + (hashint8extended(number, 0) & 4294967295) % 2592000000 as due
      from generate_series(0, $1 - 1) as number) as timer";

/// Durable timers in PostgreSQL, measured.
#[derive(Debug, Parser)]
struct Options {
    /// The numbers of callers in flight, one measurement for each.
    #[arg(long, value_delimiter = ',', default_value = "256")]
    callers: Vec<usize>,
    /// The number of rounds of each measurement.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The number of timers that are inserted and cancelled in a round.
    #[arg(long, default_value_t = 50_000)]
    count: usize,
    /// The number of timers that rest while others fire.
    #[arg(long, default_value_t = 5_000_000)]
    resting: usize,
    /// The number of timers that fire per second.
    #[arg(long, default_value_t = 1_000)]
    rate: usize,
    /// The number of timers that were due in an hour without a worker.
    #[arg(long, default_value_t = 100_000)]
    overdue: usize,
    /// The duration of the measurements at rest and of firing, in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// The duration of the measurement beside an open transaction, in seconds, or 0.
    #[arg(long, default_value_t = 600)]
    held: u64,
    /// The number of timers that are inserted and fire per second meanwhile.
    #[arg(long, default_value_t = 500)]
    held_rate: usize,
    /// The duration of each stream beside a transaction that has locked others, in seconds, or 0.
    #[arg(long, default_value_t = 10)]
    locked: u64,
    /// The number of timers of a transaction that is committed after they were due, or 0.
    #[arg(long, default_value_t = 100_000)]
    late: usize,
    /// The number of concurrent handlers of the worker.
    #[arg(long, default_value_t = 256)]
    concurrency: usize,
    /// The number of threads for the callers and the connections.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The file for the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Figures for PostgresServer {
    fn commands(&self) -> f64 {
        number(self, "select sum(xact_commit + xact_rollback) from pg_stat_database")
    }

    fn bytes(&self) -> f64 {
        number(self, "select pg_database_size('postgres')")
    }

    fn cpu(&self) -> f64 {
        self.cpu()
    }
}

fn number(server: &PostgresServer, sql: &str) -> f64 {
    server.order(sql).parse().unwrap()
}

/// Starts a server with an empty store.
async fn subject() -> Subject<PostgresServer> {
    let server = PostgresServer::start(&SETTINGS).expect("PostgreSQL is installed");
    let store = Postgres::connect(&server.url(), "timers").await.unwrap();
    Subject::new(store, server)
}

/// Inserts and cancels timers in rounds. Their ids follow the ids of the resting timers.
async fn calls(
    subject: &Subject<PostgresServer>,
    callers: usize,
    options: &Options,
    resting: usize,
) -> Calls {
    let Options { rounds, count, .. } = *options;
    let mut calls = Calls { resting, callers, ..Calls::default() };
    let start = SystemTime::now();
    for _ in 0..rounds {
        let due = move |number| after(start, due(resting + number));
        let insert = subject.schedule_from(resting, callers, count, due);
        calls.insert.push(take(subject, count, insert).await);
        let timers = subject.timers.clone();
        let cancel = each(callers, count, move |number| {
            let timers = timers.clone();
            async move {
                let cancelled = timers.cancel(&id(resting + number)).await.unwrap();
                assert_eq!(cancelled, Cancelled::Removed);
            }
        });
        calls.cancel.push(take(subject, count, cancel).await);
    }
    calls
}

/// Returns the calls per second, and the microseconds of processor time of the server and of this
/// process for each.
async fn take(
    subject: &Subject<PostgresServer>,
    count: usize,
    work: impl Future<Output = ()>,
) -> [f64; 3] {
    let (server, client, begun) = (subject.server.cpu(), own_cpu(), Instant::now());
    work.await;
    let (elapsed, calls) = (begun.elapsed().as_secs_f64(), count as f64);
    let (server, client) = (subject.server.cpu() - server, own_cpu() - client);
    [calls / elapsed, server * 1e6 / calls, client * 1e6 / calls]
}

async fn measure(options: &Options, report: &mut Report) {
    let Options { resting, rate, overdue, seconds, concurrency, .. } = *options;
    let subject = subject().await;
    for &callers in &options.callers {
        report.calls.push(calls(&subject, callers, options, 0).await);
    }
    let fill = FILL.replace("$1", &resting.to_string());
    let filled = async {
        subject.server.order(&fill);
        subject.server.order("vacuum analyze timers.timers");
    };
    report.resting = Some(subject.rest_after(filled, resting, seconds).await);
    report.firing = Some(subject.fire(resting, rate, seconds, concurrency).await);
    report.overdue = Some(subject.catch_up(resting, overdue, concurrency).await);
    for &callers in &options.callers {
        report.calls.push(calls(&subject, callers, options, resting).await);
    }
    if options.late > 0 {
        report.late = Some(late::measure(&subject, options).await);
    }
    if options.held > 0 {
        report.held = Some(held::measure(&subject, options).await);
    }
    if options.locked > 0 {
        report.locked = locked::measure(&subject, options).await;
    }
}

fn main() {
    let options = Options::parse();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(options.threads).enable_all().build().unwrap();
    let mut report = Report::default();
    runtime.block_on(measure(&options, &mut report));
    println!("{report}");
    if let Some(file) = options.json {
        std::fs::write(file, serde_json::to_vec_pretty(&report).unwrap()).unwrap();
    }
}
