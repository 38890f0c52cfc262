//! [`Progress`]: what the sweeper shows the callers of a wheel, and they look at after each change:
//! how far the sweep has come ([`swept`]), until when it rests ([`alarm`]), and what it has
//! counted; and what callers show the sweeper, whether memory is to be looked after
//! ([`upkeep_flag`]).

#![forbid(unsafe_code)]

pub(crate) mod alarm;
pub(crate) mod swept;
pub(crate) mod upkeep_flag;

use crate::wheel::progress::alarm::Alarm;
use crate::wheel::progress::swept::SweptTick;
use crate::wheel::tally::SweeperTally;
use crate::wheel::tick::Tick;
use crossbeam_utils::CachePadded;

/// How far the sweep is, when it wakes, and what it has counted.
#[derive(Debug)]
pub(crate) struct Progress {
    swept: CachePadded<SweptTick>,
    alarm: CachePadded<Alarm>,
    counts: CachePadded<SweeperTally>,
}

impl Progress {
    pub(crate) fn new(origin: Tick, alarm: Alarm) -> Self {
        Self {
            swept: CachePadded::new(SweptTick::new(origin)),
            alarm: CachePadded::new(alarm),
            counts: CachePadded::new(SweeperTally::new()),
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

    /// [`Alarm`]: what callers look at and ring, and the sweeper sets.
    #[inline]
    pub(crate) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// What the sweeper has counted.
    #[inline]
    pub(crate) fn counts(&self) -> &SweeperTally {
        &self.counts
    }
}
