//! [`Interval`]: ticks at a fixed rate.

#![forbid(unsafe_code)]

use super::wait::{FAR, Wait};
use ::tokio::time::{Instant, MissedTickBehavior};
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How late a tick may be before it counts as missed.
const PUNCTUAL: Duration = Duration::from_millis(5);

/// Creates an interval that ticks every `period`, for the first time now.
///
/// The interval does not end. Dropping it cancels the next tick. A period of more than about 30
/// years is clamped to that.
///
/// # Panics
///
/// Panics if `period` is zero.
///
/// # Examples
///
/// ```
/// use tourbillon::time::{Duration, interval};
///
/// # pollster::block_on(async {
/// let mut heartbeat = interval(Duration::from_millis(5));
/// let first = heartbeat.tick().await;
/// assert_eq!(heartbeat.tick().await, first + Duration::from_millis(5));
/// # });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    Interval::new(Instant::now(), period)
}

/// Creates an interval that ticks every `period`, for the first time at `start`, like [`interval`].
///
/// # Panics
///
/// Panics if `period` is zero.
///
/// # Examples
///
/// ```
/// use tourbillon::time::{Duration, Instant, interval_at};
///
/// # pollster::block_on(async {
/// let start = Instant::now() + Duration::from_millis(5);
/// let mut heartbeat = interval_at(start, Duration::from_secs(1));
/// assert_eq!(heartbeat.tick().await, start);
/// assert!(Instant::now() >= start);
/// # });
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval::new(start, period)
}

/// A sequence of ticks at a fixed rate; created by [`interval`] and [`interval_at`].
///
/// The ticks are due at whole numbers of periods after the start. A tick that is awaited more than
/// 5 ms after it was due is missed, and [`MissedTickBehavior`] decides what follows.
///
/// # Examples
///
/// ```
/// use tourbillon::time::{Duration, MissedTickBehavior, interval};
///
/// # pollster::block_on(async {
/// let mut report = interval(Duration::from_millis(5));
/// report.set_missed_tick_behavior(MissedTickBehavior::Skip);
/// for _ in 0..3 {
///     report.tick().await;
/// }
/// # });
/// ```
#[derive(Debug)]
pub struct Interval {
    wait: Wait,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    #[track_caller]
    fn new(start: Instant, period: Duration) -> Self {
        assert!(!period.is_zero(), "`period` must be non-zero.");
        Self {
            wait: Wait::until(start),
            period: period.min(FAR),
            missed: MissedTickBehavior::Burst,
        }
    }

    /// Waits for the next tick and returns when it was due.
    ///
    /// Dropping the returned future loses no tick, so it can be a branch of a `select!`.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// Polls for the next tick, like [`tick`](Self::tick), for use in a hand-written future.
    ///
    /// After `Pending` the task is woken when the tick is due. After `Ready` it is not woken before
    /// the next poll.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::future::poll_fn;
    /// use tourbillon::time::{Duration, Instant, interval};
    ///
    /// let mut heartbeat = interval(Duration::from_millis(5));
    /// let first = pollster::block_on(poll_fn(|context| heartbeat.poll_tick(context)));
    /// assert!(first <= Instant::now());
    /// ```
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> Poll<Instant> {
        ready!(self.wait.poll(context));
        let due = self.wait.deadline();
        self.wait.reset(self.next_after(due, Instant::now()));
        Poll::Ready(due)
    }

    /// Returns when the tick after a tick that was due at `due` and awaited until `now` is due.
    fn next_after(&self, due: Instant, now: Instant) -> Instant {
        let late = now.saturating_duration_since(due);
        if late <= PUNCTUAL || self.missed == MissedTickBehavior::Burst {
            return due + self.period;
        }
        if self.missed == MissedTickBehavior::Delay {
            return now + self.period;
        }
        let into_period = late.as_nanos() % self.period.as_nanos();
        // The remainder is less than 30 years.
        now + self.period - Duration::from_nanos(u64::try_from(into_period).unwrap_or(0))
    }

    /// Restarts the interval. The next tick is due one period from now.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{Duration, Instant, interval};
    ///
    /// # pollster::block_on(async {
    /// let mut heartbeat = interval(Duration::from_millis(5));
    /// heartbeat.tick().await;
    /// let restart = Instant::now();
    /// heartbeat.reset();
    /// assert!(heartbeat.tick().await >= restart + Duration::from_millis(5));
    /// # });
    /// ```
    pub fn reset(&mut self) {
        self.wait.reset(Instant::now() + self.period);
    }

    /// Restarts the interval. The next tick is due now.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{Duration, interval};
    ///
    /// # pollster::block_on(async {
    /// let mut report = interval(Duration::from_secs(3600));
    /// report.tick().await;
    /// report.reset_immediately();
    /// report.tick().await; // not in an hour
    /// # });
    /// ```
    pub fn reset_immediately(&mut self) {
        self.wait.reset(Instant::now());
    }

    /// Restarts the interval. The next tick is due `after` from now, at most about 30 years.
    pub fn reset_after(&mut self, after: Duration) {
        self.wait.reset(Instant::now() + after.min(FAR));
    }

    /// Restarts the interval. The next tick is due at `deadline`, which may be more than a period
    /// ahead. If it has passed, the ticks since then are missed.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.wait.reset(deadline);
    }

    /// Returns the behaviour for missed ticks.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets the behaviour for missed ticks. The default is [`MissedTickBehavior::Burst`].
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// Returns the period.
    pub fn period(&self) -> Duration {
        self.period
    }
}
