//! Events and statistics for the facade `metrics`, and through it for the program's recorder.

#![forbid(unsafe_code)]

use crate::model::event::{Event, LeaseLoss, Outcome, Wait};
use crate::model::stats::Stats;
use ::metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use std::fmt;

/// A name, and its description.
type Described = (&'static str, &'static str);

const ATTEMPTS: Described = ("tourbillon_durable_attempts_total", "Attempts that have ended.");
const LATENESS: Described = (
    "tourbillon_durable_attempt_lateness_seconds",
    "Time from the due time of an attempt to the start of its handler.",
);
const DURATION: Described =
    ("tourbillon_durable_handler_duration_seconds", "Duration of the handler of an attempt.");
const LEASES_LOST: Described =
    ("tourbillon_durable_leases_lost_total", "Attempts that lost their lease.");
const WAITS: Described = ("tourbillon_durable_waits_total", "Waits that the worker has begun.");
const WAIT_DURATION: Described =
    ("tourbillon_durable_wait_duration_seconds", "Duration of a wait of the worker.");
const NOTICES_LOST: Described =
    ("tourbillon_durable_notices_lost_total", "Times that the subscription in Redis broke.");
const GAINED: Described =
    ("tourbillon_durable_partitions_gained_total", "Partitions that the worker gained.");
const LOST: Described =
    ("tourbillon_durable_partitions_lost_total", "Partitions that another worker took over.");
const EMPTIED: Described =
    ("tourbillon_durable_emptied_total", "Times that the store was emptied while in use.");

const NOT_LOGGED: Described =
    ("tourbillon_durable_attempts_not_logged_total", "Attempts that are missing from the log.");

const COUNTERS: [Described; 8] =
    [ATTEMPTS, LEASES_LOST, WAITS, NOTICES_LOST, GAINED, LOST, EMPTIED, NOT_LOGGED];
const HISTOGRAMS: [Described; 3] = [LATENESS, DURATION, WAIT_DURATION];

const TIMERS: Described = ("tourbillon_durable_timers", "Timers, by state.");
const OVERDUE: Described =
    ("tourbillon_durable_timers_overdue", "Timers that a worker could lease now.");
const LAG: Described =
    ("tourbillon_durable_lag_seconds", "How long the oldest timer has been overdue.");
const DEAD: Described = ("tourbillon_durable_dead_letters", "Dead letters.");
const PAUSED: Described =
    ("tourbillon_durable_store_paused", "1 if the store is paused, otherwise 0.");

/// Figures by the value of a label.
type By<T> = Vec<(&'static str, T)>;

/// Returns the figure of a value. Every value was registered.
fn of<'a, T>(figures: &'a By<T>, value: &str) -> Option<&'a T> {
    figures.iter().find(|(name, _)| *name == value).map(|(_, figure)| figure)
}

fn increment(counter: Option<&Counter>) {
    if let Some(counter) = counter {
        counter.increment(1);
    }
}

/// The registered figures of a worker. Counters of events that have not happened are zero.
pub(crate) struct WorkerMetrics {
    attempts: By<Counter>,
    lateness: Histogram,
    duration: Histogram,
    leases_lost: By<Counter>,
    waits: By<(Counter, Histogram)>,
    notices_lost: Counter,
    gained: Counter,
    lost: Counter,
    emptied: Counter,
    not_logged: Counter,
}

impl WorkerMetrics {
    pub(crate) fn new(store: &str) -> Self {
        for (name, what) in COUNTERS {
            describe_counter!(name, Unit::Count, what);
        }
        for (name, what) in HISTOGRAMS {
            describe_histogram!(name, Unit::Seconds, what);
        }
        let count = |(name, _): Described| counter!(name, "store" => store.to_owned());
        let by = |(name, _): Described, label: &'static str, value: &'static str| {
            (value, counter!(name, "store" => store.to_owned(), label => value))
        };
        let wait = |reason: &'static str| {
            let duration =
                histogram!(WAIT_DURATION.0, "store" => store.to_owned(), "reason" => reason);
            let (_, count) = by(WAITS, "reason", reason);
            (reason, (count, duration))
        };
        Self {
            attempts: Outcome::NAMES.map(|outcome| by(ATTEMPTS, "outcome", outcome)).into(),
            lateness: histogram!(LATENESS.0, "store" => store.to_owned()),
            duration: histogram!(DURATION.0, "store" => store.to_owned()),
            leases_lost: LeaseLoss::NAMES.map(|reason| by(LEASES_LOST, "reason", reason)).into(),
            waits: Wait::NAMES.map(wait).into(),
            notices_lost: count(NOTICES_LOST),
            gained: count(GAINED),
            lost: count(LOST),
            emptied: count(EMPTIED),
            not_logged: count(NOT_LOGGED),
        }
    }

    pub(crate) fn record(&self, event: &Event) {
        match event {
            Event::Attempt(attempt) => {
                increment(of(&self.attempts, attempt.outcome.name()));
                if let Some(duration) = attempt.duration {
                    self.lateness.record(attempt.lateness);
                    self.duration.record(duration);
                }
            }
            Event::LeaseLost { reason, .. } => increment(of(&self.leases_lost, reason.name())),
            Event::Waiting { reason, .. } => {
                increment(of(&self.waits, reason.name()).map(|(count, _)| count));
            }
            Event::Resumed { reason, waited } => {
                if let Some((_, duration)) = of(&self.waits, reason.name()) {
                    duration.record(*waited);
                }
            }
            Event::NoticesLost => self.notices_lost.increment(1),
            Event::NoticesRestored | Event::LogSetAside { .. } => {}
            Event::LogFailed { lost, .. } => self.not_logged.increment(*lost),
            Event::PartitionsGained { partitions } => {
                self.gained.increment(partitions.len() as u64);
            }
            Event::PartitionsLost { partitions } => self.lost.increment(partitions.len() as u64),
            Event::Emptied => self.emptied.increment(1),
        }
    }
}

/// Gauges of the facade `metrics` for the [`Stats`] of a store.
///
/// All gauges have the label `store`:
///
/// - `tourbillon_durable_timers`, with a further label `state` (`resting`, `leased` or `paused`)
/// - `tourbillon_durable_timers_overdue`
/// - `tourbillon_durable_lag_seconds`
/// - `tourbillon_durable_dead_letters`
/// - `tourbillon_durable_store_paused`, which is 1 if the store is paused
///
/// # Examples
///
/// ```
/// use tourbillon_durable::{DurableError, DurableTimers, StatsGauges};
///
/// /// Called by the program once a minute, or before a scrape.
/// async fn refresh(timers: &DurableTimers, gauges: &StatsGauges) -> Result<(), DurableError> {
///     gauges.set(&timers.stats().await?);
///     Ok(())
/// }
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-gauges-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// let gauges = StatsGauges::new("reminders"); // once the recorder is installed
/// pollster::block_on(refresh(&timers, &gauges))?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StatsGauges {
    resting: Gauge,
    leased: Gauge,
    paused: Gauge,
    overdue: Gauge,
    lag: Gauge,
    dead: Gauge,
    store_paused: Gauge,
}

impl StatsGauges {
    /// Registers and describes the gauges with the installed recorder. Their label `store` has the
    /// given value.
    #[must_use]
    pub fn new(store: &str) -> Self {
        for (name, what) in [TIMERS, OVERDUE, DEAD, PAUSED] {
            describe_gauge!(name, Unit::Count, what);
        }
        describe_gauge!(LAG.0, Unit::Seconds, LAG.1);
        let set = |(name, _): Described| gauge!(name, "store" => store.to_owned());
        let state =
            |state: &'static str| gauge!(TIMERS.0, "store" => store.to_owned(), "state" => state);
        Self {
            resting: state("resting"),
            leased: state("leased"),
            paused: state("paused"),
            overdue: set(OVERDUE),
            lag: set(LAG),
            dead: set(DEAD),
            store_paused: set(PAUSED),
        }
    }

    /// Sets the gauges to these statistics.
    #[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
    pub fn set(&self, stats: &Stats) {
        self.resting.set(stats.resting as f64);
        self.leased.set(stats.leased as f64);
        self.paused.set(stats.paused as f64);
        self.overdue.set(stats.overdue as f64);
        self.lag.set(stats.lag().as_secs_f64());
        self.dead.set(stats.dead_letters as f64);
        self.store_paused.set(f64::from(u8::from(stats.store_paused)));
    }
}

impl fmt::Debug for StatsGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsGauges").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::DeadReason;
    use ::metrics::with_local_recorder;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn each_event_has_its_figure() {
        let recorder = DebuggingRecorder::new();
        let metrics = with_local_recorder(&recorder, || WorkerMetrics::new("reminders"));
        let partitions = BTreeSet::from([3, 4]);
        let (reason, waited) = (Wait::Busy, Duration::from_secs(2));
        for event in [
            Event::LeaseLost { id: "id".to_owned(), attempt: 1, reason: LeaseLoss::RanOut },
            Event::Waiting { reason, error: None },
            Event::Resumed { reason, waited },
            Event::NoticesLost,
            Event::NoticesRestored,
            Event::PartitionsGained { partitions: partitions.clone() },
            Event::PartitionsLost { partitions },
            Event::Emptied,
        ] {
            metrics.record(&event);
        }
        let mut changed = Vec::new();
        for (key, unit, what, value) in recorder.snapshotter().snapshot().into_vec() {
            assert!(unit.is_some() && what.is_some(), "{key:?} is not described");
            let key = key.key();
            let labels: Vec<_> = key.labels().map(|label| label.value().to_owned()).collect();
            let name = key.name().trim_start_matches("tourbillon_durable_");
            match value {
                DebugValue::Counter(0) => {}
                DebugValue::Counter(count) => {
                    changed.push(format!("{name} {} {count}", labels.join(" ")));
                }
                DebugValue::Histogram(values) if values.is_empty() => {}
                other => changed.push(format!("{name} {} {other:?}", labels.join(" "))),
            }
        }
        changed.sort();
        assert_eq!(
            changed,
            [
                "emptied_total reminders 1",
                "leases_lost_total reminders ran_out 1",
                "notices_lost_total reminders 1",
                "partitions_gained_total reminders 2",
                "partitions_lost_total reminders 2",
                "wait_duration_seconds reminders busy Histogram([2.0])",
                "waits_total reminders busy 1",
            ]
        );
    }

    #[test]
    fn each_name_is_registered() {
        let (wait, error) = (Duration::ZERO, String::new());
        let outcomes = [
            Outcome::Acknowledged,
            Outcome::Retry { wait, error: error.clone() },
            Outcome::Missed { late: wait, next: None },
            Outcome::Again { wait, counted: true },
            Outcome::Dead { reason: DeadReason::Failed, error: error.clone() },
            Outcome::Cancelled { error: error.clone() },
            Outcome::GivenBack,
            Outcome::TooLate,
            Outcome::Unanswered,
            Outcome::Unreadable { error },
        ];
        assert_eq!(outcomes.map(|outcome| outcome.name()), Outcome::NAMES);
        let waits = [
            Wait::StoreAway,
            Wait::StoreReadOnly,
            Wait::StoreDenied,
            Wait::StorePaused,
            Wait::Busy,
            Wait::NoPartition,
        ];
        assert_eq!(waits.map(Wait::name), Wait::NAMES);
        assert_eq!(
            [LeaseLoss::TakenOver, LeaseLoss::RanOut].map(LeaseLoss::name),
            LeaseLoss::NAMES
        );
    }
}
