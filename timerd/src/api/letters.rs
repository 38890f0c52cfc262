//! Dead letters.

#![forbid(unsafe_code)]

use super::super::problem::Problem;
use super::App;
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use timers::{LetterView, parse_duration};
use utoipa::{IntoParams, ToSchema};

/// The dead letters to list or to redrive.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only letters with a greater number than this.
    after: Option<u64>,
    /// The maximum number of letters. The default is 100, and a page has at most 1000.
    limit: Option<usize>,
}

/// The way in which a letter is redriven.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct As {
    /// A new id for the timer, in case another timer has its id now.
    r#as: Option<String>,
}

/// A page of dead letters, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Letters {
    dead_letters: Vec<LetterView>,
}

/// The outcome of redriving a page of dead letters.
#[derive(Serialize, ToSchema)]
pub(super) struct Redriven {
    /// The number of letters that were redriven.
    redriven: u64,
    /// The number of letters that stay because a timer with their id exists.
    existing: u64,
    /// The number of letters that stay because they cannot be read.
    unreadable: u64,
    /// The number of the last letter of the page, which is the value of `after` for the next page.
    /// `null` if the page was empty.
    last: Option<u64>,
}

type Number = Result<Path<u64>, PathRejection>;

/// Lists dead letters, oldest first.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead letters", params(Which), responses(
    (status = 200, body = Letters),
))]
pub(super) async fn list(
    State(app): State<App>,
    asked: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Letters>, Problem> {
    let Query(which) = asked.map_err(|error| Problem::invalid(error.body_text()))?;
    let letters = app.timers.dead_letters(which.after, which.limit.unwrap_or(100)).await?;
    Ok(Json(Letters { dead_letters: letters.iter().map(LetterView::new).collect() }))
}

/// The dead letters to keep.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Kept {
    /// The number of letters that are kept, of which `0` is none.
    most: Option<u64>,
    /// The maximum age of a letter, such as `30d`.
    age: Option<String>,
}

/// The outcome of deleting dead letters.
#[derive(Serialize, ToSchema)]
pub(super) struct Deleted {
    /// The number of letters that were deleted.
    deleted: u64,
}

/// Deletes dead letters, oldest first.
///
/// Of the letters stay the latest `most`, and of these the ones that are not older than `age`. One
/// of the two is needed.
#[utoipa::path(delete, path = "/v1/dead-letters", tag = "dead letters", params(Kept), responses(
    (status = 200, body = Deleted),
    (status = 400, body = Problem),
))]
pub(super) async fn trim(
    State(app): State<App>,
    asked: Result<Query<Kept>, QueryRejection>,
) -> Result<Json<Deleted>, Problem> {
    let Query(Kept { most, age }) = asked.map_err(|error| Problem::invalid(error.body_text()))?;
    if most.is_none() && age.is_none() {
        return Err(Problem::invalid("expected most, age or both"));
    }
    let age = age.as_deref().map(parse_duration).transpose();
    let age = age.map_err(|why| Problem::invalid(format!("age: {why}")))?;
    let (most, age) = (most.unwrap_or(u64::MAX), age.unwrap_or(Duration::MAX));
    Ok(Json(Deleted { deleted: app.timers.trim_dead_letters(most, age).await? }))
}

/// Shows a dead letter.
#[utoipa::path(get, path = "/v1/dead-letters/{number}", tag = "dead letters", responses(
    (status = 200, body = LetterView),
    (status = 404, body = Problem),
))]
pub(super) async fn get(
    State(app): State<App>,
    number: Number,
) -> Result<Json<LetterView>, Problem> {
    let number = read(number)?;
    let found = app.timers.dead_letter(number).await?;
    found.map(|letter| Json(LetterView::new(&letter))).ok_or_else(|| missing(number))
}

/// Deletes a dead letter.
#[utoipa::path(delete, path = "/v1/dead-letters/{number}", tag = "dead letters", responses(
    (status = 200),
    (status = 404, body = Problem),
))]
pub(super) async fn delete(State(app): State<App>, number: Number) -> Result<Json<Value>, Problem> {
    let number = read(number)?;
    match app.timers.delete_dead_letter(number).await? {
        true => Ok(Json(json!({ "number": number, "result": "deleted" }))),
        false => Err(missing(number)),
    }
}

/// Redrives a dead letter.
///
/// Its timer is due at once, with all its attempts.
#[utoipa::path(post, path = "/v1/dead-letters/{number}/redrive", tag = "dead letters", params(As),
    responses(
        (status = 200),
        (status = 404, body = Problem),
        (status = 409, description = "A timer with this id exists", body = Problem),
    )
)]
pub(super) async fn redrive(
    State(app): State<App>,
    number: Number,
    asked: Result<Query<As>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let number = read(number)?;
    let Query(As { r#as }) = asked.map_err(|error| Problem::invalid(error.body_text()))?;
    let done = match r#as {
        Some(id) => app.timers.redrive_as(number, &id).await?,
        None => app.timers.redrive(number).await?,
    };
    match done {
        true => Ok(Json(json!({ "number": number, "result": "redriven" }))),
        false => Err(missing(number)),
    }
}

/// Redrives a page of dead letters, oldest first.
#[utoipa::path(post, path = "/v1/dead-letters/redrive", tag = "dead letters", params(Which),
    responses((status = 200, body = Redriven))
)]
pub(super) async fn redrive_all(
    State(app): State<App>,
    asked: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Redriven>, Problem> {
    let Query(which) = asked.map_err(|error| Problem::invalid(error.body_text()))?;
    let page = app.timers.redrive_dead_letters(which.after, which.limit.unwrap_or(100)).await?;
    let (redriven, existing, unreadable) = (page.redriven, page.existing, page.unreadable);
    Ok(Json(Redriven { redriven, existing, unreadable, last: page.last }))
}

fn read(number: Number) -> Result<u64, Problem> {
    number.map(|Path(number)| number).map_err(|error| Problem::invalid(error.body_text()))
}

fn missing(number: u64) -> Problem {
    Problem::not_found(format!("there is no dead letter {number}"))
}
