//! [`Visit`], a request with its site.

#![forbid(unsafe_code)]

use crate::description::Description;
use crate::forms::FormToken;
use crate::site::TimersWeb;
use axum::extract::FromRequestParts;
use http::request::Parts;
use std::convert::Infallible;
use std::sync::Arc;

/// A request of the page with its site, and the token of its forms.
pub(crate) struct Visit {
    pub(crate) site: Arc<TimersWeb>,
    pub(crate) token: Option<FormToken>,
}

impl Visit {
    /// Describes a payload in the way of the host.
    pub(crate) fn describe(&self, payload: &[u8]) -> Description {
        (self.site.describe)(payload)
    }
}

impl FromRequestParts<Arc<TimersWeb>> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        site: &Arc<TimersWeb>,
    ) -> Result<Self, Infallible> {
        let token = parts.extensions.get::<FormToken>().cloned();
        Ok(Self { site: Arc::clone(site), token })
    }
}
