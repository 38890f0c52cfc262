//! The time of a caller's operations during a mass expiry, when a million timers are due at once.

use crate::clock::{now, rest};
use crate::rounds::{apart, median};
use crate::systems::{Role, System, Timer};
use crate::workload::{Move, Workload};
use comfy_table::{Table, presets};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::error::Error;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// The number of timers that the caller works on, none of which is due.
const OWN: usize = 10_000;
/// The number of timers of the herd that are armed with one clock reading.
const EACH: u32 = 1000;
/// The time from the start until the herd is due.
const DUE: Duration = Duration::from_secs(5);
/// Operations are timed from [`BEFORE`] that instant until [`AFTER`] it.
const BEFORE: Duration = Duration::from_millis(100);
const AFTER: Duration = Duration::from_secs(1);
/// The quantiles that are reported.
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.9999, 1.0];

/// The quantiles of an operation's time, in microseconds.
pub(crate) fn longest<S: System>(timers: u32) -> Vec<f64> {
    let all = OWN + timers.next_multiple_of(EACH) as usize;
    // Never dropped: the process ends with the measurement.
    let mut system = ManuallyDrop::new(S::caller(S::start(all), all));
    let far = Duration::from_secs(600);
    system.insert(vec![far; OWN].leak());
    let due = now() + DUE;
    for _ in 0..timers.div_ceil(EACH) {
        system.insert(vec![due - now(); EACH as usize].leak());
    }
    let moves: Vec<_> = (0..OWN).map(|place| Move { place, delay: far }).collect();
    let moves: &'static [Move] = moves.leak();
    let mut taken =
        Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in range");
    rest((due - BEFORE).saturating_duration_since(now()));
    for turn in (0..OWN).cycle() {
        let start = now();
        if start > due + AFTER {
            break;
        }
        if turn % 2 == 0 && S::can(Workload::ResetLater) {
            system.reset(&moves[turn..=turn]);
        } else {
            system.cancel_insert(&moves[turn..=turn]);
        }
        let nanos = u64::try_from((now() - start).as_nanos()).unwrap_or(u64::MAX);
        taken.saturating_record(nanos);
    }
    QUANTILES.into_iter().map(|at| taken.value_at_quantile(at) as f64 / 1e3).collect()
}

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
