//! The program of `ci/measure tasks`: many tasks on `tokio::time` and on `tourbillon::time`, by
//! turns. Each round runs `tokio::time` twice, which shows the spread.
//!
//! - `herd`: all tasks sleep until one instant, and another until a millisecond after it.
//! - `queues`: each task has a `DelayQueue`, into which it inserts and from which it removes.
//! - `paced`: tasks that sleep and compute, so that the cores are busy for two thirds of the time.
//!
//! Figures are medians over the rounds, each in a runtime of its own with a worker for each core.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program whose output is its result")]
#![allow(clippy::disallowed_methods, reason = "it measures real time")]
#![allow(clippy::duplicate_mod, reason = "the imports differ")]
#![allow(clippy::cast_precision_loss, reason = "figures have few digits")]

use clap::Parser;
use serde_json::json;
use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

#[path = "."]
mod on_tokio {
    /// The items of `tourbillon::time`, which come from two crates on tokio.
    mod time {
        pub(super) use ::tokio::time::*;
        pub(super) use ::tokio_util::time::DelayQueue;
    }
    pub(crate) mod workloads;
}

#[path = "."]
mod on_tourbillon {
    use tourbillon::time;
    pub(crate) mod workloads;
}

/// The names and values that one round of a workload measures.
type Figures = Vec<(&'static str, f64)>;

/// Compares tasks on `tokio::time` and on `tourbillon::time`.
#[derive(Parser)]
struct Arguments {
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The number of tasks that sleep until one instant.
    #[arg(long, default_value_t = 100_000)]
    herd: u32,
    /// The number of tasks with a queue.
    #[arg(long, default_value_t = 20_000)]
    queues: u32,
    /// The number of tasks for each core that sleep and compute.
    #[arg(long, default_value_t = 1_000)]
    paced: u32,
    /// How long each of them computes at a time, in microseconds.
    #[arg(long, default_value_t = 65)]
    work: u64,
    /// How long the last two workloads take, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Also write the figures of each round to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs a workload in a new runtime with the module of that name.
macro_rules! run {
    ($on:expr, $workload:ident($($argument:expr),*)) => {
        tokio::runtime::Runtime::new()?.block_on(async {
            match $on {
                On::Tourbillon => tokio::spawn(on_tourbillon::workloads::$workload($($argument),*)).await,
                On::Tokio | On::TokioAgain => tokio::spawn(on_tokio::workloads::$workload($($argument),*)).await,
            }
        })?
    };
}

/// The modules that are compared.
#[derive(Clone, Copy)]
enum On {
    Tokio,
    TokioAgain,
    Tourbillon,
}

const ALL: [On; 3] = [On::Tokio, On::TokioAgain, On::Tourbillon];

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments = Arguments::parse();
    let (length, work) =
        (Duration::from_secs(arguments.seconds), Duration::from_micros(arguments.work));
    let paced = arguments.paced * u32::try_from(std::thread::available_parallelism()?.get())?;
    let mut all = serde_json::Map::new();
    for workload in ["herd", "queues", "paced"] {
        // By module, all rounds.
        let mut rounds = [const { Vec::<Figures>::new() }; 3];
        for round in 0..arguments.rounds {
            for turn in 0..ALL.len() {
                let place = (round + turn) % ALL.len();
                let on = ALL[place];
                rounds[place].push(match workload {
                    "herd" => run!(on, herd(arguments.herd)),
                    "queues" => run!(on, queues(arguments.queues, length)),
                    _ => run!(on, paced(paced, work, length)),
                }?);
            }
        }
        print(workload, &rounds);
        all.insert(workload.to_owned(), json!(rounds));
    }
    if let Some(path) = arguments.json {
        serde_json::to_writer(File::create(path)?, &all)?;
    }
    Ok(())
}

/// Prints the medians of a workload, and the ratio of `tourbillon::time` to `tokio::time`.
fn print(workload: &str, rounds: &[Vec<Figures>; 3]) {
    println!("\n| {workload} | tokio | tokio again | tourbillon | ratio |\n|---|---|---|---|---|");
    for (place, (name, _)) in rounds[0].first().into_iter().flatten().enumerate() {
        let medians = rounds.each_ref().map(|rounds| {
            let mut values: Vec<f64> = rounds.iter().map(|figures| figures[place].1).collect();
            values.sort_unstable_by(f64::total_cmp);
            values[values.len() / 2]
        });
        let [tokio, again, ours] = medians;
        println!("| {name} | {tokio:.2} | {again:.2} | {ours:.2} | {:.2} |", ours / tokio);
    }
}
