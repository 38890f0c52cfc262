//! [`Inner`]: what the handles of a wheel and its sweeper share: the engine, and the clock that
//! turns instants into its ticks.

#![forbid(unsafe_code)]

use crate::clock::Clock;
use crate::wheel::caller::Caller;
use crate::wheel::engine::{Engine, OutOfRange};
use crate::wheel::lease::{LEASE, Leases};
use crate::wheel::tick::{Now, Tick};
use std::time::Instant;

/// What the halves of a wheel share, with the clock that turns instants into ticks.
#[derive(Debug)]
pub(crate) struct Inner<T> {
    pub(crate) engine: Engine<T>,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) leases: Leases,
}

impl<T> Inner<T> {
    /// What the clock says, or said to this caller a moment ago.
    #[inline]
    pub(crate) fn now(&self, caller: Caller) -> Now {
        self.leases.reading(caller, || self.engine.timeline().now(self.clock.now()))
    }

    /// The tick of a deadline, by a reading that tells whether it has passed: a leased one does
    /// not, if the deadline lies no more than a lease after it.
    #[inline]
    pub(crate) fn tick_of(&self, deadline: Instant, now: Now) -> Result<Tick, OutOfRange> {
        match self.engine.timeline().ahead(deadline, now) {
            Some(ahead) if !self.leases.are_granted() || ahead > LEASE.subsec_nanos().into() => {
                self.engine.tick_ahead(deadline, ahead, now)
            }
            _ => self.tick_of_any(deadline, now),
        }
    }

    /// As [`tick_of`](Self::tick_of), for deadlines that have passed, or may have, and for those of
    /// no time that can be told.
    #[cold]
    fn tick_of_any(&self, deadline: Instant, now: Now) -> Result<Tick, OutOfRange> {
        let ahead = self.engine.timeline().ahead(deadline, now).is_some();
        let unsure = self.leases.are_granted() && ahead;
        let now = if unsure { self.engine.timeline().now(self.clock.now()) } else { now };
        self.engine.tick_of(deadline, now)
    }
}
