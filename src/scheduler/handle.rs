//! The handles that callers keep: [`Scheduled`] for a closure, and [`Joined`] for its result.

#![forbid(unsafe_code)]

use super::closure::{Closure, Due};
use super::result_channel::ResultReceiver;
use super::rule::Next;
use super::state::{Cancel, Ending};
use crate::{Refusal, WaitError, Wheel};
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// A handle to a scheduled closure. Clones refer to the same closure. Two handles are equal if they
/// refer to the same closure. Dropping a handle does not cancel the closure.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::{Cancel, Ending, Scheduler};
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// let report = scheduler.every(Duration::from_secs(3600)).run(|| println!("an hour"))?;
/// assert!(report.reset(Duration::from_secs(60))?);
/// assert!(report.next_run().is_some());
/// assert_eq!(report.cancel(), Cancel::Prevented);
/// assert_eq!(report.ending(), Some(Ending::Cancelled));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scheduled {
    pub(super) closure: Arc<Closure>,
    pub(super) wheel: Wheel<Due>,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.closure, &other.closure)
    }
}

impl Eq for Scheduled {}

impl Hash for Scheduled {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.closure).hash(state);
    }
}

impl Scheduled {
    /// Cancels all future runs and reports whether one was prevented. O(1).
    ///
    /// After [`Cancel::Prevented`] no run begins and none is in progress. The values that the
    /// closure has captured are dropped, or will be dropped as soon as its rule returns if the rule
    /// is being asked.
    pub fn cancel(&self) -> Cancel {
        self.closure.cancel(&self.wheel)
    }

    /// Moves the next run to `delay` from now. Later runs follow the rule from there. O(1).
    ///
    /// Returns `false` if no run is to come, so that none was moved. During a run, the run after it
    /// is moved. A [paused](Self::pause) closure stays paused and runs when it is resumed at the
    /// earliest. A delay that overflows an [`Instant`] is clamped to 136 years.
    ///
    /// # Errors
    ///
    /// Fails if the wheel is closed or full. The closure keeps its time.
    pub fn reset(&self, delay: Duration) -> Result<bool, Refusal> {
        self.closure.reset(&self.wheel, Next::After(delay))
    }

    /// Moves the next run to the instant `at`, as [`reset`](Self::reset) does. If that has passed,
    /// the closure runs immediately.
    ///
    /// # Errors
    ///
    /// Fails like [`reset`](Self::reset).
    pub fn reset_at(&self, at: Instant) -> Result<bool, Refusal> {
        self.closure.reset(&self.wheel, Next::At(at))
    }

    /// Prevents runs until the closure is [resumed](Self::resume). Returns `false` if no run is to
    /// come, because the closure has ended or its only run is in progress. A run of a repetition
    /// that is in progress continues to its end (see [`is_running`](Self::is_running) and
    /// [`wait`](Self::wait)). O(1).
    ///
    /// On resumption the rule decides about the times that have passed, as if nothing had swept the
    /// wheel during the pause. At a fixed rate [`MissedTickBehavior`](super::MissedTickBehavior)
    /// applies, and for a calendar `MissedTimes`. A run that was already due begins on resumption,
    /// even of a closure that runs once. Running [tasks](super::Tasks) and queued tasks are not
    /// paused.
    ///
    /// # Examples
    ///
    /// No report is made during the backup, and one report afterwards for all that were missed:
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{MissedTickBehavior, Scheduler};
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let (clock, minute) = (ManualClock::new(), Duration::from_secs(60));
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let scheduler = Scheduler::new(wheel);
    /// let (send, reports) = mpsc::channel();
    /// let every = scheduler.every(minute).missed(MissedTickBehavior::Skip);
    /// let report = every.run(move || drop(send.send("a report")))?;
    ///
    /// assert!(report.pause());
    /// clock.advance(minute * 10);
    /// let _ = sweeper.sweep(|timer| scheduler.fire(timer));
    /// assert_eq!(reports.try_iter().count(), 0);
    ///
    /// assert!(report.resume()?);
    /// while sweeper.sweep(|timer| scheduler.fire(timer)).expired > 0 {}
    /// assert_eq!(reports.try_iter().count(), 1);
    /// assert_eq!(report.next_run(), Some(clock.start() + minute * 11));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self) -> bool {
        self.closure.pause(&self.wheel)
    }

    /// Allows runs again, by the rule of the closure. Returns `false` if it was not paused. O(1).
    ///
    /// # Errors
    ///
    /// Fails if the wheel is closed. The closure stays paused, and
    /// [`Scheduler::shutdown`](super::Scheduler::shutdown) returns it.
    pub fn resume(&self) -> Result<bool, Refusal> {
        self.closure.resume(&self.wheel)
    }

    /// Returns `true` from [`pause`](Self::pause) until the closure is resumed or ends.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.closure.is_paused()
    }

    /// Returns the instant of the next run, including its jitter.
    ///
    /// Returns `None` during a run, after the last run, while the closure is paused, and if its
    /// rule has asked to be asked again and does not know the run. For a calendar the instant is
    /// based on the last check of the wall clock, at most a minute ago. See also
    /// [`next_time`](Self::next_time).
    #[must_use]
    pub fn next_run(&self) -> Option<Instant> {
        self.closure.next_run()
    }

    /// Returns the wall-clock time of the next run, without its jitter, if the rule uses the wall
    /// clock as a `Calendar` does.
    ///
    /// Returns `None` for other rules, during a run, after the last run, while the closure is
    /// paused, and if [`reset`](Self::reset) has moved the next run.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "cron")] {
    /// use std::time::SystemTime;
    /// use tourbillon::Builder;
    /// use tourbillon::scheduler::{Calendar, Scheduler};
    ///
    /// let scheduler = Scheduler::spawn(Builder::new().driver())?;
    /// let nightly = Calendar::new("30 2 * * *", "Europe/Berlin")?;
    /// let backup = scheduler.by(nightly).run(|| println!("the files are copied"))?;
    /// assert!(backup.next_time() > Some(SystemTime::now()));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn next_time(&self) -> Option<SystemTime> {
        self.closure.next_time()
    }

    /// Returns `true` if a run is in progress.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::scheduler::{Cancel, Scheduler};
    ///
    /// let scheduler = Scheduler::spawn(Builder::new().driver())?;
    /// let (begun, wait_for_it) = mpsc::channel();
    /// let (go_on, pause) = mpsc::channel::<()>();
    /// let work = scheduler.after(Duration::ZERO, move || {
    ///     begun.send(()).unwrap();
    ///     pause.recv()
    /// })?;
    /// wait_for_it.recv()?;
    /// assert!(work.scheduled().is_running());
    /// assert_ne!(work.cancel(), Cancel::Prevented); // too late: it goes on to its end
    /// go_on.send(())?;
    /// assert_eq!(work.join()?, Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.closure.is_running()
    }

    /// Returns the reason why the closure will not run again, or `None` while it will.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.closure.ending()
    }

    /// Waits for the end of the run in progress. Returns immediately if there is none, even if runs
    /// are to come.
    ///
    /// # Errors
    ///
    /// Fails if the caller is that run, which would wait for itself.
    pub fn wait(&self) -> Result<(), WaitError> {
        if self.closure.wait() { Ok(()) } else { Err(WaitError::InsideHandler) }
    }
}

/// A handle to a closure that runs once, and to its result.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::Scheduler;
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// let answer = scheduler.after(Duration::from_millis(2), || 6 * 7)?;
/// assert_eq!(answer.join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it holds the result; drop it if that is not wanted"]
pub struct Joined<R> {
    pub(super) scheduled: Scheduled,
    pub(super) result: ResultReceiver<R>,
}

/// The reason why a closure has no result.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::scheduler::{Cancel, JoinError, Scheduler};
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let answer = scheduler.after(Duration::from_secs(3600), || 42)?;
/// assert_eq!(answer.cancel(), Cancel::Prevented);
/// match answer.join() {
///     Ok(answer) => println!("{answer}"),
///     Err(JoinError::NotRun) => println!("there is no answer"),
///     Err(JoinError::Panicked(panic)) => std::panic::resume_unwind(panic),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum JoinError {
    /// The closure panicked. Contains the payload of the panic.
    Panicked(Box<dyn Any + Send>),
    /// The closure was cancelled, or its scheduler was shut down, before it ran.
    NotRun,
}

impl<R> Joined<R> {
    /// Returns the handle of the closure.
    #[must_use]
    pub fn scheduled(&self) -> &Scheduled {
        &self.scheduled
    }

    /// Cancels the closure, like [`Scheduled::cancel`].
    pub fn cancel(&self) -> Cancel {
        self.scheduled.cancel()
    }

    /// Blocks until the result is available.
    ///
    /// In a closure this may block forever, if the awaited closure is queued behind it: in the same
    /// [batch](crate::DriverBuilder::batch), or because no thread of the executor is free.
    ///
    /// # Errors
    ///
    /// Fails if the closure panicked or was not run.
    pub fn join(self) -> Result<R, JoinError> {
        join_result(self.into_result().wait())
    }

    /// Drops the handle of the closure and keeps the result. The handle may be the last reference
    /// to the closure, and with it to the sender of the result.
    fn into_result(self) -> ResultReceiver<R> {
        let Self { scheduled, result } = self;
        drop(scheduled);
        result
    }

    /// Returns the result if it is available. The result can be taken once.
    ///
    /// # Errors
    ///
    /// Fails if the closure panicked or was not run.
    ///
    /// # Examples
    ///
    /// In virtual time:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::Scheduler;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let scheduler = Scheduler::new(wheel);
    /// let answer = scheduler.after(Duration::from_secs(1), || 42)?;
    /// assert_eq!(answer.try_join()?, None);
    ///
    /// clock.advance(Duration::from_secs(1));
    /// let _ = sweeper.sweep(|timer| scheduler.fire(timer));
    /// assert_eq!(answer.try_join()?, Some(42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_join(&self) -> Result<Option<R>, JoinError> {
        match self.result.try_take() {
            Err(()) => Ok(None),
            Ok(result) => join_result(result).map(Some),
        }
    }
}

/// Converts a received result. `None` means that the closure was not run.
fn join_result<R>(result: Option<thread::Result<R>>) -> Result<R, JoinError> {
    result.map_or(Err(JoinError::NotRun), |ran| ran.map_err(JoinError::Panicked))
}

impl<R> IntoFuture for Joined<R> {
    type Output = Result<R, JoinError>;
    type IntoFuture = JoinFuture<R>;

    fn into_future(self) -> JoinFuture<R> {
        JoinFuture { result: self.into_result() }
    }
}

/// A future of the result of a closure that runs once. Created by awaiting a [`Joined`]. Dropping
/// it does not cancel the closure.
///
/// # Errors
///
/// Resolves to an error like [`Joined::join`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::scheduler::Scheduler;
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let answer = pollster::block_on(async {
///     let answer = scheduler.after(Duration::from_millis(2), || 6 * 7)?;
///     Ok::<_, Box<dyn std::error::Error>>(answer.await?)
/// });
/// assert_eq!(answer?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct JoinFuture<R> {
    result: ResultReceiver<R>,
}

impl<R> Future for JoinFuture<R> {
    type Output = Result<R, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.result.poll(context).map(join_result)
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JoinError::Panicked(_) => "Panicked(..)",
            JoinError::NotRun => "NotRun",
        })
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JoinError::Panicked(_) => "the closure panicked",
            JoinError::NotRun => {
                "the closure was cancelled, or its scheduler shut down, before it ran"
            }
        })
    }
}

impl Error for JoinError {}
