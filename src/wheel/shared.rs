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
            Some(_) => self.tick_by_the_clock(deadline),
            None => self.engine.tick_of(deadline, now),
        }
    }

    /// The tick of a deadline that a leased reading leaves open.
    #[cold]
    fn tick_by_the_clock(&self, deadline: Instant) -> Result<Tick, OutOfRange> {
        self.engine.tick_of(deadline, self.engine.timeline().now(self.clock.now()))
    }
}
