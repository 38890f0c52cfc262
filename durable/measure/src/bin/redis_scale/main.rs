//! Durable timers in Redis at full size: how many can be scheduled and cancelled a second with many
//! callers in flight, beside bare `ZADD` and `ZREM` by the same client crate; what millions of them
//! at rest take; and how late they fire.
//!
//! It starts a `redis-server` of its own on this machine, so that both share the processors. The
//! rounds of what is compared alternate, and the ratio is that of their medians.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real time is measured here")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

mod firing;
mod pipelining;
mod report;
#[path = "../../../../tests/common/servers.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod servers;
mod subject;

use clap::{Parser, ValueEnum};
use pipelining::Extent;
use report::Report;
use servers::Server;
use std::path::PathBuf;
use subject::Subject;

/// When the server writes its append-only file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Append {
    /// It has none.
    Off,
    /// Each second.
    Everysec,
    /// Before each answer.
    Always,
}

/// Durable timers in Redis, measured.
#[derive(Debug, Parser)]
struct Options {
    /// How many callers are in flight, one measurement for each number.
    #[arg(long, value_delimiter = ',', default_value = "256,1024")]
    callers: Vec<usize>,
    /// How many rounds are run of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many timers are scheduled, and cancelled, in a round.
    #[arg(long, default_value_t = 200_000)]
    count: usize,
    /// How many timers rest while others fire.
    #[arg(long, default_value_t = 5_000_000)]
    resting: usize,
    /// How many timers fire a second.
    #[arg(long, default_value_t = 5_000)]
    rate: usize,
    /// How long is looked at rest, and how long they fire.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How many timers the worker handles at a time.
    #[arg(long, default_value_t = 256)]
    concurrency: usize,
    /// How many threads run the callers and the connections.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The append-only file.
    #[arg(long, value_enum, default_value = "off")]
    append: Append,
    /// Where the figures are written, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Append {
    fn server(self) -> Server {
        let options: &[&str] = match self {
            Self::Off => &["--appendonly", "no"],
            Self::Everysec => &["--appendonly", "yes", "--appendfsync", "everysec"],
            Self::Always => &["--appendonly", "yes", "--appendfsync", "always"],
        };
        Server::start(options).expect("redis-server is on the path")
    }
}

async fn measure(options: &Options, report: &mut Report) {
    let Options { resting, rounds, count, rate, seconds, concurrency, .. } = *options;
    for callers in &options.callers {
        let subject = Subject::new(options.append.server()).await;
        let extent = Extent { resting: 0, rounds, count };
        report.pipelining.push(pipelining::measure(&subject, *callers, extent).await);
    }
    if resting == 0 {
        return;
    }
    let subject = Subject::new(options.append.server()).await;
    report.resting = Some(subject.rest(resting, seconds).await);
    report.firing = Some(subject.fire(resting, rate, seconds, concurrency).await);
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
