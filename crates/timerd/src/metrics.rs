//! Metrics for Prometheus.

#![forbid(unsafe_code)]

use metrics::set_global_recorder;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;
use std::time::Duration;
use tourbillon_durable::{DurableTimers, StatsGauges};

/// The bounds of the buckets of durations, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];

/// How often timers and dead letters are counted.
const INTERVAL: Duration = Duration::from_secs(5);

/// Returns the recorder of the process, which is installed once. If the program has installed
/// another recorder, that recorder has the metrics.
pub(crate) fn install() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        // It fails only without buckets.
        let builder = PrometheusBuilder::new().set_buckets(&SECONDS).unwrap_or_default();
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let _ = set_global_recorder(recorder);
        handle
    });
    handle.clone()
}

/// Counts the timers and the dead letters periodically.
pub(crate) async fn watch(timers: &DurableTimers, store: &str, handle: &PrometheusHandle) -> ! {
    let gauges = StatsGauges::new(store);
    loop {
        if let Ok(stats) = timers.stats().await {
            gauges.set(&stats);
        }
        handle.run_upkeep();
        tokio::time::sleep(INTERVAL).await;
    }
}
