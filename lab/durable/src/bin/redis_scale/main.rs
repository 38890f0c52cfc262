//! Durable timers in Redis at full size. Measures the inserts and cancels per second with many
//! callers in flight, beside bare `ZADD` and `ZREM` by the same client crate, the cost of millions
//! of resting timers, and the lateness of timers that fire.
//!
//! The program starts its own `redis-server` on this machine, so both share the processors. The
//! rounds of compared measurements alternate, and the ratio is of their medians.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real time is measured here")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

mod pipelining;
mod report;
#[path = "../../../../../crates/durable/tests/common/servers.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod servers;

use clap::{Parser, ValueEnum};
use pipelining::Extent;
use report::Report;
use servers::Server;
use std::path::PathBuf;
use tourbillon_durable::Redis;
use tourbillon_durable_measure::subject::{Figures, Subject};

/// The policy of the server's append-only file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Append {
    /// No append-only file.
    Off,
    /// Synced each second.
    Everysec,
    /// Synced before each reply.
    Always,
}

/// Durable timers in Redis, measured.
#[derive(Debug, Parser)]
struct Options {
    /// The numbers of callers in flight, one measurement for each.
    #[arg(long, value_delimiter = ',', default_value = "256,1024")]
    callers: Vec<usize>,
    /// The number of rounds of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The number of timers that are inserted and cancelled in a round.
    #[arg(long, default_value_t = 200_000)]
    count: usize,
    /// The number of timers that rest while others fire.
    #[arg(long, default_value_t = 5_000_000)]
    resting: usize,
    /// The number of timers that fire per second.
    #[arg(long, default_value_t = 5_000)]
    rate: usize,
    /// The number of timers that were due in an hour without a worker.
    #[arg(long, default_value_t = 100_000)]
    overdue: usize,
    /// The duration of the measurements at rest and of firing, in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// The number of concurrent handlers of the worker.
    #[arg(long, default_value_t = 256)]
    concurrency: usize,
    /// The number of threads for the callers and the connections.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The append-only file.
    #[arg(long, value_enum, default_value = "off")]
    append: Append,
    /// The file for the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Append {
    async fn subject(self) -> Subject<Server> {
        let server = self.server();
        Subject::new(Redis::connect(&server.url(), "timers").await.unwrap(), server)
    }

    fn server(self) -> Server {
        let options: &[&str] = match self {
            Self::Off => &["--appendonly", "no"],
            Self::Everysec => &["--appendonly", "yes", "--appendfsync", "everysec"],
            Self::Always => &["--appendonly", "yes", "--appendfsync", "always"],
        };
        Server::start(options).expect("redis-server is on the path")
    }
}

impl Figures for Server {
    fn commands(&self) -> f64 {
        number(self, "stats", "total_commands_processed")
    }

    fn bytes(&self) -> f64 {
        number(self, "memory", "used_memory")
    }

    fn cpu(&self) -> f64 {
        number(self, "cpu", "used_cpu_user") + number(self, "cpu", "used_cpu_sys")
    }
}

fn number(server: &Server, section: &str, name: &str) -> f64 {
    server.figure(section, name).unwrap().parse().unwrap()
}

async fn measure(options: &Options, report: &mut Report) {
    let Options { resting, rounds, count, rate, overdue, seconds, concurrency, .. } = *options;
    for callers in &options.callers {
        let subject = options.append.subject().await;
        let extent = Extent { resting: 0, rounds, count };
        report.pipelining.push(pipelining::measure(&subject, *callers, extent).await);
    }
    if resting == 0 {
        return;
    }
    let subject = options.append.subject().await;
    report.resting = Some(subject.rest(resting, seconds).await);
    report.firing = Some(subject.fire(resting, rate, seconds, concurrency).await);
    report.overdue = Some(subject.catch_up(resting, overdue, concurrency).await);
    for callers in &options.callers {
        let extent = Extent { resting, rounds, count };
        if report.pipelining.iter().all(|measured| measured.resting == 0) {
            pipelining::fill(&subject, *callers, resting).await;
        }
        report.pipelining.push(pipelining::measure(&subject, *callers, extent).await);
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
