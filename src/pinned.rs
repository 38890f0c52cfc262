//! [`Pinned`]: the verbs for a batch of calls, with what each call would pay for held once.

#![forbid(unsafe_code)]

use crate::TimerId;
use crate::caller::Caller;
use crate::core::{Call, Core, Now};
use crate::error::{BeyondRange, InsertError, Refusal};
use crate::reclaim::{Guard, pin};
use crate::wheel::Inner;
use std::fmt;
use std::time::{Duration, Instant};

/// The verbs of a [`Wheel`](crate::Wheel) for a batch of calls, made by
/// [`Wheel::pin`](crate::Wheel::pin).
///
/// A plain call pins the epoch, finds out who calls and reads the clock, each time; this guard
/// did so once. **Delays count from the guard's [`now`](Self::now)**, so a guard that is kept for
/// a while makes timers fire that much sooner than the delay after the call: [`repin`] it for
/// each batch.
///
/// While a thread is pinned, no memory of any wheel goes back to the allocator: hold it for a
/// batch of events, not while waiting for them.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let (wheel, _sweeper) = Builder::new().build()?;
/// let mut pinned = wheel.pin();
/// let ids: Vec<_> = (0..64)
///     .map(|connection| pinned.insert(connection, Duration::from_secs(30)))
///     .collect::<Result<_, _>>()?;
///
/// pinned.repin(); // the next batch of events
/// for &id in &ids {
///     assert!(pinned.reset(id, Duration::from_secs(30))?);
/// }
/// assert_eq!(pinned.cancel(ids[7]), Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`repin`]: Self::repin
pub struct Pinned<'w, T> {
    wheel: &'w Inner<T>,
    guard: Guard,
    caller: Caller,
    now: Now,
}

impl<'w, T: Send> Pinned<'w, T> {
    pub(crate) fn new(wheel: &'w Inner<T>) -> Self {
        let now = wheel.now();
        Self { wheel, guard: pin(), caller: Caller::current(), now }
    }

    /// The instant from which this guard counts delays.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now.instant
    }

    /// Lets go of the epoch and the time, and takes hold of the present ones.
    pub fn repin(&mut self) {
        self.guard.repin();
        self.now = self.wheel.now();
    }

    /// As [`Wheel::insert`](crate::Wheel::insert), `delay` counted from [`now`](Self::now).
    ///
    /// # Errors
    ///
    /// As [`Wheel::insert`](crate::Wheel::insert).
    pub fn insert(&self, value: T, delay: Duration) -> Result<TimerId, InsertError<T>> {
        match self.wheel.deadline_after(self.now.instant, delay) {
            Ok(deadline) => self.insert_at(value, deadline),
            Err(beyond) => Err(self.refused(value, beyond)),
        }
    }

    /// As [`Wheel::insert_at`](crate::Wheel::insert_at).
    ///
    /// # Errors
    ///
    /// As [`Wheel::insert_at`](crate::Wheel::insert_at).
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<TimerId, InsertError<T>> {
        match self.core().tick_of(deadline, self.now) {
            Ok(tick) => self.core().insert(self.call(), value, tick),
            Err(beyond) => Err(self.refused(value, beyond)),
        }
    }

    /// As [`Wheel::cancel`](crate::Wheel::cancel).
    pub fn cancel(&self, id: TimerId) -> Option<T> {
        self.core().cancel(self.call(), id)
    }

    /// As [`Wheel::reset`](crate::Wheel::reset), `delay` counted from [`now`](Self::now).
    ///
    /// # Errors
    ///
    /// As [`Wheel::reset`](crate::Wheel::reset).
    pub fn reset(&self, id: TimerId, delay: Duration) -> Result<bool, BeyondRange> {
        match self.wheel.deadline_after(self.now.instant, delay) {
            Ok(deadline) => self.reset_at(id, deadline),
            Err(beyond) => self.out_of_range(id, beyond),
        }
    }

    /// As [`Wheel::reset_at`](crate::Wheel::reset_at).
    ///
    /// # Errors
    ///
    /// As [`Wheel::reset_at`](crate::Wheel::reset_at).
    pub fn reset_at(&self, id: TimerId, deadline: Instant) -> Result<bool, BeyondRange> {
        match self.core().tick_of(deadline, self.now) {
            Ok(tick) => Ok(self.core().reset(self.call(), id, tick)),
            Err(beyond) => self.out_of_range(id, beyond),
        }
    }

    /// As [`Wheel::deadline`](crate::Wheel::deadline).
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Instant> {
        let tick = self.core().deadline(id, &self.guard)?;
        Some(self.core().timeline.instant(tick))
    }

    /// As [`Wheel::contains`](crate::Wheel::contains).
    #[must_use]
    pub fn contains(&self, id: TimerId) -> bool {
        self.core().deadline(id, &self.guard).is_some()
    }

    /// A wheel that is closed says so, whatever the deadline.
    fn refused(&self, value: T, beyond: BeyondRange) -> InsertError<T> {
        let closed = self.core().is_closed();
        let reason = if closed { Refusal::Closed } else { Refusal::BeyondRange(beyond) };
        InsertError { reason, value }
    }

    /// A timer that is not armed cannot be reset, whatever the deadline.
    fn out_of_range(&self, id: TimerId, beyond: BeyondRange) -> Result<bool, BeyondRange> {
        if self.contains(id) { Err(beyond) } else { Ok(false) }
    }

    fn core(&self) -> &'w Core<T> {
        &self.wheel.core
    }

    fn call(&self) -> Call<'_> {
        Call { caller: self.caller, guard: &self.guard }
    }
}

impl<T> fmt::Debug for Pinned<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("now", &self.now.instant).finish_non_exhaustive()
    }
}
