//! The gate that each request of the API passes: its token, the rate of that token, and the number
//! of concurrent requests.

#![forbid(unsafe_code)]

use super::config::Limits;
use super::problem::Problem;
use super::tokens::Tokens;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use http::header::AUTHORIZATION;
use http::{Method, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The maximum duration of a request, with its body. A call of the store that is not answered takes
/// five seconds.
const LONGEST: Duration = Duration::from_secs(30);

type Rates = RateLimiter<String, HashMapStateStore<String>, DefaultClock>;

/// The name under which requests without a valid token are counted.
const STRANGERS: &str = "";

pub(crate) struct Gate {
    tokens: Tokens,
    rates: Rates,
    clock: DefaultClock,
    places: Semaphore,
}

impl Gate {
    pub(crate) fn new(tokens: Tokens, limits: &Limits) -> Self {
        let quota = Quota::per_second(limits.requests_per_second).allow_burst(limits.burst);
        Self {
            tokens,
            rates: RateLimiter::hashmap(quota),
            clock: DefaultClock::default(),
            places: Semaphore::new(limits.concurrent_requests),
        }
    }

    /// Returns the name of a token, if it is valid and its rate allows another request.
    pub(crate) fn admit(&self, token: Option<&str>) -> Result<&str, Problem> {
        let name = token.and_then(|token| self.tokens.name_of(token));
        self.rates.check_key(&name.unwrap_or(STRANGERS).to_owned()).map_err(|until| {
            let wait = until.wait_time_from(self.clock.now());
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let detail = "too many requests with this token";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).after(seconds.max(1))
        })?;
        let detail = "a valid token is expected (Authorization: Bearer TOKEN)";
        name.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, detail))
    }
}

/// Returns the token in the headers of a request.
fn token(request: &Request) -> Option<&str> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the label of a method. Strangers may send any method, and each label stays in memory, so
/// all methods that no route has share one.
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

/// Lets a request pass, or answers it.
pub(crate) async fn pass(
    State(gate): State<Arc<Gate>>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let method = method_label(request.method()).to_owned();
    let path = path.map_or_else(String::new, |path| path.as_str().to_owned());
    let response = answer(&gate, request, next).await;
    let status = response.status().as_u16().to_string();
    let labels = [("method", method), ("path", path), ("status", status)];
    metrics::counter!("timerd_requests_total", &labels).increment(1);
    response
}

async fn answer(gate: &Gate, request: Request, next: Next) -> Response {
    if let Err(problem) = gate.admit(token(&request)) {
        return problem.into_response();
    }
    let Ok(_place) = gate.places.try_acquire() else {
        let detail = "too many requests at the same time";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).after(1).into_response();
    };
    match tokio::time::timeout(LONGEST, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = "the request took longer than 30 s";
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail).into_response()
        }
    }
}
