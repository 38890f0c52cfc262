//! The servers under load. Each is a program that is built beside this one. It prints its address,
//! ends when its standard input does, and then prints a line of JSON, where `left` is the number of
//! timers left behind. The wheel is the first of each server's timers.

use crate::protocol::Protocol;
use std::fmt;

/// One server, with one kind of timers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// The name of the program.
    pub(crate) program: &'static str,
    /// The structure that holds its timers.
    pub(crate) timers: &'static str,
    /// Its options without the address and the idle timeout.
    pub(crate) options: &'static [&'static str],
    pub(crate) workload: Workload,
}

/// The clients of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    /// TCP connections that are mostly idle.
    Connections(Protocol),
    /// QUIC connections.
    Quic,
    /// Flows of UDP datagrams, with retransmission.
    Flows,
    /// Keys that expire.
    Keys,
}

/// All of them. `ci/load servers` builds the programs that are named here.
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
    let workload = Workload::Connections(Protocol::Echo);
    Server { program: "idle_server", timers, options, workload }
}

const fn http_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    let workload = Workload::Connections(Protocol::Http);
    Server { program: "http_server", timers, options, workload }
}

const fn quic_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    Server { program: "quic_server", timers, options, workload: Workload::Quic }
}

const fn flow_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    Server { program: "flow_server", timers, options, workload: Workload::Flows }
}

const fn key_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    Server { program: "key_server", timers, options, workload: Workload::Keys }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.program, self.timers)
    }
}
