//! The load of a server, the window of its measurement, and the outcome.

use crate::Failure;
use crate::busy::Answers;
use crate::child::Child;
use serde_json::Value;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The load of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The number of idle TCP connections.
    pub(crate) idle: usize,
    /// The number of busy TCP connections.
    pub(crate) busy: usize,
    /// The number of QUIC connections.
    pub(crate) quic: usize,
    /// The number of flows, and of keys.
    pub(crate) timers: u32,
    /// The pause after each batch of datagrams and pipeline of commands.
    pub(crate) pause: Duration,
    /// The duration of the load.
    pub(crate) window: Duration,
    /// The idle timeout, or the shortest time until a timer fires.
    pub(crate) timeout: Duration,
}

/// The time when answers and the CPU time of the server are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    start: Instant,
    end: Instant,
}

/// The results of a trial.
pub(crate) struct Outcome {
    pub(crate) answers: Answers,
    /// The CPU time that the server used in the window.
    pub(crate) cpu: Duration,
    /// Timers that fired too early, by the clients.
    pub(crate) early: u64,
    pub(crate) latest: Duration,
    /// Timers that never fired, by the clients.
    pub(crate) lost: u64,
    /// The report of the server.
    pub(crate) report: Value,
}

impl Window {
    /// A window of this length, after the server has been under load for a while.
    pub(crate) fn after(warm_up: Duration, length: Duration) -> Self {
        let start = Instant::now() + warm_up;
        Self { start, end: start + length }
    }

    /// Waits for the window to pass, and returns the CPU time that the server used in it.
    pub(crate) fn cpu(&self, child: &Child) -> Result<Duration, Failure> {
        thread::sleep(self.start.saturating_duration_since(Instant::now()));
        let before = child.cpu()?;
        thread::sleep(self.end.saturating_duration_since(Instant::now()));
        Ok(child.cpu()?.saturating_sub(before))
    }

    pub(crate) fn contains(&self, now: Instant) -> bool {
        (self.start..self.end).contains(&now)
    }

    pub(crate) fn end(&self) -> Instant {
        self.end
    }
}

/// Waits for a client thread, and returns its result.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().map_err(|_| "a client thread panicked")?
}
