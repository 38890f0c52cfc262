//! The command line.

use crate::shared::Limits;
use clap::{Parser, ValueEnum};
use std::net::SocketAddr;
use std::time::Duration;

/// An HTTP server with all its timeouts on one timing wheel.
///
/// The first line of output has the address of the server. When the standard input ends, the server
/// closes all connections and prints its counters as one line of JSON.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// The address to listen on, with port 0 for any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// The timer that holds the timeouts.
    #[arg(long, value_enum, default_value = "tourbillon")]
    pub(crate) timers: Kind,

    /// The limit for an idle connection, and for a head.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout)]
    idle: Duration,

    /// The limit for a request.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    request: Duration,

    /// The limit for a body that stalls.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout)]
    body: Duration,

    /// The silence before an HTTP/2 connection is pinged, and the limit for the reply.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = timeout)]
    ping: Duration,

    /// The number of worker threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Tokio,
    Tourbillon,
}

/// Parses a duration of 1 ms to a year.
fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(1)..=Duration::from_secs(365 * 86_400);
    if allowed.contains(&timeout) { Ok(timeout) } else { Err("1ms to 1year is allowed".into()) }
}

impl Options {
    pub(crate) fn limits(&self) -> Limits {
        let Self { idle, request, body, ping, .. } = *self;
        Limits { idle, request, body, ping }
    }

    /// The number of worker threads.
    pub(crate) fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.workers.map_or_else(cores, usize::from)
    }
}
