//! How a repetition is asked for: [`Every`] a period, or [`By`] a rule.

#![forbid(unsafe_code)]

use super::Scheduler;
use super::closure::{AfterPanic, Closure, Work};
use super::handle::Scheduled;
use super::rule::{FixedDelay, FixedRate, LastRun, MissedTickBehavior, Next, Rule};
use crate::{InsertError, Refusal, Refused};
use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

/// A repetition at a fixed rate or with a fixed delay; made by [`Scheduler::every`].
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
#[derive(Debug)]
#[must_use]
pub struct Every<'s> {
    scheduler: &'s Scheduler,
    period: Duration,
    first: Option<Next>,
    fixed_delay: bool,
    missed: MissedTickBehavior,
    after_panic: AfterPanic,
}

/// A repetition by a rule; made by [`Scheduler::by`].
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
    after_panic: AfterPanic,
}

/// Why a repetition was refused.
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
/// assert_eq!(refused.to_string(), "the rule knows no first run");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepeatRefusal {
    /// A period of no time.
    ZeroPeriod,
    /// The rule knows no first run.
    Never,
    /// The wheel refused the first timer.
    Wheel(Refusal),
}

impl<'s> Every<'s> {
    pub(super) fn new(scheduler: &'s Scheduler, period: Duration) -> Self {
        Self {
            scheduler,
            period,
            first: None,
            fixed_delay: false,
            missed: MissedTickBehavior::default(),
            after_panic: AfterPanic::default(),
        }
    }

    /// The delay of the first run, in place of a period.
    pub fn first_after(mut self, delay: Duration) -> Self {
        self.first = Some(Next::After(delay));
        self
    }

    /// The instant of the first run; at once if it has passed.
    pub fn first_at(mut self, at: Instant) -> Self {
        self.first = Some(Next::At(at));
        self
    }

    /// Counts each period from the end of the run before, and not from when that was due.
    ///
    /// # Examples
    ///
    /// A check that takes two seconds, ten seconds apart, in virtual time:
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
        self.fixed_delay = true;
        self
    }

    /// What happens to runs that were missed; they burst by default. With a fixed delay none is.
    pub fn missed(mut self, missed: MissedTickBehavior) -> Self {
        self.missed = missed;
        self
    }

    /// What becomes of the repetition after a run that panicked; it stops by default.
    pub fn after_panic(mut self, after_panic: AfterPanic) -> Self {
        self.after_panic = after_panic;
        self
    }

    /// Schedules `closure`. Its runs never overlap.
    ///
    /// # Errors
    ///
    /// The period is zero, or the wheel is closed or full. Nothing is scheduled.
    pub fn run<F: FnMut() + Send + 'static>(
        self,
        closure: F,
    ) -> Result<Scheduled, Refused<RepeatRefusal, F>> {
        let Self { scheduler, period, first, fixed_delay, missed, after_panic } = self;
        if period.is_zero() {
            return Err(Refused { reason: RepeatRefusal::ZeroPeriod, value: closure });
        }
        let rule: Box<dyn Rule> = match fixed_delay {
            true => Box::new(FixedDelay(period)),
            false => Box::new(FixedRate { period, missed }),
        };
        let first = first.unwrap_or(Next::After(period));
        let none = LastRun::none(scheduler.wheel().pin().now());
        start(scheduler, (first, none), rule, after_panic, closure)
    }
}

impl<'s, R: Rule> By<'s, R> {
    pub(super) fn new(scheduler: &'s Scheduler, rule: R) -> Self {
        Self { scheduler, rule, after_panic: AfterPanic::default() }
    }

    /// What becomes of the repetition after a run that panicked; it stops by default.
    pub fn after_panic(mut self, after_panic: AfterPanic) -> Self {
        self.after_panic = after_panic;
        self
    }

    /// Schedules `closure`. Its runs never overlap.
    ///
    /// # Errors
    ///
    /// The rule knows no first run, or the wheel is closed or full. Nothing is scheduled.
    pub fn run<F: FnMut() + Send + 'static>(
        mut self,
        closure: F,
    ) -> Result<Scheduled, Refused<RepeatRefusal, F>> {
        let none = LastRun::none(self.scheduler.wheel().pin().now());
        match self.rule.next(&none) {
            Next::End => Err(Refused { reason: RepeatRefusal::Never, value: closure }),
            first => {
                let rule = Box::new(self.rule);
                start(self.scheduler, (first, none), rule, self.after_panic, closure)
            }
        }
    }
}

fn start<F: FnMut() + Send + 'static>(
    scheduler: &Scheduler,
    (first, none): (Next, LastRun),
    rule: Box<dyn Rule>,
    after_panic: AfterPanic,
    closure: F,
) -> Result<Scheduled, Refused<RepeatRefusal, F>> {
    let wheel = scheduler.wheel().clone();
    let work = |closure| Work { body: Box::new(closure), rule, after_panic };
    match Closure::schedule(&wheel, (first, none, true), closure, work) {
        Ok(closure) => Ok(Scheduled { closure, wheel }),
        Err(InsertError { reason, value: closure }) => {
            Err(Refused { reason: RepeatRefusal::Wheel(reason), value: closure })
        }
    }
}

impl fmt::Display for RepeatRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepeatRefusal::ZeroPeriod => {
                f.write_str("a period of zero was asked for; it must be longer")
            }
            RepeatRefusal::Never => f.write_str("the rule knows no first run"),
            RepeatRefusal::Wheel(refusal) => refusal.fmt(f),
        }
    }
}

impl Error for RepeatRefusal {}

/// Keeps the reason and drops the closure, for callers whose own error has no room for it.
impl<F> From<Refused<RepeatRefusal, F>> for RepeatRefusal {
    fn from(refused: Refused<RepeatRefusal, F>) -> Self {
        refused.reason
    }
}
