//! What a caller keeps of a scheduled closure: [`Scheduled`], and [`Joined`] for its result.

#![forbid(unsafe_code)]

use super::closure::{Closure, Due};
use super::ending::{Cancel, Ending};
use super::result_channel::ResultReceiver;
use super::rule::Next;
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

/// A closure that was scheduled. Clones are of the same one, and equal to each other and to no
/// others; dropping them changes nothing.
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
    /// Lets it run no more, and says whether that comes in time. O(1).
    ///
    /// After [`Cancel::Prevented`] no run begins and none is under way; what the closure holds has
    /// been dropped, or is as soon as its rule, which is being asked, has answered.
    pub fn cancel(&self) -> Cancel {
        self.closure.cancel(&self.wheel)
    }

    /// Lets it run next when `delay` has passed, and by its rule from there. `false`: no run is to
    /// come, and so none is moved. During a run it moves the one after that. A closure that is
    /// [paused](Self::pause) stays so, and runs then at the earliest. A delay that an [`Instant`]
    /// cannot tell counts as 136 years. O(1).
    ///
    /// # Errors
    ///
    /// The wheel is closed, or full; the closure keeps its time.
    pub fn reset(&self, delay: Duration) -> Result<bool, Refusal> {
        self.closure.reset(&self.wheel, Next::After(delay))
    }

    /// As [`reset`](Self::reset), to an instant; one that has passed means at once.
    ///
    /// # Errors
    ///
    /// As [`reset`](Self::reset).
    pub fn reset_at(&self, at: Instant) -> Result<bool, Refusal> {
        self.closure.reset(&self.wheel, Next::At(at))
    }

    /// Prevents runs until the closure is [resumed](Self::resume). Returns `false` if no run is to
    /// come, because the closure has ended or its only run is in progress. A run of a repetition
    /// that is in progress continues to its end; see [`is_running`](Self::is_running) and
    /// [`wait`](Self::wait). O(1).
    ///
    /// On resumption the rule decides about the times that have passed, as if nothing had swept the
    /// wheel during the pause: by [`MissedTickBehavior`](super::MissedTickBehavior) at a fixed
    /// rate, and by `MissedTimes` for a calendar. A run that was already due begins on resumption,
    /// even of a closure that runs once. Running [tasks](super::Tasks) and queued tasks are not
    /// paused.
    ///
    /// # Examples
    ///
    /// No report is made while the files are copied, and then one for all that were missed:
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

    /// When it runs next, with its jitter; `None` during a run, after the last, while it is paused,
    /// and if its rule wants to be asked again and does not know. That of a calendar is by the wall
    /// clock of its last look, at most a minute ago; see also [`next_time`](Self::next_time).
    #[must_use]
    pub fn next_run(&self) -> Option<Instant> {
        self.closure.next_run()
    }

    /// What the wall clock will say when it runs next, by a rule that goes by the wall clock, as a
    /// `Calendar` does, and without its jitter; `None` by other rules, during a run, after the
    /// last, while it is paused, and if [`reset`](Self::reset) has moved the next run.
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

    /// Whether a run is under way.
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

    /// Why it will not run again; `None` while it will.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.closure.ending()
    }

    /// Waits for the end of a run that is under way; returns at once if none is, also if others are
    /// to come.
    ///
    /// # Errors
    ///
    /// The caller is that run, and would wait for itself.
    pub fn wait(&self) -> Result<(), WaitError> {
        if self.closure.wait() { Ok(()) } else { Err(WaitError::InsideHandler) }
    }
}

/// A closure that runs once, and its result.
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

/// Why there is no result.
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
    /// The closure panicked; this is what the panic carried.
    Panicked(Box<dyn Any + Send>),
    /// It was cancelled, or its scheduler was shut down, before it ran.
    NotRun,
}

impl<R> Joined<R> {
    /// The closure.
    #[must_use]
    pub fn scheduled(&self) -> &Scheduled {
        &self.scheduled
    }

    /// As [`Scheduled::cancel`].
    pub fn cancel(&self) -> Cancel {
        self.scheduled.cancel()
    }

    /// Waits for the result. In a closure it may wait for ever: for one that stands behind, in the
    /// same [batch](crate::DriverBuilder::batch) or because no thread of the executor is free.
    ///
    /// # Errors
    ///
    /// The closure panicked, or was not run.
    pub fn join(self) -> Result<R, JoinError> {
        join_result(self.into_result().wait())
    }

    /// The result to come, without the closure: that, and with it who tells the result, may live by
    /// this handle alone.
    fn into_result(self) -> ResultReceiver<R> {
        let Self { scheduled, result } = self;
        drop(scheduled);
        result
    }

    /// The result if it is there; it can be had once.
    ///
    /// # Errors
    ///
    /// The closure panicked, or was not run.
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

/// The result of a closure that runs once, for tasks: what `.await` makes of [`Joined`]. Dropping
/// it changes nothing.
///
/// # Errors
///
/// As [`Joined::join`].
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
