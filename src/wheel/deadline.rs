//! [`Inner`]: the state that a wheel's handles and its sweeper share. It consists of the engine and
//! of the clock that converts instants into ticks.

#![forbid(unsafe_code)]

use crate::clock::Clock;
use crate::wheel::cached_clock::MAX_LAG_NANOS;
use crate::wheel::engine::{Engine, OutOfRange};
use crate::wheel::id::TimerId;
use crate::wheel::memory::pin;
use crate::wheel::ops::reset::ResetOutcome;
use crate::wheel::ops::{Call, hand_back};
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;
use crate::wheel::wheel_instant::WheelInstant;
use std::time::{Duration, Instant};

/// The state shared by the two halves of a wheel.
#[derive(Debug)]
pub(crate) struct Inner<T> {
    pub(crate) engine: Engine<T>,
    pub(crate) clock: Box<dyn Clock>,
    /// `true` if threads reuse a cached reading of the clock.
    pub(crate) cached: bool,
}

impl<T> Inner<T> {
    /// Returns the present time, or this thread's cached reading of it.
    #[inline]
    pub(crate) fn now(&self, thread: &ThreadState) -> WheelInstant {
        thread.clock.reading(|| self.read_clock(), |now| self.engine.reaches_from(now))
    }

    /// The fast path of an insert by delay. Arms a timer that is due `delay` from now, or returns
    /// the value in all other cases.
    #[inline(never)]
    pub(crate) fn try_insert(&self, value: T, delay: Duration) -> Result<TimerId, T> {
        // Computed first, so that the registers of the delay are free for the reading.
        let Some(nanos) = self.engine.timeline.reusing_plain_nanos(delay) else {
            return hand_back(value);
        };
        match self.tick_by_last_reading(nanos) {
            Some((thread, tick)) => self.engine.insert(Call { thread, guard: &pin() }, value, tick),
            None => hand_back(value),
        }
    }

    /// Moves the deadline of a timer to `delay` from now.
    #[inline(never)]
    pub(crate) fn reset_after(&self, id: TimerId, delay: Duration) -> ResetOutcome {
        let Some(nanos) = self.engine.timeline.reusing_plain_nanos(delay) else {
            return self.reset_slow(id, delay);
        };
        match self.tick_by_last_reading(nanos) {
            Some((thread, tick)) => {
                self.engine.reset_exclusive(Call { thread, guard: &pin() }, id, tick)
            }
            None => self.reset_renewing(id, nanos),
        }
    }

    /// Returns the tick of the deadline so many
    /// [plain](crate::wheel::tick::Timeline::reusing_plain_nanos) nanoseconds from now, if the
    /// thread's cached reading is valid, with the state of the thread, which then has a thread id
    /// of its own. Every deadline that is in range of the reading also fits the window.
    #[inline]
    fn tick_by_last_reading(&self, nanos: u64) -> Option<(&ThreadState, Tick)> {
        let thread = self.engine.threads.known()?;
        let now = thread.clock.last_reading()?;
        Some((thread, self.engine.timeline.tick_after_reused(nanos, now)))
    }

    /// As [`reset_after`](Self::reset_after), if the thread's cached reading is not valid. Takes
    /// the delay as one number, so that the fast path need not keep its seconds.
    #[inline(never)]
    fn reset_renewing(&self, id: TimerId, nanos: u64) -> ResetOutcome {
        self.reset_slow(id, Duration::from_nanos(nanos))
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
        let tick = self.tick_of(self.engine.timeline.read(deadline), self.now(thread));
        self.engine.reset_at(Call { thread, guard: &pin() }, id, tick)
    }

    /// Resolves a deadline if the thread's cached reading shows that it is in the future and
    /// definitely in range.
    #[inline]
    fn resolve(&self, deadline: WheelInstant) -> Option<(&ThreadState, WheelInstant, Tick)> {
        let (thread, timeline) = (self.engine.threads.known()?, &self.engine.timeline);
        let is_ahead = |now| timeline.is_ahead_of_reused(deadline, now);
        let now = thread.clock.last_reading_if(is_ahead)?;
        Some((thread, now, timeline.tick_at_reused(deadline)))
    }

    /// Returns the deadline of a timer that is armed now with this delay.
    #[inline]
    pub(crate) fn wheel_instant_after(&self, delay: Duration) -> WheelInstant {
        let by_last_reading = || {
            let nanos = self.engine.timeline.reusing_plain_nanos(delay)?;
            let now = self.engine.threads.known()?.clock.last_reading()?;
            Some(self.engine.timeline.wheel_instant_after_reused(nanos, now))
        };
        by_last_reading().unwrap_or_else(|| self.wheel_instant_after_slow(delay))
    }

    #[inline(never)]
    fn wheel_instant_after_slow(&self, delay: Duration) -> WheelInstant {
        let now = self.now(self.engine.threads.current());
        self.engine.timeline.wheel_instant_after(delay, now)
    }

    /// Returns the number of nanoseconds until `at`, or `None` if it has passed. Uses the thread's
    /// cached reading where that is conclusive, and the clock otherwise.
    #[inline]
    pub(crate) fn ahead(&self, at: WheelInstant) -> Option<u64> {
        let ahead = |now: WheelInstant| at.nanos.checked_sub(now.nanos).filter(|&ahead| ahead > 0);
        match ahead(self.now(self.engine.threads.current())) {
            // Within its maximum lag, a cached reading is inconclusive.
            Some(nanos) if self.cached && nanos <= MAX_LAG_NANOS => ahead(self.read_clock()),
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
    /// reading does not if the deadline is at most [`MAX_LAG_NANOS`] after it.
    #[inline]
    pub(crate) fn tick_of(&self, deadline: Instant, now: WheelInstant) -> Result<Tick, OutOfRange> {
        match self.engine.timeline.ahead(deadline, now) {
            Some(ahead) if !self.cached || ahead > MAX_LAG_NANOS => {
                self.engine.tick_ahead(deadline, ahead, now)
            }
            Some(_) => self.tick_of_slow(deadline),
            None => self.engine.tick_of(deadline, now),
        }
    }

    /// Returns the tick of a deadline for which a cached reading is inconclusive.
    #[cold]
    fn tick_of_slow(&self, deadline: Instant) -> Result<Tick, OutOfRange> {
        self.engine.tick_of(deadline, self.read_clock())
    }
}
