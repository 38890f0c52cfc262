//! The servers under load. Each is a program that is built beside this one. It prints its address,
//! ends when its standard input does, and then prints a line of JSON, where `left` is the number of
//! timers left behind. The others are compared with the first of each server's timers.

use crate::protocol::Protocol;
use std::fmt;

/// One server, with one kind of timers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// The name in the report.
    pub(crate) name: &'static str,
    /// The name of the program.
    pub(crate) program: &'static str,
    /// The option for its protocol, if it has several.
    pub(crate) protocol: &'static [&'static str],
    /// The structure that holds its timers.
    pub(crate) timers: &'static str,
    /// Its other options without the address and the idle timeout.
    pub(crate) options: &'static [&'static str],
    pub(crate) workload: Workload,
}

/// The clients of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    /// TCP connections that are mostly idle.
    Connections(Protocol, Habit),
    /// QUIC connections.
    Quic,
    /// Flows of UDP datagrams, with retransmission.
    Flows,
    /// Keys that expire.
    Keys,
}

/// The requests of a crowd of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// They send a few each.
    Few,
    /// They go on until the window has passed.
    Steady,
}

/// The servers with several structures of timers. `ci/load servers` builds the programs that are
/// named here.
pub(crate) const SERVERS: [Server; 16] = [
    idle_server("tourbillon(own)", &["--timers", "tourbillon", "--sweeper", "own"]),
    idle_server("tourbillon(shared)", &["--timers", "tourbillon", "--sweeper", "shared"]),
    idle_server("heap(own)", &["--timers", "heap", "--sweeper", "own"]),
    idle_server("heap(shared)", &["--timers", "heap", "--sweeper", "shared"]),
    http_server("tourbillon", &["--timers", "tourbillon"]),
    http_server("tokio", &["--timers", "tokio"]),
    quic_server("tourbillon", &["--timers", "wheel"]),
    quic_server("tokio", &["--timers", "tokio"]),
    flow_server("tourbillon", &["--timers", "wheel"]),
    flow_server("tokio", &["--timers", "tokio"]),
    flow_server("delay-queue", &["--timers", "delay-queue"]),
    flow_server("heap", &["--timers", "heap"]),
    key_server("tourbillon", &["--timers", "wheel"]),
    key_server("delay-queue", &["--timers", "delay-queue"]),
    key_server("heap", &["--timers", "heap"]),
    key_server("ordered-set", &["--timers", "ordered-set"]),
];

const fn idle_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    let workload = Workload::Connections(Protocol::Echo, Habit::Few);
    server("idle_server", timers, options, workload)
}

const fn http_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    let workload = Workload::Connections(Protocol::Http, Habit::Few);
    server("http_server", timers, options, workload)
}

const fn quic_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    server("quic_server", timers, options, Workload::Quic)
}

const fn flow_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    server("flow_server", timers, options, Workload::Flows)
}

const fn key_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    server("key_server", timers, options, Workload::Keys)
}

const fn server(
    program: &'static str,
    timers: &'static str,
    options: &'static [&'static str],
    workload: Workload,
) -> Server {
    Server { name: program, program, protocol: &[], timers, options, workload }
}

/// The server on a module `time`, with each protocol. tokio's module comes twice, so that the
/// spread of a measurement shows.
pub(crate) fn time_servers() -> Vec<Server> {
    const MODULES: [(&str, &[&str]); 3] = [
        ("tokio", &["--timers", "tokio"]),
        ("tokio again", &["--timers", "tokio"]),
        ("tourbillon", &["--timers", "tourbillon"]),
    ];
    let steady = |protocol| Workload::Connections(protocol, Habit::Steady);
    let protocols: [(_, &[_], _); 5] = [
        ("http", &["--protocol", "http"], steady(Protocol::Http)),
        ("websocket", &["--protocol", "web-socket"], steady(Protocol::WebSocket)),
        ("mqtt", &["--protocol", "mqtt"], steady(Protocol::Mqtt)),
        ("datagrams", &["--protocol", "datagrams"], Workload::Flows),
        ("keys", &["--protocol", "keys"], Workload::Keys),
    ];
    let server = |(name, protocol, workload)| {
        MODULES.map(|(timers, options)| Server {
            name,
            program: "time_server",
            protocol,
            timers,
            options,
            workload,
        })
    };
    protocols.into_iter().flat_map(server).collect()
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.name, self.timers)
    }
}
