//! The parts of a request. An unreadable part is a [`Problem`].

#![forbid(unsafe_code)]

use super::problem::Problem;
use axum::Json;
use axum::extract::{Form, FromRequest, FromRequestParts, Path, Query, Request};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

/// How the ids of the service's own timers begin.
pub(crate) const OWN: &str = "timerd:";

/// The id of a timer that the request changes. The service's own timers are refused.
pub(crate) struct ToChange(pub(crate) String);

/// The variable part of the path.
pub(crate) struct InPath<T>(pub(crate) T);

/// The query.
pub(crate) struct InQuery<T>(pub(crate) T);

/// A JSON body.
pub(crate) struct InBody<T>(pub(crate) T);

/// A form in the body.
pub(crate) struct InForm<T>(pub(crate) T);

impl<S: Send + Sync> FromRequestParts<S> for ToChange {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let InPath(id) = InPath::<String>::from_request_parts(parts, state).await?;
        Self::new(id)
    }
}

impl ToChange {
    pub(crate) fn new(id: String) -> Result<Self, Problem> {
        match id.starts_with(OWN) {
            true => Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("id: timers whose ids begin with {OWN:?} are the service's own"),
            )),
            false => Ok(Self(id)),
        }
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Path::from_request_parts(parts, state).await;
        read.map(|Path(part)| Self(part)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for InQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Query::from_request_parts(parts, state).await;
        read.map(|Query(part)| Self(part)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for InBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = Json::from_request(request, state).await;
        let refused = |error: axum::extract::rejection::JsonRejection| {
            Problem::new(error.status(), error.body_text())
        };
        read.map(|Json(body)| Self(body)).map_err(refused)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for InForm<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = Form::from_request(request, state).await;
        let refused = |error: axum::extract::rejection::FormRejection| {
            Problem::new(error.status(), error.body_text())
        };
        read.map(|Form(body)| Self(body)).map_err(refused)
    }
}
