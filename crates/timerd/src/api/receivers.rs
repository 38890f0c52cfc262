//! The receivers of webhooks.

#![forbid(unsafe_code)]

use super::{App, pages};
use crate::call::{MAX_REMEMBERED, ReceiverState};
use crate::extract::InQuery;
use crate::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;
use tourbillon_durable::text::show_time;
use utoipa::{IntoParams, ToSchema};

/// The receivers to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// The maximum number of receivers, up to 1000. The default is 100.
    limit: Option<usize>,
}

/// Receivers. Receivers whose deliveries are held back come first, and then the receivers with the
/// latest calls.
#[derive(Serialize, ToSchema)]
pub(super) struct Receivers {
    receivers: Vec<Receiver>,
    /// The number of receivers that this instance remembers.
    remembered: usize,
    /// The maximum of that number. The receiver that has had no call for the longest time is
    /// forgotten first.
    most: usize,
}

/// A host and a port, and the calls of this instance to it.
#[derive(Serialize, ToSchema)]
pub(super) struct Receiver {
    /// The host.
    host: String,
    /// The port.
    port: u16,
    /// The number of calls in progress.
    calling: usize,
    /// The number of calls that have ended.
    calls: u64,
    /// The number of calls that the receiver has refused or not answered.
    failures: u64,
    /// The duration in milliseconds that 99 of the latest 100 calls do not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_millis: Option<u64>,
    /// The time since when deliveries to it are held back, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_since: Option<String>,
    /// The reason: `silent` if it gets one call at a time because it does not respond, or `busy` if
    /// all its places are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<&'static str>,
}

impl Receiver {
    fn new(state: &ReceiverState, now: SystemTime) -> Self {
        let ReceiverState { host, port, calling, calls, failures, p99, held, .. } = state.clone();
        let since = held.and_then(|(held, _)| now.checked_sub(held)).map(show_time);
        Self {
            host,
            port,
            calling,
            calls,
            failures,
            p99_millis: p99.map(|p99| p99.as_millis().try_into().unwrap_or(u64::MAX)),
            held_since: since,
            held: held.map(|(_, is_silent)| if is_silent { "silent" } else { "busy" }),
        }
    }
}

/// Lists the receivers of webhooks.
///
/// Each instance has a list of its own calls since its start.
#[utoipa::path(get, path = "/v1/receivers", operation_id = "list_receivers", tag = "service",
    params(Which), responses((status = 200, body = Receivers))
)]
#[allow(clippy::disallowed_methods, reason = "people ask since when a receiver is held back")]
pub(super) async fn list(
    State(app): State<App>,
    InQuery(which): InQuery<Which>,
) -> Result<Json<Receivers>, Problem> {
    let (states, now) = (app.caller.receivers(), SystemTime::now());
    let remembered = states.len();
    let shown = states.iter().take(pages::rows(which.limit));
    let receivers = shown.map(|state| Receiver::new(state, now)).collect();
    Ok(Json(Receivers { receivers, remembered, most: MAX_REMEMBERED }))
}
