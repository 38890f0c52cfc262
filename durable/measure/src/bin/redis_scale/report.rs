//! [`Report`]: all figures, as a table in Markdown and as JSON.

use serde::Serialize;
use std::fmt;
use tourbillon_durable_measure::median;

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) pipelining: Vec<Pipelining>,
    pub(crate) resting: Option<Resting>,
    pub(crate) firing: Option<Firing>,
}

/// With so many resting and so many callers in flight.
#[derive(Debug, Serialize)]
pub(crate) struct Pipelining {
    pub(crate) resting: usize,
    pub(crate) callers: usize,
    pub(crate) schedule: Beside,
    pub(crate) cancel: Beside,
}

/// The rounds of an operation, of the bare command it is compared with, and of two bare commands.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Beside(pub(crate) [Vec<Taken>; 3]);

/// What a call took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Taken {
    pub(crate) a_second: f64,
    /// Microseconds of processor time of the server and of this process, a call.
    pub(crate) server: f64,
    pub(crate) client: f64,
}

/// Timers at rest.
#[derive(Debug, Serialize)]
pub(crate) struct Resting {
    pub(crate) count: usize,
    /// How many were scheduled a second.
    pub(crate) scheduled: f64,
    /// Of the server's memory, a timer.
    pub(crate) bytes: f64,
    /// Commands a second with a worker, those in scripts counted.
    pub(crate) commands: f64,
}

/// Timers that fired.
#[derive(Debug, Serialize)]
pub(crate) struct Firing {
    pub(crate) rate: usize,
    /// How many were delivered a second, until the last of them.
    pub(crate) a_second: f64,
    /// Commands a second, those in scripts counted.
    pub(crate) commands: f64,
    /// Processors that the server and this process used.
    pub(crate) server: f64,
    pub(crate) client: f64,
    /// Milliseconds from the planned time to the beginning of the handler.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) most: f64,
}

impl Beside {
    fn row(&self, f: &mut fmt::Formatter<'_>, among: &str, names: [&str; 3]) -> fmt::Result {
        let rate = |all: &[Taken]| median(all.iter().map(|taken| taken.a_second));
        let bare = rate(&self.0[1]);
        for (name, all) in names.iter().zip(&self.0) {
            let server = median(all.iter().map(|taken| taken.server));
            let client = median(all.iter().map(|taken| taken.client));
            let (rate, ratio) = (rate(all), rate(all) / bare);
            writeln!(
                f,
                "| {among} | {name} | {rate:.0} | {ratio:.2} | {server:.2} | {client:.2} |"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| resting | callers | call | a second | of the bare one | server, µs | client, µs |"
        )?;
        writeln!(f, "|---:|---:|---|---:|---:|---:|---:|")?;
        for Pipelining { resting, callers, schedule, cancel } in &self.pipelining {
            let among = format!("{resting} | {callers}");
            schedule.row(f, &among, ["insert", "ZADD", "ZADD, HSET"])?;
            cancel.row(f, &among, ["cancel", "ZREM", "ZREM, HDEL"])?;
        }
        if let Some(Resting { count, scheduled, bytes, commands }) = &self.resting {
            writeln!(f, "\n| resting | scheduled a second | bytes a timer | commands a second |")?;
            writeln!(f, "|---:|---:|---:|---:|")?;
            writeln!(f, "| {count} | {scheduled:.0} | {bytes:.0} | {commands:.1} |")?;
        }
        if let Some(firing) = &self.firing {
            let Firing { rate, a_second, commands, server, client, p50, p99, most } = firing;
            writeln!(
                f,
                "\n| due a second | delivered | commands a second | server, processors \
                 | client, processors | late p50, ms | p99 | most |"
            )?;
            writeln!(f, "|---:|---:|---:|---:|---:|---:|---:|---:|")?;
            writeln!(
                f,
                "| {rate} | {a_second:.0} | {commands:.0} | {server:.2} | {client:.2} \
                 | {p50:.2} | {p99:.2} | {most:.2} |"
            )?;
        }
        Ok(())
    }
}
