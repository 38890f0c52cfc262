//! [`Interval`]: ticks at a fixed rate.

#![forbid(unsafe_code)]

use super::budget::Budget;
use super::repeating::Repeating;
use super::sleep::Sleep;
use super::timer::Timer;
use crate::Refusal;
use crate::scheduler::{LastRun, MissedTickBehavior};
use futures_core::Stream;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// A sequence of ticks at a fixed rate, without drift.
///
/// It is created by [`Timer::interval`](super::Timer::interval). The ticks are due at whole numbers
/// of periods after its start. Missed ticks come at once by default
/// ([`MissedTickBehavior::Burst`]), as in `tokio::time`, unless the clock [counts the suspensions
/// of the machine](crate::Clock::counts_suspension). An interval that catches up yields to other
/// tasks after 64 ticks.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{MissedTickBehavior, Timer};
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut interval = timer.interval(Duration::from_millis(2))?;
/// interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
/// pollster::block_on(async {
///     let first = interval.tick().await?; // at once
///     assert!(interval.tick().await? >= first + Duration::from_millis(2));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "an interval does nothing unless it is polled"]
pub struct Interval {
    repeating: Repeating,
    /// The time of the next tick, if it was given as an instant. The sleep's deadline may have been
    /// rounded up to the creation of its timer.
    due: Option<Instant>,
    period: Duration,
    missed: MissedTickBehavior,
    budget: Budget,
}

/// The error of an interval whose period is zero. The period must be at least 1 ns.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{Timer, ZeroPeriod};
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// assert_eq!(timer.interval(Duration::ZERO).unwrap_err(), ZeroPeriod);
/// assert!(timer.interval(Duration::from_nanos(1)).is_ok());
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroPeriod;

impl fmt::Display for ZeroPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the period must not be zero")
    }
}

impl Error for ZeroPeriod {}

impl Timer {
    /// Creates an interval that ticks every `period`, for the first time at once.
    ///
    /// # Errors
    ///
    /// Fails if the period is zero.
    pub fn interval(&self, period: Duration) -> Result<Interval, ZeroPeriod> {
        self.interval_at(self.now(), period)
    }

    /// Creates an interval that ticks every `period`, for the first time at `start`.
    ///
    /// # Errors
    ///
    /// Fails if the period is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let start = Instant::now() + Duration::from_millis(5);
    /// let mut heartbeat = timer.interval_at(start, Duration::from_secs(1))?;
    /// pollster::block_on(async {
    ///     assert_eq!(heartbeat.tick().await?, start);
    ///     assert!(Instant::now() >= start);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn interval_at(&self, start: Instant, period: Duration) -> Result<Interval, ZeroPeriod> {
        let interval = Interval::new(self.sleep_until(start), period)?;
        Ok(Interval { due: Some(start), ..interval })
    }
}

impl Interval {
    pub(super) fn new(first: Sleep, period: Duration) -> Result<Self, ZeroPeriod> {
        if period.is_zero() {
            return Err(ZeroPeriod);
        }
        let missed = MissedTickBehavior::default_by(first.timer().wheel().clock());
        let repeating = Repeating::new(first);
        Ok(Self { repeating, due: None, period, missed, budget: Budget::default() })
    }

    /// Waits for the next tick and returns when it was due. Dropping the future loses no tick.
    ///
    /// # Errors
    ///
    /// Fails like [`Sleep`], but only once, after other tasks have had a turn. After
    /// [`Refusal::Closed`] the interval stays pending forever, so end the loop at that error. After
    /// [`Refusal::AtCapacity`] the tick is still to come, and the next call waits for it beyond the
    /// timer's capacity. A loop that ignores the errors therefore never spins.
    pub async fn tick(&mut self) -> Result<Instant, Refusal> {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// Polls for the next tick, like [`tick`](Self::tick), for use in a hand-written future.
    ///
    /// After 64 ticks in a row it wakes the task and returns `Pending` once, even if a tick is due.
    ///
    /// # Errors
    ///
    /// Fails like [`tick`](Self::tick).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::future::default_timer;
    ///
    /// let mut ticks = default_timer().interval(Duration::from_millis(2))?;
    /// let first = pollster::block_on(std::future::poll_fn(|context| ticks.poll_tick(context)))?;
    /// assert!(first <= Instant::now());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> Poll<Result<Instant, Refusal>> {
        ready!(self.budget.poll_ready(context.waker()));
        let polled = self.poll_sleep(context);
        self.budget.count(polled)
    }

    fn poll_sleep(&mut self, context: &mut Context<'_>) -> Poll<Result<Instant, Refusal>> {
        if let Err(refusal) = ready!(self.repeating.poll(context)) {
            return Poll::Ready(Err(refusal));
        }
        let sleep = &self.repeating.sleep;
        let timer = sleep.timer();
        let (due, began) = (self.due.unwrap_or_else(|| sleep.deadline()), timer.now());
        // Deadlines are rounded up to the resolution. A tick is not late by that much, unless it
        // hides a period.
        let rounded = timer.wheel().resolution().min(self.period);
        let late = began.saturating_duration_since(due).saturating_sub(rounded);
        let last = LastRun { due, late, ..LastRun::none(began) };
        match self.missed.next(&last, self.period) {
            Some(next) => self.reset_at(next),
            None => self.reset_after(Duration::MAX),
        }
        Poll::Ready(Ok(due))
    }

    /// Restarts the interval. The next tick is due one period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Restarts the interval. The next tick is due at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let mut report = timer.interval(Duration::from_secs(3600))?;
    /// pollster::block_on(async {
    ///     report.tick().await?; // the first comes at once
    ///     report.reset_immediately();
    ///     report.tick().await?; // and so does this, not in an hour
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// Restarts the interval. The next tick is due `delay` from now.
    pub fn reset_after(&mut self, delay: Duration) {
        self.due = None;
        self.repeating.sleep.reset_after(delay);
    }

    /// Restarts the interval. The next tick is due at `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.due = Some(deadline);
        self.repeating.sleep.reset(deadline);
    }

    /// Returns the behaviour for missed ticks.
    #[must_use]
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets the behaviour for missed ticks. The default is [`MissedTickBehavior::Burst`], and
    /// [`MissedTickBehavior::Skip`] on a clock that [counts the suspensions of the
    /// machine](crate::Clock::counts_suspension). [`MissedTickBehavior::CatchUp`] bounds a burst.
    pub fn set_missed_tick_behavior(&mut self, missed: MissedTickBehavior) {
        self.missed = missed;
    }

    /// Returns the period.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }
}
/// Yields the ticks and errors of [`tick`](Interval::tick). The stream has no end.
///
/// # Examples
///
/// ```
/// use futures_core::Stream;
/// use std::future::poll_fn;
/// use std::pin::Pin;
/// use std::time::Duration;
/// use tourbillon::future::default_timer;
///
/// let mut ticks = default_timer().interval(Duration::from_millis(2))?;
/// let tick = pollster::block_on(poll_fn(|context| Pin::new(&mut ticks).poll_next(context)));
/// assert!(tick.unwrap().is_ok());
/// # Ok::<(), tourbillon::future::ZeroPeriod>(())
/// ```
impl Stream for Interval {
    type Item = Result<Instant, Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_tick(context).map(Some)
    }
}
