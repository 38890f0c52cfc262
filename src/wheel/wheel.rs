//! [`Wheel`]: the concurrent half of a timing wheel, with the operations that any thread can call,
//! and [`Unfired`], the timer that some of them return. The methods that only this crate knows are
//! in [`internal`](super::internal).

#![forbid(unsafe_code)]

use crate::clock::Clock;
use crate::error::{BeyondRange, InsertError};
use crate::sync::Arc;
use crate::wheel::bits::to_index;
use crate::wheel::id::TimerId;
use crate::wheel::metrics::Metrics;
use crate::wheel::shared::Shared;
use std::fmt;
use std::time::{Duration, Instant};

/// The concurrent half of a timing wheel. Any thread can insert, cancel and reset timers.
///
/// Every operation is O(1) and lock-free. It never waits for another thread, nor for the
/// [`Sweeper`](crate::Sweeper), the other half, which hands over due timers. Clones share the
/// wheel. A wheel is made by [`Builder::build`](crate::Builder::build) or owned by a
/// [`Driver`](crate::Driver).
///
/// In the child of a `fork`, a wheel works unless its sweeper was on another thread. See
/// [`Driver`](crate::Driver#forked-child-processes). The child loses the memory of vacant entries
/// that other threads of the parent had cached.
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
    pub(in crate::wheel) shared: Arc<Shared<T>>,
}

impl<T: Send> Wheel<T> {
    /// Arms a timer that is due `delay` from now.
    ///
    /// It fires at the first sweep whose time is at or past the deadline, rounded up to the wheel's
    /// resolution. A timer with no delay fires at the next sweep. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// Fails if the wheel is closed, at its capacity or out of memory, or if the delay is beyond
    /// its range (2^37 - 2 ticks, which is 4.35 years at 1 ms). The error contains the value.
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
        self.shared.insert(value, delay)
    }

    /// Arms a timer that is due at `deadline`, or at the next sweep if that instant has passed.
    ///
    /// O(1), lock-free.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert).
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
        self.shared.insert(value, self.wheel_instant(deadline))
    }

    /// Cancels a timer. Returns its value if and only if it has not fired and never will.
    ///
    /// The timer's entry is free at once, whatever the sweeper is doing. For an id whose timer has
    /// ended, the call returns `None` and changes nothing. The same holds for each id of another
    /// wheel, except with a [small probability](TimerId). An [invented id](TimerId::from_bits) may
    /// match a timer. O(1), lock-free.
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
        self.shared.cancel(id)
    }

    /// Cancels a timer, as [`cancel`](Self::cancel) does, and also returns its deadline. O(1),
    /// lock-free.
    ///
    /// Use it to arm the timer again with another value. A concurrent reset either is reflected in
    /// the returned deadline or has returned `false`.
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
        let engine = &self.shared.engine;
        let (value, ended) = engine.cancel_slow(engine.threads.current(), id)?;
        let tick = ended.deadline(engine.progress.swept());
        Some(Unfired { value, id, deadline: engine.timeline.instant(tick) })
    }

    /// Moves the deadline of an armed timer to `delay` from now, earlier or later. The id stays the
    /// same.
    ///
    /// Returns `true` if the timer was armed; it then fires at its new deadline and not at the old
    /// one. Returns `false` if it has fired, was cancelled, or never existed. O(1), lock-free. A
    /// reset to a later deadline costs one exchange on one word.
    ///
    /// # Errors
    ///
    /// Fails if the delay is beyond the wheel's range. The timer then keeps its deadline.
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
        self.shared.result_of(self.shared.reset(id, delay))
    }

    /// Moves the deadline of an armed timer to `deadline`, or to the next sweep if that instant has
    /// passed.
    ///
    /// O(1), lock-free.
    ///
    /// # Errors
    ///
    /// Fails like [`reset`](Self::reset).
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
        self.reset_at_wheel_instant(id, self.wheel_instant(deadline))
    }

    /// Returns the deadline of an armed timer, rounded up to the wheel's resolution. O(1),
    /// lock-free.
    ///
    /// The result may already be the deadline of a reset that another thread has in progress. Until
    /// that reset has returned, a sweep may still pass the deadline, in which case the timer fires
    /// in a later sweep.
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
        let tick = self.shared.engine.deadline(id)?;
        Some(self.shared.engine.timeline.instant(tick))
    }

    /// Returns `true` if the timer is armed. O(1), lock-free.
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
        self.shared.engine.contains(id)
    }

    /// Returns the clock from which the wheel reads the time.
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
        &*self.shared.clock
    }

    /// Returns the length of a tick. Deadlines are rounded up to it.
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
        self.shared.engine.timeline.duration(1)
    }

    /// Returns the longest delay that the wheel accepts at any time.
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
        self.shared.engine.timeline.longest_delay()
    }

    /// Returns the number of armed timers. It is exact if no operation is in progress, and
    /// otherwise an estimate.
    ///
    /// It sums a fixed number of counters, so it is O(1) but not meant for a hot path.
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
        to_index(self.shared.engine.armed())
    }

    /// Returns `true` if no timer is armed. See [`len`](Self::len).
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
        self.shared.engine.close();
    }

    /// Returns `true` if the wheel refuses inserts.
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
        self.shared.engine.is_closed()
    }

    /// Ends every armed timer and returns each of them once, in no particular order.
    ///
    /// If the wheel was [closed](Self::close) before, none is missed, because every accepted insert
    /// has fired, was cancelled, or is returned here. On an open wheel, inserts that race with the
    /// drain may stay. O(entries of the wheel).
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
        let engine = &self.shared.engine;
        engine.drain(engine.threads.current(), |id, tick, value| {
            drained.push(Unfired { value, id, deadline: engine.timeline.instant(tick) });
        });
        if engine.is_closed() {
            // Wakes a thread that sweeps until no timer is armed, which is the case now.
            engine.progress.wakeup().wake();
        }
        drained
    }

    /// Returns a copy of the wheel's counters.
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
        Metrics::of(&self.shared.engine)
    }
}

impl<T> Clone for Wheel<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel").field("armed", &self.shared.engine.armed()).finish_non_exhaustive()
    }
}

/// A timer that was cancelled or drained before it fired.
///
/// # Examples
///
/// Moving the timers of one wheel to another, each with its deadline:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Unfired, Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (old, _sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let (new, _sweeper) = Builder::new().clock(clock).build()?;
/// old.insert("request 7", Duration::from_secs(5))?;
/// old.insert("request 8", Duration::from_secs(9))?;
///
/// old.close();
/// for Unfired { value, deadline, .. } in old.drain() {
///     new.insert_at(value, deadline)?;
/// }
/// assert_eq!((old.len(), new.len()), (0, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfired<T> {
    /// The value that was inserted.
    pub value: T,
    /// The id of the timer, which now refers to nothing.
    pub id: TimerId,
    /// The deadline of the timer, rounded up to the wheel's resolution.
    pub deadline: Instant,
}
