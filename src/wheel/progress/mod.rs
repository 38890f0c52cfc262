//! [`Progress`]: the state that the sweeper and the callers of a wheel publish to each other.
//!
//! The sweeper publishes the tick that it has reached ([`swept`]), the tick until which it rests
//! ([`wakeup`]), when it scans each shard ([`next_scan`]) and its counters. After a caller has
//! filed a reference, it checks when the shard is scanned and, if that is too late, the other two.
//! Callers publish that a shard has references that the sweeper does not expect, and that memory
//! needs upkeep ([`upkeep_flag`]).

#![forbid(unsafe_code)]

pub(crate) mod next_scan;
pub(crate) mod swept;
pub(crate) mod upkeep_flag;
pub(crate) mod wakeup;

use crate::wheel::counters::SweepCounters;
use crate::wheel::progress::next_scan::Reports;
use crate::wheel::progress::swept::SweptTick;
use crate::wheel::progress::wakeup::Wakeup;
use crate::wheel::tick::Tick;
use crossbeam_utils::CachePadded;

/// The progress of the sweep, the next wake-up, the reported shards, and the sweeper's counters.
#[derive(Debug)]
pub(crate) struct Progress {
    ticks: CachePadded<ProgressTicks>,
    rare: CachePadded<RareProgress>,
}

/// Callers read the first in each operation, and the second after a report. The sweeper writes
/// the first at each step and the second around its rests.
#[derive(Debug)]
struct ProgressTicks {
    swept: SweptTick,
    wakeup: Wakeup,
}

/// What callers seldom access. The sweeper writes it at each step.
#[derive(Debug)]
struct RareProgress {
    counters: SweepCounters,
    reports: Reports,
}

impl Progress {
    pub(crate) fn new(origin: Tick, wakeup: Wakeup, shards: usize) -> Self {
        Self {
            ticks: CachePadded::new(ProgressTicks { swept: SweptTick::new(origin), wakeup }),
            rare: CachePadded::new(RareProgress {
                counters: SweepCounters::new(),
                reports: Reports::new(shards),
            }),
        }
    }

    /// Returns the tick that the sweep has reached. See [`SweptTick::get`].
    #[inline]
    pub(crate) fn swept(&self) -> Tick {
        self.ticks.swept.get()
    }

    /// Publishes a tick. See [`SweptTick::publish`].
    #[inline]
    pub(crate) fn publish(&self, tick: Tick) {
        self.ticks.swept.publish(tick);
    }

    /// Returns the [`Wakeup`], which the sweeper sets and callers read and call.
    #[inline]
    pub(crate) fn wakeup(&self) -> &Wakeup {
        &self.ticks.wakeup
    }

    /// Returns the [`Reports`], which callers add to and the sweeper accepts.
    pub(crate) fn reports(&self) -> &Reports {
        &self.rare.reports
    }

    /// Returns the sweeper's counters.
    #[inline]
    pub(crate) fn counters(&self) -> &SweepCounters {
        &self.rare.counters
    }
}
