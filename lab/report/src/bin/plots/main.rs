//! Draws the plots of `docs/BENCHMARKS.md` from `docs/numbers.json`, and measures nothing.
//!
//! ```console
//! $ cargo run -p tourbillon-report --bin plots
//! ```

#![forbid(unsafe_code)]

mod chart;
mod numbers;
mod sharing;

use chart::{Chart, Series};
use clap::Parser;
use numbers::Numbers;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

/// The systems that are drawn, in an order that gives each its colour.
const SYSTEMS: [&str; 14] = [
    "tourbillon",
    "tourbillon-pinned",
    "tokio",
    "tokio-alt",
    "delay-queue",
    "nexus-timer",
    "heap",
    "async-io",
    "pingora-timeout",
    "hhwt",
    "floor",
    "floor-padded",
    "floor-clocked",
    "floor-vectors",
];

/// Draws the plots of a run.
#[derive(Parser)]
struct Arguments {
    /// The numbers of the run.
    #[arg(default_value = "docs/numbers.json")]
    numbers: PathBuf,
    /// The folder of the plots.
    #[arg(default_value = "docs/plots")]
    folder: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { numbers, folder } = Arguments::parse();
    fs::create_dir_all(&folder)?;
    for (name, svg) in plots(&Numbers::read(&numbers)?)? {
        fs::write(folder.join(name), svg)?;
    }
    Ok(())
}

/// All plots that there are numbers for, by the names of their files.
fn plots(numbers: &Numbers) -> Result<BTreeMap<&'static str, String>, Box<dyn Error>> {
    let charts = [
        ("cancel_insert.svg", by_timers(numbers, "cancel_insert", "Cancel and insert")),
        ("reset_later.svg", by_timers(numbers, "reset_later", "Reset to a later deadline")),
        ("callers_cancel_insert.svg", by_callers(numbers, "cancel_insert", "Cancel and insert")),
        (
            "callers_reset_later.svg",
            by_callers(numbers, "reset_later", "Reset to a later deadline"),
        ),
        ("lateness.svg", lateness(numbers)),
        ("sharing.svg", sharing::chart(numbers)),
    ];
    let drawn = charts.into_iter().filter(|(_, chart)| chart.has_points());
    drawn.map(|(name, chart)| Ok((name, chart.draw()?))).collect()
}

/// The series of each system, whose points `point` makes of a key's first part and median.
///
/// The keys are `WORKLOAD/THREADS/TIMERS/SYSTEM/FIGURE`.
fn by_system(
    numbers: &Numbers,
    sections: &[&str],
    workload: &str,
    figure: &str,
    point: impl Fn(f64, f64, f64) -> (f64, f64),
) -> Vec<Series> {
    let series = SYSTEMS.into_iter().enumerate().map(|(place, system)| {
        let mut points = Vec::new();
        for (key, value) in sections.iter().flat_map(|section| numbers.medians(section)) {
            let parts: Vec<_> = key.split('/').collect();
            if let [of, threads, timers, name, what] = parts[..]
                && (of, name, what) == (workload, system, figure)
            {
                let number = |text: &str| text.parse().unwrap_or(f64::NAN);
                points.push(point(number(threads), number(timers), value));
            }
        }
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: system.into(), place, is_bold: system.starts_with("tourbillon"), points }
    });
    series.collect()
}

/// The CPU time of an operation by the number of armed timers.
fn by_timers(numbers: &Numbers, workload: &str, title: &str) -> Chart {
    let sections = &["sizes", "operations"];
    Chart {
        title: format!("{title}, one caller"),
        caption: numbers.caption("sizes"),
        x: ("armed timers", chart::short),
        y: ("CPU time per operation (ns)", chart::short),
        series: by_system(numbers, sections, workload, "cpu_ns", |_, timers, ns| (timers, ns)),
    }
}

/// Operations per second by the number of callers.
fn by_callers(numbers: &Numbers, workload: &str, title: &str) -> Chart {
    let rate = |threads, _, per_second: f64| (threads, per_second / 1e6);
    let mut series = by_system(numbers, &["callers"], workload, "per_second", rate);
    // Systems that were measured with one caller alone make no curve.
    series.retain(|series| series.points.len() > 1);
    Chart {
        title: format!("{title}, 1,000,000 armed timers shared by the callers"),
        caption: numbers.caption("callers"),
        x: ("callers", chart::short),
        y: ("million operations per second", chart::short),
        series,
    }
}

/// The share of timers that fire later than a given time after their deadlines.
fn lateness(numbers: &Numbers) -> Chart {
    let kinds = [("lateness", "default executor"), ("lateness-inline", "inline")];
    let series = kinds.into_iter().enumerate().map(|(place, (row, name))| {
        let mut points: Vec<_> = numbers
            .medians("footprint")
            .filter_map(|(key, late)| {
                let share: f64 = key.strip_prefix(row)?.strip_prefix("/curve/")?.parse().ok()?;
                Some((late.max(1.0), share))
            })
            .collect();
        points.sort_by(|one, other| other.1.total_cmp(&one.1));
        Series { name: name.into(), place, is_bold: false, points }
    });
    Chart {
        title: "1,000,000 timers due within one second, two threads insert and cancel".into(),
        caption: numbers.caption("footprint"),
        x: ("lateness (µs)", chart::short),
        y: ("share of timers that fire later", chart::short),
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, plots};
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    #[test]
    fn plots_of_the_documents_are_those_of_the_numbers() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        if !docs.join("numbers.json").exists() {
            return; // `ci/measure numbers check` reports it.
        }
        let numbers = Numbers::read(&docs.join("numbers.json")).expect("they can be read");
        let drawn = plots(&numbers).expect("they can be drawn");
        let files = fs::read_dir(docs.join("plots")).expect("there are plots");
        let files: BTreeMap<_, _> = files
            .map(|file| file.expect("it can be listed"))
            .map(|file| {
                let svg = fs::read_to_string(file.path()).expect("it can be read");
                (file.file_name().into_string().expect("a plain name"), svg)
            })
            .collect();
        assert!(drawn.keys().copied().eq(files.keys()), "{:?}", files.keys());
        for (name, svg) in drawn {
            assert!(files[name] == svg, "{name} is not as `ci/measure numbers write` draws it");
        }
    }

    #[test]
    fn numbers_that_are_missing_make_no_plot() {
        let numbers = Numbers::parse(r#"{"runs": [], "sections": {}}"#).expect("it is JSON");
        assert_eq!(plots(&numbers).expect("nothing is to be drawn").len(), 0);
    }

    #[test]
    fn curves_go_from_section_to_section() {
        let text = r#"{
            "runs": [
                {"commit": "c0ffee", "date": "2026-01-02", "machine": {"cpu": "X", "cores": 2}}
            ],
            "sections": {
                "sizes": {"run": 0, "values": {"reset_later/1/1000/tokio/cpu_ns": [3, 1, 2]}},
                "operations": {"run": 0, "values": {"reset_later/1/9000/tokio/cpu_ns": [5]}}
            }}"#;
        let numbers = Numbers::parse(text).expect("it is JSON");
        let chart = super::by_timers(&numbers, "reset_later", "Reset");
        let tokio = chart.series.iter().find(|series| series.name == "tokio");
        assert_eq!(tokio.expect("it is drawn").points, [(1000.0, 2.0), (9000.0, 5.0)]);
        let drawn = plots(&numbers).expect("it can be drawn");
        assert!(drawn["reset_later.svg"].contains("X, 2 cores, commit c0ffee, 2026-01-02"));
    }
}
