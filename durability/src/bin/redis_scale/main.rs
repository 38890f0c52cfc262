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

fn main() {
    let options = Options::parse();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(options.threads).enable_all().build().unwrap();
    let mut report = Report::default();
    for callers in &options.callers {
        let subject = runtime.block_on(Subject::new(options.append.server()));
        let measured = pipelining::measure(subject, *callers, options.rounds, options.count);
        report.pipelining.push(runtime.block_on(measured));
    }
    if options.resting > 0 {
        let Options { resting, rate, seconds, concurrency, .. } = options;
        let subject = runtime.block_on(Subject::new(options.append.server()));
        report.resting = Some(runtime.block_on(subject.rest(resting, seconds)));
        let firing = subject.fire(resting, rate, seconds, concurrency);
        report.firing = Some(runtime.block_on(firing));
    }
    println!("{report}");
    if let Some(file) = options.json {
        std::fs::write(file, serde_json::to_vec_pretty(&report).unwrap()).unwrap();
    }
}
