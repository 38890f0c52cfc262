//! Timers.

#![forbid(unsafe_code)]

use super::condition::{Condition, is_known, tag};
use super::labels::parse_label;
use super::view::{self, Timer};
use super::{App, pages};
use crate::call::{INSERT, numbered};
use crate::extract::{InBody, InPath, InQuery, ToChange};
use crate::problem::Problem;
use crate::rights::{May, Operate, Schedule};
use crate::target::Target;
use crate::trace;
use crate::webhook::Webhook;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headers::HeaderMapExt;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use tourbillon_durable::text::{
    ExistingName, NewTime, Settings, Switch, parse_position, parse_state, parse_time,
    show_position, show_time, state_name,
};
use tourbillon_durable::{
    Cancelled, DurableError, DurableTimer, Existing, Inserted, Options, TimerState, When,
};
use utoipa::{IntoParams, ToSchema};

/// The headers of a timer that differ between a request and its repetition.
const OF_REQUEST: [&str; 3] = ["traceparent", "tracestate", INSERT];

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
    /// `new`, `kept`, `next`, `replaced` or `updated` after an insert. `removed` after a cancel, or
    /// `running` if an attempt is still running. The state of the timer after a move, run,
    /// pause or resume.
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
}

/// The timers to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only timers in this state: `resting`, `retrying`, `running`, `pausing`, `cancelling` or
    /// `paused`. Cannot be combined with `due_from` or `due_before`.
    state: Option<String>,
    /// Only timers with this label, ordered by id. Cannot be combined with `state`, `due_from` or
    /// `due_before`.
    label: Option<String>,
    /// Only timers that are due at this time or later.
    due_from: Option<String>,
    /// Only timers that are due before this time.
    due_before: Option<String>,
    /// The maximum number of timers, up to 1000. The default is 100.
    limit: Option<usize>,
    /// The `next` of the previous page.
    after: Option<String>,
}

/// A page of timers, ordered by due time or, with a label, by id.
#[derive(Serialize, ToSchema)]
pub(super) struct Timers {
    timers: Vec<Timer>,
    /// The value of `after` for the next page, if there is one. A page of large timers may end
    /// before its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Inserts a timer.
///
/// The option `existing` decides what happens if the id exists. A repeated request is answered with
/// `kept`, even if the option is `refuse`, unless its time is relative (`after`).
///
/// With `If-Match`, the timer is inserted only over an existing timer with one of the given tags,
/// and `existing` is `update` by default, which keeps a pause. Of several requests with the same
/// tag, only one succeeds. With `If-None-Match: *`, the timer is inserted only if the id is free. A
/// repeated request is answered with `kept` here as well.
#[utoipa::path(put, path = "/v1/timers/{id}", security(("token" = ["schedule"])), operation_id = "put_timer", tag = "timers",
    params(
        ("id" = String, Path, description = "The id of the timer"),
        ("If-Match" = Option<String>, Header, nullable = false, description = "Tags of the timer, or `*` for any timer"),
        ("If-None-Match" = Option<String>, Header, nullable = false, description = "`*`"),
    ),
    request_body = NewTimer,
    responses(
        (status = 201, description = "The timer is new", body = Done),
        (status = 200, description = "A timer with this id existed", body = Done),
        (status = 409, description = "Another timer has this id, and `existing` is `refuse`", body = Problem),
        (status = 412, description = "The timer does not exist or has another tag, or exists with \
            `If-None-Match: *`. Nothing was changed", body = Problem),
    )
)]
pub(super) async fn put(
    State(app): State<App>,
    may: May<Schedule>,
    ToChange(id): ToChange,
    condition: Condition,
    headers: HeaderMap,
    InBody(NewTimer { webhook, mut schedule }): InBody<NewTimer>,
) -> Result<(StatusCode, Json<Done>), Problem> {
    let payload = webhook.to_payload()?;
    let target = Target::try_from(webhook)?;
    app.caller.check(&target).map_err(|fault| Problem::invalid(fault.to_string()))?;
    match condition {
        Condition::Any => {}
        Condition::New => schedule.existing = Some(ExistingName::Refuse),
        Condition::Over(_) => drop(schedule.existing.get_or_insert(ExistingName::Update)),
    }
    let (when, plain) = schedule.read_over(app.caller.options())?;
    let options = trace::carried(&headers, plain.clone());
    let options = numbered(options).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no random number: {error}"))
    })?;
    let timers = app.timers.change(&may);
    let insert = |options| timers.insert(&id, payload.clone(), when, options);
    let inserted = match &condition {
        Condition::Any | Condition::New => insert(options).await.map_err(DurableError::from),
        Condition::Over(tags) => {
            let over = async |number: Option<String>| {
                Ok(insert(options.clone().only_over(INSERT, number.as_deref())).await?)
            };
            tags.change(timers, &id, over).await
        }
    };
    let inserted = match inserted {
        Err(DurableError::Exists | DurableError::Changed)
            if is_equal(&app, &id, &payload, when, plain.clone()).await? =>
        {
            Inserted::Kept
        }
        Err(error @ DurableError::Exists) if matches!(condition, Condition::New) => {
            return Err(Problem::new(StatusCode::PRECONDITION_FAILED, error.to_string()));
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

/// Returns `true` if the timer with this id matches a request, which may then be a repetition.
/// `options` lack the headers [`OF_REQUEST`], which differ between repetitions.
async fn is_equal(
    app: &App,
    id: &str,
    payload: &[u8],
    when: When,
    options: Options,
) -> Result<bool, Problem> {
    let Some(timer) = app.timers.get(id).await? else { return Ok(false) };
    // A next timer was put later, and a cancelled timer ends with its attempt.
    if timer.next.is_some() || timer.state == TimerState::Cancelling {
        return Ok(false);
    }
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
///
/// The `ETag` changes with each request that puts the timer, but not with attempts and pauses. A
/// response without a body therefore means that the webhook and the schedule are unchanged, and
/// says nothing about the state. A timer that another program inserted has no `ETag`.
#[utoipa::path(get, path = "/v1/timers/{id}", operation_id = "get_timer", tag = "timers",
    params(
        ("id" = String, Path, description = "The id of the timer"),
        ("If-None-Match" = Option<String>, Header, nullable = false, description = "Tags of the timer that are known"),
    ),
    responses(
        (status = 200, body = Timer, headers(("ETag" = String, description = "The tag of what was put"))),
        (status = 304, description = "What was put has one of the tags that are known",
            headers(("ETag" = String, description = "The tag of what was put"))),
        (status = 404, body = Problem),
    )
)]
pub(super) async fn get(
    State(app): State<App>,
    InPath(id): InPath<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let timer = app.timers.get(&id).await?.ok_or_else(|| missing(&id))?;
    let tag = tag(&timer);
    let mut response = match &tag {
        Some(tag) if is_known(&headers, tag)? => StatusCode::NOT_MODIFIED.into_response(),
        _ => Json(view::timer(&timer)).into_response(),
    };
    if let Some(tag) = tag {
        response.headers_mut().typed_insert(tag);
    }
    // With the tag, a cache would revalidate an old state.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Lists timers, ordered by due time or, with a label, by id.
#[utoipa::path(get, path = "/v1/timers", operation_id = "list_timers", tag = "timers", params(Which),
    responses((status = 200, body = Timers))
)]
pub(super) async fn list(
    State(app): State<App>,
    InQuery(which): InQuery<Which>,
) -> Result<Json<Timers>, Problem> {
    if let Some(label) = &which.label {
        return list_label(&app, label, &which).await;
    }
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
    let timers = &app.timers;
    let page = |after, limit| async move {
        match state {
            Some(state) => timers.list_state(state, after, limit).await,
            None => timers.list_due((from, before), after, limit).await,
        }
    };
    let limit = pages::rows(which.limit);
    let (found, next) = pages::read(after, limit, DurableTimer::position, page).await?;
    let next = next.as_ref().map(show_position);
    Ok(Json(Timers { timers: found.iter().map(view::listed_timer).collect(), next }))
}

async fn list_label(app: &App, label: &str, which: &Which) -> Result<Json<Timers>, Problem> {
    if which.state.is_some() || which.due_from.is_some() || which.due_before.is_some() {
        let what = "label: cannot be combined with state, due_from or due_before";
        return Err(Problem::invalid(what));
    }
    let label = &parse_label(label)?;
    let page = |after: Option<String>, limit| async move {
        app.timers.list_label(label, after.as_deref(), limit).await
    };
    let (after, limit) = (which.after.clone(), pages::rows(which.limit));
    let (found, next) = pages::read(after, limit, |timer| timer.id.clone(), page).await?;
    Ok(Json(Timers { timers: found.iter().map(view::listed_timer).collect(), next }))
}

/// Cancels a timer.
///
/// A running attempt continues, but is not retried.
#[utoipa::path(delete, path = "/v1/timers/{id}", security(("token" = ["schedule"])), operation_id = "cancel_timer", tag = "timers",
    params(
        ("id" = String, Path, description = "The id of the timer"),
        ("If-Match" = Option<String>, Header, nullable = false, description = "Tags of the timer, or `*` for any timer"),
    ),
    responses(
        (status = 200, body = Done),
        (status = 404, body = Problem),
        (status = 412, description = "There is `If-Match`, and the timer does not exist or has another \
            tag", body = Problem),
    )
)]
pub(super) async fn cancel(
    State(app): State<App>,
    may: May<Schedule>,
    ToChange(id): ToChange,
    condition: Condition,
) -> Result<Json<Done>, Problem> {
    let timers = app.timers.change(&may);
    let cancelled = match condition {
        Condition::Any => timers.cancel(&id).await?,
        Condition::New => return Err(Problem::invalid("if-none-match: expected if-match")),
        Condition::Over(tags) => {
            let only = async |number: Option<String>| {
                timers.cancel_only(&id, INSERT, number.as_deref()).await
            };
            tags.change(timers, &id, only).await?
        }
    };
    let result = match cancelled {
        Cancelled::NotFound => return Err(missing(&id)),
        Cancelled::Running => "running",
        _ => "removed",
    };
    Ok(Json(Done { id, result, due: None }))
}

/// Moves a timer to another time.
///
/// The webhook is called at the new time only, with all its attempts. If the timer repeats, this
/// moves its next delivery. The `ETag` does not change.
#[utoipa::path(post, path = "/v1/timers/{id}/move", security(("token" = ["schedule"])), operation_id = "move_timer", tag = "timers",
    params(("id" = String, Path, description = "The id of the timer")),
    request_body = NewTime,
    responses(
        (status = 200, body = Done),
        (status = 404, body = Problem),
        (status = 409, description = "An attempt of the timer is running", body = Problem),
    )
)]
pub(super) async fn move_to(
    State(app): State<App>,
    may: May<Schedule>,
    ToChange(id): ToChange,
    InBody(time): InBody<NewTime>,
) -> Result<Json<Done>, Problem> {
    let moved = app.timers.change(&may).reset(&id, time.read()?).await?;
    changed(&app, id, moved).await
}

/// Calls the webhook of a timer at once.
///
/// A timer without a rule is called now instead of later. A timer that repeats is called once
/// more, and its plan stays as it is. A timer that waits for a retry is retried now. A paused
/// timer gets one call, and stays paused. A timer that is due already is unchanged. The `ETag`
/// does not change.
#[utoipa::path(post, path = "/v1/timers/{id}/run", security(("token" = ["operate"])), operation_id = "run_timer", tag = "timers",
    params(("id" = String, Path, description = "The id of the timer")), responses(
    (status = 200, body = Done),
    (status = 404, body = Problem),
    (status = 409, description = "An attempt of the timer is running", body = Problem),
))]
pub(super) async fn run(
    State(app): State<App>,
    may: May<Operate>,
    ToChange(id): ToChange,
) -> Result<Json<Done>, Problem> {
    let found = app.timers.change(&may).run_now(&id).await?;
    changed(&app, id, found).await
}

/// Pauses a timer.
///
/// A running attempt continues. No new attempt begins until the timer is resumed.
#[utoipa::path(post, path = "/v1/timers/{id}/pause", security(("token" = ["operate"])), operation_id = "pause_timer", tag = "timers",
    params(("id" = String, Path, description = "The id of the timer")), responses(
    (status = 200, body = Done),
    (status = 404, body = Problem),
))]
pub(super) async fn pause(
    State(app): State<App>,
    may: May<Operate>,
    ToChange(id): ToChange,
) -> Result<Json<Done>, Problem> {
    let found = Switch::Pause.timer(app.timers.change(&may), &id).await?;
    changed(&app, id, found).await
}

/// Resumes a timer.
///
/// If the timer is overdue, its webhook is called at once, or skipped according to the option
/// `misfire`.
#[utoipa::path(post, path = "/v1/timers/{id}/resume", security(("token" = ["operate"])), operation_id = "resume_timer", tag = "timers",
    params(("id" = String, Path, description = "The id of the timer")), responses(
    (status = 200, body = Done),
    (status = 404, body = Problem),
))]
pub(super) async fn resume(
    State(app): State<App>,
    may: May<Operate>,
    ToChange(id): ToChange,
) -> Result<Json<Done>, Problem> {
    let found = Switch::Resume.timer(app.timers.change(&may), &id).await?;
    changed(&app, id, found).await
}

/// Returns the present state of a timer, unless it was not found.
async fn changed(app: &App, id: String, found: bool) -> Result<Json<Done>, Problem> {
    if !found {
        return Err(missing(&id));
    }
    let timer = app.timers.get(&id).await?;
    let result = timer.as_ref().map_or("gone", |timer| state_name(timer.state));
    Ok(Json(Done { id, result, due: timer.map(|timer| show_time(timer.due)) }))
}

fn missing(id: &str) -> Problem {
    Problem::not_found(format!("there is no timer {id:?}"))
}
