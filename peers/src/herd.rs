//! The longest verb beside a herd: how long a caller waits while a million timers are due at once.

use crate::clock::{now, rest};
use crate::rounds::{apart, median};
use crate::systems::{self, Role, System};
use crate::workload::{Move, Workload};
use comfy_table::{Table, presets};
use hdrhistogram::Histogram;
use std::error::Error;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// How many timers the caller works on, none of them due.
const OWN: usize = 10_000;
/// How many of the herd are armed with one look at the clock.
const EACH: u32 = 1000;
/// When the herd is due.
const DUE: Duration = Duration::from_secs(5);
/// From how long before until how long after that the verbs are timed.
const BEFORE: Duration = Duration::from_millis(100);
const AFTER: Duration = Duration::from_secs(1);
/// The quantiles that are told.
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.9999, 1.0];

/// The quantiles of a verb's time, in microseconds.
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

/// Measures every system in a process of its own; the medians over the rounds.
///
/// # Errors
///
/// A measurement failed.
pub(crate) fn table(timers: u32, rounds: u32) -> Result<Table, Box<dyn Error>> {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["a verb beside a herd, µs", "p50", "p99", "p99.99", "max"]);
    for system in systems::all().iter().filter(|system| system.role != Role::Floor) {
        let mut taken = Vec::new();
        for _ in 0..rounds {
            let text = apart(system, &["--herd"], timers)?;
            let numbers = text.split_whitespace().map(str::parse);
            taken.push(numbers.collect::<Result<Vec<f64>, _>>()?);
        }
        let mut row = vec![system.name.to_owned()];
        for place in 0..QUANTILES.len() {
            let column = taken.iter().filter_map(|one| one.get(place)).copied().collect();
            row.push(median(column).map_or("-".into(), |micros| format!("{micros:.1}")));
        }
        table.add_row(row);
    }
    Ok(table)
}
