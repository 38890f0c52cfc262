//! `peers` measures tourbillon beside other timers, in CPU time per operation.
//!
//! Every measurement runs in a process of its own (this program again, with `--system`), so that
//! no system inherits another's memory or threads. All systems take turns in every round, and each
//! round begins with the next system. The medians over the rounds are compared.
//!
//! ```console
//! $ cargo run --release -p tourbillon-peers -- --json peers.json
//! $ RUSTFLAGS="--cfg tokio_unstable" cargo run --release -p tourbillon-peers   # + tokio-alt
//! ```

mod callers;
mod clock;
mod contenders;
mod herd;
mod herd_rounds;
mod measure;
mod report;
mod rounds;
mod system;
mod systems;
mod tally;
mod ticker;
mod waker;
mod workload;

use crate::rounds::Plan;
use clap::{Parser, value_parser};
use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use workload::Workload;

/// The greatest number of timers.
const MOST: i64 = 100_000_000;

/// Compares tourbillon with other timers in CPU and wall time per operation, medians over rounds.
#[derive(Debug, Parser)]
struct Args {
    /// Also write the results of each round to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// The number of armed timers
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u32).range(1..=MOST))]
    timers: u32,
    /// The number of callers that share them, each on a thread of its own
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    threads: u32,
    /// The number of measurements of every system
    #[arg(long, default_value_t = 7, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The place of the system that the first round begins with
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u32).range(0..=1000))]
    turn: u32,
    /// Measure these workloads only
    #[arg(long, value_delimiter = ',')]
    only: Vec<Workload>,
    /// Measure these systems only
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// Time the operations of a caller while the timers are all due at once
    #[arg(long)]
    herd: bool,
    /// Measure once on this system, here, and print the result as JSON
    #[arg(long, hide = true)]
    system: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    match &args.system {
        Some(name) => once(&args, name),
        None => compare(&args),
    }
}

/// Measures one system in this process.
#[allow(clippy::print_stdout, reason = "the results of a program")]
fn once(args: &Args, name: &str) -> Result<(), Box<dyn Error>> {
    for system in rounds::chosen(&[name.to_owned()])? {
        if args.herd {
            println!("{}", serde_json::to_string(&(system.longest)(args.timers))?);
        }
        for &workload in &args.only {
            let taken = (system.measure)(workload, args.timers, args.threads);
            println!("{}", serde_json::to_string(&taken)?);
        }
    }
    Ok(())
}

/// Measures all systems that were asked for, each in processes of its own.
#[allow(clippy::print_stdout, reason = "the results of a program")]
fn compare(args: &Args) -> Result<(), Box<dyn Error>> {
    let systems = rounds::chosen(&args.systems)?;
    let json = if args.herd {
        let all = herd_rounds::run(&systems, args.timers, args.rounds)?;
        println!("{}", herd_rounds::table(&all));
        serde_json::to_value(all)?
    } else {
        let workloads = if args.only.is_empty() { &Workload::ALL } else { &*args.only };
        let Args { timers, threads, rounds, turn, .. } = *args;
        let all = rounds::run(workloads, &systems, Plan { timers, threads, rounds, turn })?;
        let tables: Vec<_> = all.iter().map(report::text).collect();
        println!("{}\n\n{}", report::machine(), tables.join("\n"));
        serde_json::to_value(all)?
    };
    if let Some(path) = &args.json {
        serde_json::to_writer_pretty(File::create(path)?, &json)?;
    }
    Ok(())
}
