//! [`Webhook`], the request that a timer makes, as it lies in the payload of the timer.

#![forbid(unsafe_code)]

use http::{HeaderName, HeaderValue, Method, Uri};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;
use timers::parse_duration;
use tourbillon_durable::DurableError;
use utoipa::ToSchema;

/// Headers that belong to the connection or to the service.
const RESERVED: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The longest time limit of a call.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

/// The request that a timer makes when it is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// The URL, `http://` or `https://`.
    pub(crate) url: String,
    /// `GET`, `POST` (the default), `PUT`, `PATCH` or `DELETE`.
    #[serde(default = "post")]
    pub(crate) method: String,
    /// The headers, except those that the service sets itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, String>,
    /// The body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) body: String,
    /// The time limit of a call, such as `30s`, and at most `10m`. The default is that of the
    /// configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<String>,
    /// The name of the secret with which calls are signed. The default is the secret `default`, if
    /// the configuration has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
}

/// The payload of a timer. Each version stays readable, because timers rest for months.
#[derive(Serialize, Deserialize)]
#[serde(tag = "version")]
enum Stored {
    #[serde(rename = "1")]
    V1(Webhook),
}

fn post() -> String {
    "POST".to_owned()
}

/// Parses the time limit of a call.
pub(crate) fn parse_time_limit(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(limit) if limit <= LONGEST_TIMEOUT && !limit.is_zero() => Ok(limit),
        Ok(_) => Err("expected more than 0 and at most 10m".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Webhook {
    /// Writes the payload of a timer.
    pub(crate) fn to_payload(&self) -> Result<Vec<u8>, DurableError> {
        let stored = Stored::V1(self.clone());
        serde_json::to_vec(&stored).map_err(|error| DurableError::Json(error.to_string()))
    }

    /// Reads the payload of a timer.
    pub(crate) fn from_payload(payload: &[u8]) -> Result<Self, String> {
        let Stored::V1(webhook) = serde_json::from_slice(payload)
            .map_err(|error| format!("the payload is not a webhook: {error}"))?;
        Ok(webhook)
    }

    /// Checks everything that can be checked before the call.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.uri()?;
        self.method()?;
        self.time_limit()?;
        self.header_pairs().try_for_each(|pair| pair.map(drop))
    }

    pub(crate) fn uri(&self) -> Result<Uri, String> {
        let uri = Uri::from_str(&self.url).map_err(|error| format!("url: {error}"))?;
        let authority = uri.authority().map(http::uri::Authority::as_str);
        match (uri.scheme_str(), authority) {
            (Some("http" | "https"), Some(authority)) if !authority.contains('@') => Ok(uri),
            (Some("http" | "https"), Some(_)) => {
                Err("url: must not contain a user name or password".to_owned())
            }
            _ => Err("url: expected http://HOST/… or https://HOST/…".to_owned()),
        }
    }

    pub(crate) fn method(&self) -> Result<Method, String> {
        match &*self.method {
            "GET" | "POST" | "PUT" | "PATCH" | "DELETE" => {
                Method::from_str(&self.method).map_err(|error| format!("method: {error}"))
            }
            _ => Err("method: expected GET, POST, PUT, PATCH or DELETE".to_owned()),
        }
    }

    pub(crate) fn time_limit(&self) -> Result<Option<Duration>, String> {
        let limit = self.timeout.as_deref().map(parse_time_limit).transpose();
        limit.map_err(|why| format!("timeout: {why}"))
    }

    pub(crate) fn header_pairs(
        &self,
    ) -> impl Iterator<Item = Result<(HeaderName, HeaderValue), String>> {
        self.headers.iter().map(|(name, value)| checked_header(name, value))
    }
}

/// Returns a header of a call, unless it is set by the service.
pub(crate) fn checked_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let named = HeaderName::from_str(name).map_err(|error| format!("header {name:?}: {error}"))?;
    if RESERVED.contains(&named.as_str()) || named.as_str().starts_with("webhook-") {
        return Err(format!("header {name:?}: is set by the service itself"));
    }
    let value = HeaderValue::from_str(value);
    Ok((named, value.map_err(|error| format!("header {name:?}: {error}"))?))
}
