//! The cache beside moka and quick_cache, by the time of hits, misses and inserts, by memory, and
//! by the lateness of expiry listeners.
//!
//! Rounds alternate between the caches, and ratios are of their medians. Memory and lateness are
//! measured in processes of their own (this program again, with `--alone`).

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program whose output is its result")]
#![allow(
    clippy::disallowed_methods,
    reason = "it measures real time, and lets time pass for listeners"
)]

mod systems;

use clap::Parser;
use fastrand::Rng;
use serde_json::{Value, json};
use std::fs::File;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use systems::{Cache, Kind, lateness};
use tourbillon_benches::now;

const HOUR: Duration = Duration::from_secs(3600);

/// Compares caches by nanoseconds per operation, bytes per entry and lateness of listeners.
#[derive(Parser)]
struct Arguments {
    /// The numbers of entries.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 1_000_000])]
    entries: Vec<u64>,
    /// The number of rounds.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// The number of operations per round.
    #[arg(long, default_value_t = 200_000)]
    operations: u32,
    /// Also write the medians to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measure memory and lateness of one cache, here, and print them as a line of JSON.
    #[arg(long)]
    alone: Option<Kind>,
}

/// An operation that is timed.
#[derive(Clone, Copy)]
enum Operation {
    Hit,
    Miss,
    /// Replaces an existing entry.
    Insert,
}

impl Operation {
    const ALL: [(Self, &str); 3] =
        [(Self::Hit, "hit"), (Self::Miss, "miss"), (Self::Insert, "insert with TTL")];

    /// Nanoseconds per operation, over `operations` of them on random keys.
    fn time(self, cache: &dyn Cache, entries: u64, operations: u32, random: &mut Rng) -> f64 {
        let start = now();
        for _ in 0..operations {
            let key = random.u64(..entries);
            match self {
                Self::Hit => assert!(black_box(cache.get(key)).is_some(), "{key} is there"),
                Self::Miss => assert!(black_box(cache.get(key + entries * 8)).is_none()),
                Self::Insert => cache.insert(key, key, HOUR),
            }
        }
        start.elapsed().as_nanos() as f64 / f64::from(operations)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    if let Some(kind) = arguments.alone {
        println!("{}", alone(kind));
        return Ok(());
    }
    let times: Vec<_> =
        arguments.entries.iter().flat_map(|&entries| times(&arguments, entries)).collect();
    let mut alone = Vec::new();
    println!("\nBytes an entry, of a million, and how late a listener hears of 10,000 that expire");
    for kind in Kind::ALL {
        let name = clap::ValueEnum::to_possible_value(&kind).expect("none is hidden");
        let mut program = Command::new(std::env::current_exe()?);
        let output = program.args(["--alone", name.get_name()]).output()?;
        if !output.status.success() {
            return Err(format!("{kind} failed").into());
        }
        let mut line: Value = serde_json::from_slice(&output.stdout)?;
        println!("{kind:26} {line}");
        line["cache"] = kind.to_string().into();
        alone.push(line);
    }
    if let Some(path) = &arguments.json {
        serde_json::to_writer_pretty(
            File::create(path)?,
            &json!({"times": times, "alone": alone}),
        )?;
    }
    Ok(())
}

/// The median time of each operation on each cache, in nanoseconds.
fn times(arguments: &Arguments, entries: u64) -> Vec<Value> {
    let mut lines = Vec::new();
    // Room for all entries, even if shards fill unevenly.
    let room = usize::try_from(entries * 2).expect("a number of entries");
    let caches = Kind::ALL.map(|kind| (kind, kind.build(room, None)));
    for (_, cache) in &caches {
        (0..entries).for_each(|key| cache.insert(key, key, HOUR));
        // Read once, so that no policy is about to evict it.
        (0..entries).for_each(|key| assert!(cache.get(key).is_some()));
    }
    println!("\n{entries} entries: ns an operation, and by quick_cache's");
    for (operation, name) in Operation::ALL {
        let mut random = Rng::with_seed(7);
        let mut rounds = caches.each_ref().map(|_| Vec::new());
        for _ in 0..arguments.rounds {
            for ((_, cache), rounds) in caches.iter().zip(&mut rounds) {
                let operations = arguments.operations;
                rounds.push(operation.time(&**cache, entries, operations, &mut random));
            }
        }
        let medians = rounds.map(median);
        for ((kind, _), ns) in caches.iter().zip(medians) {
            println!("{name:16} {kind:26} {ns:7.1} {:5.2}", ns / medians[Kind::ALL.len() - 1]);
            let cache = kind.to_string();
            lines.push(json!({"entries": entries, "operation": name, "cache": cache, "ns": ns}));
        }
    }
    lines
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Memory and lateness of a cache.
fn alone(kind: Kind) -> serde_json::Value {
    const ENTRIES: u64 = 1_000_000;
    let resident = || memory_stats::memory_stats().map_or(0, |stats| stats.physical_mem);
    let before = resident();
    let cache = kind.build(2_000_000, None);
    (0..ENTRIES).for_each(|key| cache.insert(key, key, HOUR));
    let bytes = resident().saturating_sub(before) as u64 / ENTRIES;
    drop(cache);
    if !kind.tells() {
        return json!({ "bytes_an_entry": bytes });
    }
    let late = lateness(kind, 10_000, Duration::from_secs(5));
    let ms = |quantile| (!late.is_empty()).then(|| late.value_at_quantile(quantile) as f64 / 1e3);
    json!({
        "bytes_an_entry": bytes,
        "told_within_5_s": late.len(),
        "p50_ms": ms(0.5),
        "p99_ms": ms(0.99),
        "most_ms": ms(1.0),
    })
}
