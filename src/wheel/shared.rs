//! [`Inner`]: what the handles of a wheel and its sweeper share: the engine, and the clock that
//! turns instants into its ticks.

#![forbid(unsafe_code)]

use crate::clock::Clock;
use crate::wheel::engine::{Call, Engine, OutOfRange, Reset};
use crate::wheel::id::TimerId;
use crate::wheel::lease::LEASE;
use crate::wheel::local::Local;
use crate::wheel::memory::pin;
use crate::wheel::moment::Moment;
use crate::wheel::tick::Tick;
use std::time::{Duration, Instant};

/// [`LEASE`] in nanoseconds.
const LEASE_NANOS: u64 = LEASE.subsec_nanos() as u64;

/// What the halves of a wheel share, with the clock that turns instants into ticks.
#[derive(Debug)]
pub(crate) struct Inner<T> {
    pub(crate) engine: Engine<T>,
    pub(crate) clock: Box<dyn Clock>,
    /// Whether callers use a reading of the clock again.
    pub(crate) leased: bool,
}

impl<T> Inner<T> {
    /// What the clock says, or said to this caller a moment ago.
    #[inline]
    pub(crate) fn now(&self, local: &Local) -> Moment {
        local.lease.reading(|| self.read_clock())
    }

    /// Arms a timer that is due `delay` from now, in the common case; in all others, the value
    /// comes back.
    #[inline(never)]
    pub(crate) fn insert_soon(&self, value: T, delay: Duration) -> Result<TimerId, T> {
        let local = self.engine.local();
        match local.lease.last_reading() {
            Some(now) => {
                let call = Call { local, guard: &pin() };
                self.engine.insert_soon(call, value, delay, now)
            }
            None => Err(value),
        }
    }

    /// Sets a timer's deadline to `delay` from now.
    #[inline(never)]
    pub(crate) fn reset_after(&self, id: TimerId, delay: Duration) -> Reset {
        let local = self.engine.local();
        match local.lease.last_reading() {
            Some(now) => self.engine.reset_after(Call { local, guard: &pin() }, id, delay, now),
            None => self.reset_by_the_clock(id, delay),
        }
    }

    #[inline(never)]
    fn reset_by_the_clock(&self, id: TimerId, delay: Duration) -> Reset {
        let local = self.engine.local();
        let now = self.now(local);
        self.engine.reset_after(Call { local, guard: &pin() }, id, delay, now)
    }

    /// As [`insert_soon`](Self::insert_soon), for a timer that is due at a moment surely to come.
    #[inline(never)]
    pub(crate) fn insert_soon_at(&self, value: T, deadline: Moment) -> Result<TimerId, T> {
        let local = self.engine.local();
        match self.tick_soon_at(local, deadline) {
            Some(tick) => self.engine.insert_from_hand(Call { local, guard: &pin() }, value, tick),
            None => Err(value),
        }
    }

    /// Sets a timer's deadline.
    #[inline(never)]
    pub(crate) fn reset_at(&self, id: TimerId, deadline: Moment) -> Reset {
        let local = self.engine.local();
        match self.tick_soon_at(local, deadline) {
            Some(tick) => self.engine.reset(Call { local, guard: &pin() }, id, tick),
            None => self.reset_at_any(id, deadline),
        }
    }

    /// As [`reset_at`](Self::reset_at), in every case.
    #[inline(never)]
    fn reset_at_any(&self, id: TimerId, deadline: Moment) -> Reset {
        let local = self.engine.local();
        let tick = self.tick_of(self.engine.timeline().read(deadline), self.now(local));
        self.engine.reset_at(Call { local, guard: &pin() }, id, tick)
    }

    /// The tick of a deadline, if the caller's last reading tells that it is still to come and
    /// surely in range.
    #[inline]
    fn tick_soon_at(&self, local: &Local, deadline: Moment) -> Option<Tick> {
        let now = local.lease.last_reading()?;
        let ahead = deadline.nanos.checked_sub(now.nanos)?;
        if ahead <= LEASE_NANOS {
            return None;
        }
        self.engine.in_window(self.engine.timeline().soon_at(ahead, now))
    }

    /// Whether a moment has come, by the clock; by the caller's last reading, if that tells.
    #[inline]
    pub(crate) fn has_come(&self, at: Moment) -> bool {
        match self.engine.local().lease.last_reading() {
            Some(now) if at <= now => true,
            Some(now) if at.nanos - now.nanos > LEASE_NANOS => false,
            _ => at <= self.read_clock(),
        }
    }

    /// Ends a timer and returns its value.
    #[inline(never)]
    pub(crate) fn cancel(&self, id: TimerId) -> Option<T> {
        self.engine.cancel(Call { local: self.engine.local(), guard: &pin() }, id)
    }

    #[inline(never)]
    fn read_clock(&self) -> Moment {
        self.engine.timeline().moment(self.clock.now())
    }

    /// The tick of a deadline, by a reading that tells whether it has passed: a leased one does
    /// not, if the deadline lies no more than a lease after it.
    #[inline]
    pub(crate) fn tick_of(&self, deadline: Instant, now: Moment) -> Result<Tick, OutOfRange> {
        match self.engine.timeline().ahead(deadline, now) {
            Some(ahead) if !self.leased || ahead > LEASE_NANOS => {
                self.engine.tick_ahead(deadline, ahead, now)
            }
            Some(_) => self.tick_by_the_clock(deadline),
            None => self.engine.tick_of(deadline, now),
        }
    }

    /// The tick of a deadline that a leased reading leaves open.
    #[cold]
    fn tick_by_the_clock(&self, deadline: Instant) -> Result<Tick, OutOfRange> {
        self.engine.tick_of(deadline, self.read_clock())
    }
}
