//! `peers`: tourbillon side by side with other timers, in CPU time for each operation.
//!
//! Every measurement runs in a process of its own (this program again, with `--system`), so that
//! no system inherits another's memory or threads. All systems take their turn in every round, in
//! an order that moves on by one each round; the medians over the rounds are compared.
//!
//! ```console
//! $ cargo run --release -p tourbillon-peers -- --json peers.json
//! $ RUSTFLAGS="--cfg tokio_unstable" cargo run --release -p tourbillon-peers   # + tokio-alt
//! ```

mod callers;
mod clock;
mod herd;
mod measure;
mod plot;
mod report;
mod rounds;
mod systems;
mod tally;
mod ticker;
mod waker;
mod workload;

use crate::rounds::Size;
use clap::{Parser, value_parser};
use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use workload::Workload;

/// The most timers that may be asked for.
const MOST: i64 = 100_000_000;

/// Compares tourbillon with other timers: CPU time for each operation, medians over rounds.
#[derive(Debug, Parser)]
struct Args {
    /// Write the results to this file as well, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Put the tables into this document, between the lines `<!-- peers begins -->` and
    /// `<!-- peers ends -->`, or `<!-- peers of N threads begins -->` and so on
    #[arg(long)]
    write: Option<PathBuf>,
    /// How many timers are armed
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u32).range(1..=MOST))]
    timers: u32,
    /// How many callers share them, each on a thread of its own
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    threads: u32,
    /// How often every system is measured
    #[arg(long, default_value_t = 7, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure this workload only
    #[arg(long)]
    only: Option<Workload>,
    /// Draw the cost of `--only` by the number of armed timers, as an SVG, and no tables
    #[arg(long, requires = "only")]
    plot: Option<PathBuf>,
    /// Time the verbs of a caller while so many timers are due at once
    #[arg(long)]
    herd: bool,
    /// Measure once on this system, here, and print the figures
    #[arg(long, hide = true)]
    system: Option<String>,
}

#[allow(clippy::print_stdout, reason = "the results of a program")]
fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    if let Some(name) = &args.system {
        let system = systems::all().into_iter().find(|system| system.name == *name);
        let system = system.ok_or("there is no such system")?;
        match args.only {
            _ if args.herd => {
                (system.longest)(args.timers).iter().for_each(|micros| print!("{micros} "));
            }
            Some(workload) => println!("{}", (system.measure)(workload, args.timers, args.threads)),
            None => return Err("measure what?".into()),
        }
        return Ok(());
    }
    if args.herd {
        println!("{}", herd::table(args.timers, args.rounds)?);
        return Ok(());
    }
    if let (Some(path), Some(workload)) = (&args.plot, args.only) {
        return plot::draw(workload, args.rounds, path);
    }
    let workloads = args.only.map_or_else(|| Workload::ALL.to_vec(), |only| vec![only]);
    let size = Size { timers: args.timers, threads: args.threads };
    let medians = rounds::run(&workloads, size, args.rounds)?;
    let tables: Vec<_> = medians.iter().map(report::text).collect();
    let tables = tables.join("\n");
    println!("{tables}");
    if let Some(path) = args.write {
        report::put(&path, args.threads, &tables)?;
    }
    if let Some(path) = args.json {
        let comparisons: Vec<_> = medians.iter().flat_map(report::comparisons).collect();
        serde_json::to_writer_pretty(File::create(path)?, &comparisons)?;
    }
    Ok(())
}
