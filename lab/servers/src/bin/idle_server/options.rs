//! The command line.

use crate::server::{Config, Kind, Sweeping};
use clap::Parser;
use std::net::SocketAddr;
use std::time::Duration;

/// A TCP echo server that closes idle connections. It prints its address, and ends when its
/// standard input does.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// The address to listen on, with port 0 for any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// The time before an idle connection is closed, for example 500ms or 30s. A connection is idle
    /// while its peer sends no byte and reads none of those that wait for it.
    #[arg(long, default_value = "30s", value_parser = idle)]
    idle: Duration,

    /// The number of event loops, each a thread [default: one per core].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// The owner of the timers, which is each loop, or a thread that sweeps the timers of all
    /// loops.
    #[arg(long, default_value = "own")]
    sweeper: Sweeping,

    /// The structure of the timers, which is the wheel or an ordered map.
    #[arg(long, default_value = "tourbillon")]
    timers: Kind,

    /// The length of the wheel's tick, for example 1ms or 10ms.
    #[arg(long, default_value = "1ms", value_parser = humantime::parse_duration)]
    resolution: Duration,
}

/// Parses a duration of 1 ms to a year.
fn idle(text: &str) -> Result<Duration, String> {
    let idle = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(1)..=Duration::from_secs(365 * 86_400);
    if allowed.contains(&idle) { Ok(idle) } else { Err("1ms to 1year is allowed".into()) }
}

impl Options {
    pub(crate) fn config(&self) -> Config {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            listen: self.listen,
            idle: self.idle,
            loops: self.workers.map_or_else(cores, usize::from),
            sweeping: self.sweeper,
            kind: self.timers,
            resolution: self.resolution,
        }
    }
}
