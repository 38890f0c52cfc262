//! The exporter reports each figure of a snapshot once, under its name and with its unit.

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;
use tourbillon::scheduler::Scheduler;
use tourbillon::{Builder, ExecutorJob, Expired, ManualClock, Metrics, MetricsExporter};
use tourbillon_cache::{Cache, CacheExporter};

const TICK: Duration = Duration::from_millis(1);

/// The output of a recorder.
struct Told(Snapshotter);

impl Told {
    /// Kind, unit and value by name and label. Reading resets each value.
    fn all(&self) -> BTreeMap<(String, String), (MetricKind, String, DebugValue)> {
        let figures = self.0.snapshot().into_vec().into_iter().map(|(key, unit, what, value)| {
            let (kind, key) = key.into_parts();
            let labels: Vec<_> = key.labels().map(|label| (label.key(), label.value())).collect();
            let [("wheel" | "cache", of)] = labels[..] else { panic!("{labels:?}") };
            assert!(what.is_some_and(|what| what.ends_with('.')), "{key} is not described");
            let unit = unit.map_or("", |unit| unit.as_str()).to_owned();
            ((key.name().to_owned(), of.to_owned()), (kind, unit, value))
        });
        figures.collect()
    }

    /// The counters and gauges of the wheel `w` with these names.
    fn numbers<const N: usize>(&self, names: [&str; N]) -> [f64; N] {
        let mut all = self.all();
        names.map(|name| match all.remove(&(format!("tourbillon_{name}"), String::from("w"))) {
            Some((_, _, DebugValue::Counter(count))) => count as f64,
            Some((_, _, DebugValue::Gauge(level))) => level.into_inner(),
            other => panic!("{name}: {other:?}"),
        })
    }

    /// The samples of lateness of a wheel since the last read, in seconds.
    fn lateness(&self, wheel: &str) -> Vec<f64> {
        self.samples("tourbillon_lateness_seconds", wheel)
    }

    /// The samples of a histogram of a wheel since the last read, in seconds.
    fn samples(&self, histogram: &str, wheel: &str) -> Vec<f64> {
        let name = (histogram.to_owned(), wheel.to_owned());
        match self.all().remove(&name).unwrap() {
            (MetricKind::Histogram, unit, DebugValue::Histogram(samples)) => {
                assert_eq!(unit, "seconds");
                let mut samples: Vec<f64> = samples.into_iter().map(|s| s.into_inner()).collect();
                samples.sort_by(f64::total_cmp);
                samples
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Runs `run` with a recorder of its own.
fn with_recorder(run: impl FnOnce(&Told)) {
    let recorder = DebuggingRecorder::new();
    let told = Told(recorder.snapshotter());
    metrics::with_local_recorder(&recorder, || run(&told));
}

/// An artificial snapshot whose figures all differ.
fn snapshot() -> Metrics {
    let mut metrics = Metrics::default();
    metrics.armed = 1;
    metrics.inserted = 2;
    metrics.reset = 3;
    metrics.cancelled = 4;
    metrics.fired = 5;
    metrics.returned = 6;
    metrics.stale_references = 7;
    metrics.requeued = 8;
    metrics.sweeps = 9;
    metrics.longest_sweep = Duration::from_millis(1500);
    metrics.bytes = 11;
    metrics.timers_in_flight = 12;
    metrics.batches_in_flight = 13;
    metrics.handler_panics = 14;
    metrics
}

#[test]
fn each_figure_arrives_under_its_name_and_with_its_unit() {
    with_recorder(|told| {
        MetricsExporter::new("w").record(&snapshot());
        let mut all = told.all();
        let (count, bytes, seconds) = ("count", "bytes", "seconds");
        for (name, unit, value) in [
            ("inserted_total", count, 2),
            ("reset_total", count, 3),
            ("cancelled_total", count, 4),
            ("fired_total", count, 5),
            ("returned_total", count, 6),
            ("requeued_total", count, 8),
            ("sweeps_total", count, 9),
            ("handler_panics_total", count, 14),
        ] {
            let key = (format!("tourbillon_{name}"), String::from("w"));
            let expected = (MetricKind::Counter, unit.to_owned(), DebugValue::Counter(value));
            assert_eq!(all.remove(&key), Some(expected), "{name}");
        }
        for (name, unit, value) in [
            ("timers_armed", count, 1.0),
            ("stale_references", count, 7.0),
            ("timers_in_flight", count, 12.0),
            ("batches_in_flight", count, 13.0),
            ("memory_bytes", bytes, 11.0),
            ("longest_sweep_seconds", seconds, 1.5),
        ] {
            let key = (format!("tourbillon_{name}"), String::from("w"));
            let expected = (MetricKind::Gauge, unit.to_owned(), DebugValue::Gauge(value.into()));
            assert_eq!(all.remove(&key), Some(expected), "{name}");
        }
        let mut left: Vec<_> = all.into_keys().map(|(name, _)| name).collect();
        left.sort_unstable();
        assert_eq!(left, ["tourbillon_handler_lateness_seconds", "tourbillon_lateness_seconds"]);
    });
}

#[test]
fn what_is_recorded_twice_counts_once() {
    let names = ["inserted_total", "handler_panics_total", "timers_armed"];
    with_recorder(|told| {
        let mut exporter = MetricsExporter::new("w");
        let mut metrics = snapshot();
        exporter.record(&metrics);
        exporter.record(&metrics);
        assert_eq!(told.numbers(names), [2.0, 14.0, 1.0]);
        exporter.record(&metrics);
        (metrics.inserted, metrics.armed) = (20, 0);
        exporter.record(&metrics);
        assert_eq!(told.numbers(names), [20.0, 14.0, 0.0]);
    });
}

#[test]
fn each_timer_is_one_sample_of_lateness() {
    with_recorder(|told| {
        let clock = ManualClock::new();
        let (wheel, mut sweeper) = Builder::new().shards(2).clock(clock.clone()).build().unwrap();
        let mut exporter = MetricsExporter::new("w");
        let mut other = MetricsExporter::new("another");
        let mut fire = |count: u32, late: Duration| {
            for n in 0..count {
                wheel.insert(n, TICK).unwrap();
            }
            clock.advance(TICK + late);
            assert_eq!(sweeper.sweep(|_| ()).expired, count as usize);
            wheel.metrics()
        };
        exporter.record(&fire(0, TICK));
        assert_eq!(told.lateness("w"), [] as [f64; 0]);

        exporter.record(&fire(2, Duration::ZERO));
        assert_eq!(told.lateness("w"), [0.000_001; 2], "the upper bound of the first bucket");
        let metrics = fire(3, TICK * 3);
        exporter.record(&metrics);
        assert_eq!(told.lateness("w"), [0.004_096; 3], "3 ms, and none of those told before");
        exporter.record(&metrics);
        assert_eq!(told.lateness("w"), [] as [f64; 0]);

        // Another exporter reports everything itself, under its own label.
        other.record(&metrics);
        let all = [0.000_001, 0.000_001, 0.004_096, 0.004_096, 0.004_096];
        assert_eq!(told.lateness("another"), all);
    });
}

#[test]
fn each_handler_is_one_sample_of_its_lateness() {
    with_recorder(|told| {
        let clock = ManualClock::new();
        let (send, jobs) = mpsc::channel();
        let driver = Builder::new()
            .clock(clock.clone())
            .driver()
            .executor(move |job: ExecutorJob| send.send(job).unwrap())
            .spawn(|_: Expired<u32>| ())
            .unwrap();
        let mut exporter = MetricsExporter::new("w");
        driver.wheel().insert(1, TICK).unwrap();
        clock.advance(TICK);
        let job = jobs.recv().unwrap();
        exporter.record(&driver.metrics());
        assert_eq!(told.samples("tourbillon_handler_lateness_seconds", "w"), [] as [f64; 0]);
        clock.advance(TICK * 3);
        job();
        exporter.record(&driver.metrics());
        let handlers = told.samples("tourbillon_handler_lateness_seconds", "w");
        assert_eq!(handlers, [0.004_096], "3 ms");
    });
}

#[test]
fn the_recorder_is_looked_up_once() {
    with_recorder(|first| {
        let mut exporter = MetricsExporter::new("w");
        with_recorder(|second| {
            exporter.record(&snapshot());
            assert!(second.all().is_empty());
        });
        assert_eq!(first.numbers(["fired_total"]), [5.0]);
    });
}

#[test]
fn a_wheel_is_told_of_from_a_timer() {
    let recorder = DebuggingRecorder::new();
    let told = Told(recorder.snapshotter());
    // The timer runs on another thread, where the recorder is not the current one.
    let mut exporter = metrics::with_local_recorder(&recorder, || MetricsExporter::new("w"));
    let clock = ManualClock::new();
    let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let watched = wheel.clone();
    let (send, recorded) = mpsc::channel();
    let scheduler = Scheduler::spawn(Builder::new().clock(clock.clone()).driver()).unwrap();
    let report = scheduler.every(TICK * 10).run(move || {
        exporter.record(&watched.metrics());
        send.send(()).unwrap();
    });
    for armed in 1..=3 {
        wheel.insert((), TICK).unwrap();
        clock.advance(TICK * 10);
        recorded.recv_timeout(Duration::from_secs(60)).expect("the timer runs");
        let names = ["timers_armed", "inserted_total"];
        assert_eq!(told.numbers(names), [f64::from(armed); 2]);
    }
    let _ = report.unwrap().cancel();
}

#[test]
fn each_figure_of_a_cache_arrives_under_its_name() {
    with_recorder(|told| {
        let clock = ManualClock::new();
        let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
        let cache = Cache::builder(TICK * 10).weigher(|_, _| 3).capacity(24).build(wheel).unwrap();
        // All figures differ. There are 7 hits, 5 misses, 4 loads, 3 of which give a value, and 2
        // that expire.
        for key in 0..3 {
            cache.get_or_load(&key, || Ok::<_, ()>(key)).unwrap();
        }
        assert!(cache.get_or_load(&3, || Err::<u32, _>(())).is_err());
        assert_eq!(cache.get(&4), None);
        for _ in 0..7 {
            assert_eq!(cache.get(&0), Some(0));
        }
        assert!(cache.touch(&0, TICK * 100).unwrap());
        clock.advance(TICK * 11);
        assert_eq!(sweeper.sweep(|timer| cache.fire(timer)).expired, 2);

        let exporter = CacheExporter::new("w");
        exporter.record(&cache);
        exporter.record(&cache);
        let names = ["hits", "misses", "loads", "loaded", "expired", "evicted"];
        let totals = names.map(|name| format!("cache_{name}_total"));
        let numbers = told.numbers([0, 1, 2, 3, 4, 5].map(|n| totals[n].as_str()));
        assert_eq!(numbers, [7.0, 5.0, 4.0, 3.0, 2.0, 0.0]);
        exporter.record(&cache);
        assert_eq!(told.numbers(["cache_entries", "cache_weight"]), [1.0, 3.0]);

        // Evicted entries are counted as evicted.
        for key in 10..60 {
            cache.insert(key, key).unwrap();
        }
        exporter.record(&cache);
        let [evicted, entries] = told.numbers(["cache_evicted_total", "cache_entries"]);
        assert_eq!(evicted + entries, 51.0);
        assert!(evicted > 0.0);
    });
}
