//! The embedded store of durable timers at full size. Measures the number of durable operations per
//! second, beside bare rows of the same length in the same database crate, and the recovery after
//! its process was killed. Prints tables in Markdown, and with `--json` also writes a file.

#![allow(clippy::print_stdout, reason = "a program that prints what it has measured")]
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

mod rates;
mod recovery;

use clap::Parser;
use serde::Serialize;
use std::error::Error;
use std::path::PathBuf;

/// An error that ends the program.
type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The embedded store of durable timers, measured.
#[derive(Parser)]
struct Arguments {
    /// The folder of the files, on the disk that is measured.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    folder: PathBuf,
    /// The file for the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The number of rounds, whose medians are the rates, or 0 to skip the rates.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The number of timers per round and operation.
    #[arg(long, default_value_t = 16_384)]
    timers: usize,
    /// The number of timers if calls are made one after the other.
    #[arg(long, default_value_t = 256)]
    single: usize,
    /// The number of timers that rest in the store meanwhile.
    #[arg(long, default_value_t = 100_000)]
    resting: usize,
    /// The number of parallel workers. Each has its own thread, and as many concurrent handlers as
    /// there are calls in flight.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// The number of bytes of a payload.
    #[arg(long, default_value_t = 32)]
    payload: usize,
    /// The minimum number of acknowledged timers before the process is killed, or 0 to skip the
    /// recovery.
    #[arg(long, default_value_t = 1_000_000)]
    recovered: u64,
    /// The number of these that are due at once.
    #[arg(long, default_value_t = 4000)]
    due: u64,
    /// The seed of the ids and of the time of the kill.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Internal. Writes into this file until the process is killed.
    #[arg(long, hide = true)]
    child: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    rates: Vec<rates::Row>,
    recovery: Option<recovery::Recovery>,
}

fn main() -> Fallible<()> {
    let arguments = Arguments::parse();
    if let Some(file) = &arguments.child {
        return recovery::write_for_ever(file, &arguments);
    }
    let rates = match arguments.rounds {
        0 => Vec::new(),
        _ => rates::measure(&arguments)?,
    };
    if !rates.is_empty() {
        print_rates(&rates);
    }
    let recovery = match arguments.recovered {
        0 => None,
        _ => Some(recovery::measure(&arguments)?),
    };
    if let Some(recovery) = &recovery {
        print_recovery(recovery);
    }
    let lost = recovery.as_ref().map_or(0, |recovery| recovery.lost);
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_vec_pretty(&Report { rates, recovery })?)?;
    }
    match lost {
        0 => Ok(()),
        lost => Err(format!("{lost} acknowledged timers are lost").into()),
    }
}

fn print_rates(rows: &[rates::Row]) {
    println!("| operation | calls in flight | a second | bare, as many rows a commit | ratio |");
    println!("|---|---|---|---|---|");
    for rates::Row { operation, in_flight, ours, bare, ratio, .. } in rows {
        println!("| {operation} | {in_flight} | {ours:.0} | {bare:.0} | {ratio:.2} |");
    }
    println!();
}

fn print_recovery(recovery: &recovery::Recovery) {
    let recovery::Recovery { acknowledged, found, bytes, .. } = recovery;
    println!("| after a kill | |\n|---|---|");
    println!("| acknowledged before it | {acknowledged} |");
    println!("| found after it | {found} |");
    println!("| length of the file | {} MiB |", bytes >> 20);
    println!("| until it is open | {:.3} s |", recovery.open);
    println!("| from there to the first delivery | {:.3} s |", recovery.first);
    println!("| and to the last of {} that were due | {:.3} s |", recovery.due, recovery.all);
    println!("\nlost: {}", recovery.lost);
}

/// A file that is removed after its run.
struct TempFile(PathBuf);

impl TempFile {
    fn new(arguments: &Arguments, name: &str) -> Self {
        let name = format!("tourbillon-scale-{}-{name}", std::process::id());
        Self(arguments.folder.join(name))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
