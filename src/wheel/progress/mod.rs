//! [`Progress`]: what the sweeper shows the callers of a wheel, and they look at after each change:
//! how far the sweep has come ([`swept`]), until when it rests ([`wakeup`]), and what it has
//! counted; and what callers show the sweeper, whether memory is to be looked after
//! ([`upkeep_flag`]).

#![forbid(unsafe_code)]

pub(crate) mod swept;
pub(crate) mod upkeep_flag;
pub(crate) mod wakeup;

use crate::wheel::counters::SweepCounters;
use crate::wheel::progress::swept::SweptTick;
use crate::wheel::progress::wakeup::Wakeup;
use crate::wheel::tick::Tick;
use crossbeam_utils::CachePadded;

/// How far the sweep is, when it wakes, and what it has counted.
#[derive(Debug)]
pub(crate) struct Progress {
    swept: CachePadded<SweptTick>,
    wakeup: CachePadded<Wakeup>,
    counters: CachePadded<SweepCounters>,
}

impl Progress {
    pub(crate) fn new(origin: Tick, wakeup: Wakeup) -> Self {
        Self {
            swept: CachePadded::new(SweptTick::new(origin)),
            wakeup: CachePadded::new(wakeup),
            counters: CachePadded::new(SweepCounters::new()),
        }
    }

    /// How far the sweep has come: [`SweptTick::get`].
    #[inline]
    pub(crate) fn swept(&self) -> Tick {
        self.swept.get()
    }

    /// [`SweptTick::publish`].
    #[inline]
    pub(crate) fn publish(&self, tick: Tick) {
        self.swept.publish(tick);
    }

    /// [`Wakeup`]: what callers read and call, and the sweeper sets.
    #[inline]
    pub(crate) fn wakeup(&self) -> &Wakeup {
        &self.wakeup
    }

    /// What the sweeper has counted.
    #[inline]
    pub(crate) fn counters(&self) -> &SweepCounters {
        &self.counters
    }
}
