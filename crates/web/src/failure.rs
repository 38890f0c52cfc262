//! [`Failure`], an error that the reader of the page sees.

#![forbid(unsafe_code)]

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tourbillon_durable::DurableError;

/// An error that the reader of the page sees. The response carries it in its extensions, and
/// becomes a page once the frame of the site is known.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
    /// The address and the text of the link that leads on.
    pub(crate) back: (String, &'static str),
}

impl Failure {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let back = ("overview".to_owned(), "Go to the overview");
        Self { status, detail: detail.into(), back }
    }

    /// Sets where the page of the error leads to.
    pub(crate) fn back_to(self, address: String, text: &'static str) -> Self {
        Self { back: (address, text), ..self }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, what)
    }

    pub(crate) fn title(&self) -> &'static str {
        match self.status {
            StatusCode::CONFLICT => "Not at this moment",
            status => status.canonical_reason().unwrap_or("Error"),
        }
    }
}

impl From<DurableError> for Failure {
    fn from(error: DurableError) -> Self {
        let status = match error {
            DurableError::IdLength { .. }
            | DurableError::Option(_)
            | DurableError::BeyondRange { .. } => StatusCode::BAD_REQUEST,
            DurableError::Exists | DurableError::NotPaused | DurableError::Running => {
                StatusCode::CONFLICT
            }
            DurableError::ReadOnly(_)
            | DurableError::Locked(_)
            | DurableError::Unreachable(_)
            | DurableError::Io(_)
            | DurableError::Closed => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.detail.clone()).into_response();
        response.extensions_mut().insert(self);
        response
    }
}
