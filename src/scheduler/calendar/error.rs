//! [`CalendarError`]: the reason why a calendar could not be built.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;

/// The reason why a calendar could not be built.
///
/// # Examples
///
/// ```
/// use tourbillon::scheduler::{Calendar, CalendarError};
///
/// match Calendar::new("30 25 * * *", "UTC") {
///     Err(CalendarError::Expression { field, part, allowed, .. }) => {
///         assert_eq!((field, part.as_str(), allowed), (Some("hour"), "25", Some(0..=23)));
///     }
///     other => panic!("{other:?}"),
/// }
/// let error = Calendar::new("0 22-26 * * *", "UTC").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"invalid hour "22-26" in "0 22-26 * * *": out of range (0 to 23)"#,
/// );
/// let error = Calendar::new("30 2 * * *", "Europe/Nowhere").unwrap_err();
/// assert!(error.to_string().starts_with("unknown time zone \"Europe/Nowhere\""));
/// let thirtieth = Calendar::new("0 0 30 2 *", "UTC"); // of February
/// assert!(matches!(thirtieth, Err(CalendarError::Never(_))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CalendarError {
    /// An expression is invalid.
    Expression {
        /// The whole expression.
        expression: String,
        /// The name of the invalid field, such as `"hour"`, or `None` if the error is not in a
        /// field.
        field: Option<&'static str>,
        /// The invalid part as it was written.
        part: String,
        /// The reason, with an alternative if there is one.
        reason: &'static str,
        /// The allowed numbers, if `reason` is about numbers.
        allowed: Option<RangeInclusive<u16>>,
    },
    /// The time zone is neither in the IANA database nor an offset such as `+02:00`, of at most 18
    /// hours.
    Zone(String),
    /// The system has no time zone, or one that does not exist. Contains the reason.
    SystemZone(String),
    /// The text is not a day in the form `2026-12-25`.
    Day(String),
    /// The expression has no future occurrence, or all of its times are excluded. If several
    /// expressions were given and none has an occurrence, all are listed.
    Never(String),
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalendarError::Expression { expression, field, part, reason, allowed } => {
                match field {
                    Some(field) => write!(f, "invalid {field} {part:?} in ")?,
                    None if part == expression => f.write_str("invalid cron expression ")?,
                    None => write!(f, "invalid part {part:?} in ")?,
                }
                write!(f, "{expression:?}: {reason}")?;
                match allowed {
                    Some(allowed) => write!(f, " ({} to {})", allowed.start(), allowed.end()),
                    None => Ok(()),
                }
            }
            CalendarError::Zone(name) => {
                write!(
                    f,
                    "unknown time zone {name:?}; use an IANA name or an offset such as +02:00, \
                     of at most 18 hours"
                )
            }
            CalendarError::SystemZone(reason) => {
                write!(f, "could not determine the system time zone: {reason}")
            }
            CalendarError::Day(day) => {
                write!(f, "invalid day {day:?}; use the form 2026-12-25")
            }
            CalendarError::Never(expression) => {
                write!(f, "{expression:?} has no future occurrence")
            }
        }
    }
}

impl Error for CalendarError {}
