//! Durable timers beside the job queues that are often used for them. Measures inserts one by one
//! and in groups, cancels, and the lateness of deliveries, in BullMQ on the same Redis, pg-boss on
//! the same Postgres, and tourbillon on Redis, on Postgres and in a file.
//!
//! The program starts its own servers on this machine, so that all share its processors. Each
//! system runs in a process of its own, and they take turns within a round. The scripts for Node
//! and their packages are in the folder that `ci/measure durable-peers` has prepared.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real time is measured here")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

mod ours;
#[path = "../../../../../crates/durable/tests/common/postgres_server.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod postgres_server;
mod report;
#[path = "../../../../../crates/durable/tests/common/servers.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod servers;

use clap::{Parser, Subcommand, ValueEnum};
use postgres_server::PostgresServer;
use report::{Figures, Report};
use serde::{Deserialize, Serialize};
use servers::Server;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A system that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// tourbillon-durable in Redis.
    Redis,
    /// BullMQ in Redis.
    Bullmq,
    /// tourbillon-durable in a file.
    File,
    /// tourbillon-durable in Postgres.
    Postgres,
    /// pg-boss in Postgres.
    PgBoss,
}

/// Durable timers beside job queues, measured.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    child: Option<Child>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Parser)]
struct Options {
    /// The folder with the scripts for Node and their packages.
    #[arg(long, default_value = "target/durable-peers")]
    node: PathBuf,
    /// The systems.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "redis,bullmq,file,postgres,pg-boss"
    )]
    systems: Vec<System>,
    /// The number of rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The number of timers that are inserted and cancelled in a round. A fifth of it in pg-boss.
    #[arg(long, default_value_t = 20_000)]
    count: usize,
    /// The number of callers in flight. A quarter of it in pg-boss, which has 16 connections.
    #[arg(long, default_value_t = 256)]
    callers: usize,
    /// The rates of due timers per second, one measurement for each.
    #[arg(long, value_delimiter = ',', default_value = "500,2000")]
    rates: Vec<usize>,
    /// The duration of each of these measurements, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: usize,
    /// The file for the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Child {
    /// Runs the workload on tourbillon-durable, and prints its figures. The program calls itself.
    #[command(hide = true)]
    Ours {
        /// The settings as JSON.
        settings: String,
    },
}

/// The settings of a workload, which the scripts for Node read as well.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Settings {
    /// The address of the store: `redis://…`, `postgres://…`, or a path.
    pub(crate) url: String,
    pub(crate) callers: usize,
    pub(crate) count: usize,
    /// The number of bytes of text in a payload.
    pub(crate) payload: usize,
    pub(crate) rates: Vec<usize>,
    pub(crate) seconds: usize,
}

impl System {
    /// Runs the workload in a process of its own, on an empty store.
    fn measure(self, options: &Options) -> Figures {
        let ours = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.arg("ours");
            command
        };
        let script = |name: &str| {
            let mut command = Command::new("node");
            command.arg(options.node.join(name));
            command
        };
        match self {
            Self::Redis | Self::Bullmq => {
                let append = ["--appendonly", "yes", "--appendfsync", "everysec"];
                let server = Server::start(&append).expect("redis-server is on the path");
                let command = if self == Self::Redis { ours() } else { script("bullmq.js") };
                run(command, &options.settings(server.url()))
            }
            Self::File => {
                let folder = std::env::temp_dir().join(format!("peers-{}", std::process::id()));
                std::fs::create_dir_all(&folder).unwrap();
                let file = folder.join("timers").display().to_string();
                let figures = run(ours(), &options.settings(file));
                std::fs::remove_dir_all(folder).unwrap();
                figures
            }
            Self::Postgres => {
                let server = postgres();
                run(ours(), &options.settings(server.url()))
            }
            Self::PgBoss => {
                let server = postgres();
                let settings = options.settings(server.url());
                let (count, callers) = (settings.count / 5, settings.callers.div_ceil(4));
                run(script("pg-boss.js"), &Settings { count, callers, ..settings })
            }
        }
    }
}

/// Starts a server with its default settings, which write each commit to the disk.
fn postgres() -> PostgresServer {
    PostgresServer::start(&["shared_buffers=128MB"]).expect("PostgreSQL is installed")
}

impl Options {
    fn settings(&self, url: String) -> Settings {
        let Self { callers, count, seconds, .. } = *self;
        Settings { url, callers, count, payload: 64, rates: self.rates.clone(), seconds }
    }
}

/// Runs a workload in another process. Returns the figures that it prints.
fn run(mut command: Command, settings: &Settings) -> Figures {
    command.arg(serde_json::to_string(settings).unwrap());
    let output = command.stderr(Stdio::inherit()).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("the figures")
}

fn write(report: &Report, file: &Path) {
    std::fs::write(file, serde_json::to_vec_pretty(report).unwrap()).unwrap();
}

fn main() {
    let Arguments { child, options } = Arguments::parse();
    if let Some(Child::Ours { settings }) = child {
        let figures = ours::run(&serde_json::from_str(&settings).expect("settings"));
        println!("{}", serde_json::to_string(&figures).unwrap());
        return;
    }
    let mut report = Report::new(&options.systems, options.rates.clone());
    for _ in 0..options.rounds {
        for (place, system) in options.systems.iter().enumerate() {
            report.add(place, system.measure(&options));
        }
    }
    println!("{report}");
    if let Some(file) = &options.json {
        write(&report, file);
    }
}
