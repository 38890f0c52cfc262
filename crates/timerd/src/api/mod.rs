//! The HTTP API. `/openapi.json` describes it.

#![forbid(unsafe_code)]

mod audit;
mod condition;
mod labels;
mod letters;
mod pages;
mod receivers;
mod runs;
mod store;
mod timer;
mod view;

use super::alerts::AlertBody;
use super::audit::Audit;
use super::call::Caller;
use super::config::Limits;
use super::gate::{Gate, pass};
use super::health::Health;
use super::metrics::set_receivers;
use super::problem::{PROBLEM, Problem};
use super::rights::Store;
use super::runs::History;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{self, Content, PathItem, Ref, RefOr};
use utoipa::{Modify, OpenApi, ToSchema};

/// The state of the handlers.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) timers: Store,
    pub(crate) health: Arc<Health>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) history: History,
    pub(crate) audit: Arc<Audit>,
    pub(crate) metrics: PrometheusHandle,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "timerd", description = "Calls webhooks on time, once or by a rule. Each request needs \
        a token, except those for `/healthz` and this document. An error is a `Problem`."),
    paths(
        timer::put, timer::get, timer::list, timer::cancel, timer::move_to, timer::run, timer::pause,
        timer::resume,
        labels::get, labels::cancel, labels::pause, labels::resume,
        letters::list, letters::trim, letters::get, letters::delete, letters::redrive, letters::redrive_all,
        store::pause, store::resume, store::stats, runs::list, audit::list, receivers::list, metrics,
        healthz, alert,
    ),
    components(schemas(Problem, view::Call)),
    security(("token" = [])),
    modifiers(&Token, &Problems)
)]
struct Document;

/// The document, with the requests that the service itself makes.
#[derive(Serialize)]
struct WholeDocument {
    #[serde(flatten)]
    document: openapi::OpenApi,
    webhooks: BTreeMap<&'static str, PathItem>,
}

impl WholeDocument {
    fn new() -> Self {
        let mut document = Document::openapi();
        let mut alert = document.paths.paths.remove(ALERT).unwrap_or_default();
        if let Some(operation) = &mut alert.post {
            // The problems are those of the service.
            operation.responses.responses.retain(|status, _| status.starts_with('2'));
        }
        Self { document, webhooks: [("alert", alert)].into() }
    }
}

/// The place of alerts among the paths, from which they become a webhook.
const ALERT: &str = "alert";

/// An alert.
///
/// It is sent to `alerts.url` of the configuration. `Idempotency-Key` and `webhook-id` are the same
/// for all attempts to send it. If a secret is configured, `webhook-signature` and
/// `webhook-timestamp` are as in Standard Webhooks. Responses with a status of 2xx accept an alert.
#[utoipa::path(post, path = "alert", operation_id = "receive_alert", tag = "alerts", security(()),
    params(
        ("webhook-id" = String, Header, description = "The idempotency key"),
        ("webhook-attempt" = u32, Header, description = "The number of the attempt to send the alert"),
    ),
    request_body = AlertBody,
    responses((status = 200, description = "The alert is accepted"))
)]
#[allow(dead_code, reason = "it describes a request of the service")]
fn alert() {}

/// Adds the scheme of the tokens.
struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", scheme);
    }
}

/// Adds the problems that each operation may have, and their media type.
struct Problems;

/// The problems of all operations. The first flag limits a problem to operations with a token, and
/// the second to operations with a body.
const PROBLEMS: [(&str, &str, bool, bool); 9] = [
    ("400", "A part of the request is wrong", false, false),
    ("401", "The token is missing or wrong", true, false),
    ("408", "The request took too long", true, false),
    ("413", "The body is too long", false, true),
    ("415", "The body has another media type than JSON", false, true),
    ("422", "The body has an unknown field or a value of another type", false, true),
    (
        "429",
        "The token has had too many requests, or there were too many wrong tokens",
        true,
        false,
    ),
    ("500", "The store is damaged", false, false),
    ("503", "The store does not reply, or there are too many requests at once", false, false),
];

impl Modify for Problems {
    fn modify(&self, document: &mut openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            for operation in methods.into_iter().flatten() {
                let is_open = operation.security == Some(vec![SecurityRequirement::default()]);
                let (has_token, has_body) = (!is_open, operation.request_body.is_some());
                let responses = &mut operation.responses.responses;
                if has_token && operation.security.is_some() {
                    let what = "The token has a role below the one that `security` names, or the \
                                timer belongs to the service";
                    let problem = RefOr::T(openapi::Response::new(what));
                    responses.insert("403".to_owned(), problem);
                }
                for (status, what, of_token, of_body) in PROBLEMS {
                    if (has_token || !of_token) && (has_body || !of_body) {
                        let problem = || RefOr::T(openapi::Response::new(what));
                        responses.entry(status.to_owned()).or_insert_with(problem);
                    }
                }
                for (status, response) in responses {
                    if let (RefOr::T(response), true) = (response, status.starts_with(['4', '5'])) {
                        let schema = Ref::from_schema_name("Problem");
                        let content = Content::new(Some(schema));
                        response.content = [(PROBLEM.to_owned(), content)].into_iter().collect();
                    }
                }
            }
        }
    }
}

/// The state of a healthy service.
#[derive(Serialize, ToSchema)]
struct Healthy {
    /// `replies`.
    store: &'static str,
}

/// Returns the routes of the API.
pub(crate) fn router(app: App, gate: Arc<Gate>, limits: &Limits) -> Router {
    Router::new()
        .route("/v1/timers", get(timer::list))
        .route("/v1/timers/{id}", get(timer::get).put(timer::put).delete(timer::cancel))
        .route("/v1/timers/{id}/move", post(timer::move_to))
        .route("/v1/timers/{id}/run", post(timer::run))
        .route("/v1/timers/{id}/pause", post(timer::pause))
        .route("/v1/timers/{id}/resume", post(timer::resume))
        .route("/v1/labels/{label}", get(labels::get))
        .route("/v1/labels/{label}/cancel", post(labels::cancel))
        .route("/v1/labels/{label}/pause", post(labels::pause))
        .route("/v1/labels/{label}/resume", post(labels::resume))
        .route("/v1/dead-letters", get(letters::list).delete(letters::trim))
        .route("/v1/dead-letters/redrive", post(letters::redrive_all))
        .route("/v1/dead-letters/{number}", get(letters::get).delete(letters::delete))
        .route("/v1/dead-letters/{number}/redrive", post(letters::redrive))
        .route("/v1/pause", post(store::pause))
        .route("/v1/resume", post(store::resume))
        .route("/v1/stats", get(store::stats))
        .route("/v1/runs", get(runs::list))
        .route("/v1/audit", get(audit::list))
        .route("/v1/receivers", get(receivers::list))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(gate, pass))
        .route("/healthz", get(healthz))
        .route("/openapi.json", get(document))
        .method_not_allowed_fallback(no_such_method)
        .fallback(|| async { Problem::not_found("there is no such page") })
        .layer(DefaultBodyLimit::max(limits.body_bytes.get()))
        .with_state(app)
}

/// Returns the description of the API. It is created only once, because it can be requested without
/// a token.
async fn document() -> impl IntoResponse {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
        // It has only keys that JSON allows.
        serde_json::to_vec(&WholeDocument::new()).unwrap_or_default().into()
    });
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}

/// Refuses a method that a path does not support.
pub(crate) async fn no_such_method() -> Problem {
    let detail = "the path has other methods (see the header Allow)";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// Returns metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics", tag = "service", responses(
    (status = 200, body = String, content_type = "text/plain"),
))]
async fn metrics(State(app): State<App>) -> impl IntoResponse {
    set_receivers(app.caller.count_receivers());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render())
}

/// Reports whether the store replies.
#[utoipa::path(get, path = "/healthz", operation_id = "get_health", tag = "service", security(()), responses(
    (status = 200, description = "The store replies", body = Healthy),
    (status = 503, description = "The store does not reply", body = Problem),
))]
async fn healthz(State(app): State<App>) -> Result<Json<Healthy>, Problem> {
    match app.health.trouble() {
        None => Ok(Json(Healthy { store: "replies" })),
        // The reason may name the server. It is for the log and the page, not for strangers.
        Some(_) => {
            let detail = "the store does not reply, or cannot be written";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).after(1))
        }
    }
}
