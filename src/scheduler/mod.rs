//! Runs closures at a given time: once, at a fixed rate, with a fixed delay, or by a rule.
//!
//! The scheduler serves the purpose of the JDK's `ScheduledThreadPoolExecutor`, of Go's
//! `time.AfterFunc` and `Ticker`, and of RussellLuo/timingwheel. Each closure has one timer in a
//! wheel and runs where the wheel's driver runs its handlers. [`Scheduler`] accepts closures,
//! [`Scheduled`] is the caller's handle to one of them, and a [`Rule`] determines the next run of a
//! repetition.
//!
//! * Runs of one closure never overlap, because the next timer is armed after a run has ended.
//! * A fixed rate does not drift. The next deadline is the previous deadline plus a period.
//! * A run is never early. Missed runs are made up for, delayed or skipped
//!   ([`MissedTickBehavior`]).
//! * A panic is reported like a panic of a handler
//!   ([`DriverBuilder::on_panic`](crate::DriverBuilder)), or by [`Joined::join`]. The repetition
//!   then stops or continues ([`AfterPanic`]), which [`Scheduled::ending`] reports.
//! * [`Scheduler::shutdown`] returns the closures that have not run, for you to run or drop.
//! * [`Scheduler::close`] refuses new closures and lets scheduled ones run.
//! * With the feature `cron`, a `Calendar` is a rule made of cron expressions in any time zone.
//! * [`Scheduled::pause`] prevents runs until [`Scheduled::resume`].
//! * The range of the wheel does not limit delays.
//!
//! The module uses only the public interface of the wheel.

#![forbid(unsafe_code)]

#[cfg(feature = "cron")]
mod calendar;
mod closure;
mod handle;
mod next_run;
mod owned;
mod pause;
mod repeat;
mod result_channel;
mod rule;
mod shared;
mod shutdown;
mod state;
mod tasks;
mod work;

#[cfg(feature = "cron")]
pub use calendar::{
    Calendar, CalendarBuilder, CalendarError, Dialect, MissedTimes, TimesAfter, WallClock,
};
pub use closure::Due;
pub use handle::{JoinError, JoinFuture, Joined, Scheduled};
pub use owned::OwnedClosure;
pub use repeat::{By, Every, RepeatRefusal};
pub use rule::{LastRun, MissedTickBehavior, Next, Period, Rule};
pub use state::{Cancel, Ending};
pub use tasks::{Overlap, ScheduledTask, Tasks};
pub use work::{AfterPanic, Run};

use crate::discard::discard_armed;
use crate::panics::quietly;
use crate::{BuildError, Driver, DriverBuilder, Expired, InsertError, Jitter, Unfired, Wheel};
use closure::{Closure, Start};
use next_run::{NextRun, Schedule};
use result_channel::result_channel;
use rule::Once;
use shared::SchedulerShared;
use shutdown::UnrunWork;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use work::Work;

/// Runs closures at a given time. Clones share the wheel.
///
/// On a wheel with a [capacity](crate::Builder::capacity), each closure counts against it. A
/// closure that runs once counts until its run begins, and a repetition counts until it ends,
/// including during its runs. A burst of new closures therefore never displaces a repetition.
///
/// Dropping the last clone of a scheduler with its own driver ends the scheduler, as
/// [`shutdown`](Self::shutdown) does, and drops the closures that have not run. The drop waits
/// neither for a run in progress nor for the tick thread, so it may happen under a lock that
/// closures take.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::scheduler::Scheduler;
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let greeting = scheduler.after(Duration::from_millis(5), || "hello")?;
/// let ticking = scheduler.every(Duration::from_secs(1)).run(|| println!("tick"))?;
///
/// assert_eq!(greeting.join()?, "hello");
/// let _ = ticking.cancel(); // returns whether a run still comes
/// assert!(scheduler.shutdown().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In virtual time, without a thread:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use std::time::Duration;
/// use tourbillon::scheduler::Scheduler;
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let scheduler = Scheduler::new(wheel);
/// let runs = Arc::new(AtomicU32::new(0));
/// let count = Arc::clone(&runs);
/// scheduler.every(Duration::from_secs(1)).run(move || {
///     count.fetch_add(1, Relaxed);
/// })?;
///
/// for _ in 0..60 {
///     clock.advance(Duration::from_secs(1));
///     let swept = sweeper.sweep(|timer| scheduler.fire(timer));
///     assert_eq!(swept.expired, 1);
/// }
/// assert_eq!(runs.load(Relaxed), 60);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "dropping the last clone of one with a driver of its own ends it"]
pub struct Scheduler {
    wheel: Wheel<Due>,
    shared: Arc<SchedulerShared<Closure>>,
    /// `None` in a [weak clone](Self::downgrade).
    guard: Option<Arc<ShutdownGuard>>,
}

/// Shared by the clones of a scheduler, but not by its [weak clones](Scheduler::downgrade). It is
/// dropped with the last clone that could shut the scheduler down.
#[derive(Debug)]
struct ShutdownGuard {
    wheel: Wheel<Due>,
    shared: Arc<SchedulerShared<Closure>>,
    /// `None` on a wheel that is swept elsewhere.
    driver: Option<Driver<Due>>,
    /// `true` if a wheel that is swept elsewhere is closed with the scheduler.
    ends_wheel: bool,
}

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        // First, because this closes the wheel.
        drop(self.driver.take());
        let wheel = &self.wheel;
        if self.ends_wheel {
            wheel.close();
            discard_armed(wheel);
        }
        for closure in self.shared.drop_list() {
            // The captured values are the user's, and their drop may panic.
            quietly(move || closure.abandon(wheel));
        }
    }
}

/// A closure that had not run when its scheduler was shut down. Dropping it drops the closure.
///
/// # Examples
///
/// Runs the closures that were due within a day, and drops the rest:
///
/// ```
/// use std::time::{Duration, Instant};
/// use tourbillon::Builder;
/// use tourbillon::scheduler::Scheduler;
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let day = Duration::from_secs(86_400);
/// let save = scheduler.after(day / 24, || "saved")?;
/// let remind = scheduler.after(day * 30, || "reminded")?;
/// let soon = Instant::now() + day;
/// for unrun in scheduler.shutdown() {
///     if unrun.due().is_some_and(|due| due <= soon) {
///         unrun.run();
///     }
/// }
/// assert_eq!(save.join()?, "saved");
/// assert!(remind.join().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "what is not run is dropped"]
pub struct Unrun {
    work: Work,
    last: LastRun,
    next_run: NextRun,
    scheduled: Scheduled,
}

impl Scheduler {
    /// Creates a scheduler with its own driver, which ends when the last clone is dropped. Use
    /// [`downgrade`](Self::downgrade) for closures that schedule other closures.
    ///
    /// Closures that are due together run side by side, as far as the driver's
    /// [executor](DriverBuilder::executor) has threads. For many short closures that are due at
    /// once, larger [batches](DriverBuilder::batch) cost less. The closures of a batch run one
    /// after the other.
    ///
    /// **Blocking closures** and long ones occupy a thread of the executor. While all threads are
    /// occupied, nothing is lost, but every other closure waits, and calendars do not check the
    /// clock. The default executor has few threads. Give blocking closures an
    /// [executor](DriverBuilder::executor) with as many threads as closures may block at once, move
    /// the work to your own threads, or use tasks of an async runtime ([`Every::run_tasks`]), which
    /// hold no thread while they wait.
    ///
    /// # Errors
    ///
    /// Fails like [`DriverBuilder::spawn`].
    pub fn spawn(driver: DriverBuilder) -> Result<Self, BuildError> {
        // One closure per batch, because cron jobs tend to be due together, at the full minute, and
        // may take long. Handlers of a plain driver should be quick, and share a batch.
        let driver = driver.default_batch(1).detach_on_drop().spawn_with(|wheel| {
            let scheduler = Self::new(wheel).downgrade();
            move |timer| scheduler.fire(timer)
        })?;
        Ok(Self::on(driver.wheel().clone(), Some(driver), false))
    }

    /// Creates a scheduler on a wheel that is swept elsewhere, with [`fire`](Self::fire) as the
    /// handler.
    ///
    /// Two schedulers on one wheel fire each other's timers, but each shuts down only its own
    /// closures and counts only those against the wheel's capacity. Clone one scheduler instead.
    pub fn new(wheel: Wheel<Due>) -> Self {
        Self::on(wheel, None, false)
    }

    /// Creates a scheduler on a wheel that is swept elsewhere, and the handler for its sweeper.
    ///
    /// The handler keeps the wheel alive, but not the scheduler. Dropping the last clone of the
    /// scheduler closes the wheel and drops closures that have not run, as with a scheduler that
    /// has its own driver. A future that sweeps the wheel (`future::undriven`) then ends too.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{JoinError, Scheduler};
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let (scheduler, handler) = Scheduler::with_handler(wheel);
    /// let [soon, late] = [1, 60].map(Duration::from_secs);
    /// let (soon, late) = (scheduler.after(soon, || 42)?, scheduler.after(late, || 43)?);
    /// clock.advance(Duration::from_secs(1));
    /// let _ = sweeper.sweep(handler);
    /// assert_eq!(soon.join()?, 42);
    /// drop(scheduler);
    /// assert!(matches!(late.join(), Err(JoinError::NotRun)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_handler(
        wheel: Wheel<Due>,
    ) -> (Self, impl Fn(Expired<Due>) + Clone + Send + Sync + 'static) {
        let scheduler = Self::on(wheel, None, true);
        let weak = scheduler.downgrade();
        (scheduler, move |timer| weak.fire(timer))
    }

    /// Creates a scheduler, with or without its own driver.
    fn on(wheel: Wheel<Due>, driver: Option<Driver<Due>>, ends_wheel: bool) -> Self {
        let shared = Arc::new(SchedulerShared::new(wheel.capacity()));
        let guard =
            ShutdownGuard { wheel: wheel.clone(), shared: Arc::clone(&shared), driver, ends_wheel };
        Self { wheel, shared, guard: Some(Arc::new(guard)) }
    }

    /// Returns a weak clone, which does not keep the driver running, for closures that schedule
    /// others.
    ///
    /// A strong clone inside a closure exists for as long as that closure is scheduled, so the
    /// driver would never end.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// fn attempt(number: u32, scheduler: Scheduler, done: mpsc::Sender<u32>) {
    ///     if number == 3 {
    ///         let _ = done.send(number);
    ///         return;
    ///     }
    ///     let later = scheduler.clone();
    ///     let delay = Duration::from_millis(1 << number);
    ///     // Refused only when the scheduler has been shut down.
    ///     let _ = scheduler.after(delay, move || attempt(number + 1, later, done));
    /// }
    ///
    /// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
    /// let (send, done) = mpsc::channel();
    /// attempt(0, scheduler.downgrade(), send);
    /// assert_eq!(done.recv()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn downgrade(&self) -> Self {
        Self { wheel: self.wheel.clone(), shared: Arc::clone(&self.shared), guard: None }
    }

    /// Returns the driver if this scheduler has its own. Use it to wait for runs in progress after
    /// [`shutdown`](Self::shutdown), and for its metrics.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
    /// drop(scheduler.shutdown());
    /// if let Some(driver) = scheduler.driver() {
    ///     driver.wait()?; // nothing runs any more
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn driver(&self) -> Option<&Driver<Due>> {
        self.guard.as_ref()?.driver.as_ref()
    }

    /// Runs `closure` once, after `delay`. A delay that overflows an [`Instant`] is clamped to 136
    /// years.
    ///
    /// # Errors
    ///
    /// Fails if the scheduler or the wheel is closed, or if the wheel is full. The error contains
    /// the closure.
    pub fn after<R: Send + 'static, F: FnOnce() -> R + Send + 'static>(
        &self,
        delay: Duration,
        closure: F,
    ) -> Result<Joined<R>, InsertError<F>> {
        self.once(Next::After(delay), closure)
    }

    /// Runs `closure` once, at the instant `at`, or immediately if that has passed.
    ///
    /// # Errors
    ///
    /// Fails like [`after`](Self::after).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let scheduler = Scheduler::spawn(Builder::new().driver())?;
    /// let opening = Instant::now() + Duration::from_millis(2);
    /// let opened = scheduler.at(opening, move || Instant::now() >= opening)?;
    /// assert!(opened.join()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at<R: Send + 'static, F: FnOnce() -> R + Send + 'static>(
        &self,
        at: Instant,
        closure: F,
    ) -> Result<Joined<R>, InsertError<F>> {
        self.once(Next::At(at), closure)
    }

    /// Begins to build a repetition with a `period`, which must not be zero.
    ///
    /// The first run is due after one period, unless [`Every::first_after`] or [`Every::first_at`]
    /// changes that. A period that overflows an [`Instant`] is clamped to 136 years.
    pub fn every(&self, period: Duration) -> Every<'_> {
        Every::periodic(self, period)
    }

    /// Begins to build a repetition by a rule, such as a `Calendar`.
    ///
    /// A calendar is asked again at least once a minute, and its closure is armed for that
    /// question. No timer is armed further ahead than the next check of the wall clock, which may
    /// be set at any time.
    pub fn by<R: Rule>(&self, rule: R) -> By<'_, R> {
        By::new(self, rule)
    }

    /// Runs the closure of an expired timer. Pass this method as the handler to the sweeper of the
    /// wheel.
    ///
    /// A timer that `fire` arms without a delay (a late run, or a question to a calendar) expires
    /// at the next sweep. After a leap of virtual time, sweep until nothing expires.
    pub fn fire(&self, timer: Expired<Due>) {
        let Expired { mut value, deadline, .. } = timer;
        if let Some((closure, number)) = value.take() {
            closure.fire(number, &self.wheel, deadline);
        }
    }

    /// Returns the wheel, for its metrics.
    ///
    /// To let scheduled closures run but accept no more, [`close`](Self::close) the scheduler and
    /// not its wheel. A closed wheel refuses the timers of all closures. A closure whose run needs
    /// another timer, such as a calendar or a delay beyond the wheel's range, then waits until
    /// [`shutdown`](Self::shutdown) returns it.
    #[must_use]
    pub fn wheel(&self) -> &Wheel<Due> {
        &self.wheel
    }

    /// Refuses new closures, and lets scheduled ones run once more at their time. Idempotent. O(1).
    ///
    /// A repetition, including a calendar, ends with its next run, or with the run in progress.
    /// Keep the scheduler meanwhile, because dropping the last clone of a scheduler with its own
    /// driver ends it. [`shutdown`](Self::shutdown) returns the closures that have not run by then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
    /// let answer = scheduler.after(Duration::from_millis(2), || 42)?;
    /// scheduler.close();
    /// assert_eq!(answer.join()?, 42);
    /// assert!(scheduler.after(Duration::ZERO, || 43).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.shared.close();
    }

    /// Refuses new closures and returns those that have not run, including repetitions. Idempotent.
    ///
    /// Each scheduled closure has run, is running, waits for a thread to run on, or is returned. A
    /// run that is in progress or waits for its thread is the last one of its repetition.
    ///
    /// The call waits for the tick thread's last sweep, unless it is made on that thread. If
    /// closures run [inline](crate::Inline), it therefore waits for those that are due. It also
    /// waits for a rule that is being asked when to run, unless the rule makes the call. It waits
    /// for no other run; use [`Scheduled::wait`] for one, or [`Driver::wait`] for all.
    ///
    /// To let scheduled closures still run at their time, [`close`](Self::close) the scheduler
    /// instead, and keep it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
    /// let last_will = scheduler.after(Duration::from_secs(3600), || "saved")?;
    /// for unrun in scheduler.shutdown() {
    ///     unrun.run(); // or keep it, or drop it
    /// }
    /// assert_eq!(last_will.join()?, "saved");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self) -> Vec<Unrun> {
        self.close();
        let unfired = match self.driver() {
            Some(driver) => driver.shutdown(),
            None => {
                self.wheel.close();
                self.wheel.drain()
            }
        };
        let mut unrun: Vec<_> =
            unfired.into_iter().filter_map(|timer| self.unfired(timer)).collect();
        // Closures without a timer in the wheel, and closures whose timer is not for a run.
        let listed = self.shared.listed().into_iter();
        unrun.extend(listed.filter_map(|closure| {
            let work = closure.shut_down_listed();
            work.map(|work| self.unrun(closure, work))
        }));
        unrun
    }

    /// Schedules a closure that runs once.
    fn once<R: Send + 'static, F: FnOnce() -> R + Send + 'static>(
        &self,
        next: Next,
        closure: F,
    ) -> Result<Joined<R>, InsertError<F>> {
        let (sender, result) = result_channel();
        let work = |closure: F| {
            let mut once = Some((closure, sender));
            let body = move |_run| {
                let Some((closure, sender)) = once.take() else { return };
                let ran = catch_unwind(AssertUnwindSafe(closure));
                // Without a receiver, the panic is reported like a handler's.
                if let Some(Err(payload)) = sender.send(ran) {
                    resume_unwind(payload);
                }
            };
            Work {
                body: Box::new(body),
                rule: Box::new(Once),
                jitter: Jitter::default(),
                after_panic: AfterPanic::Stop,
            }
        };
        let none = LastRun::none(self.wheel.pin().now());
        let first = Schedule::exactly(next);
        let start = Start { first, last: none, repeats: false, observer: None };
        let closure = Closure::schedule(&self.wheel, &self.shared, start, closure, work)?;
        let scheduled = Scheduled { closure, wheel: self.wheel.clone() };
        Ok(Joined { scheduled, result })
    }

    /// Returns the closure of a timer that did not fire.
    fn unfired(&self, mut timer: Unfired<Due>) -> Option<Unrun> {
        let (closure, number) = timer.value.take()?;
        let work = closure.shut_down(number)?;
        Some(self.unrun(closure, work))
    }

    /// Creates the value that a shutdown returns for a closure.
    fn unrun(&self, closure: Arc<Closure>, UnrunWork { work, last, next_run }: UnrunWork) -> Unrun {
        let scheduled = Scheduled { closure, wheel: self.wheel.clone() };
        Unrun { work, last, next_run, scheduled }
    }
}

impl Unrun {
    /// Runs the closure once, on this thread.
    pub fn run(mut self) {
        (self.work.body)(Run::after(&self.last, self.next_run));
    }

    /// Returns the instant when the closure was due, like [`Scheduled::next_run`]. For a calendar
    /// this is its next run and not its next check of the clock. `None` if its rule does not know.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.next_run.runs_at
    }

    /// Returns the wall-clock time of the next run, like [`Scheduled::next_time`].
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
    /// let yearly = Calendar::new("0 0 1 1 *", "Europe/Berlin")?;
    /// scheduler.by(yearly).run(|| println!("a new year"))?;
    /// for unrun in scheduler.shutdown() {
    ///     assert!(unrun.time() > Some(SystemTime::now()));
    /// }
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn time(&self) -> Option<SystemTime> {
        self.next_run.time
    }

    /// Returns the handle of the closure. It is equal to the handle that was returned when the
    /// closure was scheduled.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
    /// let save = scheduler.every(Duration::from_secs(60)).run(|| println!("saved"))?;
    /// let clean = scheduler.every(Duration::from_secs(3600)).run(|| println!("cleaned"))?;
    /// for unrun in scheduler.shutdown() {
    ///     if *unrun.scheduled() == save {
    ///         unrun.run(); // once more
    ///     }
    /// }
    /// # drop(clean);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn scheduled(&self) -> &Scheduled {
        &self.scheduled
    }
}

impl std::fmt::Debug for Unrun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unrun").field("due", &self.due()).finish_non_exhaustive()
    }
}
