//! The rounds of a mass expiry, of all systems.

use crate::contenders::{Role, Timer};
use crate::herd::QUANTILES;
use crate::rounds::{apart, median};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::error::Error;

/// The herd's effect on one system.
#[derive(Debug, Serialize)]
pub(crate) struct Beside {
    name: &'static str,
    role: Role,
    /// For each round, the quantiles of an operation's time in microseconds.
    micros: Vec<Vec<f64>>,
}

/// Measures each of these systems in a process of its own.
///
/// # Errors
///
/// Returns an error if a measurement failed.
pub(crate) fn run(
    systems: &[Timer],
    timers: u32,
    rounds: u32,
) -> Result<Vec<Beside>, Box<dyn Error>> {
    let measure = |system: &Timer| {
        let once = || Ok(serde_json::from_str(&apart(system, &["--herd"], timers)?)?);
        let micros: Result<_, Box<dyn Error>> = (0..rounds).map(|_| once()).collect();
        Ok(Beside { name: system.name, role: system.role, micros: micros? })
    };
    systems.iter().filter(|system| system.role != Role::Floor).map(measure).collect()
}

/// The medians over the rounds, as a table for a terminal.
pub(crate) fn table(all: &[Beside]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["an operation beside a herd, µs", "p50", "p99", "p99.99", "max"]);
    for system in all {
        let column = |place: usize| system.micros.iter().map(|one| one[place]).collect();
        let cell =
            |place| median(column(place)).map_or("-".into(), |micros| format!("{micros:.1}"));
        let name = std::iter::once(system.name.to_owned());
        table.add_row(name.chain((0..QUANTILES.len()).map(cell)));
    }
    table
}
