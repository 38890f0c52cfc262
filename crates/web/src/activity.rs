//! [`Activity`], which counts calls, and [`Hour`], the calls of an hour by minute.

#![forbid(unsafe_code)]

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tourbillon_durable::{Event, LoggedAttempt};

/// The number of minutes that are counted and shown.
pub(crate) const MINUTES: u64 = 60;

/// The calls that the workers of this process have made in the last hour, counted by minute.
///
/// The page prefers its [log](crate::TimersWeb::log), which has the calls of all processes. It
/// shows the counts of this process if it has no log, if the log fails, or if the newest 3000 runs
/// of the log do not reach back an hour. Clones share the counts, which take about a megabyte at
/// most.
///
/// # Examples
///
/// ```
/// use timers_web::{Activity, TimersWeb};
/// use tourbillon_durable::{DurableTimers, Worker};
///
/// fn observed(timers: &DurableTimers) -> (Worker, TimersWeb) {
///     let activity = Activity::new();
///     let web = TimersWeb::new(timers).activity(&activity);
///     (timers.worker().observe(move |event| activity.record(event)), web)
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Activity(Arc<Mutex<Hour>>);

impl Activity {
    /// Creates an activity without calls.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts an event of a worker. Call this from
    /// [`observe`](tourbillon_durable::Worker::observe).
    pub fn record(&self, event: &Event) {
        let Event::Attempt(attempt) = event else { return };
        let Some(duration) = attempt.duration else { return };
        let ended = attempt.due + attempt.lateness + duration;
        let mut hour = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hour.count(ended, is_failure(attempt.outcome.name()), Some(attempt.lateness));
    }

    /// Returns the numbers of the last hour.
    pub(crate) fn hour(&self) -> Hour {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns `true` if a run with this outcome has failed.
pub(crate) fn is_failure(outcome: &str) -> bool {
    matches!(outcome, "retry" | "dead" | "cancelled" | "unanswered" | "unreadable")
}

/// The calls of an hour by minute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hour {
    /// The key is the number of the minute since 1970.
    minutes: BTreeMap<u64, Minute>,
}

/// The calls of a minute.
#[derive(Clone, Debug)]
pub(crate) struct Minute {
    pub(crate) calls: u64,
    pub(crate) failures: u64,
    /// In milliseconds.
    pub(crate) lateness: Histogram<u32>,
}

impl Hour {
    /// Returns the calls of a log. The lateness of a retry is unknown.
    pub(crate) fn of_log(runs: &[LoggedAttempt]) -> Self {
        let mut hour = Self::default();
        for run in runs {
            let Some(duration) = run.duration else { continue };
            let late = run.ended.checked_sub(duration);
            let late = late.and_then(|began| began.duration_since(run.planned).ok());
            let late = late.filter(|_| run.attempt == 1);
            hour.count(run.ended, is_failure(&run.outcome), late);
        }
        hour
    }

    fn count(&mut self, ended: SystemTime, is_failure: bool, lateness: Option<Duration>) {
        let minute = self.minutes.entry(minute(ended)).or_default();
        minute.calls += 1;
        minute.failures += u64::from(is_failure);
        if let Some(lateness) = lateness {
            // It grows as far as it has to.
            let _ = minute.lateness.record(millis(lateness));
        }
        while self.minutes.len() as u64 > MINUTES + 1 {
            self.minutes.pop_first();
        }
    }

    /// Returns the last minutes up to a time, oldest first.
    pub(crate) fn until(&self, now: SystemTime) -> Vec<Minute> {
        let last = minute(now);
        let first = (last + 1).saturating_sub(MINUTES);
        let minutes = (first..=last).map(|number| self.minutes.get(&number));
        minutes.map(|minute| minute.cloned().unwrap_or_default()).collect()
    }
}

impl Default for Minute {
    fn default() -> Self {
        let lateness = Histogram::new(2).expect("a histogram can have two significant digits");
        Self { calls: 0, failures: 0, lateness }
    }
}

fn minute(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 60
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
