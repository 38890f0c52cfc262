//! Metrics for Prometheus. `docs/METRICS.md` lists them.

#![forbid(unsafe_code)]

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge, set_global_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;
use std::time::Duration;
use tourbillon_durable::{DurableTimers, StatsGauges};

/// The bounds of the buckets of durations, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];

/// Responses of the API and the page.
pub(crate) const REQUESTS: &str = "timerd_requests_total";

/// Requests with a wrong token.
pub(crate) const REFUSED_TOKENS: &str = "timerd_wrong_tokens_total";

/// Connections that were replaced.
pub(crate) const EVICTED: &str = "timerd_connections_evicted_total";

/// Deliveries that were given back without a call.
pub(crate) const NOT_MADE: &str = "timerd_calls_not_made_total";

/// Runs that are missing in the history.
pub(crate) const NOT_RECORDED: &str = "timerd_runs_not_recorded_total";

/// Parts of the service that were restarted.
pub(crate) const RESTARTED: &str = "timerd_tasks_restarted_total";

/// Alerts for the operator.
pub(crate) const ALERTS: &str = "timerd_alerts_total";

/// The state of the store.
pub(crate) const USABLE: &str = "timerd_store_usable";

/// The receivers of webhooks.
const RECEIVERS: &str = "timerd_receivers";

/// The version of the service.
const BUILD: &str = "timerd_build_info";

/// The counters, and their descriptions.
const COUNTERS: [(&str, &str); 7] = [
    (REQUESTS, "Answered requests to the API and the page."),
    (REFUSED_TOKENS, "Requests with a wrong token."),
    (EVICTED, "Connections that were replaced by newer connections."),
    (
        NOT_MADE,
        "Deliveries that were given back without a call, because of a fault on the side of the \
         service, or because the receiver had no free place.",
    ),
    (NOT_RECORDED, "Runs that are missing from the history."),
    (RESTARTED, "Restarts of a part of the service that has failed."),
    (ALERTS, "Alerts for the operator. Alerts are left out if too many wait."),
];

/// The gauges, and their descriptions.
const GAUGES: [(&str, &str); 3] = [
    (USABLE, "1 if the store replies and accepts writes, otherwise 0."),
    (
        RECEIVERS,
        "Hosts and ports that were called lately and are remembered, or whose deliveries are held \
         back.",
    ),
    (BUILD, "Always 1, with the version of the service."),
];

/// Sets the number of receivers that are remembered, and the number of receivers that are held
/// back.
pub(crate) fn set_receivers([remembered, held]: [usize; 2]) {
    for (state, count) in [("remembered", remembered), ("held", held)] {
        // There are a few thousand at most.
        gauge!(RECEIVERS, "state" => state).set(u32::try_from(count).unwrap_or(u32::MAX));
    }
}

/// The fate of an alert.
#[derive(Clone, Copy)]
pub(crate) enum AlertOutcome {
    /// The operator's webhook has accepted it.
    Sent,
    /// The operator's webhook has not accepted it.
    Failed,
    /// Too many alerts waited already.
    LeftOut,
}

impl AlertOutcome {
    /// Returns the name of the variant, for labels.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::LeftOut => "left_out",
        }
    }
}

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
        describe();
        handle
    });
    handle.clone()
}

/// Describes the metrics to the recorder.
fn describe() {
    for (name, what) in COUNTERS {
        describe_counter!(name, Unit::Count, what);
    }
    for (name, what) in GAUGES {
        describe_gauge!(name, Unit::Count, what);
    }
    for outcome in [AlertOutcome::Sent, AlertOutcome::Failed, AlertOutcome::LeftOut] {
        counter!(ALERTS, "outcome" => outcome.label()).increment(0);
    }
    // A service without alerts has the same metrics.
    for task in ["alerts", "missed_runs"] {
        counter!(RESTARTED, "task" => task).increment(0);
    }
    set_receivers([0, 0]);
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1);
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
