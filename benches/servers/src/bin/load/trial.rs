//! One trial, in which a server is started, loaded and stopped.

use crate::Failure;
use crate::busy::Answers;
use crate::child::Child;
use crate::report::Row;
use crate::servers::{Server, Workload};
use crate::{connections, flows, keys, quic};
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
    /// The duration of the load.
    pub(crate) window: Duration,
    /// The idle timeout, or the shortest time until a timer fires.
    pub(crate) timeout: Duration,
}

/// The time in which answers and the CPU time of the server are counted.
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

/// The shortest idle timeout of QUIC connections. A client that is held up for as long sends no
/// pings.
const SHORTEST_QUIC: Duration = Duration::from_secs(2);

/// Loads one server.
pub(crate) fn run(server: &Server, load: &Load) -> Result<Row, Failure> {
    let mut load = *load;
    if matches!(server.workload, Workload::Quic) {
        load.timeout = load.timeout.max(SHORTEST_QUIC);
    }
    let load = &load;
    let child = Child::start(server, load.timeout)?;
    let (size, outcome) = match server.workload {
        Workload::Connections(protocol) => {
            (load.idle + load.busy, connections::load(child, protocol, load)?)
        }
        Workload::Quic => (load.quic, quic::load(child, load)?),
        Workload::Flows => (load.timers as usize, flows::load(child, load)?),
        Workload::Keys => (load.timers as usize, keys::load(child, load)?),
    };
    let Outcome { answers, cpu, early, latest, lost, report } = outcome;
    let reported = |count: &str| report[count].as_u64().unwrap_or(0);
    let requests = answers.latencies.len() as f64;
    Ok(Row {
        server: server.program,
        timers: server.timers,
        size,
        requests_per_s: requests / load.window.as_secs_f64(),
        cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests.max(1.0),
        p99_ms: answers.latencies.value_at_quantile(0.99) as f64 / 1e6,
        early: early + answers.cut + reported("early"),
        late_max_ms: latest.as_secs_f64() * 1e3,
        lost: lost + reported("lost"),
        left: reported("left"),
    })
}

pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().map_err(|_| "a client thread panicked")?
}
