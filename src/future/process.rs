//! The timer of the process: sleeps, time-outs, intervals and queues without a handle.

#![forbid(unsafe_code)]

use super::delay_queue::DelayQueue;
use super::interval::{Interval, ZeroPeriod};
use super::sleep::Sleep;
use super::timeout::Timeout;
use super::timer::Timer;
use crate::Builder;
use std::cell::OnceCell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

static OF_THE_PROCESS: OnceLock<Timer> = OnceLock::new();

thread_local! {
    /// Each thread's own clone, so that threads share no count of sleeps.
    static OF_THE_THREAD: OnceCell<Timer> = const { OnceCell::new() };
}

/// The timer of the process, which [`sleep`], [`timeout`] and [`interval`] use: the one that was
/// [set](set_default_timer), or one with a driver of its own that is started at the first call.
///
/// Each thread counts its sleeps for itself. The thread of the driver lives as long as the process.
///
/// # Panics
///
/// It is the first call, and the system starts no thread.
///
/// # Examples
///
/// ```
/// use tourbillon::future::default_timer;
///
/// assert_eq!(default_timer().wheel().len(), 0);
/// ```
pub fn default_timer() -> Timer {
    let own = |own: &OnceCell<Timer>| own.get_or_init(|| of_the_process().clone()).share();
    // A thread that is being torn down has none.
    OF_THE_THREAD.try_with(own).unwrap_or_else(|_| of_the_process().share())
}

#[allow(clippy::expect_used, reason = "documented")]
fn of_the_process() -> &'static Timer {
    OF_THE_PROCESS.get_or_init(|| {
        let driver = Builder::new().driver().thread_name("tourbillon");
        Timer::spawn(driver).expect("the system starts a thread")
    })
}

/// Makes a timer that of the process, before it is first used: for another resolution, a capacity,
/// or a runtime that [drives](fn@super::drive) it.
///
/// # Errors
///
/// There is one already; `timer` comes back.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{Timer, default_timer, set_default_timer};
///
/// let coarse = Builder::new().resolution(Duration::from_millis(10));
/// set_default_timer(Timer::spawn(coarse.driver())?).unwrap();
/// assert_eq!(default_timer().wheel().resolution(), Duration::from_millis(10));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
pub fn set_default_timer(timer: Timer) -> Result<(), Timer> {
    OF_THE_PROCESS.set(timer)
}

/// A future that is ready when `delay` has passed, on the [timer of the process](default_timer).
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
/// [timer of the process](default_timer); see [`Timer::timeout`].
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
/// [timer of the process](default_timer); see [`Timer::interval`].
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

/// An empty queue on the [timer of the process](default_timer), on a wheel as a
/// [`Builder`] makes it that was told nothing. As [`default_timer`], it panics if the system starts
/// no thread.
impl<T: Send> Default for DelayQueue<T> {
    fn default() -> Self {
        let queue = Self::new(&default_timer(), Builder::new());
        queue.unwrap_or_else(|refused| unreachable!("what it is by default is allowed: {refused}"))
    }
}
