//! The protection of forms against other sites, and [`FormToken`].
//!
//! A form changes something, so it must come from a page of this site. Browsers send
//! `Sec-Fetch-Site` over TLS and to localhost, and `Origin` with every form. Scripts of other sites
//! can set neither. A form with neither header does not come from a browser, and is refused. (The
//! layer `csrf` of `tower-http` lets it pass.) This needs no session, so it works with any
//! authentication in front of the page. A host with sessions can add its own token with
//! [`FormToken`], which a form then has to carry as well.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use axum::extract::{FromRequest, Request};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use std::fmt;
use subtle::ConstantTimeEq;

/// The name of the token's field.
pub(crate) const FIELD: &str = "form_token";

/// The name of the field with the page that a form leads back to.
pub(crate) const BACK: &str = "back";

/// The header by which a browser says which site a request comes from.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A token of the host for the forms of a session. If a request has it in its extensions, the forms
/// of the page carry it, and a form without it is refused.
///
/// Forms of other sites are refused in any case, by the headers `Sec-Fetch-Site` and `Origin`.
///
/// # Examples
///
/// ```
/// use axum::extract::Request;
/// use axum::middleware::Next;
/// use axum::response::Response;
/// use timers_web::FormToken;
///
/// async fn enter(mut request: Request, next: Next) -> Response {
///     let token = "a random text, from the session of the request";
///     request.extensions_mut().insert(FormToken::new(token));
///     next.run(request).await
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct FormToken(String);

/// The fields of a form of this site.
pub(crate) struct Form(Vec<(String, String)>);

impl FormToken {
    /// Creates a token. It should be random and belong to one session.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for FormToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FormToken(…)")
    }
}

impl Form {
    /// Returns the first value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns the page that the form leads back to, if it is one of this site.
    pub(crate) fn back(&self) -> Option<&str> {
        let back = self.get(BACK)?;
        let name = back.split('?').next().unwrap_or_default();
        ["overview", "timers", "timer", "dead", "letter"].contains(&name).then_some(back)
    }

    /// Returns the values of a field.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| &**value)
    }
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        if !is_of_this_site(request.headers(), request.uri()) {
            let detail = "the form comes from another site, or does not come from a browser";
            return Err(Failure::new(StatusCode::FORBIDDEN, detail));
        }
        let token = request.extensions().get::<FormToken>().cloned();
        let form = axum::extract::Form::from_request(request, state).await;
        let form = form.map_err(|error| Failure::new(error.status(), error.body_text()))?;
        let form = Self(form.0);
        let Some(FormToken(token)) = token else { return Ok(form) };
        let carried = form.get(FIELD).unwrap_or_default();
        match carried.as_bytes().ct_eq(token.as_bytes()).into() {
            true => Ok(form),
            false => {
                let detail = "the page is too old: go back, reload it and try again";
                Err(Failure::new(StatusCode::FORBIDDEN, detail))
            }
        }
    }
}

/// Returns `true` if a browser says that a request comes from a page of this site, or from its
/// user.
fn is_of_this_site(headers: &HeaderMap, uri: &Uri) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(SITE) {
        return matches!(site, "same-origin" | "none");
    }
    let host = text(HOST).or_else(|| uri.authority().map(http::uri::Authority::as_str));
    let origin = text(ORIGIN).and_then(|origin| origin.split_once("://"));
    host.zip(origin).is_some_and(|(host, (_, origin))| host.eq_ignore_ascii_case(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_forms_of_this_site_are_accepted() {
        let site = |fetched: Option<&str>, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "timers.example.org:8080".parse().unwrap());
            for (name, value) in [(SITE, fetched), (ORIGIN, origin)] {
                value.map(|value| headers.insert(name, value.parse().unwrap()));
            }
            is_of_this_site(&headers, &Uri::from_static("/pause"))
        };
        assert!(site(Some("same-origin"), None));
        assert!(site(Some("none"), None));
        assert!(site(None, Some("http://timers.example.org:8080")));
        // A proxy may have changed the host, and the browser knows better.
        assert!(site(Some("same-origin"), Some("https://outside.example.org")));
        for (fetched, origin) in [
            (None, None),
            (None, Some("null")),
            (None, Some("http://timers.example.org")),
            (None, Some("http://evil.example")),
            (Some("cross-site"), Some("http://timers.example.org:8080")),
            (Some("same-site"), None),
        ] {
            assert!(!site(fetched, origin), "{fetched:?} {origin:?}");
        }
    }
}
