//! The report, for a terminal and as JSON.

use crate::options::Options;
use crate::server::Outcome;
use serde_json::{Value, json};
use std::fmt;

/// The result of a run.
pub(crate) struct Report<'o> {
    options: &'o Options,
    outcome: &'o Outcome,
}

impl<'o> Report<'o> {
    pub(crate) fn new(options: &'o Options, outcome: &'o Outcome) -> Self {
        Self { options, outcome }
    }

    /// Returns `true` if the audit found no fault.
    pub(crate) fn holds(&self) -> bool {
        let faults = self.outcome.faults;
        let metrics = &self.outcome.metrics;
        let ended = metrics.fired + metrics.cancelled + self.outcome.returned;
        let none = [faults.early, faults.lost, faults.twice, metrics.handler_panics] == [0; 4];
        none && ended == metrics.inserted
    }

    pub(crate) fn json(&self) -> Value {
        let (outcome, metrics, faults) = (self.outcome, &self.outcome.metrics, self.outcome.faults);
        json!({
            "connections": self.options.connections,
            "seconds": self.seconds(),
            "inserted": metrics.inserted,
            "reset": metrics.reset,
            "cancelled": metrics.cancelled,
            "fired": metrics.fired,
            "returned": outcome.returned,
            "early": faults.early,
            "lost": faults.lost,
            "twice": faults.twice,
            "lateness_ms": {
                "p50": self.late(0.5),
                "p99": self.late(0.99),
                "p999": self.late(0.999),
                "max": self.late(1.0),
            },
            "ops_per_s": self.per_second(self.operations()),
            "bytes_per_timer": outcome.bytes_per_timer,
            "driver_cpu_s": outcome.driver_cpu,
            "total_cpu_s": outcome.total_cpu,
        })
    }

    fn seconds(&self) -> f64 {
        self.outcome.played.as_secs_f64()
    }

    fn operations(&self) -> u64 {
        let metrics = &self.outcome.metrics;
        metrics.inserted + metrics.reset + metrics.cancelled + metrics.fired
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds()
    }

    /// The lateness at a quantile, in milliseconds.
    fn late(&self, quantile: f64) -> f64 {
        self.outcome.lateness.value_at_quantile(quantile) as f64 / 1e6
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (outcome, metrics, faults) = (self.outcome, &self.outcome.metrics, self.outcome.faults);
        let seconds = self.seconds();
        let connections = self.options.connections;
        writeln!(
            f,
            "{connections} connections, {} workers, {seconds:.1} s",
            self.options.workers()
        )?;
        writeln!(f)?;
        let rows = [
            ("inserted", metrics.inserted),
            ("reset", metrics.reset),
            ("cancelled", metrics.cancelled),
            ("fired", metrics.fired),
            ("in all", self.operations()),
        ];
        for (name, count) in rows {
            writeln!(f, "{name:>12} {count:>12} {:>12.0} a second", self.per_second(count))?;
        }
        writeln!(f, "{:>12} {:>12} at shutdown", "handed back", outcome.returned)?;
        writeln!(f)?;
        let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|quantile| self.late(quantile));
        if outcome.lateness.is_empty() {
            writeln!(f, "lateness     nothing has fired")?;
        } else {
            writeln!(
                f,
                "lateness     p50 {p50:.2} ms, p99 {p99:.2}, p99.9 {p999:.2}, max {max:.2}"
            )?;
            let [p50, p99] = [0.5, 0.99].map(|quantile| metrics.lateness.quantile(quantile));
            writeln!(
                f,
                "             in the handler: it waits for the pool, and for workers that"
            )?;
            writeln!(f, "             use all cores; swept within {p50:?} (p50), {p99:?} (p99)")?;
        }
        writeln!(f, "memory       {:.1} bytes a timer", outcome.bytes_per_timer)?;
        match outcome.driver_cpu {
            Some(driver) => {
                let rest = outcome.total_cpu - driver;
                writeln!(
                    f,
                    "CPU          tick thread {driver:.2} s, workers and pool {rest:.2} s"
                )?;
            }
            None => writeln!(f, "CPU          {:.2} s in all", outcome.total_cpu)?,
        }
        let verdict = if self.holds() { "holds" } else { "FAILS" };
        let accounted = metrics.fired + metrics.cancelled + outcome.returned;
        writeln!(
            f,
            "audit        {verdict}: {} inserted, {accounted} ended; {} early, {} lost, {} twice, \
             {} panics",
            metrics.inserted, faults.early, faults.lost, faults.twice, metrics.handler_panics,
        )
    }
}
