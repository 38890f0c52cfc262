//! [`Report`]: all figures, as a table in Markdown and as JSON.

use serde::Serialize;
use std::fmt;
use tourbillon_durable_measure::firing::{CatchUp, Firing, Resting};
use tourbillon_durable_measure::median;

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) calls: Vec<Calls>,
    pub(crate) resting: Option<Resting>,
    pub(crate) firing: Option<Firing>,
    pub(crate) overdue: Option<CatchUp>,
    pub(crate) late: Option<Late>,
    pub(crate) held: Option<Held>,
    pub(crate) locked: Vec<Locked>,
}

/// The seconds from the commit of a transaction to the delivery of its timers, which were due
/// before, with notices and without.
#[derive(Debug, Serialize)]
pub(crate) struct Late {
    pub(crate) count: usize,
    pub(crate) announced: f64,
    pub(crate) found: f64,
}

/// Inserts and cancels, with so many resting and so many callers in flight. Each round has the
/// calls per second, and the microseconds of processor time of the server and of this process for
/// each.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Calls {
    pub(crate) resting: usize,
    pub(crate) callers: usize,
    pub(crate) insert: Vec<[f64; 3]>,
    pub(crate) cancel: Vec<[f64; 3]>,
}

/// A stream of timers, without and with a transaction that stays open.
#[derive(Debug, Serialize)]
pub(crate) struct Held {
    pub(crate) seconds: u64,
    pub(crate) rate: usize,
    pub(crate) free: Side,
    pub(crate) held: Side,
    /// Dead rows that could not be vacuumed away.
    pub(crate) dead: u64,
}

/// The lateness of a stream beside a transaction that has locked so many timers which are due. Each
/// round has the 99th percentile in milliseconds, without the transaction and with it.
#[derive(Debug, Serialize)]
pub(crate) struct Locked {
    pub(crate) level: &'static str,
    pub(crate) rows: usize,
    pub(crate) rate: usize,
    pub(crate) p99: Vec<[f64; 2]>,
}

/// Milliseconds of lateness at the end of a stream, and the timers per second that are possible
/// then.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) most: f64,
    pub(crate) throughput: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| resting | callers | call | a second | server, µs | client, µs |")?;
        writeln!(f, "|---:|---:|---|---:|---:|---:|")?;
        for Calls { resting, callers, insert, cancel } in &self.calls {
            for (name, rounds) in [("insert", insert), ("cancel", cancel)] {
                let of = |which: usize| median(rounds.iter().map(|round| round[which]));
                let [rate, server, client] = [0, 1, 2].map(of);
                writeln!(
                    f,
                    "| {resting} | {callers} | {name} | {rate:.0} | {server:.0} | {client:.0} |"
                )?;
            }
        }
        if let Some(resting) = &self.resting {
            writeln!(f, "\n{resting}")?;
        }
        if let Some(firing) = &self.firing {
            writeln!(f, "\n{firing}")?;
        }
        if let Some(overdue) = &self.overdue {
            writeln!(f, "\n{overdue}")?;
        }
        if let Some(Late { count, announced, found }) = &self.late {
            writeln!(f, "\n| {count} timers committed late | all delivered after, s |")?;
            writeln!(f, "|---|---:|")?;
            writeln!(f, "| with notices | {announced:.1} |\n| without | {found:.1} |")?;
        }
        if let Some(Held { seconds, rate, free, held, dead }) = &self.held {
            writeln!(
                f,
                "\n| {rate} due a second | late p50, ms | p99 | most | possible a second |"
            )?;
            writeln!(f, "|---|---:|---:|---:|---:|")?;
            let open = format!("a transaction open for {seconds} s, {dead} dead rows");
            for (name, side) in [("no transaction open", free), (&*open, held)] {
                let Side { p50, p99, most, throughput } = side;
                writeln!(f, "| {name} | {p50:.2} | {p99:.2} | {most:.2} | {throughput:.0} |")?;
            }
        }
        if !self.locked.is_empty() {
            writeln!(
                f,
                "\n| locked | isolation | due a second | late p99, ms | beside it | factor |"
            )?;
            writeln!(f, "|---:|---|---:|---:|---:|---:|")?;
        }
        for Locked { level, rows, rate, p99 } in &self.locked {
            let [free, beside] = [0, 1].map(|side| median(p99.iter().map(|round| round[side])));
            let factor = beside / free;
            writeln!(f, "| {rows} | {level} | {rate} | {free:.1} | {beside:.1} | {factor:.2} |")?;
        }
        Ok(())
    }
}
