//! Times and durations as people write them.

#![forbid(unsafe_code)]

use jiff::{Timestamp, Zoned};
use std::time::{Duration, SystemTime};

/// Parses an RFC 3339 time, such as `2030-01-01T09:00:00Z`, or a local time with its zone, such as
/// `2030-01-01T09:00[Europe/Berlin]`.
///
/// # Errors
///
/// Fails if the text has neither form, or the zone is unknown.
pub fn parse_time(text: &str) -> Result<SystemTime, String> {
    let instant = if text.ends_with(']') {
        text.parse::<Zoned>().map(|zoned| zoned.timestamp())
    } else {
        text.parse::<Timestamp>()
    };
    instant.map(SystemTime::from).map_err(|error| {
        format!("{error} (expected 2030-01-01T09:00:00Z or 2030-01-01T09:00[Europe/Berlin])")
    })
}

/// Parses a duration with units, such as `90s`, `1h 30m` or `7d`.
///
/// # Errors
///
/// Fails if a number has no unit, or the unit is unknown.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// Writes a time as RFC 3339 in UTC, with milliseconds.
#[must_use]
pub fn show_time(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => "after the year 9999".to_owned(),
    }
}
