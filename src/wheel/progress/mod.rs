//! [`Progress`]: the state that the sweeper and the callers of a wheel publish to each other.
//!
//! The sweeper publishes the tick that it has reached ([`swept`]), the tick until which it rests
//! ([`wakeup`]) and its counters. Callers check the first two after each change. They publish that
//! memory needs upkeep ([`upkeep_flag`]).

#![forbid(unsafe_code)]

pub(crate) mod swept;
pub(crate) mod upkeep_flag;
pub(crate) mod wakeup;

use crate::wheel::counters::SweepCounters;
use crate::wheel::progress::swept::SweptTick;
use crate::wheel::progress::wakeup::Wakeup;
use crate::wheel::tick::Tick;
use crossbeam_utils::CachePadded;

/// The progress of the sweep, the next wake-up, and the sweeper's counters.
#[derive(Debug)]
pub(crate) struct Progress {
    ticks: CachePadded<ProgressTicks>,
    counters: CachePadded<SweepCounters>,
}

/// What callers check after each change. The sweeper writes both at the beginning and at the end of
/// its rests.
#[derive(Debug)]
struct ProgressTicks {
    swept: SweptTick,
    wakeup: Wakeup,
}

impl Progress {
    pub(crate) fn new(origin: Tick, wakeup: Wakeup) -> Self {
        Self {
            ticks: CachePadded::new(ProgressTicks { swept: SweptTick::new(origin), wakeup }),
            counters: CachePadded::new(SweepCounters::new()),
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

    /// Returns the sweeper's counters.
    #[inline]
    pub(crate) fn counters(&self) -> &SweepCounters {
        &self.counters
    }
}
