//! The report, for a terminal and as JSON.

use serde_json::{Value, json};
use std::fmt;

/// The results of one server, in one round or in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) server: &'static str,
    pub(crate) timers: &'static str,
    pub(crate) connections: usize,
    pub(crate) requests_per_s: f64,
    /// The CPU time of the server in the busy window, per request that it answered in it.
    pub(crate) cpu_us_per_request: f64,
    pub(crate) p99_ms: f64,
    /// Connections closed before their deadline.
    pub(crate) early: u64,
    pub(crate) late_max_ms: f64,
    /// Connections that should have been closed and were not.
    pub(crate) lost: u64,
    /// Timers that the server left behind.
    pub(crate) left: u64,
}

impl Row {
    /// Returns the medians of all rounds, the sums of their faults, and the latest closing of all,
    /// or `None` without a round.
    pub(crate) fn of_rounds(rounds: &[Row]) -> Option<Self> {
        let median = |figure: fn(&Row) -> f64| {
            let mut figures: Vec<_> = rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        let first = rounds.first()?;
        Some(Self {
            requests_per_s: median(|row| row.requests_per_s),
            cpu_us_per_request: median(|row| row.cpu_us_per_request),
            p99_ms: median(|row| row.p99_ms),
            early: rounds.iter().map(|row| row.early).sum(),
            late_max_ms: rounds.iter().map(|row| row.late_max_ms).fold(0.0, f64::max),
            lost: rounds.iter().map(|row| row.lost).sum(),
            left: rounds.iter().map(|row| row.left).sum(),
            ..*first
        })
    }

    fn json(&self) -> Value {
        json!({
            "server": self.server,
            "timers": self.timers,
            "connections": self.connections,
            "requests_per_s": self.requests_per_s,
            "cpu_us_per_request": self.cpu_us_per_request,
            "p99_ms": self.p99_ms,
            "early": self.early,
            "late_max_ms": self.late_max_ms,
            "lost": self.lost,
            "left": self.left,
        })
    }
}

/// All servers.
pub(crate) struct Table(Vec<Row>);

impl Table {
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        Self(rows)
    }

    /// Returns `true` if no connection was closed early or lost, and no timer was left behind.
    pub(crate) fn holds(&self) -> bool {
        self.0.iter().all(|row| (row.early, row.lost, row.left) == (0, 0, 0))
    }

    pub(crate) fn json(&self) -> Value {
        self.0.iter().map(Row::json).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:<18} {:>11} {:>10} {:>8} {:>8} {:>5} {:>11} {:>4} {:>4}",
            "server",
            "timers",
            "connections",
            "requests/s",
            "CPU, µs",
            "p99, ms",
            "early",
            "latest, ms",
            "lost",
            "left",
        )?;
        for row in &self.0 {
            writeln!(
                f,
                "{:<12} {:<18} {:>11} {:>10.0} {:>8.2} {:>8.2} {:>5} {:>11.2} {:>4} {:>4}",
                row.server,
                row.timers,
                row.connections,
                row.requests_per_s,
                row.cpu_us_per_request,
                row.p99_ms,
                row.early,
                row.late_max_ms,
                row.lost,
                row.left,
            )?;
        }
        let verdict = if self.holds() { "holds" } else { "FAILS" };
        writeln!(f, "audit {verdict}: none may be closed early or lost, and no timer left behind")
    }
}
