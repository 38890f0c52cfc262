//! Labels of timers.

#![forbid(unsafe_code)]

use super::{App, pages};
use crate::audit::Details;
use crate::extract::{InPath, InQuery};
use crate::problem::Problem;
use crate::rights::{May, Operate};
use axum::Json;
use axum::extract::{Extension, State};
use serde::{Deserialize, Serialize};
use tourbillon_durable::text::Switch;
use tourbillon_durable::{BulkChange, Label};
use utoipa::{IntoParams, ToSchema};

/// A label and the number of its timers.
#[derive(Serialize, ToSchema)]
#[schema(as = Label)]
pub(super) struct Counted {
    label: String,
    /// The number of timers with this label, without dead letters.
    timers: u64,
}

/// The timers of a label to change.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only timers with an id greater than this.
    after: Option<String>,
    /// The maximum number of timers, up to 1000. The default is 100.
    limit: Option<usize>,
}

/// The outcome of changing a page of the timers of a label.
#[derive(Serialize, ToSchema)]
#[schema(as = BulkChange)]
pub(super) struct Changed {
    /// The number of timers that were changed.
    changed: u64,
    /// The number of timers that stay because they cannot be read.
    unreadable: u64,
    /// The id of the last timer of the page, which is the value of `after` for the next page.
    /// `null` if the page was empty.
    last: Option<String>,
}

/// Parses a label.
pub(super) fn parse_label(text: &str) -> Result<Label, Problem> {
    Label::new(text).map_err(|why| Problem::invalid(format!("label: {why}")))
}

/// Counts the timers with a label.
#[utoipa::path(get, path = "/v1/labels/{label}", operation_id = "get_label", tag = "labels",
    params(("label" = String, Path, description = "The label")),
    responses((status = 200, body = Counted))
)]
pub(super) async fn get(
    State(app): State<App>,
    InPath(label): InPath<String>,
) -> Result<Json<Counted>, Problem> {
    let timers = app.timers.label_len(&parse_label(&label)?).await?;
    Ok(Json(Counted { label, timers }))
}

/// Cancels a page of the timers with a label, in the order of their ids.
///
/// Running attempts continue, but are not retried. A timer that loses the label before its turn is
/// left alone. The request can be repeated.
#[utoipa::path(post, path = "/v1/labels/{label}/cancel", security(("token" = ["operate"])), operation_id = "cancel_label", tag = "labels",
    params(("label" = String, Path, description = "The label"), Which),
    responses((status = 200, body = Changed))
)]
pub(super) async fn cancel(
    State(app): State<App>,
    may: May<Operate>,
    InPath(label): InPath<String>,
    InQuery(which): InQuery<Which>,
) -> Result<(Extension<Details>, Json<Changed>), Problem> {
    let label = parse_label(&label)?;
    let timers = app.timers.change(&may);
    Ok(changed(
        timers.cancel_label(&label, which.after.as_deref(), pages::rows(which.limit)).await?,
    ))
}

/// Pauses a page of the timers with a label, in the order of their ids.
///
/// Running attempts continue. A timer that loses the label before its turn is left alone. The
/// request can be repeated.
#[utoipa::path(post, path = "/v1/labels/{label}/pause", security(("token" = ["operate"])), operation_id = "pause_label", tag = "labels",
    params(("label" = String, Path, description = "The label"), Which),
    responses((status = 200, body = Changed))
)]
pub(super) async fn pause(
    State(app): State<App>,
    may: May<Operate>,
    InPath(label): InPath<String>,
    InQuery(which): InQuery<Which>,
) -> Result<(Extension<Details>, Json<Changed>), Problem> {
    switch(&app, &may, Switch::Pause, &label, &which).await
}

/// Resumes a page of the timers with a label, in the order of their ids.
///
/// Overdue timers are called at once, or skipped according to the option `misfire`.
#[utoipa::path(post, path = "/v1/labels/{label}/resume", security(("token" = ["operate"])), operation_id = "resume_label", tag = "labels",
    params(("label" = String, Path, description = "The label"), Which),
    responses((status = 200, body = Changed))
)]
pub(super) async fn resume(
    State(app): State<App>,
    may: May<Operate>,
    InPath(label): InPath<String>,
    InQuery(which): InQuery<Which>,
) -> Result<(Extension<Details>, Json<Changed>), Problem> {
    switch(&app, &may, Switch::Resume, &label, &which).await
}

async fn switch(
    app: &App,
    may: &May<Operate>,
    switch: Switch,
    label: &str,
    which: &Which,
) -> Result<(Extension<Details>, Json<Changed>), Problem> {
    let (timers, label) = (app.timers.change(may), parse_label(label)?);
    Ok(changed(
        switch.label(timers, &label, which.after.as_deref(), pages::rows(which.limit)).await?,
    ))
}

/// Returns the outcome, and notes the number of timers for the log of changes.
fn changed(done: BulkChange) -> (Extension<Details>, Json<Changed>) {
    let BulkChange { changed, unreadable, last, .. } = done;
    (Extension(Details::counted(changed)), Json(Changed { changed, unreadable, last }))
}
