//! The whole store.

#![forbid(unsafe_code)]

use super::App;
use crate::problem::Problem;
use crate::rights::{May, Operate};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tourbillon_durable::text::{StatsView, Switch};
use utoipa::ToSchema;

/// The state of the store.
#[derive(Serialize, ToSchema)]
#[schema(as = StoreState)]
pub(super) struct Paused {
    /// `paused` or `resumed`.
    store: &'static str,
}

/// Returns statistics of the store.
#[utoipa::path(get, path = "/v1/stats", operation_id = "get_stats", tag = "store", responses((status = 200, body = StatsView)))]
pub(super) async fn stats(State(app): State<App>) -> Result<Json<StatsView>, Problem> {
    Ok(Json(StatsView::new(&app.timers.stats().await?)))
}

/// Pauses the store.
///
/// No service that uses the store begins an attempt until the store is resumed. Running attempts
/// continue.
#[utoipa::path(post, path = "/v1/pause", security(("token" = ["operate"])), operation_id = "pause_store", tag = "store",
    responses((status = 200, body = Paused)))]
pub(super) async fn pause(
    State(app): State<App>,
    may: May<Operate>,
) -> Result<Json<Paused>, Problem> {
    Ok(Json(Paused { store: Switch::Pause.store(app.timers.change(&may)).await? }))
}

/// Resumes the store.
///
/// Overdue timers are called oldest first.
#[utoipa::path(post, path = "/v1/resume", security(("token" = ["operate"])), operation_id = "resume_store", tag = "store",
    responses((status = 200, body = Paused)))]
pub(super) async fn resume(
    State(app): State<App>,
    may: May<Operate>,
) -> Result<Json<Paused>, Problem> {
    Ok(Json(Paused { store: Switch::Resume.store(app.timers.change(&may)).await? }))
}
