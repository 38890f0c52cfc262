//! The report, for a terminal and as JSON.

use serde_json::{Value, json};
use std::fmt;

/// The results of one server, in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) server: &'static str,
    pub(crate) timers: &'static str,
    /// The number of connections, flows or keys.
    pub(crate) size: usize,
    pub(crate) requests_per_s: f64,
    /// The CPU time of the server in the busy window, per request that it answered in it.
    pub(crate) cpu_us_per_request: f64,
    pub(crate) p99_ms: f64,
    /// Timers that fired before their deadline.
    pub(crate) early: u64,
    pub(crate) late_max_ms: f64,
    /// Timers that should have fired and did not.
    pub(crate) lost: u64,
    /// Timers that the server left behind.
    pub(crate) left: u64,
    /// `None` if the server does not report when its timers fired.
    pub(crate) fired: Option<Fired>,
}

/// When the timers of a server fired, by its report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fired {
    count: u64,
    /// Milliseconds from a deadline until the code that waited for it ran, at each of
    /// [`QUANTILES`].
    late_ms: [f64; QUANTILES.len()],
}

/// The quantiles of the lateness, by their names in the reports of servers.
const QUANTILES: [&str; 4] = ["p50", "p99", "p999", "max"];

impl Fired {
    /// Parses the report of a server.
    pub(crate) fn parse(report: &Value) -> Option<Self> {
        let mut late_ms = [0.0; QUANTILES.len()];
        for (late_ms, quantile) in late_ms.iter_mut().zip(QUANTILES) {
            *late_ms = report[format!("late_{quantile}_us")].as_f64()? / 1e3;
        }
        Some(Self { count: report["fired"].as_u64()?, late_ms })
    }

    /// The medians over some rounds, and the sum of the timers that have fired.
    fn summary(rounds: &[Row]) -> Option<Self> {
        let rounds: Vec<_> = rounds.iter().map(|row| row.fired).collect::<Option<_>>()?;
        Some(Self {
            count: rounds.iter().map(|fired| fired.count).sum(),
            late_ms: std::array::from_fn(|at| median(rounds.iter().map(|fired| fired.late_ms[at]))),
        })
    }
}

/// The results of one server in all rounds.
pub(crate) struct Summary {
    /// Medians, the sums of faults, and the latest timer of all.
    row: Row,
    /// Half of the difference between the rounds in CPU time, as a share of the median.
    cpu_spread: f64,
    /// The CPU time relative to the server's first timers, as the median over the rounds.
    cpu_ratio: f64,
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

impl Summary {
    /// Returns the results of some rounds beside the results of the server's first timers in the
    /// same rounds, or `None` without a round.
    pub(crate) fn new(rounds: &[Row], first_timers: &[Row]) -> Option<Self> {
        let all = |figure: fn(&Row) -> f64| rounds.iter().map(figure);
        let cpu = all(|row| row.cpu_us_per_request);
        let ratios = cpu.clone().zip(first_timers).map(|(cpu, row)| cpu / row.cpu_us_per_request);
        let most = cpu.clone().fold(f64::MIN, f64::max);
        let least = cpu.clone().fold(f64::MAX, f64::min);
        let row = Row {
            requests_per_s: median(all(|row| row.requests_per_s)),
            cpu_us_per_request: median(cpu),
            p99_ms: median(all(|row| row.p99_ms)),
            early: rounds.iter().map(|row| row.early).sum(),
            late_max_ms: all(|row| row.late_max_ms).fold(0.0, f64::max),
            lost: rounds.iter().map(|row| row.lost).sum(),
            left: rounds.iter().map(|row| row.left).sum(),
            fired: Fired::summary(rounds),
            ..*rounds.first()?
        };
        let cpu_spread = (most - least) / 2.0 / row.cpu_us_per_request;
        Some(Self { row, cpu_spread, cpu_ratio: median(ratios) })
    }

    fn json(&self) -> Value {
        let mut report = json!({
            "server": self.row.server,
            "timers": self.row.timers,
            "size": self.row.size,
            "requests_per_s": self.row.requests_per_s,
            "cpu_us_per_request": self.row.cpu_us_per_request,
            "cpu_spread": self.cpu_spread,
            "cpu_ratio": self.cpu_ratio,
            "p99_ms": self.row.p99_ms,
            "early": self.row.early,
            "late_max_ms": self.row.late_max_ms,
            "lost": self.row.lost,
            "left": self.row.left,
        });
        if let Some(fired) = self.row.fired {
            report["fired"] = fired.count.into();
            for (quantile, late_ms) in QUANTILES.into_iter().zip(fired.late_ms) {
                report[format!("fired_{quantile}_ms")] = late_ms.into();
            }
        }
        report
    }
}

/// All servers.
pub(crate) struct Table(Vec<Summary>);

impl Table {
    pub(crate) fn new(rows: Vec<Summary>) -> Self {
        Self(rows)
    }

    /// Returns `true` if no timer fired early, was lost or was left behind.
    pub(crate) fn holds(&self) -> bool {
        self.0.iter().all(|Summary { row, .. }| (row.early, row.lost, row.left) == (0, 0, 0))
    }

    pub(crate) fn json(&self) -> Value {
        self.0.iter().map(Summary::json).collect()
    }

    /// Writes when the timers fired, by the servers that report it.
    fn write_lateness(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = QUANTILES.map(|quantile| format!(" {quantile:>8}")).concat();
        writeln!(f, "\n{:<12} {:<18} {:>8} ms late:{head}", "server", "timers", "fired")?;
        for Row { server, timers, fired, .. } in self.0.iter().map(|summary| &summary.row) {
            if let Some(Fired { count, late_ms }) = fired {
                let late = late_ms.map(|late| format!(" {late:>8.2}")).concat();
                writeln!(f, "{server:<12} {timers:<18} {count:>8}         {late}")?;
            }
        }
        writeln!(f)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:<18} {:>8} {:>10} {:>8} {:>5} {:>5} {:>8} {:>5} {:>11} {:>4} {:>4}",
            "server",
            "timers",
            "size",
            "requests/s",
            "CPU, µs",
            "±, %",
            "ratio",
            "p99, ms",
            "early",
            "latest, ms",
            "lost",
            "left",
        )?;
        for Summary { row, cpu_spread, cpu_ratio } in &self.0 {
            writeln!(
                f,
                "{:<12} {:<18} {:>8} {:>10.0} {:>8.3} {:>5.1} {:>5.2} {:>8.2} {:>5} {:>11.2} {:>4} \
                 {:>4}",
                row.server,
                row.timers,
                row.size,
                row.requests_per_s,
                row.cpu_us_per_request,
                cpu_spread * 100.0,
                cpu_ratio,
                row.p99_ms,
                row.early,
                row.late_max_ms,
                row.lost,
                row.left,
            )?;
        }
        if self.0.iter().any(|summary| summary.row.fired.is_some()) {
            self.write_lateness(f)?;
        }
        let verdict = if self.holds() { "holds" } else { "FAILS" };
        writeln!(f, "audit {verdict}: no timer may fire early, be lost, or be left behind")
    }
}
