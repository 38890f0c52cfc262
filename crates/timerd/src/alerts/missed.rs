//! [`MissedRuns`], which finds repeating timers that have not run in time: their planned time and a
//! grace have passed without a successful run.
//!
//! ```text
//!   an attempt without success ──► watched by the instance that made it ──┐
//!   no attempt ──► among the overdue timers, which one instance searches ─┴─► reported ──► alert
//! ```
//!
//! The planned time of a timer stays the same until it has run, was given up, or was skipped. The
//! number of rows that a round reads is bounded, whatever the store holds.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "planned times are times of day")]

use super::alert::Alert;
use super::reported::Reported;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tourbillon_durable::text::{parse_position, show_position};
use tourbillon_durable::{Attempt, DurableError, DurableTimer, DurableTimers, Outcome, TimerState};

/// The bounds of the time between two rounds.
const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// The maximum number of runs that are watched. Others are watched after their next attempt.
const MAX_WATCHED: usize = 10_000;

/// The maximum number of skipped runs between two rounds.
const MAX_SKIPPED: usize = 1000;

/// The number of watched timers that a round reads.
const WATCHED: usize = 100;

/// The number of overdue timers that a round reads.
const OVERDUE: usize = 1000;

/// The number of timers with a missed run that a round reads.
const CHECKED: usize = 50;

pub(super) struct MissedRuns {
    grace: Duration,
    seen: Mutex<Seen>,
}

/// The id of a timer, and the planned time of its run.
type Run = (String, SystemTime);

/// What this instance has seen of its own attempts.
#[derive(Default)]
struct Seen {
    /// The planned times of runs that have not succeeded yet, by the id of the timer.
    watched: HashMap<String, SystemTime>,
    /// The runs that were skipped, with their planned times.
    skipped: Vec<Run>,
}

impl MissedRuns {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, seen: Mutex::default() }
    }

    /// Notes the end of an attempt.
    pub(super) fn note(&self, attempt: &Attempt) {
        let Seen { watched, skipped } = &mut *self.seen();
        match attempt.outcome {
            Outcome::Retry { .. }
            | Outcome::Again { .. }
            | Outcome::GivenBack
            | Outcome::TooLate
            | Outcome::Unanswered => {
                if watched.len() < MAX_WATCHED || watched.contains_key(&attempt.id) {
                    watched.insert(attempt.id.clone(), attempt.planned);
                }
            }
            Outcome::Missed { .. } => {
                watched.remove(&attempt.id);
                if skipped.len() < MAX_SKIPPED {
                    skipped.push((attempt.id.clone(), attempt.planned));
                }
            }
            _ => drop(watched.remove(&attempt.id)),
        }
    }

    /// Looks for missed runs periodically.
    pub(super) async fn watch(&self, timers: &DurableTimers, report: impl Fn(Alert)) -> ! {
        loop {
            tokio::time::sleep(self.interval()).await;
            match self.round(timers, SystemTime::now()).await {
                Ok(found) => found.into_iter().for_each(&report),
                // The health check reports the store.
                Err(error) => tracing::debug!(%error, "missed runs could not be looked for"),
            }
        }
    }

    fn interval(&self) -> Duration {
        let [least, most] = INTERVALS;
        (self.grace / 4).clamp(least, most)
    }

    /// Returns the missed runs that this instance has to report. While the store is paused, no run
    /// is missed.
    async fn round(
        &self,
        timers: &DurableTimers,
        now: SystemTime,
    ) -> Result<Vec<Alert>, DurableError> {
        if timers.is_paused().await? {
            return Ok(Vec::new());
        }
        let mut reported = Reported::read(timers).await?;
        let (watched, skipped) = self.due(now);
        let mut found = Vec::new();
        for (id, _) in watched.iter().filter(|(id, _)| !reported.contains(id)) {
            let timer = timers.get(id).await?.filter(|timer| self.is_missed(timer, now));
            found.extend(timer.as_ref().map(Alert::missed));
        }
        found.extend(skipped.iter().map(|(id, planned)| Alert::skipped(id.clone(), *planned)));
        let searches = reported.begin_search(now, self.interval());
        if searches {
            self.check(&mut reported, timers, now).await?;
            found.extend(self.search(&mut reported, timers, now).await?);
        }
        let before = reported.len();
        add_new(&mut reported, &mut found);
        let is_changed = searches || reported.len() != before;
        if is_changed && !reported.write(timers).await? {
            // Another instance was faster. The next round begins with its version.
            return Ok(Vec::new());
        }
        self.forget(&watched, skipped.len());
        Ok(found)
    }

    /// Forgets the runs that were missed but whose timers now wait for a later run.
    async fn check(
        &self,
        reported: &mut Reported,
        timers: &DurableTimers,
        now: SystemTime,
    ) -> Result<(), DurableError> {
        for id in reported.next_to_check(CHECKED) {
            let timer = timers.get(&id).await?;
            if !timer.is_some_and(|timer| self.is_missed(&timer, now)) {
                reported.remove(&id);
            }
        }
        Ok(())
    }

    /// Searches the next part of the overdue timers.
    async fn search(
        &self,
        reported: &mut Reported,
        timers: &DurableTimers,
        now: SystemTime,
    ) -> Result<Vec<Alert>, DurableError> {
        let Some(until) = now.checked_sub(self.grace) else { return Ok(Vec::new()) };
        let after = reported.position.as_deref().and_then(|text| parse_position(text).ok());
        let page = timers.list_due(..=until, after, OVERDUE).await?;
        // After the last part, the next search begins again.
        let last = page.last().filter(|_| page.len() == OVERDUE);
        reported.position = last.map(|timer| show_position(&timer.position()));
        let missed = page.iter().filter(|timer| self.is_missed(timer, now));
        Ok(missed.map(Alert::missed).collect())
    }

    /// Returns `true` if a timer repeats, is not paused, and has not run in time.
    fn is_missed(&self, timer: &DurableTimer, now: SystemTime) -> bool {
        let is_wanted = !matches!(
            timer.state,
            TimerState::Paused | TimerState::Pausing | TimerState::Cancelling
        );
        is_wanted && timer.options.get_rule().is_some() && self.is_late(timer.planned, now)
    }

    /// Returns `true` if the grace after a planned time has passed.
    fn is_late(&self, planned: SystemTime, now: SystemTime) -> bool {
        now.duration_since(planned).is_ok_and(|late| late >= self.grace)
    }

    /// Returns the watched runs whose grace has passed, and all skipped runs.
    fn due(&self, now: SystemTime) -> (Vec<Run>, Vec<Run>) {
        let seen = self.seen();
        let due = seen.watched.iter().filter(|(_, planned)| self.is_late(**planned, now));
        let due = due.take(WATCHED).map(|(id, planned)| (id.clone(), *planned));
        (due.collect(), seen.skipped.clone())
    }

    /// Forgets runs that a round has dealt with.
    fn forget(&self, watched: &[Run], skipped: usize) {
        let mut seen = self.seen();
        for (id, planned) in watched {
            // The timer may have begun another run meanwhile.
            if seen.watched.get(id) == Some(planned) {
                seen.watched.remove(id);
            }
        }
        seen.skipped.drain(..skipped);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds new alerts to the reported runs, and drops alerts for runs that were reported before.
fn add_new(reported: &mut Reported, found: &mut Vec<Alert>) {
    let mut is_full = false;
    found.retain(|alert| {
        let is_new = !reported.contains(alert.id());
        let is_added = is_new && reported.add(alert.id(), alert.planned());
        is_full |= is_new && !is_added;
        is_added
    });
    if is_full {
        tracing::warn!("more timers miss their runs than can be reported now");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::time::UNIX_EPOCH;
    use tourbillon_durable::Options;

    const GRACE: Duration = Duration::from_secs(60);

    /// A store whose timers no worker delivers.
    struct Store {
        timers: DurableTimers,
        file: PathBuf,
    }

    impl Store {
        fn new(name: &str) -> Self {
            let file = std::env::temp_dir().join(format!("timerd-{}-{name}", std::process::id()));
            Self { timers: DurableTimers::open(&file).unwrap(), file }
        }

        /// Inserts a timer that was due at 0 and repeats each day.
        async fn repeat(&self, id: &str) {
            let daily = Options::new().every(Duration::from_secs(86_400));
            self.timers.insert(id, "", UNIX_EPOCH, daily).await.unwrap();
        }

        /// Returns the runs that an instance reports this many seconds after they were due.
        async fn reported(&self, instance: &MissedRuns, seconds: u64) -> Vec<String> {
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            let found = instance.round(&self.timers, now).await.unwrap();
            found.iter().map(|alert| alert.id().to_owned()).collect()
        }
    }

    impl Drop for Store {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.file);
        }
    }

    #[tokio::test]
    async fn a_missed_run_is_reported_once_by_any_instance() {
        let store = Store::new("once");
        let (one, other) = (MissedRuns::new(GRACE), MissedRuns::new(GRACE));
        store.repeat("a").await;
        store.timers.insert("plain", "", UNIX_EPOCH, Options::new()).await.unwrap();
        assert!(store.reported(&one, 59).await.is_empty(), "within the grace");
        assert_eq!(store.reported(&one, 120).await, ["a"]);
        for seconds in [180, 240, 300] {
            assert!(store.reported(&one, seconds).await.is_empty());
            assert!(store.reported(&other, seconds + 30).await.is_empty());
            // A restart is another instance.
            assert!(store.reported(&MissedRuns::new(GRACE), seconds + 50).await.is_empty());
        }
        store.repeat("b").await;
        assert_eq!(store.reported(&other, 400).await, ["b"]);
    }

    #[tokio::test]
    async fn instances_that_find_a_run_at_the_same_time_report_it_once() {
        let store = Store::new("race");
        store.repeat("a").await;
        let instances: Vec<_> = (0..8).map(|_| MissedRuns::new(GRACE)).collect();
        let rounds = instances.iter().map(|instance| store.reported(instance, 120));
        let mut reported = futures_util::future::join_all(rounds).await.concat();
        for instance in &instances {
            reported.extend(store.reported(instance, 200).await);
        }
        assert_eq!(reported, ["a"]);
    }

    #[tokio::test]
    async fn a_pause_is_no_missed_run() {
        let (store, instance) = (Store::new("pause"), MissedRuns::new(GRACE));
        for id in ["a", "b"] {
            store.repeat(id).await;
        }
        store.timers.pause().await.unwrap();
        assert!(store.reported(&instance, 120).await.is_empty());
        store.timers.resume().await.unwrap();
        store.timers.pause_timer("a").await.unwrap();
        assert_eq!(store.reported(&instance, 200).await, ["b"]);
        store.timers.resume_timer("a").await.unwrap();
        assert_eq!(store.reported(&instance, 300).await, ["a"]);
    }

    #[tokio::test]
    async fn a_timer_that_has_run_is_reported_again() {
        let (store, instance) = (Store::new("again"), MissedRuns::new(GRACE));
        store.repeat("a").await;
        assert_eq!(store.reported(&instance, 120).await, ["a"]);
        let later = UNIX_EPOCH + Duration::from_secs(1000);
        store.timers.reset("a", later).await.unwrap();
        assert!(store.reported(&instance, 1030).await.is_empty());
        assert_eq!(store.reported(&instance, 1100).await, ["a"]);
    }
}
