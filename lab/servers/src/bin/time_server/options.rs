//! The command line.

use clap::{Parser, ValueEnum};
use tourbillon_servers::process;

/// A server on `tokio::time` or `tourbillon::time`.
///
/// The first line of output has its address. When the standard input ends, it prints when its
/// timers fired as one line of JSON.
#[derive(Clone, Copy, Debug, Parser)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) process: process::Options<Module>,

    /// The protocol.
    #[arg(long, value_enum)]
    pub(crate) protocol: Protocol,

    /// The number of the runtime's threads.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,
}

/// The modules that the timers can come from.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Module {
    Tokio,
    #[default]
    Tourbillon,
}

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// HTTP/1.1 with persistent connections.
    Http,
    /// WebSocket with heartbeats.
    WebSocket,
    /// A broker of MQTT.
    Mqtt,
    /// Segments over UDP that are repeated.
    Datagrams,
    /// Keys that expire.
    Keys,
}
