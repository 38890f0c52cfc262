//! The history of runs.

#![forbid(unsafe_code)]

use super::{App, pages};
use crate::extract::InQuery;
use crate::problem::Problem;
use crate::runs::Run;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The runs to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only runs of the timer with this id. In Redis, only the latest 10,000 runs of all timers are
    /// searched.
    id: Option<String>,
    /// The maximum number of runs. The default is 100, and at most 1000 are listed.
    limit: Option<usize>,
}

/// Runs, latest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Latest {
    runs: Vec<Run>,
}

/// Lists runs, latest first.
///
/// A run is an attempt that has ended. It appears in the list about a second after its end.
#[utoipa::path(get, path = "/v1/runs", operation_id = "list_runs", tag = "runs", params(Which),
    responses((status = 200, body = Latest))
)]
pub(super) async fn list(
    State(app): State<App>,
    InQuery(which): InQuery<Which>,
) -> Result<Json<Latest>, Problem> {
    let limit = pages::rows(which.limit);
    Ok(Json(Latest { runs: app.history.latest(which.id.as_deref(), limit).await? }))
}
