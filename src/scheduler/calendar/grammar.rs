//! [`Fields`]: the grammar of whole expressions, in any dialect.

#![forbid(unsafe_code)]

use super::days::Days;
use super::dialect::Dialect;
use super::error::CalendarError;
use super::field::{CronField, FieldError, FieldValues};

/// The parsed fields of a cron expression.
#[derive(Clone)]
pub(super) struct Fields {
    pub(super) days: Days,
    /// One bit for each second, minute and hour of the expression.
    pub(super) time: [u64; 3],
    /// `true` for fixed times, `false` for a step.
    pub(super) fixed: bool,
}

/// The index of the day of the month among the fields.
const DAY_OF_MONTH: usize = 3;
/// The index of the day of the week among the fields.
const DAY_OF_WEEK: usize = 5;

impl Fields {
    /// Parses an expression. If it has no seconds, `seconds` is used for them.
    pub(super) fn read(text: &str, dialect: Dialect, seconds: &str) -> Result<Self, CalendarError> {
        let (given, dialect) = split_fields(text, dialect, seconds)?;
        let fields = CronField::all(dialect);
        let invalid = |index: usize, FieldError { part, reason, allowed }| {
            let (expression, field) = (text.to_owned(), Some(fields[index].name));
            CalendarError::Expression { expression, field, part, reason, allowed }
        };
        let mut values: [FieldValues; 7] = Default::default();
        for (index, field) in fields.iter().enumerate() {
            values[index] = field.read(given[index]).map_err(|error| invalid(index, error))?;
        }
        let days = [given[DAY_OF_MONTH], given[DAY_OF_WEEK]];
        if dialect == Dialect::Quartz {
            check_days(days).map_err(|error| invalid(DAY_OF_WEEK, error))?;
        }
        let starts_with_star = |day: &str| day.len() > 1 && day.starts_with('*');
        let both = dialect == Dialect::Unix && days.into_iter().any(starts_with_star);
        let [second, minute, hour, of_month, months, of_week, years] = values;
        let time = [second, minute, hour];
        let bits =
            |field: &FieldValues| field.numbers.iter().fold(0, |bits, number| bits | 1 << number);
        Ok(Self {
            time: time.each_ref().map(bits),
            fixed: !time.iter().any(|field| field.is_open),
            days: Days { of_month, months, of_week, years, both },
        })
    }
}

/// Splits an expression into seven fields. A nickname has the dialect of Unix.
fn split_fields<'t>(
    text: &'t str,
    dialect: Dialect,
    seconds: &'t str,
) -> Result<([&'t str; 7], Dialect), CalendarError> {
    let refused = |part: &str, reason| {
        let (expression, part) = (text.to_owned(), part.to_owned());
        Err(CalendarError::Expression { expression, field: None, part, reason, allowed: None })
    };
    let given: Vec<&str> = text.split_whitespace().collect();
    if let Some((part, reason)) = given.iter().find_map(|part| Some((part, foreign_syntax(part)?)))
    {
        return refused(part, reason);
    }
    match (dialect, &given[..]) {
        (_, &[nickname]) if nickname.starts_with('@') => match expand_nickname(nickname) {
            Some([minute, hour, day, month, weekday]) => {
                Ok(([seconds, minute, hour, day, month, weekday, "*"], Dialect::Unix))
            }
            None => refused(
                nickname,
                "unknown nickname; use `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, \
                 `@midnight` or `@hourly`",
            ),
        },
        (Dialect::Unix, &[minute, hour, day, month, weekday]) => {
            Ok(([seconds, minute, hour, day, month, weekday, "*"], dialect))
        }
        (_, &[second, minute, hour, day, month, weekday]) => {
            Ok(([second, minute, hour, day, month, weekday, "*"], dialect))
        }
        (Dialect::Quartz, &[second, minute, hour, day, month, weekday, year])
        | (Dialect::Unix, &[second, minute, hour, day, month, weekday, year @ "*"]) => {
            Ok(([second, minute, hour, day, month, weekday, year], dialect))
        }
        (Dialect::Unix, &[.., year]) if given.len() == 7 => refused(
            year,
            "years need the dialect of Quartz, in which one of the two days is `?` and weekdays count \
             from 1 for Sunday",
        ),
        (Dialect::Unix, _) => refused(
            text,
            "expected five fields (minute, hour, day of the month, month, day of the week), or \
             six with seconds first",
        ),
        (Dialect::Quartz, _) => refused(
            text,
            "expected six fields (second, minute, hour, day of the month, month, day of the week), \
             or seven with years last",
        ),
    }
}

/// Returns the five fields that a nickname stands for.
fn expand_nickname(nickname: &str) -> Option<[&'static str; 5]> {
    match nickname.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => Some(["0", "0", "1", "1", "*"]),
        "@monthly" => Some(["0", "0", "1", "*", "*"]),
        "@weekly" => Some(["0", "0", "*", "*", "0"]),
        "@daily" | "@midnight" => Some(["0", "0", "*", "*", "*"]),
        "@hourly" => Some(["0", "*", "*", "*", "*"]),
        _ => None,
    }
}

/// Recognises the syntax of other programs, and returns what to use instead.
fn foreign_syntax(part: &str) -> Option<&'static str> {
    let upper = part.to_ascii_uppercase();
    match upper.as_str() {
        "@REBOOT" => Some("not a calendar time; use `Scheduler::after` at program start"),
        "@EVERY" => Some("not a calendar time; use `Scheduler::every` for a period"),
        _ if upper.starts_with("CRON_TZ=") || upper.starts_with("TZ=") => {
            Some("not part of an expression; use `CalendarBuilder::zone` for a time zone")
        }
        _ if upper.starts_with('#') => Some("comments are not supported"),
        _ => None,
    }
}

/// Rejects what Quartz rejects: exactly one of the two days must be `?`.
fn check_days(days: [&str; 2]) -> Result<(), FieldError> {
    let reason = match days.map(|day| day == "?") {
        [true, false] | [false, true] => return Ok(()),
        [true, true] => "only one of the two days may be `?`, and the day of the month is too",
        [false, false] => "one of the two days must be `?`, and the day of the month is given too",
    };
    Err(FieldError { part: days[1].to_owned(), reason, allowed: None })
}
