//! The command line.

use crate::measure::Load;
use crate::servers::{SERVERS, Server, time_servers};
use clap::Parser;
use clap::builder::{ArgPredicate::IsPresent, PossibleValuesParser};
use std::path::PathBuf;
use std::time::Duration;

/// Loads the servers with many connections, most of them idle, and audits when those are closed.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// Load the servers that take their timers from `tokio::time` or `tourbillon::time`, steadily
    /// and below their limit, and report when the timers fired.
    #[arg(long)]
    time: bool,

    /// The number of TCP connections, limited by the number of open files.
    #[arg(long, default_value_t = 20_000, default_value_if("time", IsPresent, "4000"))]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) connections: u32,

    /// The number of QUIC connections.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    quic: u32,

    /// The number of flows, and of keys.
    #[arg(long, default_value_t = 1_000_000, default_value_if("time", IsPresent, "10000"))]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=50_000_000))]
    timers: u32,

    /// The number of seconds to load each server, in each round.
    #[arg(long, default_value_t = 10, default_value_if("time", IsPresent, "3"))]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,

    /// The number of rounds. Figures are medians, and faults are sums.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,

    /// The percentage of busy connections. There is at least one.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=99))]
    busy: u32,

    /// The idle timeout, the shortest timeout of a flow, and the shortest life of a key [default:
    /// half of the seconds, so that timers fire under load]. MQTT's is always 1.5 s.
    #[arg(long, value_parser = idle)]
    idle: Option<Duration>,

    /// Load only these servers.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(names()))]
    server: Vec<String>,

    /// Write the report as JSON to this file.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// The pause of clients that load a server below its limit, which send batches of 64.
const PAUSE: Duration = Duration::from_millis(10);

/// The servers' names, each once.
fn names() -> Vec<&'static str> {
    let servers = SERVERS.into_iter().chain(time_servers());
    let mut names: Vec<_> = servers.map(|server| server.name).collect();
    names.dedup();
    names
}

/// Parses a duration of 100 ms to an hour. Shorter ones would pass while connections are opened.
fn idle(text: &str) -> Result<Duration, String> {
    let idle = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    if allowed.contains(&idle) { Ok(idle) } else { Err("100ms to 1h is allowed".into()) }
}

impl Options {
    /// The servers to load.
    pub(crate) fn servers(&self) -> Vec<Server> {
        let wanted = |server: &Server| {
            self.server.is_empty() || self.server.iter().any(|it| it == server.name)
        };
        let servers = if self.time { time_servers() } else { SERVERS.to_vec() };
        servers.into_iter().filter(wanted).collect()
    }

    /// The load of each server.
    pub(crate) fn load(&self, connections: usize) -> Load {
        let busy = (connections * self.busy as usize / 100).max(1);
        let window = Duration::from_secs(self.seconds.into());
        Load {
            idle: connections - busy,
            busy,
            quic: self.quic as usize,
            timers: self.timers,
            pause: if self.time { PAUSE } else { Duration::ZERO },
            window,
            timeout: self.idle.unwrap_or(window / 2),
        }
    }
}
