//! [`Gate`], which admits requests. It checks the token and its rate, and limits the number of
//! concurrent requests and their time. Requests of the page have a session instead of a token.
//!
//! Only requests with a valid token or session take a place. Wrong tokens have a separate rate
//! limit, and a valid token is accepted however many wrong tokens arrive. Strangers therefore
//! cannot lock out the owner of a token.

#![forbid(unsafe_code)]

use super::audit::{Asked, Audit, Details};
use super::config::Limits;
use super::door::{Door, forwarded};
use super::metrics::{REFUSED_TOKENS, REQUESTS};
use super::problem::Problem;
use super::rights::Holder;
use super::serve::{Peer, Place};
use super::tokens::Tokens;
use axum::extract::{Extension, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{DefaultDirectRateLimiter, NotUntil, Quota, RateLimiter};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use metrics::counter;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Semaphore;

type Rates = RateLimiter<String, HashMapStateStore<String>, DefaultClock>;

/// The number of wrong tokens per second that are answered with 401. Further wrong tokens are
/// answered with 429.
const WRONG_TOKENS: NonZeroU32 = NonZeroU32::new(5).unwrap();

/// The maximum number of warnings about wrong tokens per minute.
const WARNINGS: NonZeroU32 = NonZeroU32::new(6).unwrap();

pub(crate) struct Gate {
    tokens: Tokens,
    rates: Rates,
    wrong: Wrong,
    places: Arc<Semaphore>,
    timeout: Duration,
    audit: Arc<Audit>,
}

/// The limits on wrong tokens, which strangers send.
struct Wrong {
    rate: DefaultDirectRateLimiter,
    warnings: DefaultDirectRateLimiter,
    /// The number of wrong tokens since the last warning.
    unreported: AtomicU64,
}

impl Gate {
    pub(crate) fn new(tokens: Tokens, limits: &Limits, audit: Arc<Audit>) -> Self {
        for door in [Door::Api, Door::Page] {
            counter!(REFUSED_TOKENS, "door" => door.label()).increment(0);
        }
        let quota = Quota::per_second(limits.requests_per_second).allow_burst(limits.burst);
        Self {
            tokens,
            rates: RateLimiter::hashmap(quota),
            wrong: Wrong {
                rate: RateLimiter::direct(Quota::per_second(WRONG_TOKENS)),
                warnings: RateLimiter::direct(Quota::per_minute(WARNINGS)),
                unreported: AtomicU64::new(0),
            },
            places: Arc::new(Semaphore::new(limits.concurrent_requests.get())),
            timeout: limits.timeout,
            audit,
        }
    }

    /// Returns the holder of a token if it is valid and its rate allows another request.
    pub(crate) fn admit(
        &self,
        token: Option<&str>,
        door: Door,
        peer: &Peer,
        headers: &HeaderMap,
    ) -> Result<&Holder, Problem> {
        let token = token.ok_or_else(unauthorized)?;
        let Some(holder) = self.tokens.holder_of(token) else {
            return Err(self.wrong.refuse(door, peer, headers));
        };
        peer.becomes_known();
        self.check_rate(&holder.name)?;
        Ok(holder)
    }

    /// Returns the mark that stands for a token in cookies.
    pub(crate) fn mark_of(&self, name: &str) -> Option<String> {
        self.tokens.mark_of(name).map(str::to_owned)
    }

    /// Returns the holder of the token with a mark, unless it was removed.
    pub(crate) fn holder_of(&self, mark: &str) -> Option<Holder> {
        self.tokens.marked(mark).cloned()
    }

    /// Returns the time limit of requests.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Fails if a token has exceeded its rate.
    pub(crate) fn check_rate(&self, name: &str) -> Result<(), Problem> {
        let checked = self.rates.check_key(&name.to_owned());
        checked.map_err(|until| too_many("too many requests with this token", &until))
    }

    /// Serves a request within the limits of concurrency and time, and records it unless it only
    /// reads. The request keeps its place until its response is sent.
    pub(crate) async fn serve(
        &self,
        holder: &Holder,
        door: Door,
        peer: &Peer,
        request: Request,
        next: Next,
    ) -> Response {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let detail = "too many concurrent requests";
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).after(1).into_response();
        };
        let asked = Asked::new(holder, door, peer, &request);
        let mut response = within(self.timeout, request, next).await;
        if let Some(asked) = asked {
            let details = response.extensions_mut().remove::<Details>().unwrap_or_default();
            self.audit.record(asked, response.status(), details);
        }
        response.extensions_mut().insert(Place::new(place));
        response
    }
}

impl Wrong {
    fn refuse(&self, door: Door, peer: &Peer, headers: &HeaderMap) -> Problem {
        let label = door.label();
        counter!(REFUSED_TOKENS, "door" => label).increment(1);
        self.unreported.fetch_add(1, Relaxed);
        if self.warnings.check().is_ok() {
            let forwarded = forwarded(headers);
            let (peer, count) = (peer.address(), self.unreported.swap(0, Relaxed));
            tracing::warn!(door = label, %peer, forwarded, count, "wrong tokens were refused");
        }
        match self.rate.check() {
            Ok(()) => unauthorized(),
            Err(until) => too_many("too many wrong tokens", &until),
        }
    }
}

fn unauthorized() -> Problem {
    let detail = "missing or invalid token (expected Authorization: Bearer TOKEN)";
    Problem::new(StatusCode::UNAUTHORIZED, detail)
}

fn too_many(detail: &str, until: &NotUntil<<DefaultClock as Clock>::Instant>) -> Problem {
    let wait = until.wait_time_from(DefaultClock::default().now());
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).after(seconds.max(1))
}

/// Returns the token in the headers of a request.
fn token(request: &Request) -> Option<&str> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Returns the label of a method. Strangers may send any method, and each label stays in memory, so
/// all methods without a route share one label.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// Counts a request of the API or the page.
pub(crate) async fn count(path: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let method = method_label(request.method()).to_owned();
    let path = path.map_or_else(String::new, |path| path.as_str().to_owned());
    let response = next.run(request).await;
    let status = response.status().as_u16().to_string();
    let labels = [("method", method), ("path", path), ("status", status)];
    counter!(REQUESTS, &labels).increment(1);
    response
}

/// Serves a request of the API within the limits if its token is valid.
pub(crate) async fn pass(
    State(gate): State<Arc<Gate>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    match gate.admit(token(&request), Door::Api, &peer, request.headers()) {
        Ok(holder) => {
            request.extensions_mut().insert(holder.clone());
            gate.serve(holder, Door::Api, &peer, request, next).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Serves a request within a time limit.
pub(crate) async fn within(limit: Duration, request: Request, next: Next) -> Response {
    tokio::time::timeout(limit, next.run(request)).await.unwrap_or_else(|_| {
        let detail = format!("the request took longer than {limit:?}");
        Problem::new(StatusCode::REQUEST_TIMEOUT, detail).into_response()
    })
}
