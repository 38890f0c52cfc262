//! [`Shared`]: the state that a wheel's handles and its sweeper share. It consists of the engine and
//! of the clock that converts instants into ticks.

#![forbid(unsafe_code)]

use crate::clock::Clock;
use crate::wheel::engine::{Engine, OutOfRange};
use crate::wheel::id::TimerId;
use crate::wheel::memory::pin;
use crate::wheel::ops::reset::ResetOutcome;
use crate::wheel::ops::{Call, hand_back};
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;
use crate::wheel::wheel_instant::WheelInstant;
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
    /// Returns the present time, or this thread's cached reading of it.
    #[inline]
    pub(crate) fn now(&self, thread: &ThreadState) -> WheelInstant {
        thread.clock.reading(|| self.read_clock(), |now| self.engine.reaches_from(now))
    }

    /// The fast path of an insert by delay. Arms a timer that is due `delay` from now, or returns
    /// the value in all other cases.
    #[inline(never)]
    pub(crate) fn try_insert(&self, value: T, delay: Duration) -> Result<TimerId, T> {
        match self.usual_tick_after(delay) {
            Some((thread, tick)) => self.engine.insert(Call { thread, guard: &pin() }, value, tick),
            None => hand_back(value),
        }
    }

    /// Moves the deadline of a timer to `delay` from now.
    #[inline(never)]
    pub(crate) fn reset_after(&self, id: TimerId, delay: Duration) -> ResetOutcome {
        match self.usual_tick_after(delay) {
            Some((thread, tick)) => {
                self.engine.reset_exclusive(Call { thread, guard: &pin() }, id, tick)
            }
            None => self.reset_slow(id, delay),
        }
    }

    /// Returns the tick of the deadline `delay` from the thread's cached reading, if that is valid,
    /// with the state of the thread, which then has a thread id of its own. Every deadline that is
    /// in range of the reading also fits the window.
    #[inline]
    fn usual_tick_after(&self, delay: Duration) -> Option<(&ThreadState, Tick)> {
        let thread = self.engine.threads.known()?;
        let now = thread.clock.last_reading()?;
        Some((thread, self.engine.timeline.tick_after(delay, now)?))
    }

    #[inline(never)]
    fn reset_slow(&self, id: TimerId, delay: Duration) -> ResetOutcome {
        let thread = self.engine.threads.current();
        let now = self.now(thread);
        self.engine.reset_after(Call { thread, guard: &pin() }, id, delay, now)
    }

    /// The fast path of an insert at a [`WheelInstant`]. See [`try_insert`](Self::try_insert).
    #[inline(never)]
    pub(crate) fn try_insert_at(&self, value: T, deadline: WheelInstant) -> Result<TimerId, T> {
        match self.resolve(deadline) {
            Some((thread, _, tick)) => {
                self.engine.insert(Call { thread, guard: &pin() }, value, tick)
            }
            None => hand_back(value),
        }
    }

    /// The variant of [`try_insert_at`](Self::try_insert_at) that writes the number of nanoseconds
    /// until the deadline to `ahead`. It is not a part of the result, because the insert ends in a
    /// jump.
    #[cfg(any(feature = "future", modelled))]
    #[inline(never)]
    pub(crate) fn try_insert_ahead(
        &self,
        value: T,
        deadline: WheelInstant,
        ahead: &mut u64,
    ) -> Result<TimerId, T> {
        match self.resolve(deadline) {
            Some((thread, now, tick)) => {
                *ahead = deadline.nanos - now.nanos;
                self.engine.insert(Call { thread, guard: &pin() }, value, tick)
            }
            None => hand_back(value),
        }
    }

    /// Moves the deadline of a timer.
    #[inline(never)]
    pub(crate) fn reset_at(&self, id: TimerId, deadline: WheelInstant) -> ResetOutcome {
        match self.resolve(deadline) {
            Some((thread, _, tick)) => {
                self.engine.reset_exclusive(Call { thread, guard: &pin() }, id, tick)
            }
            None => self.reset_at_slow(id, deadline),
        }
    }

    /// The slow path of [`reset_at`](Self::reset_at).
    #[inline(never)]
    fn reset_at_slow(&self, id: TimerId, deadline: WheelInstant) -> ResetOutcome {
        let thread = self.engine.threads.current();
        let tick = self.tick_of(deadline, self.now(thread));
        self.engine.reset_at(Call { thread, guard: &pin() }, id, tick)
    }

    /// Resolves a deadline if the thread's cached reading shows that it is in the future and
    /// definitely in range.
    #[inline]
    fn resolve(&self, deadline: WheelInstant) -> Option<(&ThreadState, WheelInstant, Tick)> {
        let (thread, timeline) = (self.engine.threads.known()?, &self.engine.timeline);
        let now = thread.clock.last_reading()?;
        let is_ahead = timeline.is_ahead(deadline, now, self.max_lag);
        is_ahead.then(|| (thread, now, timeline.ceil(deadline)))
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
            told => told,
        }
    }

    /// Cancels a timer and returns its value.
    #[inline(never)]
    pub(crate) fn cancel(&self, id: TimerId) -> Option<T> {
        match self.engine.threads.known() {
            Some(thread) => self.engine.cancel(Call { thread, guard: &pin() }, id),
            None => self.cancel_at_first(id),
        }
    }

    /// The slow path of [`cancel`](Self::cancel), for the first call of a thread.
    #[cold]
    #[inline(never)]
    fn cancel_at_first(&self, id: TimerId) -> Option<T> {
        self.engine.cancel(Call { thread: self.engine.threads.current(), guard: &pin() }, id)
    }

    #[inline(never)]
    fn read_clock(&self) -> WheelInstant {
        self.engine.timeline.wheel_instant(self.clock.now())
    }

    /// Returns the tick of a deadline, by a reading that shows whether it has passed. A cached
    /// reading does not if the deadline is at most [`max_lag`](Self::max_lag) after it.
    #[inline]
    pub(crate) fn tick_of(
        &self,
        deadline: WheelInstant,
        now: WheelInstant,
    ) -> Result<Tick, OutOfRange> {
        let is_conclusive = deadline.nanos.wrapping_sub(now.nanos) > self.max_lag;
        self.engine.tick_of(deadline, if is_conclusive { now } else { self.read_clock() })
    }
}
