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
        let (outcome, operations, faults) =
            (self.outcome, self.outcome.operations, self.outcome.faults);
        json!({
            "connections": self.options.connections,
            "load": self.options.load(),
            "cpu_share": self.cpu_share(),
            "seconds": self.seconds(),
            "inserted": operations.inserted,
            "reset": operations.reset,
            "cancelled": operations.cancelled,
            "fired": operations.fired,
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
        let operations = self.outcome.operations;
        operations.inserted + operations.reset + operations.cancelled + operations.fired
    }

    /// The CPU time that the process used, as a share of the CPU time of all cores.
    fn cpu_share(&self) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.outcome.total_cpu / self.seconds() / cores as f64
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds()
    }

    /// An explanation of the lateness.
    fn meaning(&self) -> &'static str {
        if self.options.load().is_some() {
            "from the deadline to the handler, in a server with CPU time to spare"
        } else {
            "in the handler, which waits for a core; the result of this run is the throughput"
        }
    }

    /// The lateness at a quantile, in milliseconds.
    fn late(&self, quantile: f64) -> f64 {
        self.outcome.lateness.value_at_quantile(quantile) as f64 / 1e6
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (outcome, metrics, faults) = (self.outcome, &self.outcome.metrics, self.outcome.faults);
        let (seconds, operations) = (self.seconds(), outcome.operations);
        let connections = self.options.connections;
        let workers = self.options.workers();
        write!(f, "{connections} connections, {workers} workers, {seconds:.1} s")?;
        match self.options.load() {
            Some(load) => write!(f, ", workers busy for {:.0} % of the time", load * 100.0)?,
            None => write!(f, " without pause")?,
        }
        writeln!(f, ", {:.0} % of the CPU time of all cores", self.cpu_share() * 100.0)?;
        writeln!(f)?;
        let rows = [
            ("inserted", operations.inserted),
            ("reset", operations.reset),
            ("cancelled", operations.cancelled),
            ("fired", operations.fired),
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
            writeln!(f, "             {}", self.meaning())?;
            writeln!(f, "             swept within {p50:?} (p50), {p99:?} (p99)")?;
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
