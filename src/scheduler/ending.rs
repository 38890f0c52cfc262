//! [`Ending`], why a closure will not run again, and [`Cancel`], what came of cancelling it.

#![forbid(unsafe_code)]

use crate::Refusal;

/// Why a closure will not run again.
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
    /// Its rule says so; a closure that was to run once has run.
    Done,
    /// A handle cancelled it.
    Cancelled,
    /// A run of a repetition panicked. (The panic of a closure that runs once is its result.)
    Panicked,
    /// The wheel refused its next timer, because its clock cannot represent the deadline or because
    /// timers of another scheduler fill its capacity.
    Refused(Refusal),
    /// The scheduler was shut down or dropped, or the closure's timer was dropped, before its time
    /// came; or the scheduler was closed and a repetition has had its last run.
    ShutDown,
}

/// What came of cancelling.
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
    /// It does not run any more, and is not running.
    Prevented,
    /// A run is under way, and is the last.
    LastRun,
    /// It had ended before.
    Ended,
}
