//! The gate of requests: the token, the rate of that token, the number of concurrent requests, and
//! their time limit. Requests of the page have a session in place of a token.

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

type Rates = RateLimiter<String, HashMapStateStore<String>, DefaultClock>;

/// The name under which requests without a valid token are counted.
const STRANGERS: &str = "";

pub(crate) struct Gate {
    tokens: Tokens,
    rates: Rates,
    clock: DefaultClock,
    places: Semaphore,
    timeout: Duration,
}

impl Gate {
    pub(crate) fn new(tokens: Tokens, limits: &Limits) -> Self {
        let quota = Quota::per_second(limits.requests_per_second).allow_burst(limits.burst);
        Self {
            tokens,
            rates: RateLimiter::hashmap(quota),
            clock: DefaultClock::default(),
            places: Semaphore::new(limits.concurrent_requests),
            timeout: limits.timeout,
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
        let detail = "missing or invalid token (expected Authorization: Bearer TOKEN)";
        name.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, detail))
    }
}

/// Returns the token in the headers of a request.
fn token(request: &Request) -> Option<&str> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
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

/// Serves a request of the API, if it has a token, within the limits.
pub(crate) async fn pass(
    State(gate): State<Arc<Gate>>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let method = method_label(request.method()).to_owned();
    let path = path.map_or_else(String::new, |path| path.as_str().to_owned());
    let response = match gate.admit(token(&request)) {
        Ok(_) => serve(State(Arc::clone(&gate)), request, next).await,
        Err(problem) => problem.into_response(),
    };
    let status = response.status().as_u16().to_string();
    let labels = [("method", method), ("path", path), ("status", status)];
    metrics::counter!("timerd_requests_total", &labels).increment(1);
    response
}

/// Serves a request within the limits of concurrency and time.
pub(crate) async fn serve(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let Ok(_place) = gate.places.try_acquire() else {
        let detail = "too many concurrent requests";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).after(1).into_response();
    };
    match tokio::time::timeout(gate.timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("the request took longer than {:?}", gate.timeout);
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail).into_response()
        }
    }
}
