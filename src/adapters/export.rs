//! [`MetricsExporter`]: the figures of a wheel for the facade `metrics`, and through it for the
//! program's recorder.
//!
//! A snapshot holds totals since the wheel was built, so a counter is set and not increased. A
//! histogram of the facade takes samples, so the exporter remembers what it has recorded, and
//! records the difference.

#![forbid(unsafe_code)]

use crate::{Lateness, Metrics};
use ::metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

/// Reads a figure from a snapshot `S`.
type Figure<S, N> = fn(&S) -> N;

/// A counter's name, its description, and its figure in a snapshot `S`.
pub(super) type CounterFigure<S> = (&'static str, &'static str, Figure<S, u64>);

/// A gauge's name, unit, description, and figure in a snapshot `S`.
pub(super) type GaugeFigure<S> = (&'static str, Unit, &'static str, Figure<S, f64>);

/// The registered counters and gauges for snapshots `S`.
#[derive(Debug)]
pub(super) struct Figures<S> {
    counters: Vec<(Counter, Figure<S, u64>)>,
    gauges: Vec<(Gauge, Figure<S, f64>)>,
}

impl<S> Figures<S> {
    /// Registers and describes them, each with the label `label`, whose value is `of`.
    pub(super) fn register(
        label: &'static str,
        of: &str,
        counters: &[CounterFigure<S>],
        gauges: &[GaugeFigure<S>],
    ) -> Self {
        let counters = counters.iter().map(|&(name, what, figure)| {
            describe_counter!(name, Unit::Count, what);
            (counter!(name, label => of.to_owned()), figure)
        });
        let gauges = gauges.iter().map(|&(name, unit, what, figure)| {
            describe_gauge!(name, unit, what);
            (gauge!(name, label => of.to_owned()), figure)
        });
        Self { counters: counters.collect(), gauges: gauges.collect() }
    }

    pub(super) fn tell(&self, snapshot: &S) {
        for (counter, figure) in &self.counters {
            counter.absolute(figure(snapshot));
        }
        for (gauge, figure) in &self.gauges {
            gauge.set(figure(snapshot));
        }
    }
}

const COUNTERS: [CounterFigure<Metrics>; 8] = [
    ("tourbillon_inserted_total", "Timers ever armed.", |m| m.inserted),
    ("tourbillon_reset_total", "Resets that took effect.", |m| m.reset),
    ("tourbillon_cancelled_total", "Timers ended by a cancel.", |m| m.cancelled),
    ("tourbillon_fired_total", "Timers that reached their deadline.", |m| m.fired),
    ("tourbillon_returned_total", "Timers handed back unfired.", |m| m.returned),
    ("tourbillon_requeued_total", "References visited before their deadline.", |m| m.requeued),
    ("tourbillon_sweeps_total", "Sweeps.", |m| m.sweeps),
    ("tourbillon_handler_panics_total", "Handlers that panicked.", |m| m.handler_panics),
];

const GAUGES: [GaugeFigure<Metrics>; 6] = [
    ("tourbillon_timers_armed", Unit::Count, "Timers armed.", |m| m.armed as f64),
    ("tourbillon_stale_references", Unit::Count, "References without a timer.", |m| {
        m.stale_references as f64
    }),
    ("tourbillon_timers_in_flight", Unit::Count, "Timers whose handlers have not ended.", |m| {
        m.timers_in_flight as f64
    }),
    ("tourbillon_batches_in_flight", Unit::Count, "Batches that have not ended.", |m| {
        m.batches_in_flight as f64
    }),
    ("tourbillon_memory_bytes", Unit::Bytes, "Bytes of timers and references.", |m| m.bytes as f64),
    ("tourbillon_longest_sweep_seconds", Unit::Seconds, "The longest sweep so far.", |m| {
        m.longest_sweep.as_secs_f64()
    }),
];

/// The histograms of lateness.
const LATENESS: [(&str, &str, Figure<Metrics, Lateness>); 2] = [
    ("tourbillon_lateness_seconds", "Time from deadlines to firing.", |m| m.lateness.clone()),
    ("tourbillon_handler_lateness_seconds", "Time from deadlines to the start of handlers.", |m| {
        m.handler_lateness.clone()
    }),
];

/// Records the figures of a wheel with the facade `metrics`. Their names begin with `tourbillon_`.
///
/// * The counters are `inserted_total`, `reset_total`, `cancelled_total`, `fired_total`,
///   `returned_total`, `requeued_total`, `sweeps_total` and `handler_panics_total`.
/// * The gauges are `timers_armed`, `stale_references`, `timers_in_flight`, `batches_in_flight`,
///   `memory_bytes` and `longest_sweep_seconds`.
/// * The histograms are `lateness_seconds` and `handler_lateness_seconds`. A recorder that computes
///   summaries misjudges samples that are recorded in bursts, so configure buckets for these, such
///   as powers of two from 1 ms to 1 min.
///
/// They are the fields of [`Metrics`], each with the label `wheel`. Nothing is recorded
/// automatically. Call [`record`](Self::record) from the handler of the scrape, or from a timer.
///
/// # Examples
///
/// From a timer of a scheduler:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tourbillon::scheduler::Scheduler;
/// use tourbillon::{Builder, Expired, MetricsExporter};
///
/// // The program's recorder has been installed by now: its exporter for Prometheus, say.
/// let mut exporter = MetricsExporter::new("connections");
///
/// let driver = Arc::new(Builder::new().driver().spawn(|_: Expired<u32>| ())?);
/// let watched = Arc::clone(&driver);
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// scheduler
///     .every(Duration::from_secs(10))
///     .run(move || exporter.record(&watched.metrics()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MetricsExporter {
    figures: Figures<Metrics>,
    lateness: [Samples; 2],
}

/// A histogram of the facade, and the samples that it has received.
#[derive(Debug)]
struct Samples {
    histogram: Histogram,
    of: Figure<Metrics, Lateness>,
    /// The number of timers recorded in each bucket.
    recorded: Vec<u64>,
}

impl Samples {
    /// Records each timer that has fired since the last call, with the upper bound of its bucket.
    fn record(&mut self, metrics: &Metrics) {
        for (bucket, (bound, count)) in (self.of)(metrics).buckets().enumerate() {
            if bucket == self.recorded.len() {
                self.recorded.push(0);
            }
            let new = count.saturating_sub(self.recorded[bucket]);
            if new > 0 {
                self.histogram.record_many(bound, usize::try_from(new).unwrap_or(usize::MAX));
                self.recorded[bucket] = count;
            }
        }
    }
}

impl MetricsExporter {
    /// Registers and describes the figures with the current recorder. A recorder that is installed
    /// later receives nothing. `wheel` is the value of the label.
    ///
    /// # Examples
    ///
    /// ```
    /// let exporter = tourbillon::MetricsExporter::new("connections");
    /// # drop(exporter);
    /// ```
    #[must_use]
    pub fn new(wheel: impl Into<String>) -> Self {
        let wheel = wheel.into();
        let figures = Figures::register("wheel", &wheel, &COUNTERS, &GAUGES);
        let lateness = LATENESS.map(|(name, what, of)| {
            describe_histogram!(name, Unit::Seconds, what);
            let histogram = histogram!(name, "wheel" => wheel.clone());
            Samples { histogram, of, recorded: Vec::new() }
        });
        Self { figures, lateness }
    }

    /// Records a snapshot of [`Wheel::metrics`](crate::Wheel::metrics) or
    /// [`Driver::metrics`](crate::Driver::metrics), which must be of the same wheel at each call.
    ///
    /// For each histogram of lateness, it records the timers that have fired since the last call,
    /// each with the upper bound of its bucket. The facade `metrics` has no bulk operation, and a
    /// recorder may process each sample separately, so call this more often the more timers fire.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::{Builder, MetricsExporter};
    ///
    /// let (wheel, _sweeper) = Builder::new().build::<u32>()?;
    /// let mut exporter = MetricsExporter::new("connections");
    /// exporter.record(&wheel.metrics()); // for each scrape
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    pub fn record(&mut self, metrics: &Metrics) {
        self.figures.tell(metrics);
        self.lateness.iter_mut().for_each(|samples| samples.record(metrics));
    }
}
