//! The command line.

use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Simulates a server with many connections, all of whose timeouts are on one timing wheel.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// The number of connections.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) connections: u32,

    /// The number of seconds to measure.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,

    /// The share of the time that the workers are busy, in per cent.
    #[arg(long, default_value_t = 70, value_parser = clap::value_parser!(u8).range(1..=95))]
    load: u8,

    /// Play without pause, to measure the throughput instead of the lateness.
    #[arg(long, conflicts_with = "load")]
    flat_out: bool,

    /// The number of worker threads [default: one per core].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,

    /// The number of shards of the wheel, 1 to 256 [default: one per core].
    #[arg(long)]
    pub(crate) shards: Option<usize>,

    /// The length of a tick, for example 100us or 1ms.
    #[arg(long, default_value = "1ms", value_parser = humantime::parse_duration)]
    pub(crate) resolution: Duration,

    /// The maximum silence of a connection before it is closed, for example 500ms or 4s.
    #[arg(long, default_value = "4s", value_parser = idle_timeout)]
    pub(crate) idle_timeout: Duration,

    /// Report the figures of the wheel to the dashboard `watch`, at this address (127.0.0.1:7878).
    #[arg(long)]
    pub(crate) watch: Option<SocketAddr>,

    /// Write the report as JSON to this file.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,

    /// Draw lateness and rates to this SVG file.
    #[arg(long)]
    pub(crate) plot: Option<PathBuf>,
}

/// Parses a duration of 1 ms to a year.
fn idle_timeout(text: &str) -> Result<Duration, String> {
    let timeout = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(1)..=Duration::from_secs(365 * 86_400);
    if allowed.contains(&timeout) { Ok(timeout) } else { Err("1ms to 1year is allowed".into()) }
}

impl Options {
    /// The load as a share, or `None` for a run without pause.
    pub(crate) fn load(&self) -> Option<f64> {
        (!self.flat_out).then(|| f64::from(self.load) / 100.0)
    }

    /// The number of worker threads.
    pub(crate) fn workers(&self) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(|| u32::try_from(cores()).unwrap_or(1))
    }
}
