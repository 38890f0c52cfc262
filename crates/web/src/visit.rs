//! [`Visit`], a request of the page.

#![forbid(unsafe_code)]

use crate::description::Description;
use crate::forms::FormToken;
use crate::rights::Rights;
use crate::site::TimersWeb;
use axum::extract::FromRequestParts;
use http::request::Parts;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;

/// The maximum number of characters of a summary.
const SUMMARY: usize = 200;

/// A request of the page: its site, the token of its forms, the rights of its visitor, its time and
/// its address.
pub(crate) struct Visit {
    pub(crate) site: Arc<TimersWeb>,
    pub(crate) token: Option<FormToken>,
    pub(crate) rights: Rights,
    pub(crate) now: SystemTime,
    /// The address relative to the root of the page, to which forms lead back.
    pub(crate) address: String,
}

impl Visit {
    /// Describes a payload in the way of the host. Only the beginning of a long summary is kept.
    pub(crate) fn describe(&self, payload: &[u8]) -> Description {
        let mut described = (self.site.describe)(payload);
        if let Some((end, _)) = described.summary.char_indices().nth(SUMMARY) {
            described.summary.truncate(end);
            described.summary.push('…');
        }
        described
    }

    /// Returns what the visitor may change about a timer.
    pub(crate) fn rights_to(&self, id: &str) -> Rights {
        if self.site.is_reserved(id) { Rights::none() } else { self.rights }
    }

    #[allow(clippy::disallowed_methods, reason = "a page shows how far away times are")]
    pub(crate) fn of(site: Arc<TimersWeb>, parts: &Parts) -> Self {
        let address = parts.uri.path_and_query().map_or("", |address| address.as_str());
        Self {
            site,
            token: parts.extensions.get().cloned(),
            rights: Rights::of(&parts.extensions),
            now: SystemTime::now(),
            address: address.trim_start_matches('/').to_owned(),
        }
    }
}

impl FromRequestParts<Arc<TimersWeb>> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        site: &Arc<TimersWeb>,
    ) -> Result<Self, Infallible> {
        Ok(Self::of(Arc::clone(site), parts))
    }
}
