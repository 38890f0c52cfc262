//! [`Inner`]: what the handles of a wheel and its sweeper share: the engine, and the clock that
//! turns instants into its ticks.

#![forbid(unsafe_code)]

use crate::clock::Clock;
#[cfg(any(feature = "future", modelled))]
use crate::error::InsertError;
use crate::wheel::cached_clock::MAX_LAG;
use crate::wheel::engine::{Engine, OutOfRange};
use crate::wheel::id::TimerId;
use crate::wheel::memory::pin;
use crate::wheel::ops::reset::Reset;
use crate::wheel::ops::{Call, hand_back};
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;
use crate::wheel::wheel_instant::WheelInstant;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// [`MAX_LAG`] in nanoseconds.
const MAX_LAG_NANOS: u64 = MAX_LAG.subsec_nanos() as u64;

/// What the halves of a wheel share, with the clock that turns instants into ticks.
#[derive(Debug)]
pub(crate) struct Inner<T> {
    pub(crate) engine: Engine<T>,
    pub(crate) clock: Box<dyn Clock>,
    /// Whether callers use a reading of the clock again.
    pub(crate) cached: bool,
}

/// A moment that was surely to come, and in range, when this was made. It belongs to the thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolvedDeadline<'w> {
    /// The caller's, who alone has its number.
    thread: &'w ThreadState,
    _of_its_thread: PhantomData<*const ()>,
    tick: Tick,
    /// How many nanoseconds it is ahead.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) ahead: u64,
}

impl<T> Inner<T> {
    /// What the clock says, or said to this caller a moment ago.
    #[inline]
    pub(crate) fn now(&self, thread: &ThreadState) -> WheelInstant {
        thread.clock.reading(|| self.read_clock(), |now| self.engine.reaches_from(now))
    }

    /// The caller's last reading of the clock, if it is still valid, and what is kept for the
    /// caller, which then has an id of its own. Every deadline that is in range by the reading
    /// is in the window as well.
    #[inline]
    fn last_reading(&self) -> Option<(&ThreadState, WheelInstant)> {
        let thread = self.engine.threads.known()?;
        Some((thread, thread.clock.last_reading()?))
    }

    /// Arms a timer that is due `delay` from now, in the common case; in all others, the value
    /// comes back.
    #[inline(never)]
    pub(crate) fn try_insert(&self, value: T, delay: Duration) -> Result<TimerId, T> {
        match self.fast_tick(delay) {
            Some((thread, tick)) => self.engine.insert(Call { thread, guard: &pin() }, value, tick),
            None => hand_back(value),
        }
    }

    /// Sets a timer's deadline to `delay` from now.
    #[inline(never)]
    pub(crate) fn reset_after(&self, id: TimerId, delay: Duration) -> Reset {
        match self.fast_tick(delay) {
            Some((thread, tick)) => {
                self.engine.reset_exclusive(Call { thread, guard: &pin() }, id, tick)
            }
            None => self.reset_slow(id, delay),
        }
    }

    /// The tick of the deadline `delay` from now, if the caller's last reading lasts and the delay
    /// is not zero and surely in range.
    #[inline]
    fn fast_tick(&self, delay: Duration) -> Option<(&ThreadState, Tick)> {
        let timeline = &self.engine.timeline;
        // First, so that what the delay came in is free for the reading.
        let nanos = timeline.plain_nanos(delay)?;
        let (thread, now) = self.last_reading()?;
        Some((thread, timeline.tick_of_nanos(nanos, now)?))
    }

    #[inline(never)]
    fn reset_slow(&self, id: TimerId, delay: Duration) -> Reset {
        let thread = self.engine.threads.current();
        let now = self.now(thread);
        self.engine.reset_after(Call { thread, guard: &pin() }, id, delay, now)
    }

    /// As [`try_insert`](Self::try_insert), for a timer that is due at a moment.
    #[inline(never)]
    pub(crate) fn try_insert_at(&self, value: T, deadline: WheelInstant) -> Result<TimerId, T> {
        match self.resolve(deadline) {
            Some(soon) => self.insert(value, soon),
            None => hand_back(value),
        }
    }

    /// As [`try_insert`](Self::try_insert), where the caller knows how soon.
    #[inline(always)]
    pub(crate) fn insert(
        &self,
        value: T,
        ResolvedDeadline { thread, tick, .. }: ResolvedDeadline<'_>,
    ) -> Result<TimerId, T> {
        self.engine.insert(Call { thread, guard: &pin() }, value, tick)
    }

    /// As [`insert`](Self::insert), in every case.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) fn insert_resolved_slow(
        &self,
        value: T,
        ResolvedDeadline { thread, tick, .. }: ResolvedDeadline<'_>,
    ) -> Result<TimerId, InsertError<T>> {
        self.engine.insert_slow(Call { thread, guard: &pin() }, value, tick)
    }

    /// Sets a timer's deadline.
    #[inline(never)]
    pub(crate) fn reset_at(&self, id: TimerId, deadline: WheelInstant) -> Reset {
        match self.resolve(deadline) {
            Some(ResolvedDeadline { thread, tick, .. }) => {
                self.engine.reset_exclusive(Call { thread, guard: &pin() }, id, tick)
            }
            None => self.reset_at_slow(id, deadline),
        }
    }

    /// As [`reset_at`](Self::reset_at), in every case.
    #[inline(never)]
    fn reset_at_slow(&self, id: TimerId, deadline: WheelInstant) -> Reset {
        let thread = self.engine.threads.current();
        let tick = self.tick_of(self.engine.timeline.read(deadline), self.now(thread));
        self.engine.reset_at(Call { thread, guard: &pin() }, id, tick)
    }

    /// How soon a moment is, if the caller's last reading tells that it is still to come and surely
    /// in range.
    #[inline]
    pub(crate) fn resolve(&self, deadline: WheelInstant) -> Option<ResolvedDeadline<'_>> {
        let (thread, now) = self.last_reading()?;
        let ahead = deadline.nanos.checked_sub(now.nanos)?;
        if ahead <= MAX_LAG_NANOS {
            return None;
        }
        Some(ResolvedDeadline {
            thread,
            _of_its_thread: PhantomData,
            tick: self.engine.timeline.soon_at(ahead, now)?,
            #[cfg(any(feature = "future", modelled))]
            ahead,
        })
    }

    /// How many nanoseconds a moment is ahead, unless it has come, by the clock; by a reading that
    /// the caller uses again, if that tells.
    #[inline]
    pub(crate) fn ahead(&self, at: WheelInstant) -> Option<u64> {
        let ahead = |now: WheelInstant| at.nanos.checked_sub(now.nanos).filter(|&ahead| ahead > 0);
        match ahead(self.now(self.engine.threads.current())) {
            // Within its bound, the reading does not tell.
            Some(soon) if self.cached && soon <= MAX_LAG_NANOS => ahead(self.read_clock()),
            told => told,
        }
    }

    /// Ends a timer and returns its value.
    #[inline(never)]
    pub(crate) fn cancel(&self, id: TimerId) -> Option<T> {
        match self.engine.threads.known() {
            Some(thread) => self.engine.cancel(Call { thread, guard: &pin() }, id),
            None => self.cancel_at_first(id),
        }
    }

    /// As [`cancel`](Self::cancel), for a thread's first call.
    #[cold]
    #[inline(never)]
    fn cancel_at_first(&self, id: TimerId) -> Option<T> {
        self.engine.cancel(Call { thread: self.engine.threads.current(), guard: &pin() }, id)
    }

    #[inline(never)]
    fn read_clock(&self) -> WheelInstant {
        self.engine.timeline.wheel_instant(self.clock.now())
    }

    /// The tick of a deadline, by a reading that tells whether it has passed: a cached one does
    /// not, if the deadline lies no more than [`MAX_LAG`] after it.
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

    /// The tick of a deadline that a cached reading leaves open.
    #[cold]
    fn tick_of_slow(&self, deadline: Instant) -> Result<Tick, OutOfRange> {
        self.engine.tick_of(deadline, self.read_clock())
    }
}
