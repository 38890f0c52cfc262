//! [`Timer`]: a wheel of wakers, and the driver or future that sweeps it.

#![forbid(unsafe_code)]

use super::drive_task::DriveTask;
use super::sleep_waker::SleepWaker;
use crate::{BuildError, Driver, DriverBuilder, Expired, Inline, Metrics, Wheel, WheelInstant};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A handle that creates sleeps, timeouts and intervals. They work on any runtime, and without one.
///
/// Clones share the wheel and its driver. The driver ends when the last clone, sleep, delay queue
/// and handle of a queue is dropped, so a sleeping task keeps it running. To end the timer for all
/// of them, call [`shutdown`](Self::shutdown) after the server that uses it has ended.
///
/// Each clone has its own count of the sleeps that it created, so threads with a clone each share
/// no counter. Make one clone for each thread or, if tasks move between threads, for each
/// connection. Within that, [`share`](Self::share) it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::future::{Timer, TimeoutError};
/// use tourbillon::Builder;
///
/// let timer = Timer::spawn(Builder::new().driver())?;
///
/// pollster::block_on(async {
///     timer.sleep(Duration::from_millis(5)).await?;
///
///     let never = std::future::pending::<()>();
///     let answer = timer.timeout(Duration::from_millis(5), never).await;
///     assert_eq!(answer, Err(TimeoutError::Elapsed));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })
/// # ?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In virtual time, without a thread:
///
/// ```
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
/// use std::time::Duration;
/// use tourbillon::future::Timer;
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let timer = Timer::new(wheel);
/// let mut hour = pin!(timer.sleep(Duration::from_secs(3600)));
///
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(hour.as_mut().poll(&mut context).is_pending());
/// clock.advance(Duration::from_secs(3600));
/// let _ = sweeper.sweep(|timer| timer.value.wake());
/// assert_eq!(hour.as_mut().poll(&mut context), Poll::Ready(Ok(())));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping the last handle ends its driver"]
pub struct Timer(Arc<TimerClone>);

/// The state of one clone of a timer.
#[derive(Debug)]
struct TimerClone {
    wheel: Wheel<SleepWaker>,
    swept_by: SweptBy,
    /// Set if the clone cannot shut the timer down.
    cannot_shut_down: bool,
}

/// The owner of the sweeper.
#[derive(Clone, Debug)]
enum SweptBy {
    /// A driver that belongs to the timer.
    Driver(Arc<Driver<SleepWaker>>),
    /// A future, which ends when the last clone is dropped.
    Future(Arc<DrivenWheel>),
    /// The code that created the timer.
    Other,
}

/// A wheel that a future sweeps. Dropping it closes the wheel.
#[derive(Debug)]
struct DrivenWheel {
    wheel: Wheel<SleepWaker>,
    task: Arc<DriveTask>,
}

impl Drop for DrivenWheel {
    fn drop(&mut self) {
        // This wakes the future.
        self.wheel.close();
    }
}

impl Timer {
    /// Creates a timer with its own driver.
    ///
    /// Wakers run on the tick thread ([`Inline`]) unless the builder was given another executor. A
    /// waker only passes its task on, which costs less than handing a batch of wakers to another
    /// thread. A waker that panics harms no other and is reported like a panic of a handler. Use an
    /// executor for a runtime whose wakers do more than that, or wait for locks. The tick thread
    /// does not notice that a test has paused time. Use `tourbillon::tokio::spawn` there.
    ///
    /// # Errors
    ///
    /// Fails like [`DriverBuilder::spawn`].
    pub fn spawn(driver: DriverBuilder) -> Result<Self, BuildError> {
        // A waker wakes its task when it is dropped, and so does not wait for `shutdown`. The last
        // sleep may be dropped under any lock, and wakers may take the same one.
        let driver = driver.or_executor(Inline).drop_unrun().detach_on_drop();
        let driver = driver.spawn(|timer: Expired<SleepWaker>| timer.value.wake())?;
        Ok(Self::of(driver.wheel().clone(), SweptBy::Driver(Arc::new(driver))))
    }

    /// Creates a timer on a wheel that other code sweeps, with [`SleepWaker::wake`] as the handler.
    ///
    /// The timer must be the wheel's only user. If other code drains the wheel, each sleep is woken
    /// and arms itself again, except that a sleep whose [id](super::Sleep::id) was shared
    /// completes. Code that drops the sweeper must call [`shutdown`](Self::shutdown) too, or the
    /// sleeps wait forever.
    pub fn new(wheel: Wheel<SleepWaker>) -> Self {
        Self::of(wheel, SweptBy::Other)
    }

    /// Creates a timer on a wheel that a future sweeps in the given task.
    pub(super) fn driven(wheel: Wheel<SleepWaker>, task: Arc<DriveTask>) -> Self {
        let driven = DrivenWheel { wheel: wheel.clone(), task };
        Self::of(wheel, SweptBy::Future(Arc::new(driven)))
    }

    fn of(wheel: Wheel<SleepWaker>, swept_by: SweptBy) -> Self {
        Self(Arc::new(TimerClone { wheel, swept_by, cannot_shut_down: false }))
    }

    /// Returns a clone that cannot shut the timer down.
    #[cfg(not(modelled))]
    pub(super) fn without_shutdown(&self) -> Self {
        self.clone_as(true)
    }

    fn clone_as(&self, cannot_shut_down: bool) -> Self {
        let TimerClone { wheel, swept_by, .. } = &*self.0;
        Self(Arc::new(TimerClone {
            wheel: wheel.clone(),
            swept_by: swept_by.clone(),
            cannot_shut_down,
        }))
    }

    /// Returns the current time of the timer's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.wheel.clock().now()
    }

    /// Returns the wheel, for its metrics and to reset sleeps [by their ids](super::Sleep::id).
    #[must_use]
    #[inline]
    pub fn wheel(&self) -> &Wheel<SleepWaker> {
        &self.0.wheel
    }

    /// Returns a snapshot of the counters of the wheel and, if the timer has its own driver, of the
    /// driver.
    ///
    /// # Examples
    ///
    /// ```
    /// let timer = tourbillon::future::Timer::spawn(tourbillon::Builder::new().driver())?;
    /// assert_eq!(timer.metrics().armed, 0);
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.own_driver().map_or_else(|| self.0.wheel.metrics(), Driver::metrics)
    }

    /// Returns the driver, unless the timer has none or is the [default
    /// timer](super::default_timer), whose driver belongs to the whole process.
    #[must_use]
    pub fn driver(&self) -> Option<&Driver<SleepWaker>> {
        self.own_driver().filter(|_| !self.0.cannot_shut_down)
    }

    fn own_driver(&self) -> Option<&Driver<SleepWaker>> {
        match &self.0.swept_by {
            SweptBy::Driver(driver) => Some(driver),
            SweptBy::Future(_) | SweptBy::Other => None,
        }
    }

    /// Returns `true` if the timer's own thread wakes tasks, whatever their runtime does meanwhile.
    pub(super) fn has_thread(&self) -> bool {
        self.own_driver().is_some()
    }

    /// Shuts the timer down. Idempotent.
    ///
    /// Each sleep, present and future, completes with [`Refusal::Closed`](crate::Refusal::Closed)
    /// unless its deadline had passed. The call waits until the tick thread has finished its sweep,
    /// including the wakers that it runs [inline](Inline). It does not wait if it is called on the
    /// tick thread.
    ///
    /// A handle that was returned by [`default_timer`](super::default_timer), or a clone of one,
    /// does nothing, because other code uses the timer as well. The handle that was passed to
    /// [`set_default_timer`](super::set_default_timer), and its clones, do end the timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::future::Timer;
    /// use tourbillon::{Builder, Refusal};
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// timer.shutdown();
    /// let hour = timer.sleep(Duration::from_secs(3600));
    /// assert_eq!(pollster::block_on(hour), Err(Refusal::Closed));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    pub fn shutdown(&self) {
        if self.0.cannot_shut_down {
            return;
        }
        let unfired = match self.driver() {
            Some(driver) => driver.shutdown(),
            None => {
                self.0.wheel.close();
                self.0.wheel.drain()
            }
        };
        for timer in unfired {
            timer.value.wake_quietly();
        }
        if let SweptBy::Future(driven) = &self.0.swept_by {
            // The wheel is empty at this point.
            driven.task.end();
        }
    }

    /// Returns the time that is `delay` from now.
    #[inline]
    pub(super) fn after(&self, delay: Duration) -> WheelInstant {
        self.0.wheel.wheel_instant_after(delay)
    }

    /// Returns another handle of this clone, which shares its count of sleeps.
    ///
    /// Unlike [`clone`](Self::clone), it allocates nothing. Use it for objects that belong
    /// together, such as the parts of a connection.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::{Sleep, Timer};
    ///
    /// /// One of many.
    /// struct Connection {
    ///     timer: Timer,
    ///     idle: Sleep,
    /// }
    ///
    /// impl Connection {
    ///     fn new(server: &Timer) -> Self {
    ///         let timer = server.clone(); // the connection's own
    ///         let idle = timer.share().sleep(Duration::from_secs(30));
    ///         Self { timer, idle }
    ///     }
    /// }
    ///
    /// let connection = Connection::new(&Timer::spawn(Builder::new().driver())?);
    /// assert!(!connection.idle.is_elapsed());
    /// # drop(connection.timer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Clone for Timer {
    fn clone(&self) -> Self {
        self.clone_as(self.0.cannot_shut_down)
    }
}
