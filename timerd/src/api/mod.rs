//! The HTTP API. `/openapi.json` describes it.

#![forbid(unsafe_code)]

mod letters;
mod runs;
mod store;
mod timer;

use super::call::Caller;
use super::config::Limits;
use super::health::Health;
use super::history::History;
use super::limits::{Gate, pass};
use super::problem::Problem;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use tourbillon_durable::DurableTimers;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

/// The state of the handlers.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) timers: DurableTimers,
    pub(crate) health: Arc<Health>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) history: Arc<dyn History>,
    pub(crate) figures: PrometheusHandle,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "timerd", description = "Calls webhooks on time, once or by a rule. Each request needs \
        a token, except those for `/healthz` and this document. An error is a `Problem`."),
    paths(
        timer::put, timer::get, timer::list, timer::cancel, timer::pause, timer::resume,
        letters::list, letters::trim, letters::get, letters::delete, letters::redrive, letters::redrive_all,
        store::pause, store::resume, store::stats, runs::list, metrics, healthz,
    ),
    components(schemas(Problem)),
    security(("token" = [])),
    modifiers(&Token)
)]
struct Document;

/// Adds the scheme of the tokens.
struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", scheme);
    }
}

/// Returns the routes of the API.
pub(crate) fn router(app: App, gate: Arc<Gate>, limits: &Limits) -> Router {
    Router::new()
        .route("/v1/timers", get(timer::list))
        .route("/v1/timers/{id}", get(timer::get).put(timer::put).delete(timer::cancel))
        .route("/v1/timers/{id}/pause", post(timer::pause))
        .route("/v1/timers/{id}/resume", post(timer::resume))
        .route("/v1/dead-letters", get(letters::list).delete(letters::trim))
        .route("/v1/dead-letters/redrive", post(letters::redrive_all))
        .route("/v1/dead-letters/{number}", get(letters::get).delete(letters::delete))
        .route("/v1/dead-letters/{number}/redrive", post(letters::redrive))
        .route("/v1/pause", post(store::pause))
        .route("/v1/resume", post(store::resume))
        .route("/v1/stats", get(store::stats))
        .route("/v1/runs", get(runs::list))
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(gate, pass))
        .route("/healthz", get(healthz))
        .route("/openapi.json", get(document))
        .fallback(|| async { Problem::not_found("there is no such page") })
        .layer(DefaultBodyLimit::max(limits.body_bytes.get()))
        .with_state(app)
}

/// Returns the description of the API. It needs no token, and so it is made once.
async fn document() -> impl IntoResponse {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
        // It has no keys that JSON could not have.
        Document::openapi().to_json().unwrap_or_default().into()
    });
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}

/// Returns metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "service", responses((status = 200)))]
async fn metrics(State(app): State<App>) -> String {
    app.figures.render()
}

/// Reports whether the store replies.
#[utoipa::path(get, path = "/healthz", tag = "service", security(()), responses(
    (status = 200, description = "The store replies"),
    (status = 503, description = "The store does not reply", body = Problem),
))]
async fn healthz(State(app): State<App>) -> Result<Json<Value>, Problem> {
    match app.health.trouble() {
        None => Ok(Json(json!({ "store": "replies" }))),
        Some(trouble) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, trouble).after(1)),
    }
}
