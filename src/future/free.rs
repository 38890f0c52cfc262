//! Sleeps, timeouts, intervals and queues on the default timer, without a handle.

#![forbid(unsafe_code)]

use super::current::default_timer;
use super::delay_queue::DelayQueue;
use super::interval::{Interval, ZeroPeriod};
use super::sleep::Sleep;
use super::timeout::Timeout;
use crate::Builder;
use std::time::{Duration, Instant};

/// A future that is ready when `delay` has passed, on the [default timer](default_timer).
///
/// # Panics
///
/// As [`default_timer`], and so all here.
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

/// As [`sleep`], until an instant.
pub fn sleep_until(deadline: Instant) -> Sleep {
    default_timer().sleep_until(deadline)
}

/// A future that is ended after `delay` if it is not ready by then, on the
/// [default timer](default_timer); see [`Timer::timeout`].
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

/// As [`timeout`], at an instant.
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    default_timer().timeout_at(deadline, future)
}

/// Ticks, the first at once and then one each `period`, on the
/// [default timer](default_timer); see [`Timer::interval`].
///
/// # Errors
///
/// The period is zero.
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

/// As [`interval`], with the first tick at an instant.
///
/// # Errors
///
/// The period is zero.
pub fn interval_at(start: Instant, period: Duration) -> Result<Interval, ZeroPeriod> {
    default_timer().interval_at(start, period)
}

/// An empty queue on the [default timer](default_timer), on a wheel as a
/// [`Builder`] makes it that was told nothing. As [`default_timer`], it panics if the system starts
/// no thread.
impl<T: Send> Default for DelayQueue<T> {
    fn default() -> Self {
        let queue = Self::new(&default_timer(), Builder::new());
        queue.unwrap_or_else(|refused| unreachable!("what it is by default is allowed: {refused}"))
    }
}
