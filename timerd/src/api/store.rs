//! The whole store.

#![forbid(unsafe_code)]

use super::super::problem::Problem;
use super::App;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use timers::StatsView;

/// Returns the numbers of the store.
#[utoipa::path(get, path = "/v1/stats", tag = "store", responses((status = 200, body = StatsView)))]
pub(super) async fn stats(State(app): State<App>) -> Result<Json<StatsView>, Problem> {
    Ok(Json(StatsView::new(&app.timers.stats().await?)))
}

/// Pauses all deliveries.
#[utoipa::path(post, path = "/v1/pause", tag = "store", responses((status = 200)))]
pub(super) async fn pause(State(app): State<App>) -> Result<Json<Value>, Problem> {
    app.timers.pause().await?;
    Ok(Json(json!({ "store": "paused" })))
}

/// Resumes deliveries.
#[utoipa::path(post, path = "/v1/resume", tag = "store", responses((status = 200)))]
pub(super) async fn resume(State(app): State<App>) -> Result<Json<Value>, Problem> {
    app.timers.resume().await?;
    Ok(Json(json!({ "store": "resumed" })))
}
