//! [`Webhook`], the request that a timer makes, as it is stored in the payload of the timer.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;
use tourbillon_durable::DurableError;
use tourbillon_durable::text::{TextError, parse_duration};
use utoipa::ToSchema;

/// The longest time limit of a call.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);

/// The request that a timer makes when it is due.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
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
    /// The time limit of a call, such as `30s`, and at most `10m`. The configuration sets the
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<String>,
    /// The name of the secret that signs calls. The default is the secret `default`, if the
    /// configuration has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
}

/// The payload of a timer. Each version stays readable, because timers rest for months.
#[derive(Serialize, Deserialize)]
#[serde(tag = "version")]
enum Stored<W> {
    #[serde(rename = "1")]
    V1(W),
}

/// The error of a text that is not the time limit of a call.
#[derive(Debug)]
pub(crate) enum TimeLimitError {
    /// The text is not a duration.
    Text(TextError),
    /// The duration is zero or too long.
    Range,
}

impl fmt::Display for TimeLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(error) => error.fmt(f),
            Self::Range => f.write_str("expected more than 0 and at most 10m"),
        }
    }
}

impl Error for TimeLimitError {}

fn post() -> String {
    "POST".to_owned()
}

/// Parses the time limit of a call.
pub(crate) fn parse_time_limit(text: &str) -> Result<Duration, TimeLimitError> {
    let limit = parse_duration(text).map_err(TimeLimitError::Text)?;
    match limit <= MAX_TIMEOUT && !limit.is_zero() {
        true => Ok(limit),
        false => Err(TimeLimitError::Range),
    }
}

impl Webhook {
    /// Writes the payload of a timer.
    pub(crate) fn to_payload(&self) -> Result<Vec<u8>, DurableError> {
        let payload = serde_json::to_vec(&Stored::V1(self));
        payload.map_err(|error| DurableError::Json(error.to_string()))
    }

    /// Reads the payload of a timer.
    pub(crate) fn from_payload(payload: &[u8]) -> Result<Self, serde_json::Error> {
        let Stored::V1(webhook) = serde_json::from_slice(payload)?;
        Ok(webhook)
    }
}
