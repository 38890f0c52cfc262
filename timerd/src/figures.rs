//! Figures for Prometheus.

#![forbid(unsafe_code)]

use metrics::{gauge, set_global_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;
use std::time::Duration;
use tourbillon_durable::DurableTimers;

/// The bounds of the buckets of durations, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];

/// The interval at which the store is counted.
const INTERVAL: Duration = Duration::from_secs(5);

/// Returns the recorder of the process, which is installed once. If the program has installed
/// another one, the figures are there.
pub(crate) fn install() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        // It fails for no buckets at all.
        let builder = PrometheusBuilder::new().set_buckets(&SECONDS).unwrap_or_default();
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let _ = set_global_recorder(recorder);
        handle
    });
    handle.clone()
}

/// Counts the timers and the dead letters, again and again.
pub(crate) async fn watch(timers: &DurableTimers, handle: &PrometheusHandle) {
    loop {
        if let Ok(stats) = timers.stats().await {
            for (state, count) in
                [("resting", stats.resting), ("leased", stats.leased), ("paused", stats.paused)]
            {
                gauge!("timerd_timers", "state" => state).set(lossy(count));
            }
            gauge!("timerd_timers_overdue").set(lossy(stats.overdue));
            gauge!("timerd_lag_seconds").set(stats.lag());
            gauge!("timerd_dead_letters").set(lossy(stats.dead_letters));
        }
        handle.run_upkeep();
        tokio::time::sleep(INTERVAL).await;
    }
}

#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn lossy(count: u64) -> f64 {
    count as f64
}
