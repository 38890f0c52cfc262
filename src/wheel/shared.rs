//! [`Shared`]: the state that a wheel's handles and its sweeper share, which is the engine and the
//! clock. Here each operation begins: `x` tries the usual case of the engine, in which the
//! deadline's tick is known at once, and `x_slow` does it in any case.

#![forbid(unsafe_code)]

use crate::clock::Clock;
use crate::error::{BeyondRange, InsertError};
use crate::sync::{AtomicBool, Flagged};
use crate::wheel::engine::{Admission, Engine, OutOfRange};
use crate::wheel::id::TimerId;
use crate::wheel::ops::reset::NotReset;
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;
use crate::wheel::timeline::LIFE;
use crate::wheel::wheel_instant::WheelInstant;
#[cfg(any(feature = "future", modelled))]
use std::cell::Cell;
use std::time::Duration;

/// The state shared by the two halves of a wheel.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    pub(crate) engine: Engine<T>,
    pub(crate) clock: Box<dyn Clock>,
    /// The most by which a thread's cached reading may lag the clock, in nanoseconds. Zero if
    /// threads do not reuse readings.
    pub(crate) max_lag: u64,
}

impl<T> Shared<T> {
    /// Arms a timer.
    #[inline(never)]
    pub(crate) fn insert(
        &self,
        value: T,
        deadline: impl Deadline,
    ) -> Result<TimerId, InsertError<T>> {
        let tick = |thread: &ThreadState| deadline.try_tick(self, thread);
        self.engine.insert(value, tick, |value| self.insert_slow(value, deadline))
    }

    #[inline(never)]
    fn insert_slow(&self, value: T, deadline: impl Deadline) -> Result<TimerId, InsertError<T>> {
        let thread = self.engine.threads.current();
        self.engine.insert_slow(thread, value, deadline.tick(self, thread), Admission::IfRoom)
    }

    /// Moves the deadline of a timer. [`result_of`](Self::result_of) has the result for the caller.
    /// This one fits a register, so that the call of the general case is a jump.
    #[inline(never)]
    pub(crate) fn reset(&self, id: TimerId, deadline: impl Deadline) -> Result<(), NotReset> {
        let tick = |thread: &ThreadState| deadline.try_tick(self, thread);
        self.engine.reset(id, tick, || self.reset_slow(id, deadline))
    }

    #[inline(never)]
    fn reset_slow(&self, id: TimerId, deadline: impl Deadline) -> Result<(), NotReset> {
        let thread = self.engine.threads.current();
        self.engine.reset_slow(thread, id, deadline.tick(self, thread))
    }

    /// Converts the outcome of a reset. Returns `false` if the timer has ended or never existed.
    #[inline]
    pub(crate) fn result_of(&self, reset: Result<(), NotReset>) -> Result<bool, BeyondRange> {
        match reset {
            Ok(()) => Ok(true),
            Err(NotReset::NotArmed) => Ok(false),
            Err(NotReset::OutOfRange(why)) => Err(self.engine.beyond_range(why)),
        }
    }

    /// Cancels a timer and returns its value.
    #[inline(never)]
    pub(crate) fn cancel(&self, id: TimerId) -> Option<T> {
        self.engine.cancel(id, || self.cancel_slow(id))
    }

    #[inline(never)]
    fn cancel_slow(&self, id: TimerId) -> Option<T> {
        self.engine.cancel_slow(self.engine.threads.current(), id).map(|(value, _)| value)
    }

    /// Returns the deadline of a timer that is armed now with this delay.
    #[inline]
    pub(crate) fn wheel_instant_after(&self, delay: Duration) -> WheelInstant {
        self.engine.timeline.after(delay, self.now(self.engine.threads.current()))
    }

    /// Returns the number of nanoseconds until `at`, or `None` if it has passed. Uses the thread's
    /// cached reading where that is conclusive, and the clock otherwise.
    #[inline]
    pub(crate) fn ahead(&self, at: WheelInstant) -> Option<u64> {
        let ahead = |now: WheelInstant| at.nanos.checked_sub(now.nanos).filter(|&ahead| ahead > 0);
        match ahead(self.now(self.engine.threads.current())) {
            // Within its maximum lag, a cached reading is inconclusive.
            Some(nanos) if nanos <= self.max_lag => ahead(self.read_clock()),
            conclusive => conclusive,
        }
    }

    /// Returns the number of nanoseconds until `at`, if the thread's cached reading is valid, and
    /// shows that `at` has not passed and is in its range.
    #[inline]
    fn try_ahead(&self, at: WheelInstant, thread: &ThreadState) -> Option<u64> {
        let now = thread.clock.last_reading()?;
        let is_ahead = self.engine.timeline.is_ahead(at, now, self.max_lag);
        is_ahead.then(|| at.nanos - now.nanos)
    }

    /// Returns the present time, or this thread's cached reading of it.
    #[inline]
    pub(crate) fn now(&self, thread: &ThreadState) -> WheelInstant {
        thread.clock.reading(|| self.read_clock(), |now| self.engine.reaches_from(now))
    }

    #[inline(never)]
    pub(crate) fn read_clock(&self) -> WheelInstant {
        self.engine.timeline.wheel_instant(self.clock.now())
    }
}

/// The flag that closes a wheel, for [child processes](crate::wheel::internal::ClosedInChildren).
impl<T> Flagged for Shared<T> {
    fn flag(&self) -> &AtomicBool {
        self.engine.closed()
    }
}

/// A deadline as a caller names it: a delay from now, or a point in time, which may be compared
/// with [a reading](AheadOf) of the caller.
pub(crate) trait Deadline: Copy {
    /// Returns the tick of the deadline in the usual case, which each deadline names.
    fn try_tick<T>(self, shared: &Shared<T>, thread: &ThreadState) -> Option<Tick>;

    /// Returns the tick of the deadline in any case.
    fn tick<T>(self, shared: &Shared<T>, thread: &ThreadState) -> Result<Tick, OutOfRange>;
}

/// A delay from now. In the usual case the thread's cached reading is valid, and there is a delay
/// in its range. Every deadline in range of a cached reading fits the window.
impl Deadline for Duration {
    #[inline]
    fn try_tick<T>(self, shared: &Shared<T>, thread: &ThreadState) -> Option<Tick> {
        shared.engine.timeline.tick_after(self, thread.clock.last_reading()?)
    }

    fn tick<T>(self, shared: &Shared<T>, thread: &ThreadState) -> Result<Tick, OutOfRange> {
        let now = shared.now(thread);
        shared.engine.tick_of(shared.engine.timeline.after(self, now), now)
    }
}

/// A point in time. In the usual case the thread's cached reading is valid, and shows that the
/// deadline has not passed and is in range.
impl Deadline for WheelInstant {
    #[inline]
    fn try_tick<T>(self, shared: &Shared<T>, thread: &ThreadState) -> Option<Tick> {
        shared.try_ahead(self, thread)?;
        Some(shared.engine.timeline.ceil(self))
    }

    fn tick<T>(self, shared: &Shared<T>, thread: &ThreadState) -> Result<Tick, OutOfRange> {
        let now = shared.now(thread);
        // Within its maximum lag, a cached reading does not show whether the deadline has passed.
        let is_conclusive = self.nanos.wrapping_sub(now.nanos) > shared.max_lag;
        shared.engine.tick_of(self, if is_conclusive { now } else { shared.read_clock() })
    }
}

/// A point in time, and a clock reading of the caller. In the usual case the point lies ahead of
/// that reading, in its range, and fits the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AheadOf {
    pub(crate) now: WheelInstant,
    pub(crate) at: WheelInstant,
}

impl Deadline for AheadOf {
    #[inline]
    fn try_tick<T>(self, shared: &Shared<T>, _: &ThreadState) -> Option<Tick> {
        let timeline = &shared.engine.timeline;
        if !timeline.is_ahead(self.at, self.now, 0) || self.now.nanos > LIFE {
            return None;
        }
        shared.engine.in_window(timeline.ceil(self.at))
    }

    fn tick<T>(self, shared: &Shared<T>, thread: &ThreadState) -> Result<Tick, OutOfRange> {
        match self.at <= self.now {
            true => shared.engine.tick_of(self.at, self.now),
            false => self.at.tick(shared, thread),
        }
    }
}

/// A point in time, for a caller that has to know how many nanoseconds it lies ahead. If it has
/// passed, that number is zero, and no timer is armed.
#[cfg(any(feature = "future", modelled))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlessPassed<'a> {
    pub(crate) at: WheelInstant,
    pub(crate) ahead: &'a Cell<u64>,
}

#[cfg(any(feature = "future", modelled))]
impl Deadline for UnlessPassed<'_> {
    #[inline]
    fn try_tick<T>(self, shared: &Shared<T>, thread: &ThreadState) -> Option<Tick> {
        self.ahead.set(shared.try_ahead(self.at, thread)?);
        Some(shared.engine.timeline.ceil(self.at))
    }

    fn tick<T>(self, shared: &Shared<T>, thread: &ThreadState) -> Result<Tick, OutOfRange> {
        let ahead = shared.ahead(self.at);
        self.ahead.set(ahead.unwrap_or(0));
        ahead.ok_or(OutOfRange::TooFar)?;
        self.at.tick(shared, thread)
    }
}
