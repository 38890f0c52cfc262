//! Sleeps, timeouts, intervals and queues on the default timer, without a handle.

#![forbid(unsafe_code)]

use super::current::default_timer;
use super::delay_queue::DelayQueue;
use super::interval::{Interval, ZeroPeriod};
use super::sleep::Sleep;
use super::timeout::Timeout;
use crate::Builder;
use std::time::{Duration, Instant};

/// Creates a sleep on the [default timer](default_timer) that completes when `delay` has passed.
///
/// # Panics
///
/// Panics like [`default_timer`]. This applies to all functions of this module.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::future::sleep;
///
/// pollster::block_on(sleep(Duration::from_millis(5)))?;
/// # Ok::<(), tourbillon::Refusal>(())
/// ```
pub fn sleep(delay: Duration) -> Sleep {
    default_timer().sleep(delay)
}

/// Creates a sleep that completes at `deadline`, like [`sleep`].
pub fn sleep_until(deadline: Instant) -> Sleep {
    default_timer().sleep_until(deadline)
}

/// Limits a future to `delay`, on the [default timer](default_timer). See
/// [`Timer::timeout`](super::Timer::timeout).
///
/// # Examples
///
/// ```
/// use std::future::pending;
/// use std::time::Duration;
/// use tourbillon::future::{TimeoutError, timeout};
///
/// let silent = timeout(Duration::from_millis(5), pending::<()>());
/// assert_eq!(pollster::block_on(silent), Err(TimeoutError::Elapsed));
/// ```
pub fn timeout<F: IntoFuture>(delay: Duration, future: F) -> Timeout<F::IntoFuture> {
    default_timer().timeout(delay, future)
}

/// Limits a future to a deadline, like [`timeout`].
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    default_timer().timeout_at(deadline, future)
}

/// Creates an interval on the [default timer](default_timer) that ticks at once and then every
/// `period`. See [`Timer::interval`](super::Timer::interval).
///
/// # Errors
///
/// Fails if the period is zero.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::future::interval;
///
/// let mut ticks = interval(Duration::from_millis(2))?;
/// pollster::block_on(async {
///     let first = ticks.tick().await?;
///     assert!(ticks.tick().await? > first);
///     Ok::<(), tourbillon::Refusal>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn interval(period: Duration) -> Result<Interval, ZeroPeriod> {
    default_timer().interval(period)
}

/// Creates an interval whose first tick is at `start`, like [`interval`].
///
/// # Errors
///
/// Fails if the period is zero.
pub fn interval_at(start: Instant, period: Duration) -> Result<Interval, ZeroPeriod> {
    default_timer().interval_at(start, period)
}

/// Creates an empty queue on the [default timer](default_timer), with a wheel of the default
/// [`Builder`]. Panics like [`default_timer`].
impl<T: Send> Default for DelayQueue<T> {
    fn default() -> Self {
        let queue = Self::new(&default_timer(), Builder::new());
        queue.unwrap_or_else(|refused| unreachable!("the default settings are valid: {refused}"))
    }
}
