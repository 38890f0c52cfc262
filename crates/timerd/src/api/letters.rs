//! Dead letters.

#![forbid(unsafe_code)]

use super::labels::parse_label;
use super::view::{self, Letter};
use super::{App, pages};
use crate::audit::Details;
use crate::extract::{InPath, InQuery, ToChange};
use crate::problem::Problem;
use crate::rights::{May, Operate};
use axum::Json;
use axum::extract::{Extension, State};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tourbillon_durable::text::parse_duration;
use utoipa::{IntoParams, ToSchema};

/// The dead letters to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Listed {
    /// The letters to list first, `oldest` (the default) or `newest`.
    #[serde(default)]
    #[param(inline)]
    order: Order,
    /// Only letters of timers with this label. All letters in between are read.
    label: Option<String>,
    /// Only letters that come after this number in this order.
    after: Option<u64>,
    /// The maximum number of letters, up to 1000. The default is 100.
    limit: Option<usize>,
}

/// The order of dead letters.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Oldest,
    Newest,
}

/// The dead letters to redrive.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only letters of timers with this label.
    label: Option<String>,
    /// Only letters with a number greater than this.
    after: Option<u64>,
    /// The maximum number of letters, up to 1000. The default is 100.
    limit: Option<usize>,
}

/// The options of a redrive.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct As {
    /// A new id for the timer, in case another timer now has its old id.
    r#as: Option<String>,
}

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
pub(super) struct Letters {
    dead_letters: Vec<Letter>,
    /// The value of `after` for the next page, if there is one. A page of large letters may end
    /// before its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// The result of an operation on a dead letter.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetterDone)]
pub(super) struct Done {
    number: u64,
    /// `deleted` or `redriven`.
    result: &'static str,
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

/// Lists dead letters.
#[utoipa::path(get, path = "/v1/dead-letters", operation_id = "list_dead_letters", tag = "dead letters", params(Listed), responses(
    (status = 200, body = Letters),
))]
pub(super) async fn list(
    State(app): State<App>,
    InQuery(listed): InQuery<Listed>,
) -> Result<Json<Letters>, Problem> {
    let label = listed.label.as_deref().map(parse_label).transpose()?;
    let (timers, label) = (&app.timers, label.as_ref());
    let page = |after, limit| async move {
        match (listed.order, label) {
            (Order::Oldest, None) => timers.dead_letters(after, limit).await,
            (Order::Newest, None) => timers.newest_dead_letters(after, limit).await,
            (Order::Oldest, Some(label)) => {
                timers.dead_letters_with_label(label, after, limit).await
            }
            (Order::Newest, Some(label)) => {
                timers.newest_dead_letters_with_label(label, after, limit).await
            }
        }
    };
    let limit = pages::rows(listed.limit);
    let (letters, next) = pages::read(listed.after, limit, |letter| letter.number, page).await?;
    Ok(Json(Letters { dead_letters: letters.iter().map(view::listed_letter).collect(), next }))
}

/// The dead letters to keep.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Kept {
    /// The number of letters to keep. With `0`, no letter is kept.
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
/// Keeps the latest `most` letters, unless they are older than `age`. At least one of `most` and
/// `age` is required.
#[utoipa::path(delete, path = "/v1/dead-letters", security(("token" = ["operate"])), operation_id = "trim_dead_letters",
    tag = "dead letters", params(Kept), responses((status = 200, body = Deleted))
)]
pub(super) async fn trim(
    State(app): State<App>,
    may: May<Operate>,
    InQuery(Kept { most, age }): InQuery<Kept>,
) -> Result<(Extension<Details>, Json<Deleted>), Problem> {
    if most.is_none() && age.is_none() {
        return Err(Problem::invalid("expected most, age or both"));
    }
    let age = age.as_deref().map(parse_duration).transpose();
    let age = age.map_err(|why| Problem::invalid(format!("age: {why}")))?;
    let (most, age) = (most.unwrap_or(u64::MAX), age.unwrap_or(Duration::MAX));
    let deleted = app.timers.change(&may).trim_dead_letters(most, age).await?;
    Ok((Extension(Details::counted(deleted)), Json(Deleted { deleted })))
}

/// Shows a dead letter.
#[utoipa::path(get, path = "/v1/dead-letters/{number}", operation_id = "get_dead_letter",
    tag = "dead letters", params(("number" = u64, Path, description = "The number of the letter")),
    responses(
    (status = 200, body = Letter),
    (status = 404, body = Problem),
))]
pub(super) async fn get(
    State(app): State<App>,
    InPath(number): InPath<u64>,
) -> Result<Json<Letter>, Problem> {
    let found = app.timers.dead_letter(number).await?;
    found.map(|letter| Json(view::letter(&letter))).ok_or_else(|| missing(number))
}

/// Deletes a dead letter.
#[utoipa::path(delete, path = "/v1/dead-letters/{number}", security(("token" = ["operate"])), operation_id = "delete_dead_letter",
    tag = "dead letters", params(("number" = u64, Path, description = "The number of the letter")),
    responses((status = 200, body = Done),
    (status = 404, body = Problem),
))]
pub(super) async fn delete(
    State(app): State<App>,
    may: May<Operate>,
    InPath(number): InPath<u64>,
) -> Result<Json<Done>, Problem> {
    match app.timers.change(&may).delete_dead_letter(number).await? {
        true => Ok(Json(Done { number, result: "deleted" })),
        false => Err(missing(number)),
    }
}

/// Redrives a dead letter.
///
/// The timer is due at once, with all its attempts.
#[utoipa::path(post, path = "/v1/dead-letters/{number}/redrive",
    security(("token" = ["operate"])), operation_id = "redrive_dead_letter", tag = "dead letters",
    params(("number" = u64, Path, description = "The number of the letter"), As),
    responses(
        (status = 200, body = Done),
        (status = 404, body = Problem),
        (status = 409, description = "A timer with this id exists", body = Problem),
    )
)]
pub(super) async fn redrive(
    State(app): State<App>,
    may: May<Operate>,
    InPath(number): InPath<u64>,
    InQuery(As { r#as }): InQuery<As>,
) -> Result<Json<Done>, Problem> {
    let done = match r#as {
        Some(id) => {
            let ToChange(id) = ToChange::new(id)?;
            app.timers.change(&may).redrive_as(number, &id).await?
        }
        None => app.timers.change(&may).redrive(number).await?,
    };
    match done {
        true => Ok(Json(Done { number, result: "redriven" })),
        false => Err(missing(number)),
    }
}

/// Redrives a page of dead letters, oldest first.
#[utoipa::path(post, path = "/v1/dead-letters/redrive", security(("token" = ["operate"])), operation_id = "redrive_dead_letters",
    tag = "dead letters", params(Which),
    responses((status = 200, body = Redriven))
)]
pub(super) async fn redrive_all(
    State(app): State<App>,
    may: May<Operate>,
    InQuery(which): InQuery<Which>,
) -> Result<(Extension<Details>, Json<Redriven>), Problem> {
    let (timers, limit) = (app.timers.change(&may), pages::rows(which.limit));
    let page = match which.label.as_deref().map(parse_label).transpose()? {
        None => timers.redrive_dead_letters(which.after, limit).await?,
        Some(label) => timers.redrive_label(&label, which.after, limit).await?,
    };
    let (redriven, existing, unreadable) = (page.redriven, page.existing, page.unreadable);
    let details = Details::counted(redriven);
    Ok((Extension(details), Json(Redriven { redriven, existing, unreadable, last: page.last })))
}

fn missing(number: u64) -> Problem {
    Problem::not_found(format!("there is no dead letter {number}"))
}
