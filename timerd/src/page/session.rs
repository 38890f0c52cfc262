//! Sessions of the page. A token begins one, and a cookie names it.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "sessions have an age")]

use super::super::tokens;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

const NAME: &str = "timerd";

/// The age at which a session ends.
const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// The number of sessions. The oldest one ends when there are more.
const MOST: usize = 1000;

/// The sessions by their names in cookies.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Session>>);

#[derive(Clone)]
pub(super) struct Session {
    begun: Instant,
    /// The name of the token that began it.
    pub(super) token: String,
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
    /// Begins a session by a token, and returns its cookie.
    pub(super) fn begin(&self, token: &str) -> Result<HeaderValue, getrandom::Error> {
        let (name, csrf) = (tokens::random()?, tokens::random()?);
        let cookie = format!("{NAME}={name}; HttpOnly; SameSite=Strict; Path=/");
        let mut sessions = self.sessions();
        sessions.retain(|_, session| session.begun.elapsed() < LONGEST);
        if sessions.len() >= MOST {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.begun);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.map(|name| sessions.remove(&name));
        }
        sessions.insert(name, Session { begun: Instant::now(), token: token.to_owned(), csrf });
        // The random part has only characters that are allowed.
        Ok(HeaderValue::from_str(&cookie).unwrap_or(HeaderValue::from_static("")))
    }

    /// Returns the session of a request.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Session> {
        let found = self.sessions().get(name(headers)?).cloned();
        found.filter(|session| session.begun.elapsed() < LONGEST)
    }

    /// Ends the session of a request.
    pub(super) fn end(&self, headers: &HeaderMap) {
        if let Some(name) = name(headers) {
            self.sessions().remove(name);
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of the session in a request's cookies.
fn name(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='))
}
