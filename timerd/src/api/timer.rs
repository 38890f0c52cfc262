//! Timers.

#![forbid(unsafe_code)]

use super::super::call::numbered;
use super::super::problem::Problem;
use super::super::target::Target;
use super::super::trace;
use super::super::webhook::Webhook;
use super::App;
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use timers::{
    Settings, Switch, TimerView, parse_position, parse_state, parse_time, show_position, show_time,
    state_name,
};
use tourbillon_durable::{Cancelled, DurableError, DurableTimer, Inserted};
use utoipa::{IntoParams, ToSchema};

/// The maximum number of timers in a response.
const LONGEST_PAGE: usize = 1000;

/// A timer to insert.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTimer {
    /// The request that is made when the timer is due.
    webhook: Webhook,
    /// The time or the rule, and the options.
    schedule: Settings,
}

/// The result of an operation on a timer.
#[derive(Serialize, ToSchema)]
pub(super) struct Done {
    id: String,
    /// After an insert `new`, `kept`, `next`, `replaced` or `updated`. After a cancel `removed`, or
    /// `running` if an attempt is still running. After a pause or resume the state of the timer.
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
}

/// The timers to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only timers in this state: `resting`, `running`, `pausing`, `cancelling` or `paused`.
    /// Excludes `due_from` and `due_before`.
    state: Option<String>,
    /// Only timers that are due at this time or later.
    due_from: Option<String>,
    /// Only timers that are due before this time.
    due_before: Option<String>,
    /// The maximum number of timers. The default is 100, and at most 1000 are listed.
    limit: Option<usize>,
    /// The `next` of the previous page.
    after: Option<String>,
}

/// A page of timers, in the order of their due times.
#[derive(Serialize, ToSchema)]
pub(super) struct Timers {
    timers: Vec<TimerView>,
    /// The value of `after` for the next page, if there may be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Inserts a timer.
///
/// The option `existing` decides what happens if the id exists.
#[utoipa::path(put, path = "/v1/timers/{id}", tag = "timers", request_body = NewTimer, responses(
    (status = 201, description = "The timer is new", body = Done),
    (status = 200, description = "A timer with this id existed", body = Done),
    (status = 400, body = Problem),
    (status = 409, description = "A timer with this id exists, and `existing` is `refuse`", body = Problem),
))]
pub(super) async fn put(
    State(app): State<App>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Json<NewTimer>, JsonRejection>,
) -> Result<(StatusCode, Json<Done>), Problem> {
    let Json(NewTimer { webhook, schedule }) =
        body.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let target = Target::try_from(&webhook);
    let target = target.map_err(|error| Problem::invalid(error.to_string()))?;
    app.caller.check(&target).map_err(|fault| Problem::invalid(fault.to_string()))?;
    let (when, options) = schedule.read_over(app.caller.options())?;
    let options = trace::carried(&headers, options);
    let options = numbered(options).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no random number: {error}"))
    })?;
    let inserted = app.timers.insert(&id, webhook.to_payload()?, when, options).await;
    let (status, result) = match inserted.map_err(DurableError::from)? {
        Inserted::New => (StatusCode::CREATED, "new"),
        Inserted::Kept => (StatusCode::OK, "kept"),
        Inserted::Next => (StatusCode::OK, "next"),
        Inserted::Replaced => (StatusCode::OK, "replaced"),
        Inserted::Updated => (StatusCode::OK, "updated"),
        _ => (StatusCode::OK, "inserted"),
    };
    let due = app.timers.get(&id).await?.map(|timer| show_time(timer.due));
    Ok((status, Json(Done { id, result, due })))
}

/// Shows a timer.
#[utoipa::path(get, path = "/v1/timers/{id}", tag = "timers", responses(
    (status = 200, body = TimerView),
    (status = 404, body = Problem),
))]
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<TimerView>, Problem> {
    let found = app.timers.get(&id).await?;
    found.map(|timer| Json(TimerView::new(&timer))).ok_or_else(|| missing(&id))
}

/// Lists timers in the order of their due times.
#[utoipa::path(get, path = "/v1/timers", tag = "timers", params(Which), responses(
    (status = 200, body = Timers),
    (status = 400, body = Problem),
))]
pub(super) async fn list(
    State(app): State<App>,
    asked: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Timers>, Problem> {
    let Query(which) = asked.map_err(|error| Problem::invalid(error.body_text()))?;
    let limit = which.limit.unwrap_or(100).min(LONGEST_PAGE);
    let state = which.state.as_deref().map(parse_state).transpose();
    let state = state.map_err(|why| Problem::invalid(format!("state: {why}")))?;
    if state.is_some() && (which.due_from.is_some() || which.due_before.is_some()) {
        return Err(Problem::invalid("state: cannot be combined with due_from or due_before"));
    }
    let time = |name: &str, text: &Option<String>| {
        let time = text.as_deref().map(parse_time).transpose();
        time.map_err(|why| Problem::invalid(format!("{name}: {why}")))
    };
    let from = time("due_from", &which.due_from)?.map_or(Bound::Unbounded, Bound::Included);
    let before = time("due_before", &which.due_before)?.map_or(Bound::Unbounded, Bound::Excluded);
    let after = which.after.as_deref().map(parse_position).transpose();
    let mut last = after.map_err(|why| Problem::invalid(format!("after: {why}")))?;
    let mut found: Vec<DurableTimer> = Vec::new();
    while found.len() < limit {
        let room = limit - found.len();
        let page = match state {
            Some(state) => app.timers.list_state(state, last, room).await?,
            None => app.timers.list_due((from, before), last, room).await?,
        };
        let Some(end) = page.last() else { break };
        last = Some(end.position());
        found.extend(page);
    }
    let next = found.last().filter(|_| found.len() == limit);
    let next = next.map(show_position);
    Ok(Json(Timers { timers: found.iter().map(TimerView::new).collect(), next }))
}

/// Cancels a timer.
///
/// An attempt that is running continues, but is not retried.
#[utoipa::path(delete, path = "/v1/timers/{id}", tag = "timers", responses(
    (status = 200, body = Done),
    (status = 404, body = Problem),
))]
pub(super) async fn cancel(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Done>, Problem> {
    let result = match app.timers.cancel(&id).await? {
        Cancelled::NotFound => return Err(missing(&id)),
        Cancelled::Running => "running",
        _ => "removed",
    };
    Ok(Json(Done { id, result, due: None }))
}

/// Pauses a timer.
///
/// An attempt that is running continues. No other begins until the timer is resumed.
#[utoipa::path(post, path = "/v1/timers/{id}/pause", tag = "timers", responses(
    (status = 200, body = Done),
    (status = 404, body = Problem),
))]
pub(super) async fn pause(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Done>, Problem> {
    switch(&app, id, Switch::Pause).await
}

/// Resumes a timer.
///
/// If it is overdue, it is called at once, or skipped by its option `misfire`.
#[utoipa::path(post, path = "/v1/timers/{id}/resume", tag = "timers", responses(
    (status = 200, body = Done),
    (status = 404, body = Problem),
))]
pub(super) async fn resume(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Done>, Problem> {
    switch(&app, id, Switch::Resume).await
}

async fn switch(app: &App, id: String, switch: Switch) -> Result<Json<Done>, Problem> {
    if !switch.timer(&app.timers, &id).await? {
        return Err(missing(&id));
    }
    let timer = app.timers.get(&id).await?;
    let result = timer.as_ref().map_or("gone", |timer| state_name(timer.state));
    Ok(Json(Done { id, result, due: timer.map(|timer| show_time(timer.due)) }))
}

fn missing(id: &str) -> Problem {
    Problem::not_found(format!("there is no timer {id:?}"))
}
