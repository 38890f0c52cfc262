//! Throughput by cores, as it follows from the cache lines that move, beside what was measured.
//!
//! An operation costs its time with one caller (section `callers`) and [`TRANSFER`] for each line
//! that it fetches or takes away (section `sharing`). A line is in one place at a time, so that
//! throughput is bounded by the line that moves most, and operations under one lock are serialised.

use crate::chart::{self, Chart, Series};
use crate::numbers::Numbers;

/// Nanoseconds for a line to go from one core to another: the median of an Intel Xeon Platinum
/// 8375C of 32 cores (<https://github.com/nviennot/core-to-core-latency>; other servers there are
/// between 44 and 115).
const TRANSFER: f64 = 51.0;

/// Systems, their timers, and the name of the curve.
const KINDS: [(&str, &str, &str); 3] = [
    ("tourbillon", "own", "own timers"),
    ("tourbillon", "another's", "another's timers"),
    ("heap", "own", "a heap in a lock"),
];

/// Systems that were measured with several callers, and the names of their curves.
const MEASURED: [(&str, &str); 2] = [("tourbillon", "measured"), ("heap", "heap, measured")];

/// Cancel and insert, and reset to later, of the wheel and of a heap in a lock.
pub(crate) fn chart(numbers: &Numbers) -> Chart {
    let workloads = [("cancel_insert", "cancel, insert"), ("reset_later", "reset")];
    let all = workloads.into_iter().flat_map(|workload| KINDS.map(|kind| (workload, kind)));
    let computed = all.map(|((workload, verb), (system, whose, name))| {
        (format!("{verb}: {name}"), false, points(numbers, system, workload, whose))
    });
    let all = workloads.into_iter().flat_map(|workload| MEASURED.map(|of| (workload, of)));
    let measured = all.map(|((workload, verb), (system, name))| {
        (format!("{verb}: {name}"), true, measured_points(numbers, system, workload))
    });
    let series = computed.chain(measured).enumerate();
    let series =
        series.map(|(place, (name, is_bold, points))| Series { name, place, is_bold, points });
    Chart {
        title: "Throughput computed from the cache lines that move, and as measured (bold)".into(),
        caption: numbers.caption("callers"),
        x: ("cores", chart::short),
        y: ("million operations per second", chart::short),
        series: series.collect(),
    }
}

/// Callers, and millions of operations per second of all of them together.
fn measured_points(numbers: &Numbers, system: &str, workload: &str) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = numbers
        .medians("callers")
        .filter_map(|(key, per_second)| match key.split('/').collect::<Vec<_>>()[..] {
            [of, callers, _, name, "per_second"] if of == workload && name == system => {
                Some((callers.parse::<f64>().ok()?, per_second / 1e6))
            }
            _ => None,
        })
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

/// Cores, and millions of operations per second.
fn points(numbers: &Numbers, system: &str, workload: &str, whose: &str) -> Vec<(f64, f64)> {
    let alone = numbers.medians("callers").find(|(key, _)| {
        let parts: Vec<_> = key.split('/').collect();
        matches!(parts[..], [of, "1", _, name, "cpu_ns"] if of == workload && name == system)
    });
    let Some((_, alone)) = alone else { return Vec::new() };
    let mut points = Vec::new();
    for cores in [2, 4, 8, 16, 32, 64] {
        let figure = |figure| {
            let key = format!("{system}/{workload}/{whose}/{cores}/{figure}");
            numbers.median("sharing", &key)
        };
        let transfers = || Some(figure("taken")? + figure("recalled")? + figure("fetched")?);
        if let (Some(transfers), Some(hottest)) = (transfers(), figure("hottest")) {
            let each = alone + TRANSFER * transfers;
            let nanos = match system {
                "heap" => each,
                _ => (each / f64::from(cores)).max(TRANSFER * hottest),
            };
            points.push((f64::from(cores), 1e3 / nanos));
        }
    }
    if !points.is_empty() {
        points.insert(0, (1.0, 1e3 / alone));
    }
    points
}
