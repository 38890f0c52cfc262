//! [`TextError`], the error of a single value.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;

/// The error of a text that is not the value it should be. It says what is expected.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::text::{TextError, parse_position, parse_state};
///
/// assert_eq!(parse_position("order 7"), Err(TextError::Position));
/// let error = parse_state("tired").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "expected one of resting, retrying, running, pausing, cancelling, paused",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextError {
    /// The text is not a time, for this reason.
    Time(String),
    /// The text is not a duration, for this reason.
    Duration(String),
    /// This text is not a range of two durations, or the first duration is longer than the second.
    Range(String),
    /// One end of a range is not a duration.
    End {
        /// The text of the end.
        text: String,
        /// The reason.
        why: Box<TextError>,
    },
    /// The text is none of these names.
    Name(Vec<&'static str>),
    /// The text is not a position in a list.
    Position,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(why) => write!(
                f,
                "{why} (expected 2030-01-01T09:00:00Z or 2030-01-01T09:00[Europe/Berlin])"
            ),
            Self::Duration(why) => f.write_str(why),
            Self::Range(text) => write!(f, "{text:?}: expected a range such as 1s..10m"),
            Self::End { text, why } => write!(f, "{text:?}: {why}"),
            Self::Name(names) => write!(f, "expected one of {}", names.join(", ")),
            Self::Position => f.write_str("expected the `next` of a list"),
        }
    }
}

impl Error for TextError {}
