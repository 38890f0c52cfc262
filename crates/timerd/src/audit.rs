//! [`Audit`], the changes that people and programs have requested, as lines of the log and as a
//! list.
//!
//! A line has the token, the operation, its subject and its outcome. It never has a body, a header
//! or a secret. The list is in the memory of this instance. Each token has a list of its own, so a
//! token with many requests does not push out the changes of others.

#![forbid(unsafe_code)]

use super::door::{Door, forwarded};
use super::rights::Holder;
use super::serve::Peer;
use axum::extract::{MatchedPath, Request};
use http::{HeaderMap, Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tourbillon_durable::text::show_time;
use url::form_urlencoded;
use utoipa::ToSchema;

/// The number of changes in the list of each token.
pub(crate) const KEPT: usize = 200;

/// The maximum length of a subject in characters.
const MAX_SUBJECT: usize = 300;

/// The fields of queries and forms that are a part of the subject. Other fields may be secret.
const FIELDS: [&str; 14] = [
    "id", "number", "as", "label", "most", "age", "after", "at", "zone", "limit", "do", "q",
    "from", "until",
];

/// The changes that were requested lately.
#[derive(Debug)]
pub(crate) struct Audit {
    begun: SystemTime,
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    /// The number of the latest change.
    latest: u64,
    /// The changes by the name of the token, with their numbers, oldest first.
    by_token: HashMap<Arc<str>, VecDeque<(u64, Change)>>,
}

/// A request to change something.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Change {
    /// The time when it was answered, RFC 3339.
    at: String,
    /// The name of the token.
    token: String,
    /// `api` or `page`.
    door: &'static str,
    /// The method and the route, such as `POST /v1/timers/{id}/pause`.
    operation: String,
    /// The id, the number or the filter. Empty for the whole store.
    subject: String,
    /// The status of the response.
    status: u16,
    /// The number of timers or dead letters that were changed, if the operation is for many.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// The address of the peer, which may be a proxy.
    peer: String,
    /// The header `X-Forwarded-For`, which a proxy may have set.
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarded: Option<String>,
}

/// Details of the operation that a response carries, in its extensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Details {
    /// The number of timers or dead letters that were changed.
    pub(crate) count: Option<u64>,
    /// The fields of a form, encoded as in a query.
    pub(crate) form: String,
}

/// A request that may change something, before it is served.
#[derive(Debug)]
pub(crate) struct Asked {
    holder: Holder,
    door: Door,
    operation: String,
    subject: String,
    peer: String,
    forwarded: Option<String>,
}

impl Details {
    /// Describes an operation that has changed several timers or dead letters.
    pub(crate) fn counted(count: u64) -> Self {
        Self { count: Some(count), form: String::new() }
    }
}

impl Asked {
    /// Describes a request, unless it only reads.
    pub(crate) fn new(holder: &Holder, door: Door, peer: &Peer, request: &Request) -> Option<Self> {
        let (method, uri) = (request.method(), request.uri());
        let can_change = matches!(*method, Method::PUT | Method::POST | Method::DELETE);
        if !can_change || uri.path() == "/logout" {
            return None;
        }
        let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let mut subject = parameters(route, uri.path());
        add_fields(&mut subject, uri.query().unwrap_or_default());
        Some(Self {
            holder: holder.clone(),
            door,
            operation: format!("{method} {route}"),
            subject,
            peer: peer.address().to_string(),
            forwarded: forwarded(request.headers() as &HeaderMap),
        })
    }
}

impl Audit {
    pub(crate) fn new() -> Self {
        Self { begun: now(), changes: Mutex::default() }
    }

    /// Returns the time since when changes are kept.
    pub(crate) fn begun(&self) -> SystemTime {
        self.begun
    }

    /// Logs and keeps a request that was answered.
    pub(crate) fn record(&self, asked: Asked, status: StatusCode, details: Details) {
        let Asked { holder, door, operation, mut subject, peer, forwarded } = asked;
        // The page asks for a confirmation, and nothing is changed yet.
        if matches!(door, Door::Page) && status == StatusCode::OK {
            return;
        }
        let Details { count, form } = details;
        add_fields(&mut subject, &form);
        let subject: String = subject.chars().take(MAX_SUBJECT).collect();
        let (token, door, status) = (&*holder.name, door.label(), status.as_u16());
        tracing::info!(
            target: "audit",
            token, door, operation, ?subject, status, count, peer, forwarded,
            "a change was requested"
        );
        let token = token.to_owned();
        let at = show_time(now());
        let change = Change { at, token, door, operation, subject, status, count, peer, forwarded };
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.latest += 1;
        let number = changes.latest;
        let of_token = changes.by_token.entry(holder.name).or_default();
        of_token.push_back((number, change));
        if of_token.len() > KEPT {
            of_token.pop_front();
        }
    }

    /// Returns up to `limit` changes, latest first.
    pub(crate) fn latest(&self, limit: usize) -> Vec<Change> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<&(u64, Change)> = changes.by_token.values().flatten().collect();
        all.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        all.into_iter().take(limit).map(|(_, change)| change.clone()).collect()
    }
}

#[allow(clippy::disallowed_methods, reason = "people ask when something was changed")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Returns the parts of a path that the parameters of its route stand for.
fn parameters(route: &str, path: &str) -> String {
    let pairs = route.split('/').zip(path.split('/'));
    let values = pairs.filter(|(part, _)| part.starts_with('{'));
    let values = values.map(|(_, value)| percent_decode_str(value).decode_utf8_lossy());
    values.collect::<Vec<_>>().join(" ")
}

/// Adds the fields that may be shown.
fn add_fields(subject: &mut String, query: &str) {
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if FIELDS.contains(&&*name) && !value.is_empty() && subject.len() < 4 * MAX_SUBJECT {
            let space = if subject.is_empty() { "" } else { " " };
            *subject += &format!("{space}{name}={value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;

    fn asked(token: &str, subject: &str) -> Asked {
        Asked {
            holder: Holder { name: token.into(), role: Role::Read },
            door: Door::Api,
            operation: "POST /v1/pause".to_owned(),
            subject: subject.to_owned(),
            peer: "127.0.0.1:1".to_owned(),
            forwarded: None,
        }
    }

    #[test]
    fn a_token_pushes_out_only_its_own_changes() {
        let audit = Audit::new();
        let record = |token, subject: &str| {
            audit.record(asked(token, subject), StatusCode::OK, Details::default());
        };
        record("operator", "first");
        for number in 0..3 * KEPT {
            record("program", &number.to_string());
        }
        let all = audit.latest(usize::MAX);
        assert_eq!(all.len(), KEPT + 1);
        assert_eq!(all[0].subject, (3 * KEPT - 1).to_string(), "latest first");
        assert_eq!((&*all[KEPT].token, &*all[KEPT].subject), ("operator", "first"));
        assert_eq!(audit.latest(2).len(), 2);
    }

    #[test]
    fn a_subject_has_no_unknown_field_and_a_length() {
        let mut subject = parameters("/v1/timers/{id}/run", "/v1/timers/a%20%C3%BC/run");
        add_fields(&mut subject, "token=hunter2&as=b&form_token=hunter2&most=");
        assert_eq!(subject, "a ü as=b");
        let audit = Audit::new();
        let details = Details { count: None, form: "number=1&".repeat(10_000) };
        audit.record(asked("a", &"x".repeat(5000)), StatusCode::OK, details);
        assert_eq!(audit.latest(1)[0].subject.len(), MAX_SUBJECT);
    }
}
