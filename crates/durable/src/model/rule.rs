//! [`Rule`] and [`Misfire`], the repetition of a timer.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::clock::{LATEST, Millis, whole_millis};
use std::time::Duration;

/// The maximum interval of [`Rule::Every`], 100 years of 365 days.
const MAX_INTERVAL: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The repetition rule of a timer, returned by [`Options::get_rule`](crate::Options::get_rule).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Options, Rule};
///
/// let hour = Duration::from_secs(3600);
/// let options = Options::new().every(hour);
/// assert_eq!(options.get_rule(), Some(&Rule::Every(hour)));
/// assert_eq!(Options::new().get_rule(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A cron expression, set by `Options::cron`.
    Cron {
        /// The expression.
        expression: String,
        /// The IANA time zone.
        zone: String,
    },
    /// An interval, set by [`Options::every`](crate::Options::every).
    Every(Duration),
}

/// The treatment of occurrences of a repeating timer that were not delivered in time, because no
/// worker ran, all workers were busy, or the timer or the store was paused.
///
/// # Examples
///
/// A report that is of no use an hour later:
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tourbillon_durable::{DurableTimers, Event, Misfire, Options, Outcome};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-misfire-{}", std::process::id()));
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// let timers = DurableTimers::open(&file)?;
/// let day = Duration::from_secs(86_400);
/// let hour = Duration::from_secs(3600);
/// let options = Options::new().every(day).misfire(Misfire::SkipAfter(hour));
/// let two_hours_ago = SystemTime::now() - 2 * hour; // while no worker ran
/// pollster::block_on(timers.insert("report", "", two_hours_ago, options))?;
///
/// let worker = timers.worker().until(end).observe(move |event| {
///     let Event::Attempt(attempt) = event else { return };
///     let Outcome::Missed { late, next } = attempt.outcome else { panic!("{attempt:?}") };
///     assert!(late > hour);
///     assert_eq!(next, Some(attempt.planned + day));
/// #   let _ = done.unbounded_send(());
/// }); // `end` is ready when the program is to end
/// pollster::block_on(worker.run(|_| async { Ok::<(), String>(()) }))?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfire {
    /// The first missed occurrence is delivered, however late it is, and makes up for all missed
    /// occurrences. The next is planned for the first time of the rule after this delivery has
    /// begun.
    #[default]
    Once,
    /// An occurrence is skipped if its first attempt would begin later than this after its planned
    /// time. The timer continues with the first occurrence that is still within the window, or else
    /// with the next occurrence, and [`observe`](crate::Worker::observe) gets
    /// [`Outcome::Missed`](crate::Outcome::Missed).
    ///
    /// In contrast, a [`time_to_live`](crate::Options::time_to_live) makes a late occurrence a dead
    /// letter, applies to timers without a rule as well, and limits retries too. The window is
    /// checked first if both are set.
    SkipAfter(Duration),
}

impl Rule {
    /// Checks the size of a rule.
    pub(crate) fn check(&self) -> Result<(), DurableError> {
        match self {
            Self::Cron { expression, zone } if expression.len() + zone.len() > 512 => {
                Err(DurableError::Rule("more than 512 bytes".to_owned()))
            }
            Self::Every(interval)
                if !(Duration::from_millis(1)..=MAX_INTERVAL).contains(interval) =>
            {
                Err(DurableError::Rule("the interval must be 1 ms to 36500 days".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the first occurrence after `after` of a timer that is planned for `planned`, or
    /// `None` if there is no further one.
    pub(crate) fn next(
        &self,
        planned: Millis,
        after: Millis,
    ) -> Result<Option<Millis>, DurableError> {
        match self {
            Self::Every(interval) => Ok(next_step(planned, whole_millis(*interval), after)),
            Self::Cron { expression, zone } => next_by_cron(expression, zone, after),
        }
    }
}

/// Returns the first time after `after` that is a whole number of steps after `planned`, so that a
/// late delivery does not shift later deliveries.
fn next_step(planned: Millis, step: Millis, after: Millis) -> Option<Millis> {
    let steps = after.saturating_sub(planned).checked_div(step)? + 1;
    let next = steps.checked_mul(step)?.checked_add(planned)?;
    (next <= LATEST).then_some(next)
}

#[cfg(feature = "cron")]
fn next_by_cron(
    expression: &str,
    zone: &str,
    after: Millis,
) -> Result<Option<Millis>, DurableError> {
    let after = crate::model::clock::system(after);
    let calendar = tourbillon::scheduler::Calendar::builder(expression)
        .zone(zone)
        .wall_clock(move || after)
        .build();
    match calendar {
        Ok(calendar) => Ok(calendar.next_after(after).map(crate::model::clock::due)),
        Err(tourbillon::scheduler::CalendarError::Never(_)) => Ok(None),
        Err(error) => Err(DurableError::Rule(error.to_string())),
    }
}

/// Fails for every rule, because this build has no calendars and the rule was stored by another
/// build.
#[cfg(not(feature = "cron"))]
fn next_by_cron(
    expression: &str,
    _zone: &str,
    after: Millis,
) -> Result<Option<Millis>, DurableError> {
    let after = crate::model::clock::system(after);
    let why = format!("{expression:?} after {after:?} needs the feature `cron`");
    Err(DurableError::Rule(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_from_the_planned_time() {
        for (after, next) in [(100, 110), (101, 110), (109, 110), (110, 120), (9999, 10_000)] {
            assert_eq!(next_step(100, 10, after), Some(next), "after {after}");
        }
        assert_eq!(next_step(0, LATEST, 0), Some(LATEST));
        assert_eq!(next_step(1, LATEST, 1), None);
        assert_eq!(next_step(1, Millis::MAX, 1), None);
    }
}
