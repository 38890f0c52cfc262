//! On tokio: a clock by `tokio::time`, and the task that sweeps a timer.
//!
//! A timer of a runtime's own, without a thread: on a `current_thread` runtime everything stays on
//! that thread. Under `tokio::time::pause` the wheel follows the paused clock, and leaps with it:
//! tests that pause time go on to work unchanged.

#![forbid(unsafe_code)]

use crate::future::{Timer, drive};
use crate::{BuildError, Builder, Clock};
use ::tokio::task::JoinHandle;
use ::tokio::time::{Instant as TokioInstant, sleep};
use std::time::Instant;

/// The time of tokio's runtime, which tests may pause and move; the system's, outside of one.
///
/// For a wheel that is swept in the runtime: by [`spawn`], or by
/// [`future::driven`](crate::future::driven). Not for a [`Driver`](crate::Driver): its thread is
/// outside, where time is not paused, and timers would fire early by the paused clock.
///
/// # Examples
///
/// ```
/// use tourbillon::tokio::RuntimeClock;
/// use tourbillon::{Builder, Clock};
///
/// let (wheel, _sweeper) = Builder::new().clock(RuntimeClock).build::<u64>()?;
/// assert!(wheel.clock().now() <= RuntimeClock.now());
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RuntimeClock;

impl Clock for RuntimeClock {
    fn now(&self) -> Instant {
        TokioInstant::now().into_std()
    }
}

/// A timer by the [runtime's clock](RuntimeClock), swept by a task of the runtime; the task ends
/// with the timer's last clone and sleep, or when it is [shut down](Timer::shutdown).
///
/// (A clock that the builder was given is not used.) It reads the clock for each sleep that is
/// made; where no test pauses the time, `drive(Builder::new(), tokio::time::sleep)` leaves that
/// out.
///
/// # Errors
///
/// As [`Builder::build`].
///
/// # Panics
///
/// Outside of a tokio runtime, or in one without time.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let runtime = ::tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// runtime.block_on(async {
///     let (timer, sweeping) = tourbillon::tokio::spawn(Builder::new())?;
///     timer.sleep(Duration::from_millis(5)).await?;
///     drop(timer);
///     sweeping.await?;
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spawn(builder: Builder) -> Result<(Timer, JoinHandle<()>), BuildError> {
    let (timer, driving) = drive(builder.clock(RuntimeClock), sleep)?;
    Ok((timer, ::tokio::task::spawn(driving)))
}
