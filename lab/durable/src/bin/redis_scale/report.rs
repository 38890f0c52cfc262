//! [`Report`]: all figures, as a table in Markdown and as JSON.

use serde::Serialize;
use std::fmt;
use tourbillon_durable_measure::firing::{CatchUp, Firing, Resting};
use tourbillon_durable_measure::median;

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) pipelining: Vec<Pipelining>,
    pub(crate) resting: Option<Resting>,
    pub(crate) firing: Option<Firing>,
    pub(crate) overdue: Option<CatchUp>,
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

/// The cost of a call.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Taken {
    pub(crate) a_second: f64,
    /// Microseconds of processor time of the server and of this process, per call.
    pub(crate) server: f64,
    pub(crate) client: f64,
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
        if let Some(resting) = &self.resting {
            writeln!(f, "\n{resting}")?;
        }
        if let Some(firing) = &self.firing {
            writeln!(f, "\n{firing}")?;
        }
        if let Some(overdue) = &self.overdue {
            writeln!(f, "\n{overdue}")?;
        }
        Ok(())
    }
}
