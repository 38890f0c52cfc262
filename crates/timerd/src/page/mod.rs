//! The page for people. `timers-web` shows the timers, and this module adds what the service knows
//! of them, and sessions.

#![forbid(unsafe_code)]

mod receivers;
mod session;
mod webhook;

use super::api::{App, no_such_method};
use super::audit::Details;
use super::call::Caller;
use super::config::Role;
use super::door::Door;
use super::extract::{InForm, OWN};
use super::gate::{Gate, within};
use super::problem::Problem;
use super::serve::Peer;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum_extra::extract::cookie::SignedCookieJar;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode};
use maud::{Markup, html};
use serde::Deserialize;
use session::Session;
pub(crate) use session::Sessions;
use std::sync::Arc;
use std::time::Duration;
use timers_web::{FormToken, Rights, TimersWeb};
use tourbillon_durable::DurableTimers;
use tourbillon_durable::text::printable;

/// The maximum length in bytes of the form for the token.
const MAX_LOGIN_BYTES: usize = 8192;

/// The maximum length of a form in bytes.
const MAX_FORM_BYTES: usize = 65_536;

/// How long the form for the token may take to arrive. It comes from strangers and takes no place.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The command that an empty store shows.
const EXAMPLE: &str = r#"curl -H "Authorization: Bearer $TOKEN" -X PUT http://127.0.0.1:8080/v1/timers/nightly --json '{
  "webhook": { "url": "https://example.org/report" },
  "schedule": { "cron": "0 3 * * *", "zone": "Europe/Berlin" }
}'"#;

/// The state of the pages.
#[derive(Clone)]
struct Pages {
    web: TimersWeb,
    gate: Arc<Gate>,
    sessions: Sessions,
}

#[derive(Deserialize)]
struct Login {
    token: String,
    /// The page that was asked for.
    #[serde(default)]
    to: String,
}

/// A form of a session.
#[derive(Deserialize)]
struct Click {
    form_token: String,
}

/// Returns the page of the timers of the service.
pub(crate) fn web(app: &App, timers: &DurableTimers) -> TimersWeb {
    let health = Arc::clone(&app.health);
    TimersWeb::new(timers)
        .name("timerd")
        .log(app.history.log())
        .activity(app.history.activity())
        .example(EXAMPLE)
        .describe(webhook::describe)
        .notice(move || health.trouble())
        .link("receivers", "Receivers")
        .reserve(OWN)
        .log_out("logout")
}

/// Returns the routes of the page.
pub(crate) fn router(
    web: TimersWeb,
    caller: Arc<Caller>,
    gate: Arc<Gate>,
    sessions: Sessions,
) -> Router {
    let limit = LOGIN_TIMEOUT.min(gate.timeout());
    let pages = Pages { web, gate, sessions };
    let of_strangers = Router::new()
        .route("/login", post(login))
        .layer(from_fn(move |request, next| within(limit, request, next)))
        .method_not_allowed_fallback(no_such_method);
    Router::new()
        .route("/logout", post(logout))
        .route("/receivers", get(receivers::show).layer(Extension(caller)))
        .merge(pages.web.pages())
        .layer(from_fn(note_change))
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(pages.clone(), enter))
        .merge(of_strangers)
        .merge(pages.web.files())
        .layer(DefaultBodyLimit::max(MAX_LOGIN_BYTES))
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
            Method::GET | Method::HEAD => {
                let asked = request.uri().path_and_query();
                pages.log_in(None, asked.map_or("/", |asked| asked.as_str()))
            }
            _ => too_old().into_response(),
        };
    };
    peer.becomes_known();
    if let Err(problem) = pages.gate.check_rate(&session.holder.name) {
        return problem.into_response();
    }
    request.extensions_mut().insert(FormToken::new(&*session.csrf));
    let holder = session.holder.clone();
    request.extensions_mut().insert(rights_of(holder.role));
    request.extensions_mut().insert(session);
    pages.gate.serve(&holder, Door::Page, &peer, request, next).await
}

/// Returns what the page allows to the holder of a token.
fn rights_of(role: Role) -> Rights {
    Rights::none().schedule(role >= Role::Schedule).operate(role >= Role::Operate)
}

/// Notes the fields of a form and the number of its changes in the response.
async fn note_change(request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let Ok(form) = to_bytes(body, MAX_FORM_BYTES).await else {
        let detail = format!("a form has at most {MAX_FORM_BYTES} bytes");
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).into_response();
    };
    let noted = String::from_utf8_lossy(&form).into_owned();
    let mut response = next.run(Request::from_parts(parts, form.into())).await;
    let count = response.headers().get(LOCATION).and_then(|to| changed(to.to_str().ok()?));
    response.extensions_mut().insert(Details { count, form: noted });
    response
}

/// Returns the number of changes in an address that reports them, such as `dead?done=Redrive.3.0`.
fn changed(address: &str) -> Option<u64> {
    let (_, done) = address.split_once("done=")?;
    done.split('.').nth(1)?.parse().ok()
}

fn too_old() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "the page is too old: reload it")
}

/// Shows errors to people as a page. The API returns them as they are.
pub(crate) async fn show_problems(
    State(web): State<TimersWeb>,
    request: Request,
    next: Next,
) -> Response {
    let accepts = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    let is_person = accepts.is_some_and(|value| value.contains("text/html"));
    let is_api = request.uri().path().starts_with("/v1/");
    let mut response = next.run(request).await;
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    if is_api || !is_person {
        return response;
    }
    let main = html! {
        div.message {
            h1 { (problem.title()) }
            p role="alert" { (printable(problem.detail())) }
            p { a.button href="/" { "Go to the overview" } }
        }
    };
    let mut shown = web.page("/", problem.title(), main);
    *shown.status_mut() = response.status();
    for (name, value) in response.headers() {
        if *name != CONTENT_TYPE && *name != CONTENT_LENGTH {
            shown.headers_mut().insert(name, value.clone());
        }
    }
    shown
}

async fn login(
    State(pages): State<Pages>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    InForm(Login { token, to }): InForm<Login>,
) -> Response {
    let holder = match pages.gate.admit(Some(&token), Door::Page, &peer, &headers) {
        Ok(holder) => holder,
        Err(problem) => {
            let mut response = pages.log_in(Some(problem.detail()), &to);
            *response.status_mut() = problem.status();
            return response;
        }
    };
    // The token is known, unless it was removed at this moment.
    let mark = pages.gate.mark_of(&holder.name).unwrap_or_default();
    match pages.sessions.begin(&headers, &mark) {
        Ok(cookie) => (cookie, Redirect::to(own_address(&to).unwrap_or("/"))).into_response(),
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
    match session.is_own(&click.form_token) {
        true => Ok((pages.sessions.end(&headers), Redirect::to("/"))),
        false => Err(too_old()),
    }
}

/// Returns an address if it is one of this site.
fn own_address(address: &str) -> Option<&str> {
    let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    (is_plain && address.starts_with('/') && !address.starts_with("//")).then_some(address)
}

impl Pages {
    /// The form for a token, with the reason why the last token was refused, and the page that was
    /// asked for.
    fn log_in(&self, refused: Option<&str>, to: &str) -> Response {
        let main: Markup = html! {
            div.message {
                h1 { "Log in to timerd" }
                p.quiet { "The service prints a token when it starts, unless you configure one." }
                @if let Some(why) = refused { p.banner.is-dead role="alert" { (why) } }
                form.filter method="post" action="/login" {
                    input type="hidden" name="to" value=(to);
                    label {
                        span { "Token" }
                        input type="password" name="token" required autofocus autocomplete="current-password";
                    }
                    button.primary { "Log in" }
                }
            }
        };
        self.web.page("/", "Log in", main)
    }
}
