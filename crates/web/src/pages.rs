//! The routes of the page.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::forms::Form;
use crate::site::TimersWeb;
use crate::view::{self, Lists, address};
use crate::visit::Visit;
use axum::Router;
use axum::extract::{FromRequestParts, OriginalUri, Query};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{CONTENT_TYPE, LOCATION};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use maud::Markup;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tourbillon_durable::{LoggedAttempt, TimerState};

/// The number of rows in a table.
const ROWS: usize = 50;

/// The number of newest dead letters that are searched for the letters of a timer.
const SEARCHED: usize = 500;

/// The query of an address.
struct Asked<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let read = Query::from_request_parts(parts, state).await;
        read.map(|Query(asked)| Self(asked)).map_err(|error| Failure::invalid(error.body_text()))
    }
}

#[derive(Deserialize)]
struct Timer {
    id: String,
}

#[derive(Deserialize)]
struct Letter {
    number: u64,
}

/// The subject of a button. It is in the address and not in the form, because browsers change line
/// feeds in forms.
#[derive(Deserialize)]
struct Subject {
    /// The timer, or `None` for the store.
    id: Option<String>,
}

/// Returns the routes.
pub(crate) fn routes() -> Router<Arc<TimersWeb>> {
    Router::new()
        .route("/", get(root))
        .route("/overview", get(overview))
        .route("/timer", get(timer))
        .route("/letter", get(letter))
        .route("/pause", post(pause))
        .route("/resume", post(resume))
        .route("/redrive", post(redrive))
}

/// Returns the routes of the files that pages load.
pub(crate) fn files() -> Router<Arc<TimersWeb>> {
    Router::new().route("/style.css", get(style))
}

/// Redirects to another page beside this one.
pub(crate) fn to(address: &str) -> Response {
    // Addresses are percent-encoded. Another one leads nowhere.
    match HeaderValue::from_str(address) {
        Ok(location) => (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response(),
        Err(_) => Failure::invalid("the address to go back to cannot be read").into_response(),
    }
}

/// Leads to the overview, from an address that may end with a slash or not.
async fn root(OriginalUri(uri): OriginalUri) -> Response {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    match last {
        "" => to("overview"),
        last => to(&format!("{last}/overview")),
    }
}

async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css")], include_str!("style.css"))
}

async fn overview(visit: Visit) -> Result<Html<String>, Failure> {
    let timers = &visit.site.timers;
    let stats = timers.stats().await?;
    let running = timers.list_state(TimerState::Running, None, ROWS).await?;
    let due = timers.list_state(TimerState::Resting, None, ROWS).await?;
    let letters = timers.newest_dead_letters(None, ROWS).await?;
    let lists = Lists { running, due, letters };
    Ok(html(view::overview(&visit, &stats, &lists)))
}

async fn timer(visit: Visit, Asked(Timer { id }): Asked<Timer>) -> Result<Html<String>, Failure> {
    let timer = visit.site.timers.get(&id).await?;
    let runs = runs(&visit.site, &id).await?;
    let mut letters = visit.site.timers.newest_dead_letters(None, SEARCHED).await?;
    letters.retain(|letter| letter.id == id);
    Ok(html(view::timer(&visit, &id, timer.as_ref(), &letters, &runs)))
}

async fn letter(
    visit: Visit,
    Asked(Letter { number }): Asked<Letter>,
) -> Result<Html<String>, Failure> {
    let found = visit.site.timers.dead_letter(number).await?;
    let missing =
        || Failure::new(StatusCode::NOT_FOUND, format!("there is no dead letter {number}"));
    let letter = found.ok_or_else(missing)?;
    let runs = runs(&visit.site, &letter.id).await?;
    Ok(html(view::letter(&visit, &letter, &runs)))
}

/// Returns the latest runs of a timer.
async fn runs(site: &TimersWeb, id: &str) -> Result<Vec<LoggedAttempt>, Failure> {
    let Some(log) = &site.log else { return Ok(Vec::new()) };
    let runs = log.latest(Some(id), ROWS).await;
    runs.map_err(|error| {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, format!("the history failed: {error}"))
    })
}

async fn pause(visit: Visit, Asked(subject): Asked<Subject>, _: Form) -> Result<Response, Failure> {
    match subject.id {
        None => visit.site.timers.pause().await?,
        Some(id) => {
            visit.site.timers.pause_timer(&id).await?;
            return Ok(to(&address("timer", &id)));
        }
    }
    Ok(to("overview"))
}

async fn resume(
    visit: Visit,
    Asked(subject): Asked<Subject>,
    _: Form,
) -> Result<Response, Failure> {
    match subject.id {
        None => visit.site.timers.resume().await?,
        Some(id) => {
            visit.site.timers.resume_timer(&id).await?;
            return Ok(to(&address("timer", &id)));
        }
    }
    Ok(to("overview"))
}

async fn redrive(
    visit: Visit,
    Asked(Letter { number }): Asked<Letter>,
    _: Form,
) -> Result<Response, Failure> {
    visit.site.timers.redrive(number).await?;
    Ok(to("overview"))
}

fn html(markup: Markup) -> Html<String> {
    Html(markup.into_string())
}
