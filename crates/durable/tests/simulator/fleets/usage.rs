//! [`Usage`], the requests that a server has executed, their commands, and the time of its
//! processor.
//!
//! The times of heartbeats and notices were measured (`docs/BENCHMARKS.md`). The others are
//! assumptions.

use crate::model::clock::Millis;
use crate::simulator::world::Nanos;
use std::collections::BTreeMap;

const MICROSECOND: Nanos = 1000;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    /// A heartbeat of a worker whose assignment has not changed.
    UsualBeat,
    /// A heartbeat that reads the lists of workers and of owners, with their lengths.
    Beat {
        partitions: u64,
        workers: u64,
    },
    Leave,
    /// A page with this many keys.
    Page {
        keys: u64,
    },
    /// A batch of this many operations.
    Batch {
        operations: u64,
    },
    Time,
    /// A subscription, or the ping of one.
    Plain,
}

impl Request {
    /// Returns the processor time of the request.
    fn time(self) -> Nanos {
        match self {
            Self::UsualBeat | Self::Leave => 13 * MICROSECOND,
            Self::Beat { partitions, workers } => {
                13 * MICROSECOND + 300 * partitions + 400 * workers
            }
            Self::Page { keys } => (13 + keys) * MICROSECOND,
            Self::Batch { operations } => (40 + 11 * operations) * MICROSECOND,
            Self::Time | Self::Plain => 5 * MICROSECOND,
        }
    }

    /// Returns a request of the same kind that has no size.
    fn kind(self) -> Self {
        match self {
            Self::Beat { .. } => Self::Beat { partitions: 0, workers: 0 },
            Self::Page { .. } => Self::Page { keys: 0 },
            Self::Batch { .. } => Self::Batch { operations: 0 },
            other => other,
        }
    }
}

/// The processor time of one copy of a notice.
const NOTICE: Nanos = 5 * MICROSECOND;

/// The lateness of a lease, and the kind of its handler.
pub(crate) type Late = (Millis, Option<u8>);

/// The work that a server has done.
#[derive(Default)]
pub(crate) struct Usage {
    by_kind: BTreeMap<Request, Used>,
    notices: u64,
    /// The lateness of each lease, with the kind of its handler.
    late: Vec<Late>,
    /// Set if requests occupy the processor.
    pub(crate) is_timed: bool,
    /// The time of the requests since the last call of [`take_time`](Self::take_time).
    time: Nanos,
}

/// The sum of some requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) requests: u64,
    pub(crate) commands: u64,
    pub(crate) time: Nanos,
}

impl Used {
    /// Returns the difference from an earlier sum.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            commands: self.commands - before.commands,
            time: self.time - before.time,
        }
    }
}

impl Usage {
    /// Adds a request with its commands.
    pub(crate) fn add(&mut self, request: Request, commands: u64) {
        let used = self.by_kind.entry(request.kind()).or_default();
        used.requests += 1;
        used.commands += commands;
        used.time += request.time();
        self.time += request.time();
    }

    /// Adds copies of notices.
    pub(crate) fn add_notices(&mut self, copies: u64) {
        self.notices += copies;
        self.time += copies * NOTICE;
    }

    /// Adds a lease that was granted `late` after its timer was due.
    pub(crate) fn add_lease(&mut self, handler: Option<u8>, late: Millis) {
        self.late.push((late, handler));
    }

    /// Returns how long the requests since the last call occupy the processor.
    pub(crate) fn take_time(&mut self) -> Nanos {
        let time = std::mem::take(&mut self.time);
        if self.is_timed { time } else { 0 }
    }

    /// Returns the sum of the heartbeats that read the lists.
    pub(crate) fn assignments(&self) -> Used {
        let kind = Request::Beat { partitions: 0, workers: 0 };
        self.by_kind.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the number of heartbeats.
    pub(crate) fn heartbeats(&self) -> u64 {
        let usual = self.by_kind.get(&Request::UsualBeat).map_or(0, |used| used.requests);
        usual + self.assignments().requests
    }

    /// Returns the sum of all requests, with the time of notices.
    pub(crate) fn total(&self) -> Used {
        let time = self.notices * NOTICE;
        self.by_kind.values().fold(Used { time, ..Used::default() }, |sum, used| Used {
            requests: sum.requests + used.requests,
            commands: sum.commands + used.commands,
            time: sum.time + used.time,
        })
    }

    /// Returns how late each lease was granted.
    pub(crate) fn late(&self) -> &[Late] {
        &self.late
    }
}
