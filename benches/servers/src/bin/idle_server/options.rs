//! The command line.

use crate::server::{Config, Kind, Sweeping};
use clap::Parser;
use std::net::SocketAddr;
use std::time::Duration;

/// A TCP echo server that closes idle connections. It prints the address it listens on, and ends
/// when its standard input does.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// The address to listen on; port 0 is any that is free.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// How long a connection may be idle, for example 500ms or 30s: while no byte comes from its
    /// peer, and the peer takes none of those that wait for it.
    #[arg(long, default_value = "30s", value_parser = idle)]
    idle: Duration,

    /// How many event loops, each a thread [default: one a core].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Whether each loop has timers of its own, or all share them and a thread sweeps.
    #[arg(long, default_value = "own")]
    sweeper: Sweeping,

    /// What holds the timers: the wheel, or an ordered map as one would write it without.
    #[arg(long, default_value = "tourbillon")]
    timers: Kind,

    /// The length of the wheel's tick, for example 1ms or 10ms.
    #[arg(long, default_value = "1ms", value_parser = humantime::parse_duration)]
    resolution: Duration,
}

/// A duration of 1 ms to a year.
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
