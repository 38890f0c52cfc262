//! The page for people, which shows due and running timers, and dead letters with their reasons. It
//! has no scripts.

#![forbid(unsafe_code)]

mod session;
mod view;

use super::api::{App, no_such_method};
use super::extract::{InForm, InQuery};
use super::gate::{Door, Gate, within};
use super::problem::Problem;
use super::serve::Peer;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum_extra::extract::cookie::SignedCookieJar;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use maud::Markup;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use session::Session;
pub(crate) use session::Sessions;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::TimerState;
use tourbillon_durable::text::Switch;

/// The number of rows in a table.
const ROWS: usize = 50;

/// The number of newest dead letters that are searched for the letters of a timer.
const SEARCHED: usize = 500;

/// The maximum length of a form in bytes.
const MAX_FORM_BYTES: usize = 8192;

/// How long the form for the token may take to arrive. It comes from strangers and takes no place.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The resources that a page may load, and the targets of its forms.
const POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

/// The state of the pages.
#[derive(Clone)]
struct Pages {
    app: App,
    gate: Arc<Gate>,
    sessions: Sessions,
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

#[derive(Deserialize)]
struct Search {
    id: String,
}

/// A click on a button.
#[derive(Deserialize)]
struct Click {
    csrf: String,
}

/// The subject of a button. It is in the address and not in the form, because browsers change line
/// feeds in forms.
#[derive(Deserialize)]
struct Subject {
    /// The timer, or `None` for the store.
    id: Option<String>,
}

/// The dead letter of a button.
#[derive(Deserialize)]
struct Letter {
    number: u64,
}

/// Returns the routes of the page.
pub(crate) fn router(app: App, gate: Arc<Gate>, sessions: Sessions) -> Router {
    let limit = LOGIN_TIMEOUT.min(gate.timeout());
    let pages = Pages { app, gate, sessions };
    let of_strangers = Router::new()
        .route("/login", post(login))
        .layer(from_fn(move |request, next| within(limit, request, next)))
        .route("/style.css", get(style))
        .method_not_allowed_fallback(no_such_method);
    Router::new()
        .route("/", get(overview))
        .route("/timer", get(timer))
        .route("/letter", get(letter))
        .route("/logout", post(logout))
        .route("/pause", post(pause))
        .route("/resume", post(resume))
        .route("/redrive", post(redrive))
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(pages.clone(), enter))
        .merge(of_strangers)
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .layer(from_fn(protect))
        .with_state(pages)
}

/// Serves a request with a session, within the limits of its token. Other requests get the form for
/// the token, and their bodies are not read.
async fn enter(
    State(pages): State<Pages>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(session) = pages.sessions.of(request.headers(), &pages.gate) else {
        return match *request.method() {
            Method::GET | Method::HEAD => page(view::login(None)).into_response(),
            _ => too_old().into_response(),
        };
    };
    peer.becomes_known();
    if let Err(problem) = pages.gate.check_rate(&session.token) {
        return problem.into_response();
    }
    request.extensions_mut().insert(session);
    pages.gate.serve(request, next).await
}

fn too_old() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "the page is too old: reload it")
}

/// Adds the headers that keep a page from being framed, cached or changed.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Shows errors to people as a page. The API returns them as they are.
pub(crate) async fn show_problems(request: Request, next: Next) -> Response {
    let accepts = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    let is_person = accepts.is_some_and(|value| value.contains("text/html"));
    let is_api = request.uri().path().starts_with("/v1/");
    let mut response = next.run(request).await;
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    if is_api || !is_person {
        return response;
    }
    let (parts, _) = response.into_parts();
    let shown = page(view::problem(&problem)).into_response();
    let mut shown = (parts.status, shown).into_response();
    for (name, value) in &parts.headers {
        if *name != CONTENT_TYPE && *name != CONTENT_LENGTH {
            shown.headers_mut().insert(name, value.clone());
        }
    }
    shown.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    shown
}

async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css")], include_str!("style.css"))
}

/// Shows the overview.
async fn overview(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
) -> Result<Html<String>, Problem> {
    let timers = &pages.app.timers;
    let stats = timers.stats().await?;
    let trouble = pages.app.health.trouble();
    let running = timers.list_state(TimerState::Running, None, ROWS).await?;
    let due = timers.list_state(TimerState::Resting, None, ROWS).await?;
    let letters = timers.newest_dead_letters(None, ROWS).await?;
    let lists = view::Lists { running, due, letters };
    Ok(page(view::overview(&session.csrf, &stats, trouble.as_deref(), &lists)))
}

/// Shows a timer and its runs.
async fn timer(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    InQuery(Search { id }): InQuery<Search>,
) -> Result<Html<String>, Problem> {
    let timer = pages.app.timers.get(&id).await?;
    let runs = pages.app.history.latest(Some(&id), ROWS).await?;
    let mut letters = pages.app.timers.newest_dead_letters(None, SEARCHED).await?;
    letters.retain(|letter| letter.id == id);
    Ok(page(view::timer(&session.csrf, &id, timer.as_ref(), &letters, &runs)))
}

/// Shows a dead letter and the runs of its timer.
async fn letter(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    InQuery(Letter { number }): InQuery<Letter>,
) -> Result<Html<String>, Problem> {
    let found = pages.app.timers.dead_letter(number).await?;
    let missing = || Problem::not_found(format!("there is no dead letter {number}"));
    let letter = found.ok_or_else(missing)?;
    let runs = pages.app.history.latest(Some(&letter.id), ROWS).await?;
    Ok(page(view::letter(&session.csrf, &letter, &runs)))
}

async fn login(
    State(pages): State<Pages>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    InForm(Login { token }): InForm<Login>,
) -> Response {
    let name = match pages.gate.admit(Some(&token), Door::Page, &peer, &headers) {
        Ok(name) => name,
        Err(problem) => {
            let status = problem.status();
            return (status, page(view::login(Some(problem.detail())))).into_response();
        }
    };
    // The token is known, unless it was removed at this moment.
    let mark = pages.gate.mark_of(name).unwrap_or_default();
    match pages.sessions.begin(&headers, &mark) {
        Ok(cookie) => (cookie, Redirect::to("/")).into_response(),
        Err(error) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
        }
    }
}

async fn logout(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    headers: HeaderMap,
    InForm(click): InForm<Click>,
) -> Result<(SignedCookieJar, Redirect), Problem> {
    session.allows(&click)?;
    Ok((pages.sessions.end(&headers), Redirect::to("/")))
}

async fn pause(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    InQuery(subject): InQuery<Subject>,
    InForm(click): InForm<Click>,
) -> Result<Redirect, Problem> {
    session.allows(&click)?;
    subject.switch(&pages, Switch::Pause).await
}

async fn resume(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    InQuery(subject): InQuery<Subject>,
    InForm(click): InForm<Click>,
) -> Result<Redirect, Problem> {
    session.allows(&click)?;
    subject.switch(&pages, Switch::Resume).await
}

async fn redrive(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    InQuery(Letter { number }): InQuery<Letter>,
    InForm(click): InForm<Click>,
) -> Result<Redirect, Problem> {
    session.allows(&click)?;
    pages.app.timers.redrive(number).await?;
    Ok(Redirect::to("/"))
}

impl Subject {
    /// Pauses or resumes a timer or the store, and redirects to its page.
    async fn switch(&self, pages: &Pages, switch: Switch) -> Result<Redirect, Problem> {
        let Some(id) = &self.id else {
            switch.store(&pages.app.timers).await?;
            return Ok(Redirect::to("/"));
        };
        switch.timer(&pages.app.timers, id).await?;
        Ok(Redirect::to(&address("/timer", id)))
    }
}

impl Session {
    /// Checks that a click comes from a page of this session.
    fn allows(&self, click: &Click) -> Result<(), Problem> {
        self.is_own(&click.csrf).then_some(()).ok_or_else(too_old)
    }
}

/// Returns an address for a timer.
fn address(path: &str, id: &str) -> String {
    format!("{path}?id={}", utf8_percent_encode(id, NON_ALPHANUMERIC))
}

fn page(markup: Markup) -> Html<String> {
    Html(markup.into_string())
}
