//! The builder of repetitions: [`By`] for a rule, and its alias [`Every`] for a period.

#![forbid(unsafe_code)]

use super::Scheduler;
use super::closure::{Closure, Observer, Start};
use super::handle::Scheduled;
use super::next_run::Schedule;
use super::rule::{LastRun, MissedTickBehavior, Next, Period, Rule};
use super::tasks::{Overlap, ScheduledTask, Tasks};
use super::work::{AfterPanic, Run, Work};
use crate::{InsertError, Jitter, Refusal, Refused};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A builder of a repetition. Created by [`Scheduler::by`] for a rule, and, as an [`Every`], by
/// [`Scheduler::every`] for a period.
///
/// # Examples
///
/// Three attempts, each after a longer pause, in virtual time:
///
/// ```
/// use std::sync::mpsc;
/// use std::time::{Duration, Instant};
/// use tourbillon::scheduler::{AfterPanic, Scheduler};
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let (scheduler, mut pauses) = (Scheduler::new(wheel), [1, 10, 60].into_iter());
/// let rule = move |last: Instant| Some(last + Duration::from_secs(pauses.next()?));
/// let (send, attempts) = mpsc::channel();
/// let by = scheduler.by(rule).after_panic(AfterPanic::GoOn);
/// by.run(move || drop(send.send("an attempt")))?;
///
/// for _second in 0..71 {
///     clock.advance(Duration::from_secs(1));
///     let _ = sweeper.sweep(|timer| scheduler.fire(timer));
/// }
/// assert_eq!(attempts.try_iter().count(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct By<'s, R> {
    scheduler: &'s Scheduler,
    rule: R,
    jitter: Jitter,
    after_panic: AfterPanic,
    /// The reason why the rule is refused, if it is invalid.
    invalid: Option<RepeatRefusal>,
}

/// A builder of a repetition at a fixed rate or with a fixed delay. Created by
/// [`Scheduler::every`]. It has the settings of [`By`] and some of its own.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::{AfterPanic, MissedTickBehavior, Scheduler};
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// scheduler
///     .every(Duration::from_secs(10))
///     .first_after(Duration::ZERO)
///     .missed(MissedTickBehavior::Skip)
///     .after_panic(AfterPanic::GoOn)
///     .run(|| println!("ten seconds"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Every<'s> = By<'s, Period>;

/// The reason why a repetition was refused.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use tourbillon::Builder;
/// use tourbillon::scheduler::{RepeatRefusal, Scheduler};
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let refused = scheduler.every(Duration::ZERO).run(|| ()).unwrap_err();
/// assert_eq!(refused.reason, RepeatRefusal::ZeroPeriod);
/// let refused = scheduler.by(|_: Instant| None).run(|| ()).unwrap_err();
/// assert_eq!(refused.to_string(), "the rule has no first run");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepeatRefusal {
    /// The period is zero.
    ZeroPeriod,
    /// The rule has no first run.
    Never,
    /// The wheel refused the first timer.
    Wheel(Refusal),
}

impl<'s> Every<'s> {
    pub(super) fn periodic(scheduler: &'s Scheduler, period: Duration) -> Self {
        let invalid = period.is_zero().then_some(RepeatRefusal::ZeroPeriod);
        let missed = MissedTickBehavior::default_by(scheduler.wheel().clock());
        Self { invalid, ..Self::new(scheduler, Period::new(period, missed)) }
    }

    /// Sets the delay of the first run. By default it is one period.
    pub fn first_after(mut self, delay: Duration) -> Self {
        self.rule.first = Next::After(delay);
        self
    }

    /// Sets the instant of the first run. If that has passed, the first run is due immediately.
    pub fn first_at(mut self, at: Instant) -> Self {
        self.rule.first = Next::At(at);
        self
    }

    /// Ends the repetition with the last run that is due by `last`. A run that is due at `last`
    /// itself still comes, and so do missed runs, even later than that.
    ///
    /// A jitter may delay the last run past `last`. A run that a handle moves comes in any case.
    ///
    /// # Examples
    ///
    /// A reminder every minute for an hour:
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::scheduler::Scheduler;
    /// use tourbillon::{Builder, Clock, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let (scheduler, minute) = (Scheduler::new(wheel), Duration::from_secs(60));
    /// let (send, reminders) = mpsc::channel();
    /// let every = scheduler.every(minute).until(clock.now() + minute * 60);
    /// every.run(move || drop(send.send("a reminder")))?;
    /// for _minute in 0..120 {
    ///     clock.advance(minute);
    ///     let _ = sweeper.sweep(|timer| scheduler.fire(timer));
    /// }
    /// assert_eq!(reminders.try_iter().count(), 60);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn until(mut self, last: Instant) -> Self {
        self.rule.last = Some(last);
        self
    }

    /// Counts each period from the end of the previous run, and not from the instant when that run
    /// was due.
    ///
    /// # Examples
    ///
    /// A check that takes two seconds, with ten seconds between two checks, in virtual time:
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::scheduler::Scheduler;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let scheduler = Scheduler::new(wheel);
    /// let (begun, begins) = mpsc::channel();
    /// let (takes, start) = (clock.clone(), clock.elapsed());
    /// scheduler.every(Duration::from_secs(10)).fixed_delay().run(move || {
    ///     begun.send((takes.elapsed() - start).as_secs()).unwrap();
    ///     takes.advance(Duration::from_secs(2));
    /// })?;
    /// for _second in 0..35 {
    ///     clock.advance(Duration::from_secs(1));
    ///     let _ = sweeper.sweep(|timer| scheduler.fire(timer));
    /// }
    /// assert_eq!(begins.try_iter().collect::<Vec<_>>(), [10, 22, 34]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fixed_delay(mut self) -> Self {
        self.rule.fixed_delay = true;
        self
    }

    /// Sets the behaviour for missed runs. With a fixed delay no run is missed.
    ///
    /// By default they burst. On a clock that [counts the suspensions of the
    /// machine](crate::Clock::counts_suspension), they are skipped by default.
    pub fn missed(mut self, missed: MissedTickBehavior) -> Self {
        self.rule.missed = missed;
        self
    }
}

impl<'s, R: Rule> By<'s, R> {
    pub(super) fn new(scheduler: &'s Scheduler, rule: R) -> Self {
        let (jitter, after_panic) = (Jitter::default(), AfterPanic::default());
        Self { scheduler, rule, jitter, after_panic, invalid: None }
    }

    /// Delays each run by a [`Jitter`], so that many closures of the same rate or rule do not run
    /// at the same instant. A duration stands for a random jitter of up to that. Zero by default.
    ///
    /// Later runs are counted from the instant before the jitter, so a rate does not drift.
    /// Choose a jitter shorter than the time between two runs, or runs will bunch up.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::Scheduler;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let scheduler = Scheduler::new(wheel);
    /// let minute = Duration::from_secs(60);
    /// let report = scheduler.every(minute).jitter(minute / 6).run(|| println!("a minute"))?;
    /// let next = report.next_run().unwrap();
    /// assert!(next >= clock.start() + minute && next <= clock.start() + minute * 7 / 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A thousand nightly jobs, spread over an hour, each at the same time every night:
    ///
    /// ```
    /// # #[cfg(feature = "cron")] {
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Calendar, Scheduler};
    /// use tourbillon::{Builder, Jitter};
    ///
    /// let scheduler = Scheduler::spawn(Builder::new().driver())?;
    /// let midnight = Calendar::new("0 0 * * *", "UTC")?;
    /// for job in 0..1000 {
    ///     let name = format!("job {job}");
    ///     let jitter = Jitter::fixed(&name, Duration::from_secs(3600));
    ///     scheduler.by(midnight.clone()).jitter(jitter).run(move || println!("{name}"))?;
    /// }
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn jitter(mut self, jitter: impl Into<Jitter>) -> Self {
        self.jitter = jitter.into();
        self
    }

    /// Sets the behaviour after a run that panicked. By default the repetition stops.
    pub fn after_panic(mut self, after_panic: AfterPanic) -> Self {
        self.after_panic = after_panic;
        self
    }

    /// Starts the repetition with `closure`. Its runs never overlap.
    ///
    /// # Errors
    ///
    /// Fails if the period is zero, if the rule has no first run, if the scheduler or the wheel
    /// is closed, or if the wheel is full. Nothing is scheduled, and the error contains
    /// `closure`.
    pub fn run<F: FnMut() + Send + 'static>(
        self,
        closure: F,
    ) -> Result<Scheduled, Refused<RepeatRefusal, F>> {
        self.start(None, closure, |mut closure| move |_run| closure())
    }

    /// Starts the repetition, as [`run`](Self::run) does, with a closure that receives a
    /// description of each run. For a calendar, it includes the [time](Run::time) of the wall
    /// clock, even if a missed run is made up for later.
    ///
    /// # Errors
    ///
    /// Fails like [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let scheduler = Scheduler::spawn(Builder::new().driver())?;
    /// let (send, numbers) = mpsc::channel();
    /// let every = scheduler.every(Duration::from_millis(1));
    /// every.run_with(move |run| drop(send.send(run.number)))?;
    /// assert_eq!((numbers.recv()?, numbers.recv()?), (1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_with<F: FnMut(Run) + Send + 'static>(
        self,
        closure: F,
    ) -> Result<Scheduled, Refused<RepeatRefusal, F>> {
        self.start(None, closure, |closure| closure)
    }

    /// Starts a repetition of tasks. Each run creates a task with `job` and passes it to
    /// `spawn`, which hands it to a runtime.
    ///
    /// `overlap` determines the behaviour if a run is due while an earlier task is still in
    /// progress. A [fixed delay](Every::fixed_delay) is counted from the time when a task was
    /// spawned.
    ///
    /// `spawn` and `job` are called where closures run, outside any async runtime. With tokio,
    /// `spawn` needs a `Handle`. A panic in either is handled as
    /// [`after_panic`](Self::after_panic) says. A panic of the task itself stays in its
    /// runtime, and the repetition continues.
    ///
    /// # Errors
    ///
    /// Fails like [`run`](Self::run). The error contains `spawn` and `job`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::scheduler::{Overlap, Scheduler};
    ///
    /// let scheduler = Scheduler::spawn(Builder::new().driver())?;
    /// let (send, runs) = mpsc::channel();
    /// let job = move || {
    ///     let send = send.clone();
    ///     async move { drop(send.send("a task has run")) }
    /// };
    /// // With tokio: `move |task| drop(handle.spawn(task))`.
    /// let spawn = |task| pollster::block_on(task);
    /// let every = scheduler.every(Duration::from_millis(1));
    /// let tasks = every.run_tasks(Overlap::Forbid, spawn, job)?;
    /// assert_eq!(runs.recv()?, "a task has run");
    /// let _ = tasks.scheduled().cancel();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_tasks<S, J, F>(
        self,
        overlap: Overlap,
        spawn: S,
        job: J,
    ) -> Result<Tasks, Refused<RepeatRefusal, (S, J)>>
    where
        S: FnMut(ScheduledTask) + Send + 'static,
        J: FnMut() -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let with_run = |mut job: J| move |_run| job();
        self.start_tasks(overlap, (spawn, job), with_run)
    }

    /// Starts the repetition, as [`run_tasks`](Self::run_tasks) does, with a job that receives
    /// a description of each run.
    ///
    /// # Errors
    ///
    /// Fails like [`run`](Self::run). The error contains `spawn` and `job`.
    pub fn run_tasks_with<S, J, F>(
        self,
        overlap: Overlap,
        spawn: S,
        job: J,
    ) -> Result<Tasks, Refused<RepeatRefusal, (S, J)>>
    where
        S: FnMut(ScheduledTask) + Send + 'static,
        J: FnMut(Run) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.start_tasks(overlap, (spawn, job), |job| job)
    }

    /// Schedules the closure that `body` makes of `value`. If the rule has no first run, or the
    /// wheel refuses, the error contains `value`.
    fn start<T, F: FnMut(Run) + Send + 'static>(
        self,
        observer: Option<Arc<dyn Observer>>,
        value: T,
        body: impl FnOnce(T) -> F,
    ) -> Result<Scheduled, Refused<RepeatRefusal, T>> {
        let Self { scheduler, mut rule, jitter, after_panic, invalid } = self;
        if let Some(reason) = invalid {
            return Err(Refused { reason, value });
        }
        let last = LastRun::none(scheduler.wheel().pin().now());
        let first = Schedule::by_rule(&mut rule, &last, jitter);
        if first.is_end() {
            return Err(Refused { reason: RepeatRefusal::Never, value });
        }
        let rule = Box::new(rule);
        let work = |value| Work { body: Box::new(body(value)), rule, jitter, after_panic };
        let start = Start { first, last, repeats: true, observer };
        match Closure::schedule(&scheduler.wheel, &scheduler.shared, start, value, work) {
            Ok(closure) => Ok(Scheduled { closure, wheel: scheduler.wheel().clone() }),
            Err(InsertError { reason, value }) => {
                Err(Refused { reason: RepeatRefusal::Wheel(reason), value })
            }
        }
    }

    /// Schedules a closure that starts tasks. `with_run` makes a job that receives a description of
    /// its runs.
    fn start_tasks<S, J, B, F>(
        self,
        overlap: Overlap,
        spawn_and_job: (S, J),
        with_run: impl FnOnce(J) -> B,
    ) -> Result<Tasks, Refused<RepeatRefusal, (S, J)>>
    where
        S: FnMut(ScheduledTask) + Send + 'static,
        B: FnMut(Run) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Tasks::start(|set| {
            let body = |(spawn, job)| set.body(overlap, spawn, with_run(job));
            self.start(Some(set.clone()), spawn_and_job, body)
        })
    }
}

impl fmt::Display for RepeatRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepeatRefusal::ZeroPeriod => f.write_str("the period must not be zero"),
            RepeatRefusal::Never => f.write_str("the rule has no first run"),
            RepeatRefusal::Wheel(refusal) => refusal.fmt(f),
        }
    }
}

impl Error for RepeatRefusal {}

/// Keeps the reason and drops the closure, for callers whose error type has no room for it.
impl<F> From<Refused<RepeatRefusal, F>> for RepeatRefusal {
    fn from(refused: Refused<RepeatRefusal, F>) -> Self {
        refused.reason
    }
}
