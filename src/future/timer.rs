//! [`Timer`]: a wheel of wakers, and who sweeps it.

#![forbid(unsafe_code)]

use super::drive_task::DriveTask;
use super::sleep_waker::SleepWaker;
use crate::{BuildError, Driver, DriverBuilder, Expired, Inline, Metrics, Wheel, WheelInstant};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes sleeps, time-outs and intervals. They work on any runtime, and without one.
///
/// Clones share the wheel and its driver, which ends with the last clone, sleep, delay queue and
/// handle of one: a task that sleeps keeps it. What ends it for all of them is
/// [`shutdown`](Self::shutdown), after the server that uses it has ended.
///
/// Each clone counts the sleeps made of it on its own, so that those who have a clone each share no
/// counter: make one for each thread or, where tasks move between threads, for each connection;
/// within that, [`share`](Self::share) it.
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

/// One clone of a timer.
#[derive(Debug)]
struct TimerClone {
    wheel: Wheel<SleepWaker>,
    swept_by: SweptBy,
    /// Whether it cannot end the timer.
    lent: bool,
}

/// Who sweeps a timer's wheel.
#[derive(Clone, Debug)]
enum SweptBy {
    /// The timer's own driver.
    Driver(Arc<Driver<SleepWaker>>),
    /// A future, which ends with the last clone.
    Future(Arc<DrivenWheel>),
    /// Whoever made the timer.
    Other,
}

/// A wheel that a future sweeps. Its end is the wheel's.
#[derive(Debug)]
struct DrivenWheel {
    wheel: Wheel<SleepWaker>,
    task: Arc<DriveTask>,
}

impl Drop for DrivenWheel {
    fn drop(&mut self) {
        // It rings.
        self.wheel.close();
    }
}

impl Timer {
    /// A timer with a driver of its own.
    ///
    /// Wakers run on the tick thread ([`Inline`]) unless the builder was given another executor: a
    /// waker only passes its task on, which costs less than to hand a batch of them to another
    /// thread. One that panics harms no other and is reported as a handler's panic is. A runtime
    /// whose wakers do more than that, or wait for locks, is a reason for an executor. The thread
    /// knows nothing of a time that a test has paused: there `tourbillon::tokio::spawn` is right.
    ///
    /// # Errors
    ///
    /// As [`DriverBuilder::spawn`].
    pub fn spawn(driver: DriverBuilder) -> Result<Self, BuildError> {
        // A waker wakes when it is dropped, and so does not wait for `shutdown`. Nobody knows under
        // which lock the last sleep is dropped, and wakers may take the same one.
        let driver = driver.or_executor(Inline).drop_unrun().detach_on_drop();
        let driver = driver.spawn(|timer: Expired<SleepWaker>| timer.value.wake())?;
        Ok(Self::of(driver.wheel().clone(), SweptBy::Driver(Arc::new(driver))))
    }

    /// A timer on a wheel that somebody else sweeps, with [`SleepWaker::wake`] as handler.
    ///
    /// The wheel is the timer's alone: a sleep whose timer another has drained is woken, and arms
    /// itself again (one that was cancelled by an [id that was handed out](super::Sleep::id) ends).
    /// Whoever drops the
    /// sweeper calls [`shutdown`](Self::shutdown) too, or the sleeps wait for ever.
    pub fn new(wheel: Wheel<SleepWaker>) -> Self {
        Self::of(wheel, SweptBy::Other)
    }

    /// A timer on a wheel that a future sweeps, which the task wakes.
    pub(super) fn driven(wheel: Wheel<SleepWaker>, task: Arc<DriveTask>) -> Self {
        let driven = DrivenWheel { wheel: wheel.clone(), task };
        Self::of(wheel, SweptBy::Future(Arc::new(driven)))
    }

    fn of(wheel: Wheel<SleepWaker>, swept_by: SweptBy) -> Self {
        Self(Arc::new(TimerClone { wheel, swept_by, lent: false }))
    }

    /// Another clone, which cannot end the timer.
    #[cfg(not(modelled))]
    pub(super) fn without_shutdown(&self) -> Self {
        self.clone_as(true)
    }

    fn clone_as(&self, lent: bool) -> Self {
        let TimerClone { wheel, swept_by, .. } = &*self.0;
        Self(Arc::new(TimerClone { wheel: wheel.clone(), swept_by: swept_by.clone(), lent }))
    }

    /// What the timer's clock says.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.wheel.clock().now()
    }

    /// The wheel: for its metrics, and to reset sleeps [by their ids](super::Sleep::id).
    #[must_use]
    #[inline]
    pub fn wheel(&self) -> &Wheel<SleepWaker> {
        &self.0.wheel
    }

    /// A snapshot of what the wheel counts, and the driver if this timer has one of its own.
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
        self.any_driver().map_or_else(|| self.0.wheel.metrics(), Driver::metrics)
    }

    /// Returns the driver, unless the timer has none or is the [default
    /// timer](super::default_timer), whose driver belongs to the whole process.
    #[must_use]
    pub fn driver(&self) -> Option<&Driver<SleepWaker>> {
        self.any_driver().filter(|_| !self.0.lent)
    }

    fn any_driver(&self) -> Option<&Driver<SleepWaker>> {
        match &self.0.swept_by {
            SweptBy::Driver(driver) => Some(driver),
            SweptBy::Future(_) | SweptBy::Other => None,
        }
    }

    /// Returns `true` if tasks are woken independently of their runtime, by the timer's own thread
    /// and by a clock that runs by itself.
    pub(crate) fn is_independent_of_runtimes(&self) -> bool {
        let clock = self.0.wheel.clock();
        let tick = self.0.wheel.resolution();
        self.any_driver().is_some() && clock.timeout(clock.now() + tick).is_some()
    }

    /// Ends all sleeps, present and future: each resolves to
    /// [`Refusal::Closed`](crate::Refusal::Closed), unless its time had come. Idempotent.
    ///
    /// It waits for the tick thread to end its sweep, and its wakers if they run
    /// [inline](Inline), unless it is called there.
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
        if self.0.lent {
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
            // The wheel is empty now.
            driven.task.end();
        }
    }

    /// The moment that `delay` from now means.
    #[inline]
    pub(super) fn after(&self, delay: Duration) -> WheelInstant {
        self.0.wheel.wheel_instant_after(delay)
    }

    /// Another handle of this clone, which shares its count of sleeps. It allocates nothing, as
    /// another [clone](Self::clone) does; for what belongs together, such as the parts of a
    /// connection.
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
        self.clone_as(self.0.lent)
    }
}
