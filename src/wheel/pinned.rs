//! [`Pinned`]: a batch of operations that share one clock reading and one guard.

#![forbid(unsafe_code)]

use crate::error::{BeyondRange, InsertError};
use crate::wheel::engine::Engine;
use crate::wheel::id::TimerId;
use crate::wheel::memory::{Pin, pin};
use crate::wheel::shared::{AheadOf, Shared};
use crate::wheel::wheel::Wheel;
use crate::wheel::wheel_instant::WheelInstant;
use std::fmt;
use std::time::{Duration, Instant};

/// A guard for a batch of operations on a [`Wheel`], returned by [`Wheel::pin`](crate::Wheel::pin).
///
/// Each plain call reads the clock, if the thread's last reading is too old. This guard reads it
/// once. **Delays count from the guard's [`now`](Self::now)**, so the longer a guard is kept, the
/// earlier its timers fire relative to the call. Call [`repin`] for each batch.
///
/// Except on 64-bit Linux, and always with `--cfg portable`, it also pins the epoch of
/// `crossbeam-epoch`'s default collector. Until the guard is dropped or repinned, no wheel returns
/// memory to the allocator and no other garbage of that collector (rayon's, say) is freed. Hold it
/// while you process a batch of events, not while you wait for events.
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
    wheel: &'w Shared<T>,
    guard: Pin,
    now: WheelInstant,
}

impl<T: Send> Wheel<T> {
    /// Starts a batch of calls, each of which costs less than the same call on the wheel.
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
        Pinned::new(&self.shared)
    }
}

impl<'w, T: Send> Pinned<'w, T> {
    #[inline]
    fn new(wheel: &'w Shared<T>) -> Self {
        Self { wheel, guard: pin(), now: wheel.now(wheel.engine.threads.current()) }
    }

    /// Returns the instant from which this guard counts delays.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.engine().timeline.read(self.now)
    }

    /// Returns the deadline that lies `delay` after [`now`](Self::now), or `None` if it cannot be
    /// represented. The clock's lag is included, so that a timer armed [at](Self::insert_at) this
    /// deadline is due at the same time as one armed with the delay.
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
        let at = self.engine().timeline.checked_after(delay, self.now)?;
        Some(self.engine().timeline.read(at))
    }

    /// Reads the clock again and, in portable builds, pins the current epoch. Call it once per
    /// batch.
    #[inline]
    pub fn repin(&mut self) {
        self.guard.repin();
        self.now = self.wheel.now(self.engine().threads.current());
    }

    /// Arms a timer, as [`Wheel::insert`](crate::Wheel::insert) does, with `delay` counted from
    /// [`now`](Self::now).
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::insert`](crate::Wheel::insert).
    #[inline]
    pub fn insert(&self, value: T, delay: Duration) -> Result<TimerId, InsertError<T>> {
        self.wheel.insert(value, self.after(delay))
    }

    /// Arms a timer. See [`Wheel::insert_at`](crate::Wheel::insert_at).
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::insert_at`](crate::Wheel::insert_at).
    #[inline]
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<TimerId, InsertError<T>> {
        self.wheel.insert(value, self.at(deadline))
    }

    /// Cancels a timer. See [`Wheel::cancel`](crate::Wheel::cancel).
    #[inline]
    pub fn cancel(&self, id: TimerId) -> Option<T> {
        self.wheel.cancel(id)
    }

    /// Moves a deadline, as [`Wheel::reset`](crate::Wheel::reset) does, with `delay` counted from
    /// [`now`](Self::now).
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::reset`](crate::Wheel::reset).
    #[inline]
    pub fn reset(&self, id: TimerId, delay: Duration) -> Result<bool, BeyondRange> {
        self.wheel.result_of(self.wheel.reset(id, self.after(delay)))
    }

    /// Moves a deadline. See [`Wheel::reset_at`](crate::Wheel::reset_at).
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::reset_at`](crate::Wheel::reset_at).
    #[inline]
    pub fn reset_at(&self, id: TimerId, deadline: Instant) -> Result<bool, BeyondRange> {
        self.wheel.result_of(self.wheel.reset(id, self.at(deadline)))
    }

    /// Starts to load the entry of `id` into the processor's cache, so that an operation on it
    /// shortly afterwards does not stall on memory. This is a hint without any other effect.
    ///
    /// With many timers armed, such cache misses take most of the time of a reset or a cancel. A
    /// batch that first prefetches all of its timers overlaps the misses instead of taking them one
    /// after another.
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
        self.engine().prefetch(id);
    }

    /// Returns the deadline of an armed timer. See [`Wheel::deadline`](crate::Wheel::deadline).
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Instant> {
        let tick = self.engine().deadline(id)?;
        Some(self.engine().timeline.instant(tick))
    }

    /// Returns `true` if the timer is armed. See [`Wheel::contains`](crate::Wheel::contains).
    #[must_use]
    pub fn contains(&self, id: TimerId) -> bool {
        self.engine().contains(id)
    }

    #[inline]
    fn at(&self, deadline: Instant) -> AheadOf {
        AheadOf { now: self.now, at: self.engine().timeline.wheel_instant(deadline) }
    }

    /// Returns the deadline that lies `delay` after [`now`](Self::now).
    #[inline]
    fn after(&self, delay: Duration) -> AheadOf {
        AheadOf { now: self.now, at: self.engine().timeline.after(delay, self.now) }
    }

    #[inline]
    fn engine(&self) -> &'w Engine<T> {
        &self.wheel.engine
    }
}

impl<T> fmt::Debug for Pinned<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("now", &self.now).finish_non_exhaustive()
    }
}
