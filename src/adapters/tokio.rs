//! [`RuntimeClock`], the time of a tokio runtime as a clock, and [`spawn`], a task that sweeps a
//! timer.
//!
//! A timer that belongs to a runtime needs no thread. On a `current_thread` runtime everything
//! stays on that thread. Under `tokio::time::pause` the wheel follows the paused clock and its
//! jumps, so tests that pause time continue to work.
//!
//! A task sweeps the wheel. After `tokio::time::advance`, or at the same deadline as one of tokio's
//! own sleeps, a sleep of the wheel is ready one turn of the runtime later. A test that polls such
//! a sleep by hand must yield to the runtime first.

#![forbid(unsafe_code)]

use crate::future::{Timer, drive};
use crate::{BuildError, Builder, Clock};
use ::tokio::runtime::Handle;
use ::tokio::task::JoinHandle;
use ::tokio::time::{Instant as TokioInstant, sleep};
use std::time::Instant;

/// A clock that reads the time of a tokio runtime, which tests may pause and advance. It can be
/// read on any thread, including threads outside the runtime.
///
/// Use it for a wheel that is swept in the runtime by [`spawn`] or
/// [`future::undriven`](crate::future::undriven). Do not use it for a [`Driver`](crate::Driver),
/// because its thread is outside the runtime, where time is not paused, and timers would fire early
/// by the paused clock.
///
/// # Examples
///
/// ```
/// use tourbillon::tokio::RuntimeClock;
/// use tourbillon::{Builder, Clock};
///
/// let runtime = ::tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// let clock = RuntimeClock::of(runtime.handle());
/// let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build::<u64>()?;
/// assert!(wheel.clock().now() <= clock.now());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RuntimeClock(Handle);

impl RuntimeClock {
    /// Creates a clock that reads the time of a runtime.
    #[must_use]
    pub fn of(runtime: &Handle) -> Self {
        Self(runtime.clone())
    }

    /// Creates a clock that reads the time of the current runtime.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn current() -> Self {
        Self(Handle::current())
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Instant {
        // A thread that is being torn down cannot enter a runtime. It reads the system's time, as
        // the runtime does while no test pauses it.
        let torn_down = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        let _entered = (!torn_down).then(|| self.0.enter());
        TokioInstant::now().into_std()
    }

    /// Returns `true` unless a test has paused the time of the runtime.
    #[allow(clippy::disallowed_methods, reason = "a paused clock is told by the system's")]
    fn is_running(&self) -> bool {
        let (before, system) = (self.now(), Instant::now());
        // A system whose clock is coarse may return the same instant many times.
        while Instant::now() == system {
            std::hint::spin_loop();
        }
        self.now() != before
    }
}

/// Creates a timer by the [runtime's clock](RuntimeClock) and spawns a task that sweeps it. The
/// task ends with the timer's last clone and sleep, or when the timer is [shut
/// down](Timer::shutdown).
///
/// (A clock that was set on the builder is ignored.) Creating a sleep enters the runtime and reads
/// its clock. If no test pauses the time, `drive(Builder::new(), tokio::time::sleep)` avoids that
/// cost.
///
/// # Errors
///
/// Fails like [`Builder::build`].
///
/// # Panics
///
/// Panics outside of a tokio runtime, or in one without time.
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
    let (timer, driving) = drive(builder.clock(RuntimeClock::current()), sleep)?;
    Ok((timer, ::tokio::task::spawn(driving)))
}
