//! [`ClosureState`]: the state of a scheduled closure, guarded by one lock; [`Ending`]: the reason
//! why a closure has ended; and [`Cancel`]: the effect of a cancel on the state.

#![forbid(unsafe_code)]

use super::next_run::NextRun;
use crate::{Refusal, TimerId};
use std::thread::ThreadId;

/// The state of a closure. All fields are guarded by one lock.
pub(super) struct ClosureState {
    pub(super) phase: Phase,
    /// The number of timers that were armed so far.
    pub(super) armings: u64,
    /// The number of threads that wait for the end of a run.
    pub(super) waiting: u32,
    /// `true` if the closure is on the scheduler's list.
    pub(super) listed: bool,
    /// `true` if the closure holds a permit, on a wheel with a capacity.
    pub(super) has_permit: bool,
    /// `true` if a handle has paused the closure.
    pub(super) paused: bool,
}

/// The phase of a closure. [`Closure`](super::closure::Closure) describes the transitions.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    Armed(Arming),
    /// A thread runs the closure or asks its rule.
    Busy {
        thread: ThreadId,
        runs: bool,
        /// The request of a handle, which overrides the reply of the rule.
        requested: Option<HandleRequest>,
    },
    Ended(Ending),
}

/// The current timer of an armed closure.
#[derive(Clone, Copy)]
pub(super) struct Arming {
    pub(super) number: u64,
    /// `None` if the closure is parked.
    pub(super) timer: Option<TimerId>,
    pub(super) next_run: NextRun,
    /// `true` if the next run is beyond the range, so that the timer is due before it.
    pub(super) is_hop: bool,
}

/// A request that a handle has made while the closure was busy.
#[derive(Clone, Copy)]
pub(super) enum HandleRequest {
    Reset(NextRun),
    End(Ending),
}

impl Phase {
    pub(super) fn ending(self) -> Option<Ending> {
        match self {
            Self::Ended(ending) => Some(ending),
            _ => None,
        }
    }
}

impl Arming {
    /// Returns `true` if the pending timer, if any, is not for a run.
    pub(super) fn has_no_run_yet(&self) -> bool {
        self.timer.is_none() || self.is_hop || self.next_run.asks_rule
    }
}

impl ClosureState {
    pub(super) fn is_paused(&self) -> bool {
        self.paused && self.phase.ending().is_none()
    }

    /// Returns the arming if the closure is armed by the timer of this number.
    pub(super) fn armed_as(&self, number: u64) -> Option<Arming> {
        match self.phase {
            Phase::Armed(armed) if armed.number == number => Some(armed),
            _ => None,
        }
    }
}

/// The reason why a closure will not run again.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::{Ending, Scheduler};
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let scheduler = Scheduler::new(wheel);
/// let once = scheduler.after(Duration::from_secs(1), || "hello")?;
/// let often = scheduler.every(Duration::from_secs(1)).run(|| println!("tick"))?;
///
/// clock.advance(Duration::from_secs(1));
/// let _ = sweeper.sweep(|timer| scheduler.fire(timer));
/// assert_eq!((once.scheduled().ending(), often.ending()), (Some(Ending::Done), None));
/// drop(scheduler.shutdown());
/// assert_eq!(often.ending(), Some(Ending::ShutDown));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The rule ended the repetition, or a closure that runs once has run.
    Done,
    /// A handle cancelled it.
    Cancelled,
    /// A run of a repetition panicked. (The panic of a closure that runs once is its result.)
    Panicked,
    /// The wheel refused its next timer, because its clock cannot represent the deadline or because
    /// timers of another scheduler fill its capacity.
    Refused(Refusal),
    /// The scheduler was shut down or dropped before the run, or the closure's timer was dropped.
    /// Also the ending of a repetition that has had its last run after the scheduler was closed.
    ShutDown,
}

/// The outcome of a cancel.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::scheduler::{Cancel, Scheduler};
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let hour = Duration::from_secs(3600);
/// let backup = scheduler.every(hour).run(|| println!("the files are copied"))?;
/// match backup.cancel() {
///     Cancel::Prevented => println!("the files are not in use"),
///     Cancel::LastRun => backup.wait()?, // the files are in use until it ends
///     Cancel::Ended => println!("there was no backup any more"),
/// }
/// assert_eq!(backup.cancel(), Cancel::Ended);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cancel {
    /// No run is in progress, and none will begin.
    Prevented,
    /// A run is in progress. It is the last one.
    LastRun,
    /// The closure had already ended.
    Ended,
}
