//! [`Progress`]: the state that the sweeper and the callers of a wheel publish to each other.
//!
//! The sweeper publishes the tick that it has reached ([`swept`]), the tick until which it rests
//! ([`wakeup`]), when it scans each shard ([`next_scan`]) and its counters. Callers publish that a
//! shard has references that the sweeper does not expect, and that memory needs upkeep
//! ([`upkeep_flag`]).
//!
//! # The handshake
//!
//! A thread that files a reference and the sweeper must not miss each other. Other files cite
//! these steps by number. A *filer* files a reference in a slot that is taken at the tick `at`:
//!
//! * **F1** It pushes the reference and marks the slot as occupied.
//! * **F2** It passes a full fence.
//! * **F3** It loads the shard's `next_scan`. If that is not after `at`, the sweeper *expects* the
//!   reference, and the filer is done. This is the common case.
//! * **F4** Otherwise it *reports* the shard, by setting the shard's bit unless it is set. A second
//!   report sets a second bit.
//! * **F5** It passes a second full fence.
//! * **F6** It re-checks the tick of the sweep. If the sweep has reached `at`, it files the
//!   reference again, from F1.
//! * **F7** It re-checks the wake-up tick. If the sweeper rests beyond `at`, or rests at all and
//!   this was the shard's second report, the filer wakes it.
//!
//! No tick is expected for an overdue reference, so its filer always reports the shard. In F6 it
//! checks whether the sweep has left the deadline behind, and in F7 `at` is the sweep's tick.
//!
//! The sweeper, to advance to the tick `t`:
//!
//! * **S1** It *suspends* each shard whose next expiry is not after `t`. To suspend a shard means
//!   to set its `next_scan` to [`Tick::NEVER`], so that each further filer reports it.
//! * **S2** It publishes `t` and passes a full fence.
//! * **S3** It accepts the reports. It clears the bits, suspends those shards, and passes another
//!   full fence if there were any.
//! * **S4** It scans all shards that it has suspended. It takes the slots that expire by `t`, and
//!   sets the `next_scan` of the shard to the next expiry. In the shards that were reported it also
//!   looks for overdue references.
//!
//! It also does S3 and S4 alone before it chooses `t`, each time it begins to fill a batch, and
//! when its next deadline is asked for. The references that it files itself need no handshake. It
//! lowers `next_scan` for them.
//!
//! The sweeper, to rest until the tick `t`:
//!
//! * **W1** It stores `t` as the wake-up tick.
//! * **W2** It passes a full fence.
//! * **W3** It does S3 and S4. If anything is due before `t`, it starts again from W1 with that
//!   tick.
//!
//! [`swept`] shows why a filer notices that its slot has expired, [`next_scan`] why a scan finds
//! each reference in time, and [`wakeup`] why the sweeper does not rest too long.

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

/// Callers read `swept` in each operation, and `wakeup` after a report. The sweeper writes `swept`
/// at each step, and `wakeup` around its rests.
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
