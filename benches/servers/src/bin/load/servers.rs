//! The servers under load. Each is a program that is built beside this one. It prints its address,
//! ends when its standard input does, and then prints a line of JSON, in which `left` is the number
//! of timers left behind.

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
    pub(crate) protocol: Protocol,
}

/// All of them. `ci/load servers` builds the programs that are named here.
pub(crate) const SERVERS: [Server; 6] = [
    idle_server("tourbillon(own)", &["--timers", "tourbillon", "--sweeper", "own"]),
    idle_server("tourbillon(shared)", &["--timers", "tourbillon", "--sweeper", "shared"]),
    idle_server("heap(own)", &["--timers", "heap", "--sweeper", "own"]),
    idle_server("heap(shared)", &["--timers", "heap", "--sweeper", "shared"]),
    http_server("tourbillon", &["--timers", "tourbillon"]),
    http_server("tokio", &["--timers", "tokio"]),
];

const fn idle_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    Server { program: "idle_server", timers, options, protocol: Protocol::Echo }
}

const fn http_server(timers: &'static str, options: &'static [&'static str]) -> Server {
    Server { program: "http_server", timers, options, protocol: Protocol::Http }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.program, self.timers)
    }
}
