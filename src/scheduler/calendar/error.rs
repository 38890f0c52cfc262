//! [`CalendarError`]: why there is no such calendar.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;

/// Why there is no such calendar.
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
///     r#"cannot read "22-26", the hour of "0 22-26 * * *": out of range (0 to 23)"#,
/// );
/// let error = Calendar::new("30 2 * * *", "Europe/Nowhere").unwrap_err();
/// assert_eq!(error.to_string(), "there is no time zone \"Europe/Nowhere\"");
/// let thirtieth = Calendar::new("0 0 30 2 *", "UTC"); // of February
/// assert!(matches!(thirtieth, Err(CalendarError::Never(_))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CalendarError {
    /// An expression is invalid.
    Expression {
        /// The expression.
        expression: String,
        /// The invalid field, such as `"hour"`; `None` if the error is not in a field.
        field: Option<&'static str>,
        /// The invalid part, as it is written.
        part: String,
        /// The reason why it is invalid, and an alternative.
        reason: &'static str,
        /// The allowed numbers, if `reason` is about numbers.
        allowed: Option<RangeInclusive<u16>>,
    },
    /// The zone is neither in the IANA database nor an offset such as `+02:00`.
    Zone(String),
    /// The system does not say which zone it is in, or names one that there is not; why.
    SystemZone(String),
    /// The text is not a day, which is written as `2026-12-25`.
    Day(String),
    /// No time of the expression ever comes, or all of its times are excluded. If this applies to
    /// all of several expressions, they are listed.
    Never(String),
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalendarError::Expression { expression, field, part, reason, allowed } => {
                match field {
                    Some(field) => write!(f, "cannot read {part:?}, the {field} of ")?,
                    None if part == expression => f.write_str("cannot read ")?,
                    None => write!(f, "cannot read {part:?} in ")?,
                }
                write!(f, "{expression:?}: {reason}")?;
                match allowed {
                    Some(allowed) => write!(f, " ({} to {})", allowed.start(), allowed.end()),
                    None => Ok(()),
                }
            }
            CalendarError::Zone(name) => write!(f, "there is no time zone {name:?}"),
            CalendarError::SystemZone(reason) => {
                write!(f, "the system's time zone cannot be told: {reason}")
            }
            CalendarError::Day(day) => {
                write!(f, "{day:?} is not a day of the calendar, written as 2026-12-25")
            }
            CalendarError::Never(expression) => write!(f, "{expression:?} names no time to come"),
        }
    }
}

impl Error for CalendarError {}
