//! [`Rights`], what a visitor may change.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::site::TimersWeb;
use axum::extract::{Query, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Extensions, StatusCode};
use serde::Deserialize;
use std::sync::Arc;

/// What a visitor may change. A host adds it to the extensions of a request. Without it, the
/// visitor may change everything.
///
/// The page has no buttons for a change that is not allowed, and refuses its form with the status
/// 403. Everything can be read in any case.
///
/// # Examples
///
/// A host whose guests only look, and whose team on call runs, pauses and redrives timers:
///
/// ```
/// use axum::extract::Request;
/// use axum::middleware::Next;
/// use axum::response::Response;
/// use timers_web::Rights;
///
/// async fn enter(mut request: Request, next: Next) -> Response {
///     let is_on_call = request.headers().contains_key("x-on-call");
///     request.extensions_mut().insert(Rights::none().operate(is_on_call));
///     next.run(request).await
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rights {
    can_schedule: bool,
    can_operate: bool,
}

impl Rights {
    /// Allows every change.
    pub fn all() -> Self {
        Self { can_schedule: true, can_operate: true }
    }

    /// Allows no change.
    pub fn none() -> Self {
        Self { can_schedule: false, can_operate: false }
    }

    /// Sets whether the visitor may move and cancel timers.
    pub fn schedule(self, can_schedule: bool) -> Self {
        Self { can_schedule, ..self }
    }

    /// Sets whether the visitor may run, pause and resume timers, pause and resume the store, and
    /// redrive and delete dead letters. To cancel all timers with a label, a visitor needs this
    /// right and the right to [schedule](Self::schedule).
    pub fn operate(self, can_operate: bool) -> Self {
        Self { can_operate, ..self }
    }

    /// Returns the rights of the visitor that sent a request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or_else(Self::all)
    }

    pub(crate) fn can_schedule(self) -> bool {
        self.can_schedule
    }

    pub(crate) fn can_operate(self) -> bool {
        self.can_operate
    }
}

/// Refuses a request of a visitor that may not schedule.
pub(crate) async fn to_schedule(request: Request, next: Next) -> Result<Response, Failure> {
    allow(Rights::can_schedule, "move or cancel timers", request, next).await
}

/// Refuses a request of a visitor that may not operate.
pub(crate) async fn to_operate(request: Request, next: Next) -> Result<Response, Failure> {
    let what = "run, pause or resume timers, or change dead letters";
    allow(Rights::can_operate, what, request, next).await
}

/// The timer that a request concerns, if it names one.
#[derive(Deserialize)]
pub(crate) struct Subject {
    id: Option<String>,
}

/// Rejects a request to change a timer whose id the host has reserved.
pub(crate) async fn to_change(
    State(site): State<Arc<TimersWeb>>,
    Query(Subject { id }): Query<Subject>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    match id {
        Some(id) if site.is_reserved(&id) => {
            let detail = format!("timer {id:?} is reserved for the server");
            Err(Failure::new(StatusCode::FORBIDDEN, detail))
        }
        _ => Ok(next.run(request).await),
    }
}

async fn allow(
    can: fn(Rights) -> bool,
    what: &str,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    match can(Rights::of(request.extensions())) {
        true => Ok(next.run(request).await),
        false => {
            let detail = format!("you may look at this page, but not {what}");
            Err(Failure::new(StatusCode::FORBIDDEN, detail))
        }
    }
}
