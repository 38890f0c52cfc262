//! [`Rule`]: the policy that determines the next run of a closure; and [`Period`], the rule of a
//! fixed rate or a fixed delay. Pure code that reads no clock and arms no timer.

#![forbid(unsafe_code)]

use crate::Clock;
use std::time::{Duration, Instant, SystemTime};

/// The reply of a [`Rule`].
///
/// # Examples
///
/// A rule that depends on more than time. It runs every second while a switch is on, and checks the
/// switch every minute while it is off:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use std::time::Duration;
/// use tourbillon::scheduler::{LastRun, Next, Rule, Scheduler};
///
/// struct WhileOn(Arc<AtomicBool>);
///
/// impl Rule for WhileOn {
///     fn next(&mut self, _last: &LastRun) -> Next {
///         match self.0.load(Relaxed) {
///             true => Next::After(Duration::from_secs(1)),
///             false => Next::AskAfter(Duration::from_secs(60)),
///         }
///     }
/// }
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// let switch = Arc::new(AtomicBool::new(false));
/// scheduler.by(WhileOn(Arc::clone(&switch))).run(|| println!("a second has passed"))?;
/// switch.store(true, Relaxed); // seen within a minute
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// Run at this instant, or immediately if it has passed.
    At(Instant),
    /// Run after this delay. A delay that overflows an [`Instant`] is clamped to 136 years.
    After(Duration),
    /// Ask the rule again after this delay. For rules that depend on more than time, such as the
    /// wall clock, which may be set.
    AskAfter(Duration),
    /// Do not run again.
    End,
}

/// The previous run, passed to a [`Rule`] that is asked for the next run. Before the first run all
/// instants are the time when the closure was scheduled, however often the rule is asked.
///
/// # Examples
///
/// A rule that rests for as long as the last run took, and for at least a second:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::{LastRun, Next, Rule, Scheduler};
/// use tourbillon::{Builder, ManualClock};
///
/// struct HalfTheTime;
///
/// impl Rule for HalfTheTime {
///     fn next(&mut self, last: &LastRun) -> Next {
///         Next::At(last.ended + (last.ended - last.began).max(Duration::from_secs(1)))
///     }
/// }
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let (scheduler, worked) = (Scheduler::new(wheel), clock.clone());
/// let work = scheduler.by(HalfTheTime).run(move || worked.advance(Duration::from_secs(5)))?;
/// clock.advance(Duration::from_secs(1));
/// let _ = sweeper.sweep(|timer| scheduler.fire(timer)); // from the 1st to the 6th second
/// assert_eq!(work.next_run(), Some(clock.start() + Duration::from_secs(11)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRun {
    /// The number of runs so far, including this one. Zero before the first run. Only this field
    /// distinguishes two runs, because the clock may give both the same instants.
    pub runs: u64,
    /// The instant when the run was due by the rule.
    pub due: Instant,
    /// The instant when the run began.
    pub began: Instant,
    /// The instant when the run ended.
    pub ended: Instant,
    /// The lateness of the run's start, beyond the rounding of deadlines to ticks.
    pub late: Duration,
    /// `true` if a handle had moved the run, so that the rule did not determine its instant.
    pub moved: bool,
}

impl LastRun {
    /// Creates the value that stands for no run yet.
    pub(crate) fn none(now: Instant) -> Self {
        Self { runs: 0, due: now, began: now, ended: now, late: Duration::ZERO, moved: false }
    }
}

/// Determines the next run of a repeating closure. A rule is asked when the closure is scheduled
/// and at the end of each run.
///
/// A closure that maps the due instant of the last run to the instant of the next run is a rule. If
/// it returns `None`, the repetition ends. (This follows the `Scheduler` interface of
/// RussellLuo/timingwheel.)
///
/// # Examples
///
/// Attempts with a delay that doubles, until one succeeds or the delay would reach a minute:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use std::time::{Duration, Instant};
/// use tourbillon::scheduler::Scheduler;
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// let succeeded = Arc::new(AtomicBool::new(false));
/// let (mut delay, enough) = (Duration::from_millis(500), Arc::clone(&succeeded));
/// let doubling = move |last: Instant| {
///     delay *= 2;
///     let again = !enough.load(Relaxed) && delay < Duration::from_secs(60);
///     again.then(|| last + delay)
/// };
/// scheduler.by(doubling).run(move || succeeded.store(true, Relaxed))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Rule: Send + 'static {
    /// Returns the next run after `last`.
    fn next(&mut self, last: &LastRun) -> Next;

    /// Returns the wall-clock time of the run that [`next`](Self::next) was last asked for, or
    /// `None` for rules that do not use the wall clock. Used by
    /// [`Scheduled::next_time`](super::Scheduled::next_time).
    fn next_time(&self) -> Option<SystemTime> {
        None
    }

    /// Returns the delay until the next run after [`next`](Self::next) has returned
    /// [`Next::AskAfter`], or `None` if the rule does not know it. Used by
    /// [`Scheduled::next_run`](super::Scheduled::next_run) and [`Unrun::due`](super::Unrun::due).
    fn next_delay(&self) -> Option<Duration> {
        None
    }
}

impl<F: FnMut(Instant) -> Option<Instant> + Send + 'static> Rule for F {
    fn next(&mut self, last: &LastRun) -> Next {
        self(last.due).map_or(Next::End, Next::At)
    }
}

/// The behaviour of a fixed rate after missed runs, because an earlier run took too long or nothing
/// swept the wheel. The names and meanings are tokio's, which has no [`CatchUp`](Self::CatchUp).
///
/// # Examples
///
/// A tick every second, on a wheel that is not swept until 3.7 seconds have passed:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::MissedTickBehavior::{Burst, CatchUp, Delay, Skip};
/// use tourbillon::scheduler::Scheduler;
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let scheduler = Scheduler::new(wheel);
/// let every = |missed| scheduler.every(Duration::from_secs(1)).missed(missed).run(|| ());
/// let ticking = [every(Burst)?, every(Delay)?, every(Skip)?, every(CatchUp(1))?];
///
/// clock.advance(Duration::from_millis(3700));
/// let _ = sweeper.sweep(|timer| scheduler.fire(timer));
/// for (ticking, next) in ticking.iter().zip([2000, 4700, 4000, 3000]) {
///     assert_eq!(ticking.next_run(), Some(clock.start() + Duration::from_millis(next)));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// Missed runs are made up for one right after the other, until the rate has caught up.
    #[default]
    Burst,
    /// The rate starts again: the next run is due a whole period after the late one began.
    Delay,
    /// Missed runs are skipped: the next run is due at the next whole number of periods.
    Skip,
    /// At most this many missed runs are made up for, the latest ones, as in a burst. Earlier ones
    /// are skipped. With zero, none are, as with [`Skip`](Self::Skip).
    CatchUp(u32),
}

/// A run that begins later than this is late. Smaller delays are normal for timers.
const TOLERANCE: Duration = Duration::from_millis(5);

impl MissedTickBehavior {
    /// Returns the default for repetitions by a clock: [`Skip`](Self::Skip) if the clock counts
    /// suspensions of the machine, when nothing runs, and [`Burst`](Self::Burst) otherwise.
    pub(crate) fn default_by(clock: &dyn Clock) -> Self {
        if clock.counts_suspension() { Self::Skip } else { Self::Burst }
    }

    /// Returns the instant of the run after `last`, at a rate of one run per `period`, or `None` if
    /// that overflows. A run that begins at most 5 ms late does not count as late.
    #[must_use]
    pub fn next(self, last: &LastRun, period: Duration) -> Option<Instant> {
        match self {
            Self::Delay if last.late > TOLERANCE => last.began.checked_add(period),
            Self::Skip if last.late > TOLERANCE => after_missed(last, period, 0),
            Self::CatchUp(most) if last.late > TOLERANCE => after_missed(last, period, most),
            _ => last.due.checked_add(period),
        }
    }
}

/// Returns the instant of the run after `last`, if at most the latest `most` of the missed runs are
/// made up for.
fn after_missed(last: &LastRun, period: Duration, most: u32) -> Option<Instant> {
    let behind = last.began.saturating_duration_since(last.due);
    let into = behind.as_nanos().checked_rem(period.as_nanos())?;
    // Less than a period, whose nanoseconds may not fit in 64 bits.
    let into = Duration::new(
        u64::try_from(into / 1_000_000_000).unwrap_or(u64::MAX),
        u32::try_from(into % 1_000_000_000).unwrap_or(0),
    );
    let missed = behind - into;
    let latest = last.began - into;
    (latest - period.saturating_mul(most).min(missed)).checked_add(period)
}

/// The rule of a repetition at a fixed rate or with a fixed delay. [`Every`](super::Every) has its
/// settings.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    period: Duration,
    pub(super) first: Next,
    /// No run is due after this.
    pub(super) last: Option<Instant>,
    pub(super) fixed_delay: bool,
    pub(super) missed: MissedTickBehavior,
}

impl Period {
    /// Creates a fixed rate whose first run is due after one period.
    pub(super) fn new(period: Duration, missed: MissedTickBehavior) -> Self {
        Self { period, first: Next::After(period), last: None, fixed_delay: false, missed }
    }
}

impl Rule for Period {
    fn next(&mut self, last: &LastRun) -> Next {
        let next = match last.runs {
            0 => self.first,
            _ if self.fixed_delay => Next::After(self.period),
            _ => self.missed.next(last, self.period).map_or(Next::After(self.period), Next::At),
        };
        let due = match next {
            Next::At(due) => Some(due),
            // A period is asked as soon as a run has ended.
            Next::After(delay) => last.ended.checked_add(delay),
            Next::AskAfter(_) | Next::End => return next,
        };
        match self.last {
            Some(end) if due.is_none_or(|due| due > end) => Next::End,
            _ => next,
        }
    }
}

/// Runs once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Once;

impl Rule for Once {
    fn next(&mut self, _last: &LastRun) -> Next {
        Next::End
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{LastRun, MissedTickBehavior, Next, Period, Rule};
    use crate::ManualClock;
    use std::time::Duration;

    #[test]
    fn missed_ticks_are_made_up_for_delayed_or_skipped() {
        let start = ManualClock::new().start();
        let period = Duration::from_secs(1);
        let after = |missed, began: u64| {
            let began = start + Duration::from_millis(began);
            let late = began - start;
            let last = LastRun { runs: 1, due: start, began, late, ..LastRun::none(began) };
            match Period::new(period, missed).next(&last) {
                Next::At(at) => (at - start).as_millis(),
                next => panic!("{next:?}"),
            }
        };
        use MissedTickBehavior::{Burst, Delay, Skip};
        assert_eq!([Burst, Delay, Skip].map(|missed| after(missed, 5)), [1000, 1000, 1000]);
        assert_eq!([Burst, Delay, Skip].map(|missed| after(missed, 300)), [1000, 1300, 1000]);
        assert_eq!([Burst, Delay, Skip].map(|missed| after(missed, 3000)), [1000, 4000, 4000]);
        assert_eq!([Burst, Delay, Skip].map(|missed| after(missed, 3700)), [1000, 4700, 4000]);
    }

    #[test]
    fn a_period_that_overflows_is_clamped() {
        let now = ManualClock::new().start();
        let late = LastRun { runs: 1, late: Duration::from_secs(1), ..LastRun::none(now) };
        for missed in [MissedTickBehavior::Burst, MissedTickBehavior::Delay] {
            let mut rate = Period::new(Duration::MAX, missed);
            assert_eq!(rate.next(&late), Next::After(Duration::MAX));
        }
    }
}
