//! The gate that each request of the API passes: its token, the rate of that token, and the number
//! of concurrent requests.

#![forbid(unsafe_code)]

use super::config::Limits;
use super::problem::Problem;
use super::tokens::Tokens;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use http::StatusCode;
use http::header::AUTHORIZATION;
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

    /// Returns the name of the token of a request, if its rate allows the request.
    fn enter(&self, request: &Request) -> Result<&str, Problem> {
        let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        let name = match given {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                self.tokens.name_of(token.trim())
            }
            _ => None,
        };
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

/// Lets a request pass, or answers it.
pub(crate) async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    if let Err(problem) = gate.enter(&request) {
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
