//! [`Config`], the configuration of a server.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// An error on the way to a server, for its user.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) idle: Duration,
    pub(crate) loops: usize,
    pub(crate) kind: Kind,
    pub(crate) sweeping: Sweeping,
    pub(crate) resolution: Duration,
}

/// The structure that holds the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Tourbillon,
    Heap,
}

/// The thread that takes due timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sweeping {
    /// Each loop, from timers of its own.
    Own,
    /// A thread, from timers that all loops share.
    Shared,
}

/// Appends the answer to the bytes that were read. If it panics, its connection is closed.
pub(crate) type Handler = Arc<dyn Fn(&[u8], &mut Vec<u8>) + Send + Sync>;
