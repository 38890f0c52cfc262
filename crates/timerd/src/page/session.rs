//! Sessions of the page. A session begins with a token, and a signed cookie holds the whole
//! session, so every instance of the service with the same key accepts it.
//!
//! The cookie holds the mark of the token, the time when the session began, and the secret of its
//! forms. A session ends at a certain age, or when its token is removed. With `tower-sessions`, all
//! instances would have to share a store of sessions.

#![forbid(unsafe_code)]

use crate::config::{Arguments, Page};
use crate::gate::Gate;
use crate::rights::Holder;
use crate::tokens;
use axum_extra::extract::cookie::{Cookie, Key, SameSite, SignedCookieJar};
use http::HeaderMap;
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;

/// The name of the cookie, and its name if only TLS may carry it.
const NAMES: [&str; 2] = ["timerd", "__Host-timerd"];

/// The maximum age of a session.
const MAX_AGE: Duration = Duration::from_secs(12 * 3600);

/// How far the clocks of two instances may differ.
const SKEW: Duration = Duration::from_secs(60);

/// The cookies of sessions.
#[derive(Clone)]
pub(crate) struct Sessions {
    key: Key,
    /// `true` if only TLS may carry cookies, whatever a proxy says.
    is_secure: bool,
}

/// The session of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// The holder of its token, with its present role.
    pub(super) holder: Holder,
    /// The secret of the forms, which other sites cannot read.
    pub(super) csrf: String,
}

impl Session {
    /// Returns `true` if a form belongs to this session.
    pub(super) fn is_own(&self, csrf: &str) -> bool {
        self.csrf.as_bytes().ct_eq(csrf.as_bytes()).into()
    }
}

impl Sessions {
    /// Derives the key from the configured key, or else from the token in the arguments. Without
    /// either, the key is random, because hashes of tokens are not secret. Other instances then do
    /// not accept the sessions of this instance.
    pub(crate) fn new(arguments: &Arguments, config: &Page) -> Result<Self, getrandom::Error> {
        let secret = match (&config.key, &arguments.token) {
            (Some(key), _) => key.text().to_owned(),
            (None, Some(token)) => token.trim_ascii().to_owned(),
            (None, None) => tokens::random()?,
        };
        let master =
            Sha256::new().chain_update("timerd sessions\0").chain_update(secret).finalize();
        Ok(Self { key: Key::derive_from(&master), is_secure: config.secure })
    }

    /// Begins a session with the mark of a token, and returns its cookie.
    pub(super) fn begin(
        &self,
        headers: &HeaderMap,
        mark: &str,
    ) -> Result<SignedCookieJar, getrandom::Error> {
        let (begun, csrf) = (now().as_secs(), tokens::random()?);
        let cookie = self.cookie(headers, format!("{mark}.{begun}.{csrf}"));
        Ok(self.jar(headers).add(cookie))
    }

    /// Returns the session of a request.
    pub(super) fn of(&self, headers: &HeaderMap, gate: &Gate) -> Option<Session> {
        let cookie = self.jar(headers).get(self.name(headers))?;
        let mut parts = cookie.value().splitn(3, '.');
        let (mark, begun, csrf) = (parts.next()?, parts.next()?, parts.next()?);
        let begun = Duration::from_secs(begun.parse().ok()?);
        let is_valid = begun <= now() + SKEW && now() < begun + MAX_AGE;
        let holder = gate.holder_of(mark).filter(|_| is_valid)?;
        Some(Session { holder, csrf: csrf.to_owned() })
    }

    /// Makes a browser forget its session.
    pub(super) fn end(&self, headers: &HeaderMap) -> SignedCookieJar {
        self.jar(headers).remove(self.cookie(headers, String::new()))
    }

    fn jar(&self, headers: &HeaderMap) -> SignedCookieJar {
        SignedCookieJar::from_headers(headers, self.key.clone())
    }

    fn cookie(&self, headers: &HeaderMap, value: String) -> Cookie<'static> {
        let cookie = Cookie::build((self.name(headers), value)).path("/").http_only(true);
        cookie.secure(self.is_by_tls(headers)).same_site(SameSite::Strict).build()
    }

    fn name(&self, headers: &HeaderMap) -> &'static str {
        NAMES[usize::from(self.is_by_tls(headers))]
    }

    /// Returns `true` if the browser uses TLS. A peer that lies about it harms only itself.
    fn is_by_tls(&self, headers: &HeaderMap) -> bool {
        let first = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
        let first = first.and_then(|value| value.split(',').next()).unwrap_or_default();
        self.is_secure || first.trim().eq_ignore_ascii_case("https")
    }
}

/// Returns the time since 1970, which all instances share.
#[allow(clippy::disallowed_methods, reason = "sessions have an age")]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
