//! [`Work`]: the body and the rule of a scheduled closure; and [`Run`]: the description of a run
//! that the body receives.

#![forbid(unsafe_code)]

use super::next_run::{NextRun, Schedule};
use super::rule::{LastRun, Next, Rule};
use super::state::Ending;
use crate::Jitter;
use crate::panics::drop_payload;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

/// The behaviour of a repetition after a run that panicked.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::scheduler::{AfterPanic, Scheduler};
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let (send, runs) = mpsc::channel();
/// let poll = scheduler.every(Duration::from_millis(1)).after_panic(AfterPanic::GoOn);
/// let mut run = 0;
/// poll.run(move || {
///     run += 1;
///     let _ = send.send(run);
///     assert!(run > 1, "the first run fails");
/// })?;
/// assert_eq!((runs.recv()?, runs.recv()?), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterPanic {
    /// The repetition ends.
    #[default]
    Stop,
    /// The repetition continues, as if the run had succeeded.
    GoOn,
}

/// The body of a closure, its rule and its settings.
pub(super) struct Work {
    pub(super) body: Box<dyn FnMut(Run) + Send>,
    pub(super) rule: Box<dyn Rule>,
    pub(super) jitter: Jitter,
    pub(super) after_panic: AfterPanic,
}

/// The payload of a panic.
type Payload = Box<dyn Any + Send>;

/// The outcome of a run or of a question to the rule.
pub(super) struct RunOutcome {
    pub(super) next: Schedule,
    pub(super) ending: Ending,
    pub(super) panic: Option<Payload>,
}

impl Work {
    /// Runs the body, unless the timer was a question, and then asks the rule for the next run.
    pub(super) fn run_or_ask(
        &mut self,
        last: &mut LastRun,
        next_run: NextRun,
        deadline: Instant,
        now: impl Fn() -> Instant,
    ) -> RunOutcome {
        let mut panic = None;
        if !next_run.asks_rule {
            last.runs += 1;
            last.due = next_run.due_by_rule();
            last.moved = next_run.moved;
            last.began = now();
            last.late = last.began.saturating_duration_since(next_run.due.max(deadline));
            let run = Run::of(last, next_run);
            panic = catch_unwind(AssertUnwindSafe(|| (self.body)(run))).err();
            last.ended = now();
        }
        if panic.is_some() && self.after_panic == AfterPanic::Stop {
            return RunOutcome {
                next: Schedule::exactly(Next::End),
                ending: Ending::Panicked,
                panic,
            };
        }
        let ask = AssertUnwindSafe(|| Schedule::by_rule(&mut *self.rule, last, self.jitter));
        match catch_unwind(ask) {
            Ok(next) => RunOutcome { next, ending: Ending::Done, panic },
            Err(payload) => {
                let first = match panic {
                    Some(first) => {
                        drop_payload(payload);
                        first
                    }
                    None => payload,
                };
                let next = Schedule::exactly(Next::End);
                RunOutcome { next, ending: Ending::Panicked, panic: Some(first) }
            }
        }
    }
}

/// The description of one run of a repetition, passed to closures by
/// [`Every::run_with`](super::Every::run_with) and [`By::run_with`](super::By::run_with).
///
/// # Examples
///
/// An hourly report, on a machine that is suspended from 10:30 to 12:20:
///
/// ```
/// # #[cfg(feature = "cron")] {
/// use std::sync::mpsc;
/// use std::time::{Duration, SystemTime};
/// use tourbillon::scheduler::{Calendar, MissedTimes, Scheduler};
/// use tourbillon::{Builder, ManualClock};
///
/// let (clock, minute) = (ManualClock::new(), Duration::from_secs(60));
/// clock.set_wall(SystemTime::UNIX_EPOCH + minute * (10 * 60 + 30));
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let scheduler = Scheduler::new(wheel);
/// let hourly = Calendar::builder("0 * * * *")
///     .missed(MissedTimes::AllWithin(minute * 60 * 24))
///     .wall_clock(clock.clone());
/// let (send, reports) = mpsc::channel();
/// scheduler.by(hourly.build()?).run_with(move |run| drop(send.send(run.time)))?;
///
/// clock.advance(minute * 110);
/// while sweeper.sweep(|timer| scheduler.fire(timer)).expired > 0 {}
/// let hour = |hour| Some(SystemTime::UNIX_EPOCH + minute * 60 * hour);
/// assert_eq!(reports.try_iter().collect::<Vec<_>>(), [hour(11), hour(12)]);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The number of the run; the first is 1.
    pub number: u64,
    /// The instant when the run was due by the rule, without its jitter. A run of a calendar is due
    /// when the calendar notices that a time has come.
    pub due: Instant,
    /// The wall-clock time that the run is made for, if the rule uses the wall clock, as a
    /// `Calendar` does. If one run is made for several missed times, it is the first of them.
    /// `None` for other rules, and if a handle has moved the run.
    pub time: Option<SystemTime>,
    /// The lateness of the run's start, beyond the rounding of deadlines to ticks.
    pub late: Duration,
    /// `true` if a handle has moved the run ([`Scheduled::reset`](super::Scheduled::reset)).
    pub moved: bool,
}

impl Run {
    /// Describes the run that `last` records, which was resolved as `next_run`.
    pub(super) fn of(last: &LastRun, next_run: NextRun) -> Self {
        let LastRun { runs: number, due, late, moved, .. } = *last;
        Self { number, due, time: next_run.time, late, moved }
    }

    /// Describes the run after `last`, which a shutdown returned and which may begin before it is
    /// due.
    pub(super) fn after(last: &LastRun, next_run: NextRun) -> Self {
        let due = if next_run.asks_rule {
            next_run.runs_at.unwrap_or(next_run.due)
        } else {
            next_run.due_by_rule()
        };
        let (number, late) = (last.runs + 1, Duration::ZERO);
        Self { number, due, time: next_run.time, late, moved: next_run.moved }
    }
}
