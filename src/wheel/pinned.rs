//! [`Pinned`]: the operations for a batch of calls, with what each call would pay for held once.

#![forbid(unsafe_code)]

use crate::error::{BeyondRange, InsertError};
use crate::wheel::deadline::Inner;
use crate::wheel::engine::Engine;
use crate::wheel::id::TimerId;
use crate::wheel::memory::{Pin, pin};
use crate::wheel::ops::Call;
use crate::wheel::wheel::Wheel;
use crate::wheel::wheel_instant::WheelInstant;
use std::fmt;
use std::time::{Duration, Instant};

/// The operations of a [`Wheel`] for a batch of calls, made by
/// [`Wheel::pin`](crate::Wheel::pin).
///
/// A plain call finds out who calls and reads the clock, each time; this guard did so once.
/// **Delays count from the guard's [`now`](Self::now)**, so a guard that is kept for a while makes
/// timers fire that much sooner than the delay after the call: [`repin`] it for each batch.
///
/// Elsewhere than on 64-bit Linux, and with `--cfg portable`, it pins the epoch of
/// `crossbeam-epoch`'s default collector too: no memory of any wheel goes back to the allocator
/// meanwhile, nor any other garbage of that collector (rayon's, say). So hold it for a batch of
/// events, not while waiting for them.
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
    guard: Pin,
    now: WheelInstant,
}

impl<T: Send> Wheel<T> {
    /// The same operations for a batch of calls, at less cost each.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build()?;
    /// let pinned = wheel.pin();
    /// for connection in 0..100 {
    ///     pinned.insert(connection, Duration::from_secs(30))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pin(&self) -> Pinned<'_, T> {
        Pinned::new(&self.inner)
    }
}

impl<'w, T: Send> Pinned<'w, T> {
    #[inline]
    fn new(wheel: &'w Inner<T>) -> Self {
        Self { wheel, guard: pin(), now: wheel.now(wheel.engine.threads.current()) }
    }

    /// The instant from which this guard counts delays.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.engine().timeline.read(self.now)
    }

    /// The instant that `delay` from [`now`](Self::now) means: with the clock's lag added, so that
    /// a timer armed [at](Self::insert_at) it is as one armed after the delay. `None`: beyond all
    /// time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build::<u64>()?;
    /// let pinned = wheel.pin();
    /// let minute = Duration::from_secs(60);
    /// assert!(pinned.instant_after(minute) >= pinned.now().checked_add(minute));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn instant_after(&self, delay: Duration) -> Option<Instant> {
        self.engine().timeline.deadline(delay, self.now)
    }

    /// Lets go of the time, and takes hold of the present.
    #[inline]
    pub fn repin(&mut self) {
        self.guard.repin();
        self.now = self.wheel.now(self.engine().threads.current());
    }

    /// As [`Wheel::insert`](crate::Wheel::insert), `delay` counted from [`now`](Self::now).
    ///
    /// # Errors
    ///
    /// As [`Wheel::insert`](crate::Wheel::insert).
    #[inline]
    pub fn insert(&self, value: T, delay: Duration) -> Result<TimerId, InsertError<T>> {
        self.engine().insert_after(self.call(), value, delay, self.now)
    }

    /// As [`Wheel::insert_at`](crate::Wheel::insert_at).
    ///
    /// # Errors
    ///
    /// As [`Wheel::insert_at`](crate::Wheel::insert_at).
    #[inline]
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<TimerId, InsertError<T>> {
        self.engine().insert_at(self.call(), value, self.wheel.tick_of(deadline, self.now))
    }

    /// As [`Wheel::cancel`](crate::Wheel::cancel).
    #[inline]
    pub fn cancel(&self, id: TimerId) -> Option<T> {
        self.engine().cancel(self.call(), id)
    }

    /// As [`Wheel::reset`](crate::Wheel::reset), `delay` counted from [`now`](Self::now).
    ///
    /// # Errors
    ///
    /// As [`Wheel::reset`](crate::Wheel::reset).
    #[inline]
    pub fn reset(&self, id: TimerId, delay: Duration) -> Result<bool, BeyondRange> {
        self.engine().result_of(self.engine().reset_after(self.call(), id, delay, self.now))
    }

    /// As [`Wheel::reset_at`](crate::Wheel::reset_at).
    ///
    /// # Errors
    ///
    /// As [`Wheel::reset_at`](crate::Wheel::reset_at).
    #[inline]
    pub fn reset_at(&self, id: TimerId, deadline: Instant) -> Result<bool, BeyondRange> {
        let deadline = self.wheel.tick_of(deadline, self.now);
        self.engine().result_of(self.engine().reset_at(self.call(), id, deadline))
    }

    /// Begins to fetch the timer that `id` refers to into the processor's cache, so that an
    /// operation on it soon after does not wait for memory. A hint: it changes nothing and returns
    /// nothing.
    ///
    /// With many timers armed, most of a reset's or cancel's time is that wait. A batch that calls
    /// this for all of its timers first waits for them together, and not for each in turn.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let mut pinned = wheel.pin();
    /// let id = pinned.insert("connection 7", Duration::from_secs(30))?;
    /// # let ready = [id];
    ///
    /// pinned.repin();
    /// for &id in &ready {
    ///     pinned.prefetch(id);
    /// }
    /// for &id in &ready {
    ///     pinned.reset(id, Duration::from_secs(30))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn prefetch(&self, id: TimerId) {
        self.engine().prefetch(id, &self.guard);
    }

    /// As [`Wheel::deadline`](crate::Wheel::deadline).
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Instant> {
        let tick = self.engine().deadline(id, &self.guard)?;
        Some(self.engine().timeline.instant(tick))
    }

    /// As [`Wheel::contains`](crate::Wheel::contains).
    #[must_use]
    pub fn contains(&self, id: TimerId) -> bool {
        self.engine().contains(id, &self.guard)
    }

    #[inline]
    fn engine(&self) -> &'w Engine<T> {
        &self.wheel.engine
    }

    #[inline]
    fn call(&self) -> Call<'_> {
        // Looked up each time: a thread that ends releases its id, and may still call.
        Call { thread: self.engine().threads.current(), guard: &self.guard }
    }
}

impl<T> fmt::Debug for Pinned<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("now", &self.now).finish_non_exhaustive()
    }
}
