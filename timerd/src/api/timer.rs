//! Timers.

#![forbid(unsafe_code)]

use super::super::call::numbered;
use super::super::extract::{InBody, InPath, InQuery};
use super::super::problem::Problem;
use super::super::target::Target;
use super::super::trace;
use super::super::webhook::Webhook;
use super::App;
use super::view::{self, Timer};
use axum::Json;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use timers::{
    Settings, Switch, parse_position, parse_state, parse_time, show_position, show_time, state_name,
};
use tourbillon_durable::{Cancelled, DurableError, Existing, Inserted, Options, When};
use utoipa::{IntoParams, ToSchema};

/// The maximum number of timers in a response.
const LONGEST_PAGE: usize = 1000;

/// The headers of a timer that differ between two requests for the same timer.
const OF_REQUEST: [&str; 3] = ["traceparent", "tracestate", "webhook-insert"];

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
    timers: Vec<Timer>,
    /// The value of `after` for the next page, if there is one. A page with large timers ends
    /// before its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Inserts a timer.
///
/// The option `existing` decides what happens if the id exists. A request that is repeated is
/// answered with `kept`, even if the option is `refuse`, unless its time is relative by `after`.
#[utoipa::path(put, path = "/v1/timers/{id}", operation_id = "put_timer", tag = "timers",
    params(("id" = String, Path, description = "The id of the timer")), request_body = NewTimer,
    responses(
        (status = 201, description = "The timer is new", body = Done),
        (status = 200, description = "A timer with this id existed", body = Done),
        (status = 409, description = "Another timer has this id, and `existing` is `refuse`", body = Problem),
    )
)]
pub(super) async fn put(
    State(app): State<App>,
    InPath(id): InPath<String>,
    headers: HeaderMap,
    InBody(NewTimer { webhook, schedule }): InBody<NewTimer>,
) -> Result<(StatusCode, Json<Done>), Problem> {
    let target = Target::try_from(&webhook);
    let target = target.map_err(|error| Problem::invalid(error.to_string()))?;
    app.caller.check(&target).map_err(|fault| Problem::invalid(fault.to_string()))?;
    let (when, plain) = schedule.read_over(app.caller.options())?;
    let options = trace::carried(&headers, plain.clone());
    let options = numbered(options).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no random number: {error}"))
    })?;
    let payload = webhook.to_payload()?;
    let inserted = app.timers.insert(&id, payload.clone(), when, options).await;
    let inserted = match inserted.map_err(DurableError::from) {
        Err(DurableError::Exists) if is_equal(&app, &id, &payload, when, plain).await? => {
            Inserted::Kept
        }
        inserted => inserted?,
    };
    let (status, result) = match inserted {
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

/// Returns `true` if the timer with an id is the one that a request describes, so that the request
/// may be a repetition. The headers of a request differ, and the options are those without them.
async fn is_equal(
    app: &App,
    id: &str,
    payload: &[u8],
    when: When,
    options: Options,
) -> Result<bool, Problem> {
    let Some(timer) = app.timers.get(id).await? else { return Ok(false) };
    let is_same_time = match when {
        When::At(at) => show_time(at) == show_time(timer.planned),
        When::ByRule => true,
        _ => false,
    };
    let own = timer.options.get_headers().filter(|(name, _)| OF_REQUEST.contains(name));
    let options = own.fold(options, |options, (name, value)| options.header(name, value));
    let options = options.existing(Existing::default());
    Ok(is_same_time && *payload == *timer.payload && options == timer.options)
}

/// Shows a timer.
#[utoipa::path(get, path = "/v1/timers/{id}", operation_id = "get_timer", tag = "timers",
    params(("id" = String, Path, description = "The id of the timer")), responses(
    (status = 200, body = Timer),
    (status = 404, body = Problem),
))]
pub(super) async fn get(
    State(app): State<App>,
    InPath(id): InPath<String>,
) -> Result<Json<Timer>, Problem> {
    let found = app.timers.get(&id).await?;
    found.map(|timer| Json(view::timer(&timer))).ok_or_else(|| missing(&id))
}

/// Lists timers in the order of their due times.
#[utoipa::path(get, path = "/v1/timers", operation_id = "list_timers", tag = "timers", params(Which),
    responses((status = 200, body = Timers))
)]
pub(super) async fn list(
    State(app): State<App>,
    InQuery(which): InQuery<Which>,
) -> Result<Json<Timers>, Problem> {
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
    let after = after.map_err(|why| Problem::invalid(format!("after: {why}")))?;
    let page = async |after, limit| match state {
        Some(state) => app.timers.list_state(state, after, limit).await,
        None => app.timers.list_due((from, before), after, limit).await,
    };
    // The store ends a page at a number of bytes, so another request is needed for the rest.
    let found = page(after, limit).await?;
    let mut next = None;
    if let Some(last) = found.last()
        && !page(Some(last.position()), 1).await?.is_empty()
    {
        next = Some(show_position(&last.position()));
    }
    Ok(Json(Timers { timers: found.iter().map(view::listed_timer).collect(), next }))
}

/// Cancels a timer.
///
/// An attempt that is running continues, but is not retried.
#[utoipa::path(delete, path = "/v1/timers/{id}", operation_id = "cancel_timer", tag = "timers",
    params(("id" = String, Path, description = "The id of the timer")), responses(
    (status = 200, body = Done),
    (status = 404, body = Problem),
))]
pub(super) async fn cancel(
    State(app): State<App>,
    InPath(id): InPath<String>,
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
#[utoipa::path(post, path = "/v1/timers/{id}/pause", operation_id = "pause_timer", tag = "timers",
    params(("id" = String, Path, description = "The id of the timer")), responses(
    (status = 200, body = Done),
    (status = 404, body = Problem),
))]
pub(super) async fn pause(
    State(app): State<App>,
    InPath(id): InPath<String>,
) -> Result<Json<Done>, Problem> {
    switch(&app, id, Switch::Pause).await
}

/// Resumes a timer.
///
/// If it is overdue, it is called at once, or skipped by its option `misfire`.
#[utoipa::path(post, path = "/v1/timers/{id}/resume", operation_id = "resume_timer", tag = "timers",
    params(("id" = String, Path, description = "The id of the timer")), responses(
    (status = 200, body = Done),
    (status = 404, body = Problem),
))]
pub(super) async fn resume(
    State(app): State<App>,
    InPath(id): InPath<String>,
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
