//! The changes that were requested.

#![forbid(unsafe_code)]

use super::{App, pages};
use crate::audit::{Change, KEPT};
use crate::extract::InQuery;
use crate::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tourbillon_durable::text::show_time;
use utoipa::{IntoParams, ToSchema};

/// The changes to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// The maximum number of changes, up to 1000. The default is 100.
    limit: Option<usize>,
}

/// Changes that were requested, latest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Changes {
    /// The time since when this instance keeps changes, RFC 3339.
    since: String,
    /// The number of changes that it keeps for each token.
    kept: usize,
    changes: Vec<Change>,
}

/// Lists the changes that were requested, latest first.
///
/// The list has the latest changes of each token that this instance has made or refused since its
/// start. The log has all changes.
#[utoipa::path(get, path = "/v1/audit", operation_id = "list_changes", tag = "service", params(Which),
    responses((status = 200, body = Changes))
)]
pub(super) async fn list(
    State(app): State<App>,
    InQuery(which): InQuery<Which>,
) -> Result<Json<Changes>, Problem> {
    let changes = app.audit.latest(pages::rows(which.limit));
    Ok(Json(Changes { since: show_time(app.audit.begun()), kept: KEPT, changes }))
}
