//! [`Plan`], the size of a fleet and its faults, drawn from a seed.

use super::world::{MILLISECOND, Nanos, SECOND};

/// The size of a fleet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) workers: usize,
    pub(crate) partitions: u64,
    pub(crate) servers: usize,
    pub(crate) timers: usize,
    pub(crate) length: Nanos,
}

/// How far a server's clock is ahead or behind at most, in milliseconds.
pub(crate) const MOST_AHEAD: i64 = 2000;

/// How far the clocks of two servers are apart at most.
const APART: Nanos = 2 * MOST_AHEAD.unsigned_abs() * MILLISECOND;

/// The usual size.
pub(crate) const SMALL: Setting =
    Setting { workers: 5, partitions: 16, servers: 3, timers: 500, length: 600 * SECOND };

/// A fleet with its faults.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) setting: Setting,
    pub(crate) faults: Vec<Fault>,
}

/// A fault from a time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) begin: Nanos,
    pub(crate) length: Nanos,
    pub(crate) kind: Kind,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A worker dies. Another one starts at the end.
    Kill { worker: usize },
    /// A worker is asked to end. Another one starts at the end. This is not a fault for timers.
    Leave { worker: usize },
    /// A process is suspended.
    Suspend { worker: usize },
    /// Nothing passes between a worker and a server.
    Cut { worker: usize, server: usize },
    /// Nothing passes between a worker and all servers.
    Isolate { worker: usize },
    /// Some of a thousand requests fail.
    Faulty { share: u32 },
    /// Requests and replies take up to this much longer.
    Slow { most: Nanos },
    /// A server stands still, and executes requests at the end.
    Stall { server: usize },
    /// A server refuses connections, and loses nothing.
    Crash { server: usize },
    /// Another server takes over with all data, and a clock that is this much ahead.
    FailOver { server: usize, ahead: i64 },
    /// A server has no memory for more timers.
    Full { server: usize },
}

impl Fault {
    pub(crate) fn end(&self) -> Nanos {
        self.begin + self.length
    }

    /// Returns when timers may be late because of it.
    pub(crate) fn disturbs(&self) -> Option<(Nanos, Nanos)> {
        match self.kind {
            Kind::Leave { .. } | Kind::Full { .. } => None,
            // The start of a worker delays nothing.
            Kind::Kill { .. } => Some((self.begin, self.begin)),
            // The timers that the clock passes are due at once.
            Kind::FailOver { .. } => Some((self.begin.saturating_sub(APART), self.end())),
            _ => Some((self.begin, self.end())),
        }
    }

    /// Returns `true` if workers cannot take over partitions meanwhile.
    pub(crate) fn stops_heartbeats(&self) -> bool {
        match self.kind {
            Kind::Faulty { .. } | Kind::Slow { .. } => true,
            Kind::Cut { server, .. }
            | Kind::Stall { server }
            | Kind::Crash { server }
            | Kind::FailOver { server, .. } => server == 0,
            Kind::Isolate { .. } => true,
            _ => false,
        }
    }
}

impl Plan {
    /// Draws the faults of a seed.
    pub(crate) fn drawn(seed: u64, setting: Setting) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let count = random.usize(..9);
        let mut faults: Vec<Fault> =
            (0..count).map(|_| Fault::drawn(&mut random, setting)).collect();
        faults.sort_by_key(|fault| fault.begin);
        Self { seed, setting, faults }
    }
}

impl Fault {
    fn drawn(random: &mut fastrand::Rng, setting: Setting) -> Self {
        let (workers, servers) = (setting.workers, setting.servers);
        let worker = random.usize(..workers);
        let server = random.usize(..servers);
        let begin = random.u64(10..setting.length / SECOND - 160) * SECOND;
        let begin = begin + random.u64(..1000) * MILLISECOND;
        let length = match random.u32(..3) {
            0 => random.u64(10..2000),
            1 => random.u64(2000..15_000),
            _ => random.u64(15_000..60_000),
        };
        let kind = match random.u32(..11) {
            0 => Kind::Kill { worker },
            1 => Kind::Leave { worker },
            2 => Kind::Suspend { worker },
            3 => Kind::Cut { worker, server },
            4 => Kind::Isolate { worker },
            5 => Kind::Faulty { share: random.u32(1..200) },
            6 => Kind::Slow { most: random.u64(1..1500) * MILLISECOND },
            7 => Kind::Stall { server },
            8 => Kind::Crash { server },
            9 => Kind::FailOver { server, ahead: random.i64(-MOST_AHEAD..=MOST_AHEAD) },
            _ => Kind::Full { server },
        };
        Self { begin, length: length * MILLISECOND, kind }
    }
}
