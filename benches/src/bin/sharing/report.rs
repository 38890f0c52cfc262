//! The counts, as a table and as JSON.

use super::replay::{Traced, Whose, Workload, trace};
use super::systems::{Heap, Ours};
use clap::{Parser, value_parser};
use serde_json::{Value, json};
use std::error::Error;
use std::fs::File;
use std::path::PathBuf;

/// Counts the cache lines that move between threads in each operation.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The numbers of threads, each 2 to 64
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8, 16, 32, 64],
          value_parser = value_parser!(u64).range(2..=64))]
    threads: Vec<u64>,
    /// Also write the counts to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Fail if cancel and insert, or a reset, of the caller's own timers moves more lines than this
    #[arg(long)]
    most: Option<f64>,
}

/// A row of the table, for one system, workload and number of threads.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) system: &'static str,
    pub(crate) workload: Workload,
    pub(crate) whose: Whose,
    pub(crate) threads: usize,
    pub(crate) traced: Traced,
}

impl Row {
    fn ours(workload: Workload, whose: Whose, threads: usize) -> Self {
        let traced = trace(Ours::new, workload, whose, threads);
        Self { system: "tourbillon", workload, whose, threads, traced }
    }

    fn heap(workload: Workload, threads: usize) -> Self {
        let traced = trace(Heap::default, workload, Whose::Own, threads);
        Self { system: "heap", workload, whose: Whose::Own, threads, traced }
    }

    /// Transfers per operation.
    pub(crate) fn transfers(&self) -> f64 {
        self.traced.each(self.traced.counted.transfers())
    }

    fn whose(&self) -> &'static str {
        match (self.workload, self.whose) {
            (Workload::Fire, _) => "all",
            (_, Whose::Own) => "own",
            (_, Whose::Others) => "another's",
        }
    }

    fn line(&self) -> String {
        let counted = &self.traced.counted;
        let [locked, taken, recalled, fetched] =
            [counted.locked, counted.taken, counted.recalled, counted.fetched]
                .map(|count| format!("{:.3}", self.traced.each(count)));
        let (system, workload, whose) = (self.system, self.workload.name(), self.whose());
        let threads = self.threads;
        format!(
            "| {system} | {workload} | {whose} | {threads} | {locked} | {taken} | {recalled} | {fetched} |"
        )
    }

    fn json(&self) -> Value {
        let counted = &self.traced.counted;
        json!({
            "system": self.system,
            "workload": self.workload.name(),
            "timers": self.whose(),
            "threads": self.threads,
            "operations": self.traced.operations,
            "locked": counted.locked,
            "written_by_another_last": counted.taken,
            "read_by_others_since": counted.recalled,
            "written_by_another_since": counted.fetched,
            "hottest": counted.hottest(),
            "places": counted.places,
        })
    }
}

/// Counts, prints and writes all rows.
#[allow(clippy::print_stdout, reason = "the results of a program")]
pub(crate) fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let threads: Vec<_> =
        args.threads.iter().map(|&threads| usize::try_from(threads)).collect::<Result<_, _>>()?;
    println!(
        "| system | operation | timers | threads | locked | written, another wrote last | written, others read since | read, another wrote since |"
    );
    println!("|---|---|---|---:|---:|---:|---:|---:|");
    let mut rows = Vec::new();
    for workload in Workload::ALL {
        for &threads in &threads {
            rows.push(Row::ours(workload, Whose::Own, threads));
            if matches!(workload, Workload::CancelInsert | Workload::ResetLater) {
                rows.push(Row::ours(workload, Whose::Others, threads));
            }
            rows.push(Row::heap(workload, threads));
        }
    }
    rows.iter().for_each(|row| println!("{}", row.line()));
    println!("\nWhere the wheel's lines move, for each 1,000 operations:\n");
    for row in rows.iter().filter(|row| row.system == "tourbillon") {
        for (place, &count) in &row.traced.counted.places {
            let each = row.traced.each(count) * 1000.0;
            if each >= 0.5 {
                let (workload, whose) = (row.workload.name(), row.whose());
                println!("{workload} {whose} {}: {each:.1} {place}", row.threads);
            }
        }
    }
    if let Some(path) = &args.json {
        let all: Vec<_> = rows.iter().map(Row::json).collect();
        serde_json::to_writer_pretty(File::create(path)?, &all)?;
    }
    let own = rows.iter().filter(|row| {
        let steady = matches!(row.workload, Workload::CancelInsert | Workload::ResetLater);
        row.system == "tourbillon" && row.whose == Whose::Own && steady
    });
    let most = own.map(Row::transfers).fold(0.0, f64::max);
    match args.most {
        Some(allowed) if most > allowed => {
            Err(format!("{most} lines move for each operation; {allowed} are allowed").into())
        }
        _ => Ok(()),
    }
}
