//! [`Report`]: the figures of all rounds, as a table in Markdown and as JSON.

use crate::System;
use serde::{Deserialize, Serialize};
use std::fmt;
use tourbillon_durable_measure::median;

/// The figures of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Timers inserted one by one, per second.
    pub(crate) insert: f64,
    /// Timers inserted in groups of 500, per second. Not measured where a group is not a single
    /// call.
    pub(crate) bulk: Option<f64>,
    /// Timers cancelled one by one, per second.
    pub(crate) cancel: f64,
    /// The median, the 99th percentile and the maximum of the lateness in milliseconds, at each
    /// rate.
    pub(crate) late: Vec<[f64; 3]>,
}

/// The rounds of all systems.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    rates: Vec<usize>,
    rounds: Vec<(System, Vec<Figures>)>,
}

impl Report {
    pub(crate) fn new(systems: &[System], rates: Vec<usize>) -> Self {
        Self { rates, rounds: systems.iter().map(|&system| (system, Vec::new())).collect() }
    }

    /// Adds a round of the system at this place.
    pub(crate) fn add(&mut self, place: usize, figures: Figures) {
        self.rounds[place].1.push(figures);
    }
}

impl System {
    fn described(self) -> &'static str {
        match self {
            Self::Redis => "**tourbillon-durable, Redis**",
            Self::Bullmq => "BullMQ, Redis",
            Self::File => "**tourbillon-durable, file**",
            Self::Postgres => "**tourbillon-durable, Postgres**",
            Self::PgBoss => "pg-boss, Postgres",
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| per second, median (least to most) | insert | in groups of 500 | cancel |")?;
        for rate in &self.rates {
            write!(f, " late at {rate}/s: median, p99, max (ms) |")?;
        }
        writeln!(f, "\n|---|---:|---:|---:|{}", "---:|".repeat(self.rates.len()))?;
        for (system, rounds) in &self.rounds {
            let cell = |of: &dyn Fn(&Figures) -> Option<f64>| {
                let mut values: Vec<f64> = rounds.iter().filter_map(of).collect();
                values.sort_unstable_by(f64::total_cmp);
                let (Some(least), Some(most)) = (values.first(), values.last()) else {
                    return "the same call".to_owned();
                };
                format!("{:.0} ({least:.0} to {most:.0})", median(values.iter().copied()))
            };
            let insert = cell(&|figures| Some(figures.insert));
            let (bulk, cancel) =
                (cell(&|figures| figures.bulk), cell(&|figures| Some(figures.cancel)));
            write!(f, "| {} | {insert} | {bulk} | {cancel} |", system.described())?;
            for place in 0..self.rates.len() {
                let of =
                    |which: usize| median(rounds.iter().map(|figures| figures.late[place][which]));
                write!(f, " {:.0}, {:.0}, {:.0} |", of(0), of(1), of(2))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
