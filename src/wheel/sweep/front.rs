//! [`Front`]: the sweeper's half of what the two halves of a wheel share: how far the sweep has come,
//! when it is wanted next, and what it has counted. The sweeper writes it, every caller reads it.

#![forbid(unsafe_code)]

use crate::wheel::sweep::alarm::Alarm;
use crate::wheel::sweep::swept::SweptTick;
use crate::wheel::tally::SweeperTally;
use crate::wheel::tick::Tick;
use crossbeam_utils::CachePadded;

/// How far the sweep is, when it wakes, and what it has counted.
#[derive(Debug)]
pub(crate) struct Front {
    swept: CachePadded<SweptTick>,
    alarm: CachePadded<Alarm>,
    counts: CachePadded<SweeperTally>,
}

impl Front {
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

    /// [`SweptTick::announce`].
    #[inline]
    pub(crate) fn announce(&self, tick: Tick) {
        self.swept.announce(tick);
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
