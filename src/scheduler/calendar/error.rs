//! [`CalendarError`]: why there is no such calendar.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;

/// Why there is no such calendar.
///
/// # Examples
///
/// ```
/// use tourbillon::scheduler::{Calendar, CalendarError};
///
/// match Calendar::new("30 25 * * *", "UTC") {
///     Err(CalendarError::Expression { field, .. }) => assert_eq!(field, Some("hour")),
///     other => panic!("{other:?}"),
/// }
/// let error = Calendar::new("30 2 * * *", "Europe/Nowhere").unwrap_err();
/// assert_eq!(error.to_string(), "there is no time zone \"Europe/Nowhere\"");
/// let thirtieth = Calendar::new("0 0 30 2 *", "UTC"); // of February
/// assert!(matches!(thirtieth, Err(CalendarError::Never(_))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CalendarError {
    /// The expression cannot be read.
    Expression {
        /// The field that is wrong, if it is one.
        field: Option<&'static str>,
        /// What is wrong with it.
        reason: String,
    },
    /// The IANA database knows no such zone.
    Zone(String),
    /// The system does not say which zone it is in, or names one that there is not; why.
    SystemZone(String),
    /// Not a day: one is written as `2026-12-25`.
    Day(String),
    /// The expression names no time that ever comes, or all of its times are left out. If none of
    /// several expressions names one, they are listed.
    Never(String),
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalendarError::Expression { field: Some(field), reason } => {
                write!(f, "the field for the {field} cannot be read: {reason}")
            }
            CalendarError::Expression { field: None, reason } => {
                f.write_str(
                    "the expression cannot be read, of five fields, or six with seconds, ",
                )?;
                f.write_str("or in Quartz's dialect six with seconds, or seven with years: ")?;
                f.write_str(reason)
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
