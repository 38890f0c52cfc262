//! The command line.

use crate::shared::Limits;
use clap::{Parser, ValueEnum};
use std::net::SocketAddr;
use std::time::Duration;

/// An HTTP server with all its time-outs on one timing wheel.
///
/// The first line that it prints has the address that it listens on. It ends with its standard
/// input: closes all connections and prints what it has counted, as one line of JSON.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// Where to listen; port 0 for any that is free.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// What the time-outs are kept by.
    #[arg(long, value_enum, default_value = "tourbillon")]
    pub(crate) timers: Kind,

    /// How long a connection may be idle, and a head may take.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout)]
    idle: Duration,

    /// How long a request may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    request: Duration,

    /// How long a body may stand still.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout)]
    body: Duration,

    /// How long a connection of HTTP/2 may be silent before it is pinged, and a ping be unanswered.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = timeout)]
    ping: Duration,

    /// How many worker threads [default: one a core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Tokio,
    Tourbillon,
}

/// A duration of 1 ms to a year.
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
