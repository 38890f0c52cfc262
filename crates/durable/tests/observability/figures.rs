//! The figures of workers and stores, as a recorder receives them.

use crate::common::bench::{Bench, OneFile, SECOND, quick, start, wait};
use crate::common::events::Observed;
use crate::spans::subscribe;
use metrics::with_local_recorder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::BTreeMap;
use std::future::ready;
use std::time::Duration;
use tourbillon_durable::{Event, StatsGauges, Verdict};

/// Returns the figures by name and the values of their labels.
fn figures(snapshotter: &Snapshotter) -> BTreeMap<String, DebugValue> {
    let read = |(key, unit, what, value): (metrics_util::CompositeKey, Option<_>, Option<_>, _)| {
        assert!(unit.is_some() && what.is_some(), "{key:?} is not described");
        let key = key.key();
        let labels = key.labels().map(|label| label.value());
        let words: Vec<&str> = std::iter::once(key.name()).chain(labels).collect();
        (words.join(" ").replace("tourbillon_durable_", ""), value)
    };
    snapshotter.snapshot().into_vec().into_iter().map(read).collect()
}

fn count(count: u64) -> DebugValue {
    DebugValue::Counter(count)
}

fn seconds<const N: usize>(values: [f64; N]) -> DebugValue {
    DebugValue::Histogram(values.map(Into::into).into())
}

#[test]
fn a_worker_counts_its_attempts_and_waits() {
    subscribe();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let bench = Bench::new(OneFile::new());
    let worker = bench.timers().worker();
    let worker = with_local_recorder(&recorder, || worker.metrics("reminders"));
    let before = figures(&snapshotter);
    assert_eq!(before["attempts_total reminders dead"], count(0));
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    bench.advance(3 * SECOND);
    let worker = Observed::start(worker, |delivery| {
        ready(match delivery.attempt {
            1 => Verdict::Retry("no".to_owned()),
            _ => Verdict::Done,
        })
    });
    let has_ended = || assert!(matches!(worker.next(|| ()), Event::Attempt(_)));
    has_ended();
    bench.advance(SECOND);
    has_ended();
    // It has lived too long, so its handler is not called.
    let expired = quick().time_to_live(Duration::ZERO);
    wait(bench.timers().insert("late", "", start(), expired)).unwrap();
    has_ended();
    wait(bench.timers().pause()).unwrap();
    assert!(matches!(worker.next(|| bench.advance(SECOND)), Event::Waiting { .. }));
    assert_eq!(worker.stop(), []);
    let figures = figures(&snapshotter);
    let expected = [
        ("attempts_total reminders retry", count(1)),
        ("attempts_total reminders acknowledged", count(1)),
        ("attempts_total reminders dead", count(1)),
        ("attempt_lateness_seconds reminders", seconds([2.0, 0.0])),
        ("handler_duration_seconds reminders", seconds([0.0, 0.0])),
        ("leases_lost_total reminders ran_out", count(0)),
        ("waits_total reminders store_paused", count(1)),
        ("waits_total reminders store_away", count(0)),
    ];
    for (name, value) in expected {
        assert_eq!(figures[name], value, "{name}");
    }
}

#[test]
fn gauges_have_the_numbers_of_the_store() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let gauges = with_local_recorder(&recorder, || StatsGauges::new("reminders"));
    let bench = Bench::new(OneFile::new());
    let timers = bench.timers();
    for (id, second) in [("a", 1), ("b", 2), ("c", 600), ("d", 600), ("e", 600)] {
        wait(timers.insert(id, "", SECOND * second, quick())).unwrap();
    }
    wait(timers.pause_timer("c")).unwrap();
    wait(timers.pause()).unwrap();
    bench.advance(3 * SECOND);
    gauges.set(&wait(timers.stats()).unwrap());
    let gauge = |value: f64| DebugValue::Gauge(value.into());
    let expected = [
        ("dead_letters reminders", 0.0),
        ("lag_seconds reminders", 2.0),
        ("store_paused reminders", 1.0),
        ("timers reminders leased", 0.0),
        ("timers reminders paused", 1.0),
        ("timers reminders resting", 4.0),
        ("timers_overdue reminders", 2.0),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), gauge(value)));
    assert_eq!(figures(&snapshotter), BTreeMap::from(expected));
}
