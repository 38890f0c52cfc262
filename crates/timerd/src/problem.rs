//! [`Problem`], an error as the API reports it (RFC 9457).

#![forbid(unsafe_code)]

use super::target::TargetError;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tourbillon_durable::DurableError;
use tourbillon_durable::text::SettingsError;
use utoipa::ToSchema;

/// The media type of errors.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// An error (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The status of the response.
    status: u16,
    /// The name of the status.
    title: &'static str,
    /// The cause of the error, and what is allowed.
    detail: String,
    /// The number of seconds until another try may succeed.
    #[serde(skip)]
    retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self { status: status.as_u16(), title, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, what)
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, what)
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn title(&self) -> &'static str {
        self.title
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Asks for another try after some seconds.
    pub(crate) fn after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }
}

impl From<DurableError> for Problem {
    fn from(error: DurableError) -> Self {
        let detail = error.to_string();
        let status = match error {
            DurableError::IdLength { .. }
            | DurableError::PayloadLength { .. }
            | DurableError::BeyondRange { .. }
            | DurableError::Option(_)
            | DurableError::Rule(_)
            | DurableError::Json(_) => StatusCode::BAD_REQUEST,
            DurableError::Changed => StatusCode::PRECONDITION_FAILED,
            DurableError::Exists | DurableError::Running | DurableError::NotPaused => {
                StatusCode::CONFLICT
            }
            DurableError::ReadOnly(_)
            | DurableError::Locked(_)
            | DurableError::Unreachable(_)
            | DurableError::Io(_)
            | DurableError::Closed => {
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).after(1);
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, detail)
    }
}

impl From<TargetError> for Problem {
    fn from(error: TargetError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let retry_after = self.retry_after;
        let mut response = (status, Json(&self)).into_response();
        response.extensions_mut().insert(self);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
