//! [`Ending`]: the reason why a closure will not run again; and [`Cancel`]: the outcome of a
//! cancel.

#![forbid(unsafe_code)]

use crate::Refusal;

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
