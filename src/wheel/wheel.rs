//! [`Wheel`]: the concurrent half, with the operations that any thread may call.

#![forbid(unsafe_code)]

use crate::clock::Clock;
use crate::error::{BeyondRange, InsertError};
use crate::sync::Arc;
use crate::wheel::bits::to_index;
use crate::wheel::deadline::Inner;
#[cfg(any(feature = "future", modelled))]
use crate::wheel::deadline::ResolvedDeadline;
use crate::wheel::id::TimerId;
use crate::wheel::memory::pin;
use crate::wheel::metrics::Metrics;
use crate::wheel::ops::Call;
use crate::wheel::unfired::Unfired;
use crate::wheel::wheel_instant::WheelInstant;
use std::fmt;
use std::time::{Duration, Instant};

/// The concurrent half of a timing wheel: any thread inserts, cancels and resets timers.
///
/// Every operation is O(1) and lock-free: none waits for another thread, nor for the
/// [`Sweeper`](crate::Sweeper), the other half, which hands over the timers that are due. Clones
/// share the wheel. Made by [`Builder::build`](crate::Builder::build) or owned by a
/// [`Driver`](crate::Driver).
///
/// In the child of a `fork` a wheel works, unless its sweeper was on another thread: see
/// [`Driver`](crate::Driver#forked-child-processes). The memory of vacant entries that the parent's
/// other threads kept is lost to the child.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let (wheel, mut sweeper) = Builder::new().build()?;
/// let idle = wheel.insert("connection 7", Duration::from_secs(30))?;
///
/// // A packet arrives: push the timeout back.
/// assert!(wheel.reset(idle, Duration::from_secs(30))?);
/// // The peer closes: the timeout is not wanted any more.
/// assert_eq!(wheel.cancel(idle), Some("connection 7"));
/// assert_eq!(wheel.len(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Wheel<T> {
    pub(in crate::wheel) inner: Arc<Inner<T>>,
}

impl<T: Send> Wheel<T> {
    /// Arms a timer that is due `delay` from now.
    ///
    /// It fires at the first sweep whose time is at or past the deadline, rounded up to the
    /// wheel's resolution; with no delay, at the next sweep. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// Fails if the wheel is closed, at its capacity or out of memory, or if the delay is beyond
    /// its range (2^37 - 2 ticks: 4.35 years at 1 ms). The error contains the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Refusal};
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let id = wheel.insert("soon", Duration::from_millis(20))?;
    /// assert!(wheel.contains(id));
    ///
    /// let refused = wheel.insert("never", Duration::MAX).unwrap_err();
    /// assert!(matches!(refused.reason, Refusal::BeyondRange(_)));
    /// assert_eq!(refused.value, "never");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn insert(&self, value: T, delay: Duration) -> Result<TimerId, InsertError<T>> {
        match self.inner.try_insert(value, delay) {
            Ok(id) => Ok(id),
            Err(value) => self.insert_slow(value, delay),
        }
    }

    /// As [`insert`](Self::insert), in every case.
    #[inline(never)]
    fn insert_slow(&self, value: T, delay: Duration) -> Result<TimerId, InsertError<T>> {
        self.pin().insert(value, delay)
    }

    /// Arms a timer that is due at `deadline`; at the next sweep if that has passed.
    ///
    /// O(1), lock-free.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let deadline = Instant::now() + Duration::from_secs(2);
    /// let id = wheel.insert_at("then", deadline)?;
    /// assert!(wheel.deadline(id) >= Some(deadline));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<TimerId, InsertError<T>> {
        self.pin().insert_at(value, deadline)
    }

    /// Ends a timer: its value, if and only if it has not fired and now never will.
    ///
    /// The timer's place is free at once, whatever the sweeper does. The call returns `None` and
    /// changes nothing for an id whose timer has ended and, except for a [small chance](TimerId),
    /// for an id of another wheel. An [invented id](TimerId::from_bits) may match a timer. O(1),
    /// lock-free.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let id = wheel.insert("request", Duration::from_secs(1))?;
    /// assert_eq!(wheel.cancel(id), Some("request"));
    /// assert_eq!(wheel.cancel(id), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn cancel(&self, id: TimerId) -> Option<T> {
        self.inner.cancel(id)
    }

    /// As [`cancel`](Self::cancel), and tells when the timer would have been due. O(1), lock-free.
    ///
    /// For a timer that is to be armed again with another value: a reset by another thread is in
    /// the returned deadline, or else has returned `false`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let id = wheel.insert("by the old owner", Duration::from_secs(1))?;
    /// if let Some(taken) = wheel.cancel_with_deadline(id) {
    ///     wheel.insert_at("by the new owner", taken.deadline)?;
    /// }
    /// assert_eq!(wheel.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_with_deadline(&self, id: TimerId) -> Option<Unfired<T>> {
        let engine = &self.inner.engine;
        let call = Call { thread: engine.threads.current(), guard: &pin() };
        let (value, tick) = engine.cancel_with_tick(call, id)?;
        Some(Unfired { value, id, deadline: engine.timeline.instant(tick) })
    }

    /// Sets an armed timer's deadline to `delay` from now, earlier or later. The id stays.
    ///
    /// `true`: the timer was armed, and fires at its new deadline and not at the old one.
    /// `false`: it has fired, was cancelled, or never was. O(1), lock-free; a reset to later
    /// costs one exchange on one word.
    ///
    /// # Errors
    ///
    /// The delay is beyond the wheel's range; the timer keeps its deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let id = wheel.insert("idle", Duration::from_secs(30))?;
    /// assert!(wheel.reset(id, Duration::from_secs(60))?);
    /// assert!(wheel.reset(id, Duration::from_secs(5))?);
    /// wheel.cancel(id);
    /// assert!(!wheel.reset(id, Duration::from_secs(5))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn reset(&self, id: TimerId, delay: Duration) -> Result<bool, BeyondRange> {
        self.inner.engine.result_of(self.inner.reset_after(id, delay))
    }

    /// Sets an armed timer's deadline; one that has passed means the next sweep.
    ///
    /// O(1), lock-free.
    ///
    /// # Errors
    ///
    /// As [`reset`](Self::reset).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let id = wheel.insert("idle", Duration::from_secs(30))?;
    /// assert!(wheel.reset_at(id, Instant::now() + Duration::from_secs(5))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn reset_at(&self, id: TimerId, deadline: Instant) -> Result<bool, BeyondRange> {
        self.pin().reset_at(id, deadline)
    }

    /// As [`insert_at`](Self::insert_at), at a moment.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    #[doc(hidden)]
    #[inline]
    pub fn insert_at_wheel_instant(
        &self,
        value: T,
        deadline: WheelInstant,
    ) -> Result<TimerId, InsertError<T>> {
        match self.inner.try_insert_at(value, deadline) {
            Ok(id) => Ok(id),
            Err(value) => self.insert_at(value, self.instant(deadline)),
        }
    }

    /// As [`reset_at`](Self::reset_at), to a moment.
    ///
    /// # Errors
    ///
    /// As [`reset`](Self::reset).
    #[doc(hidden)]
    #[inline]
    pub fn reset_at_wheel_instant(
        &self,
        id: TimerId,
        deadline: WheelInstant,
    ) -> Result<bool, BeyondRange> {
        self.inner.engine.result_of(self.inner.reset_at(id, deadline))
    }

    /// An instant, as the wheel counts time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let [soon, later] = [1, 2].map(|seconds| Instant::now() + Duration::from_secs(seconds));
    /// assert!(wheel.wheel_instant(soon) < wheel.wheel_instant(later));
    /// assert_eq!(wheel.instant(wheel.wheel_instant(soon)), soon);
    /// # wheel.insert((), Duration::ZERO)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn wheel_instant(&self, at: Instant) -> WheelInstant {
        self.inner.engine.timeline.wheel_instant(at)
    }

    /// The moment at which a timer is due that is armed now with this delay: the clock's lag is
    /// added. Without a delay it has come.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn wheel_instant_after(&self, delay: Duration) -> WheelInstant {
        let now = self.inner.now(self.inner.engine.threads.current());
        self.inner.engine.timeline.wheel_instant_after(delay, now)
    }

    /// The instant of a moment.
    #[doc(hidden)]
    #[must_use]
    pub fn instant(&self, at: WheelInstant) -> Instant {
        self.inner.engine.timeline.read(at)
    }

    /// The deadline of an armed timer, rounded as the wheel keeps it.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn wheel_instant_of(&self, id: TimerId) -> Option<WheelInstant> {
        let engine = &self.inner.engine;
        engine.deadline(id, &pin()).map(|tick| engine.timeline.wheel_instant_of(tick))
    }

    /// Whether a timer still waits that has a deadline no earlier than this and whose id nobody
    /// else has: without a look at it. `false` says nothing.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn is_definitely_pending(&self, deadline: WheelInstant) -> bool {
        self.inner.engine.is_definitely_pending(deadline)
    }

    /// How many nanoseconds a moment is ahead, as far as the clock was read; `None` if it has come.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn ahead(&self, at: WheelInstant) -> Option<u64> {
        self.inner.ahead(at)
    }

    /// Whether the wheel holds so many timers at most, and takes no more.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) fn is_bounded(&self) -> bool {
        self.capacity().is_some()
    }

    /// How soon a moment is, if the caller's last reading of the clock tells.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn resolve(&self, deadline: WheelInstant) -> Option<ResolvedDeadline<'_>> {
        self.inner.resolve(deadline)
    }

    /// As [`insert_at_wheel_instant`](Self::insert_at_wheel_instant), in the common case; in all
    /// others, the value comes back.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn insert_resolved(
        &self,
        value: T,
        deadline: ResolvedDeadline<'_>,
    ) -> Result<TimerId, T> {
        self.inner.insert(value, deadline)
    }

    /// As [`insert_resolved`](Self::try_insert), in every case.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) fn insert_resolved_slow(
        &self,
        value: T,
        deadline: ResolvedDeadline<'_>,
    ) -> Result<TimerId, InsertError<T>> {
        self.inner.insert_resolved_slow(value, deadline)
    }

    /// Whether a moment has come, by the clock.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn has_passed(&self, at: WheelInstant) -> bool {
        self.inner.ahead(at).is_none()
    }

    /// When an armed timer is due, rounded up to the wheel's resolution. O(1), lock-free.
    ///
    /// The deadline of a reset that is under way in another thread may be returned already. Until
    /// that reset has returned, a sweep may still pass the deadline; the timer then fires in a
    /// later one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let id = wheel.insert("idle", Duration::from_secs(30))?;
    /// assert!(wheel.deadline(id).unwrap() > Instant::now());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Instant> {
        let tick = self.inner.engine.deadline(id, &pin())?;
        Some(self.inner.engine.timeline.instant(tick))
    }

    /// Whether the timer is armed. O(1), lock-free.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let id = wheel.insert("idle", Duration::from_secs(30))?;
    /// assert!(wheel.contains(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn contains(&self, id: TimerId) -> bool {
        self.inner.engine.contains(id, &pin())
    }

    /// Where the wheel reads the time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build::<u64>()?;
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(wheel.clock().now(), clock.start() + Duration::from_secs(1));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.inner.clock
    }

    /// The length of a tick, to which deadlines round up.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build::<u64>()?;
    /// assert_eq!(wheel.resolution(), Duration::from_millis(1));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn resolution(&self) -> Duration {
        self.inner.engine.timeline.duration(1)
    }

    /// The longest delay that the wheel accepts, at any moment.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// assert!(wheel.insert("in four years", wheel.longest_delay()).is_ok());
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        self.inner.engine.timeline.longest_delay()
    }

    /// How many timers are armed: exact when no operation is under way, else a moment's figure.
    ///
    /// It sums a fixed number of counters: O(1), but not for a hot path.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// wheel.insert("idle", Duration::from_secs(30))?;
    /// assert_eq!(wheel.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        to_index(self.inner.engine.armed())
    }

    /// Whether no timer is armed; see [`len`](Self::len).
    ///
    /// # Examples
    ///
    /// ```
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build::<u64>()?;
    /// assert!(wheel.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Wheel<T> {
    /// How many shards there are.
    pub(crate) fn shards(&self) -> usize {
        self.inner.engine.shards.len()
    }

    /// Refuses every insert from now on. Armed timers stay armed. Idempotent.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Refusal;
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build()?;
    /// wheel.close();
    /// let refused = wheel.insert("late", Duration::ZERO).unwrap_err();
    /// assert_eq!((refused.reason, refused.value), (Refusal::Closed, "late"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.inner.engine.close();
    }

    /// Whether the wheel refuses inserts.
    ///
    /// # Examples
    ///
    /// ```
    /// let (wheel, sweeper) = tourbillon::Builder::new().build::<u64>()?;
    /// drop(sweeper); // nothing could ever fire
    /// assert!(wheel.is_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.engine.is_closed()
    }

    /// Ends every armed timer and hands each back, once, in no particular order.
    ///
    /// On a wheel that is [closed](Self::close) first, none is missed: every accepted insert has
    /// fired, was cancelled, or is here. On an open one, inserts that race with the drain may
    /// stay. O(entries of the wheel).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build()?;
    /// wheel.insert("unfinished", Duration::from_secs(9))?;
    /// wheel.close();
    /// let unfinished = wheel.drain();
    /// assert_eq!(unfinished[0].value, "unfinished");
    /// assert!(wheel.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self) -> Vec<Unfired<T>> {
        let mut drained = Vec::new();
        let engine = &self.inner.engine;
        engine.drain(
            Call { thread: engine.threads.current(), guard: &pin() },
            |id, tick, value| {
                drained.push(Unfired { value, id, deadline: engine.timeline.instant(tick) });
            },
        );
        if engine.is_closed() {
            // Whoever sweeps until nothing is armed any more: that is now.
            engine.progress.wakeup().wake();
        }
        drained
    }

    /// A snapshot of what the wheel counts.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build()?;
    /// wheel.insert("idle", Duration::from_secs(30))?;
    /// assert_eq!(wheel.metrics().inserted, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.inner.engine)
    }
}

impl<T> Clone for Wheel<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel").field("armed", &self.inner.engine.armed()).finish_non_exhaustive()
    }
}
