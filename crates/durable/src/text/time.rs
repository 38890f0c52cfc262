//! Times and durations as people write them.

#![forbid(unsafe_code)]

use crate::model::backoff::Backoff;
use crate::text::error::TextError;
use jiff::{Timestamp, Zoned};
use std::time::{Duration, SystemTime};

/// Parses an RFC 3339 time, such as `2030-01-01T09:00:00Z`, or a local time with its zone, such as
/// `2030-01-01T09:00[Europe/Berlin]`.
///
/// # Errors
///
/// Fails if the text has neither form, or the zone is unknown.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::text::{parse_time, show_time};
///
/// let nine = parse_time("2030-01-01T09:00[Europe/Berlin]")?;
/// assert_eq!(show_time(nine), "2030-01-01T08:00:00.000Z");
/// assert!(parse_time("tomorrow").is_err());
/// # Ok::<(), tourbillon_durable::text::TextError>(())
/// ```
pub fn parse_time(text: &str) -> Result<SystemTime, TextError> {
    let instant = if text.ends_with(']') {
        text.parse::<Zoned>().map(|zoned| zoned.timestamp())
    } else {
        text.parse::<Timestamp>()
    };
    instant.map(SystemTime::from).map_err(|error| TextError::Time(error.to_string()))
}

/// Parses a duration with units, such as `90s`, `1h 30m` or `7d`.
///
/// # Errors
///
/// Fails if a number has no unit, or the unit is unknown.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::text::parse_duration;
///
/// assert_eq!(parse_duration("1h 30m"), Ok(Duration::from_secs(5400)));
/// assert!(parse_duration("90").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, TextError> {
    humantime::parse_duration(text).map_err(|error| TextError::Duration(error.to_string()))
}

/// Parses the first and the longest wait between attempts, such as `1s..10m`. The waits are
/// shortened by up to half at random.
///
/// # Errors
///
/// Fails if the text is not such a range.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::Backoff;
/// use tourbillon_durable::text::parse_backoff;
///
/// let (first, longest) = (Duration::from_secs(1), Duration::from_secs(600));
/// assert_eq!(parse_backoff("1s..10m"), Ok(Backoff::new(first, longest).jitter()));
/// let error = parse_backoff("10m..1s").unwrap_err();
/// assert_eq!(error.to_string(), "\"10m..1s\": expected a range such as 1s..10m");
/// ```
pub fn parse_backoff(text: &str) -> Result<Backoff, TextError> {
    let range = || TextError::Range(text.to_owned());
    let (first, most) = text.split_once("..").ok_or_else(range)?;
    let end = |text: &str| {
        let wrong = |why| TextError::End { text: text.to_owned(), why: Box::new(why) };
        parse_duration(text).map_err(wrong)
    };
    let (first, most) = (end(first)?, end(most)?);
    match first <= most {
        true => Ok(Backoff::new(first, most).jitter()),
        false => Err(range()),
    }
}

/// Writes a time as RFC 3339 in UTC, with milliseconds.
///
/// # Examples
///
/// ```
/// use std::time::SystemTime;
/// use tourbillon_durable::text::show_time;
///
/// assert_eq!(show_time(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
/// ```
#[must_use]
pub fn show_time(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => "after the year 9999".to_owned(),
    }
}
