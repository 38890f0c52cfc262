//! [`Run`]: the description of one run of a repetition.

#![forbid(unsafe_code)]

use super::next_run::NextRun;
use super::rule::LastRun;
use std::time::{Duration, Instant, SystemTime};

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
