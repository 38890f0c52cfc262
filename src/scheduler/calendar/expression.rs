//! [`Expression`]: a cron expression, in the dialect that it is written in. The only file that
//! knows the crate that reads them (`croner`), which finds the times on a wall clock that nobody
//! changes.

#![forbid(unsafe_code)]

use super::error::CalendarError;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::SignedDuration;
use jiff::civil::{DateTime, Time};
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// How a cron expression is written, and which convention the numbers of its weekdays follow. Names
/// (`MON-FRI`) are the same in both.
///
/// Both know lists, ranges, steps, `?` for a day that is not given, `L` for the last day of a
/// month, `LW` for its last weekday, `15W` for the weekday nearest to the 15th, `FRI#3` for the
/// third Friday and `FRIL` for the last; and, for a whole expression, `@yearly`, `@monthly`,
/// `@weekly`, `@daily` and `@hourly`. A range does not go over the end: `22-23,0-2`, and not
/// `22-2`.
///
/// # Examples
///
/// ```
/// use tourbillon::scheduler::{Calendar, Dialect};
///
/// let unix = Calendar::builder("15 10 * * 1-5").build()?;
/// let quartz = Calendar::builder("0 15 10 ? * 2-6").dialect(Dialect::Quartz).build()?;
/// let now = std::time::SystemTime::now();
/// assert_eq!(unix.next_after(now), quartz.next_after(now)); // Monday to Friday
/// # Ok::<(), tourbillon::scheduler::CalendarError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Five fields (minute, hour, day of the month, month, day of the week) or six, with seconds
    /// first. Weekdays from 0 or 7 for Sunday to 6 for Saturday. If both days are given, either
    /// will do; but both must hold if one is a step from a star, as in Vixie's cron:
    /// `0 0 1-7 * */7` is the first Sunday of a month.
    #[default]
    Unix,
    /// That of Quartz: six fields, with seconds, or seven, with years last. Weekdays from 1 for
    /// Sunday to 7 for Saturday; `L` alone is a Saturday. `0/15` is every 15 from 0, and steps of
    /// years count from 1970. `L-3` is the third day before the last of a month. One of the two
    /// days is `?` or `*`.
    Quartz,
}

/// A cron expression.
#[derive(Clone)]
pub(super) struct Expression {
    cron: Cron,
    /// How many days before the last of a month it means, if it counts from there: then `cron`
    /// finds each day that may be so many before.
    before_last: Option<i8>,
    /// Whether it means fixed times, and not a step.
    pub(super) fixed: bool,
    /// A bit for each second, minute and hour that it names.
    time: [u64; 3],
}

/// All seconds, minutes and hours.
const ALWAYS: [u64; 3] = [(1 << 60) - 1, (1 << 60) - 1, (1 << 24) - 1];

/// The fields of an expression of seven. One of six has no years, one of five no seconds either.
const FIELDS: [&str; 7] =
    ["second", "minute", "hour", "day of the month", "month", "day of the week", "year"];

const DAY_OF_MONTH: usize = 3;
const MONTH: usize = 4;
const DAY_OF_WEEK: usize = 5;
const YEAR: usize = 6;

/// How many days a month may have.
const LENGTHS: RangeInclusive<i8> = 28..=31;

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Expression {
    /// From this year on no times are found.
    pub(super) const NO_YEAR: i16 = 5000;

    /// Reads it.
    pub(super) fn read(text: &str, dialect: Dialect) -> Result<Self, CalendarError> {
        let (text, before_last) = match dialect {
            Dialect::Unix => (Cow::Borrowed(text), None),
            Dialect::Quartz => {
                let (text, before_last) = from_quartz(text)?;
                (Cow::Owned(text), before_last)
            }
        };
        refuse_misplaced(&text)?;
        let parser = dialect.parser(&text);
        let cron = parser.parse(&text).map_err(|error| unreadable(dialect, &text, error))?;
        let times = [&cron.pattern.seconds, &cron.pattern.minutes, &cron.pattern.hours];
        let fixed = !times.iter().any(|field| field.from_wildcard) && !has_open_step(&text);
        let time =
            times.map(|field| field.values().iter().fold(0, |bits, value| bits | 1 << value));
        Ok(Self { cron, before_last, fixed, time })
    }

    /// Reads one that leaves times out: whole minutes, if it tells no seconds.
    pub(super) fn read_exclusion(text: &str, dialect: Dialect) -> Result<Self, CalendarError> {
        match (dialect, given(text).1.len()) {
            (Dialect::Unix, 5) => Self::read(&format!("* {text}"), dialect),
            _ => Self::read(text, dialect),
        }
    }

    /// The first time after `time`, or at it if that counts.
    pub(super) fn next(&self, time: &DateTime, inclusive: bool) -> Option<DateTime> {
        let mut next = self.cron.find_next_occurrence(time, inclusive).ok()?;
        // One day of each month is the one; so this ends within the months that are asked for.
        while self.before_last.is_some_and(|days| next.day() != next.date().days_in_month() - days)
        {
            next = self.cron.find_next_occurrence(&Self::midnight_after(next)?, true).ok()?;
        }
        Some(next)
    }

    /// Returns `true` if `time` is one of its times.
    pub(super) fn names(&self, time: &DateTime) -> bool {
        let days = time.date().days_in_month() - time.day();
        self.before_last.is_none_or(|before| before == days)
            && self.cron.is_time_matching(time).unwrap_or(false)
    }

    /// Returns `time`, or the first time after it that is not one of its times.
    pub(super) fn unnamed_from(&self, mut time: DateTime) -> Option<DateTime> {
        while self.names(&time) {
            let [seconds, minutes, hours] = [0, 1, 2].map(|unit| self.time[unit] == ALWAYS[unit]);
            let of_day = time.time();
            time = match (seconds, minutes, hours) {
                (false, ..) => time.checked_add(SignedDuration::from_secs(1)).ok()?,
                (true, false, _) => {
                    let minute = of_day.with().second(0).build().ok()?;
                    time.date()
                        .to_datetime(minute)
                        .checked_add(SignedDuration::from_mins(1))
                        .ok()?
                }
                (true, true, false) => {
                    let hour = of_day.with().minute(0).second(0).build().ok()?;
                    time.date().to_datetime(hour).checked_add(SignedDuration::from_hours(1)).ok()?
                }
                (true, true, true) => Self::midnight_after(time)?,
            };
        }
        Some(time)
    }

    /// Returns `true` if each of its times of day is one of `other`.
    pub(super) fn is_within_hours_of(&self, other: &Self) -> bool {
        self.time.iter().zip(other.time).all(|(time, other)| time & !other == 0)
    }

    /// Returns the midnight at the end of the day of `time`.
    pub(super) fn midnight_after(time: DateTime) -> Option<DateTime> {
        Some(time.date().tomorrow().ok()?.to_datetime(Time::midnight()))
    }

    /// As it was read, but for what other dialects write otherwise.
    pub(super) fn text(&self) -> &str {
        self.cron.as_str()
    }
}

impl Dialect {
    /// What reads an expression of this dialect, such as this one.
    fn parser(self, text: &str) -> CronParser {
        let parser = CronParser::builder();
        let parser = match self {
            Self::Unix => {
                let parser = parser.seconds(Seconds::Optional).year(Year::Disallowed);
                parser.dom_and_dow(has_day_of_star(text))
            }
            Self::Quartz => {
                let parser = parser.seconds(Seconds::Required).year(Year::Optional);
                parser.alternative_weekdays(true).sloppy_ranges(true)
            }
        };
        parser.build()
    }

    /// How a field that cannot be read may have been meant.
    fn hint(self, field: &str) -> Option<&'static str> {
        let mut parts = field.split(',');
        let over_the_end = |part: &str| {
            let (from, to) = part.split_once('-')?;
            Some(from.parse::<u32>().ok()? > to.split('/').next()?.parse().ok()?)
        };
        let steps_from_a_number =
            |part: &str| part.split_once('/').is_some_and(|(from, _)| from.parse::<u32>().is_ok());
        if self == Self::Unix && parts.clone().any(steps_from_a_number) {
            return Some("; `0/15` is Quartz's (`Dialect::Quartz`), and here `*/15` or `0-59/15`");
        }
        let over = parts.any(|part| over_the_end(part) == Some(true));
        over.then_some("; a range does not go over the end: write `22-23,0-2` for `22-2`")
    }
}

/// What Quartz means, for `croner`: a Saturday that is written `L`, years from 1970, and each day
/// that may be so many before a month's last, with how many. Refuses two days, as Quartz does.
fn from_quartz(text: &str) -> Result<(String, Option<i8>), CalendarError> {
    let mut fields: Vec<Cow<'_, str>> = text.split_whitespace().map(Cow::Borrowed).collect();
    let is_given = |place: usize| fields.get(place).is_some_and(|day| !matches!(&**day, "?" | "*"));
    if is_given(DAY_OF_MONTH) && is_given(DAY_OF_WEEK) {
        let reason = "a day of the month is given too; one of both must be `?`".to_owned();
        return Err(CalendarError::Expression { field: Some(FIELDS[DAY_OF_WEEK]), reason });
    }
    if let Some(day) = fields.get_mut(DAY_OF_WEEK).filter(|day| day.eq_ignore_ascii_case("L")) {
        *day = "SAT".into();
    }
    if let Some(years) = fields.get_mut(YEAR) {
        let from_1970 = |part: &str| match part.strip_prefix('*').unwrap_or(part).strip_prefix('/')
        {
            Some(step) => format!("1970/{step}"),
            None => part.to_owned(),
        };
        *years = years.split(',').map(from_1970).collect::<Vec<_>>().join(",").into();
    }
    let before_last = fields.get(DAY_OF_MONTH).and_then(|day| days_before_last(day));
    if let Some(before) = before_last {
        let days = LENGTHS.map(|length| length - before).filter(|&day| day > 0);
        fields[DAY_OF_MONTH] = days.map(|day| day.to_string()).collect::<Vec<_>>().join(",").into();
    }
    Ok((fields.join(" "), before_last))
}

/// How many days before the last of a month a field means, if that is what it means.
fn days_before_last(field: &str) -> Option<i8> {
    let days = field.strip_prefix(['L', 'l'])?.strip_prefix('-')?;
    // Not a sign as well.
    let days = days.parse::<u8>().ok().filter(|_| !days.starts_with('+'))?;
    i8::try_from(days).ok().filter(|days| days < LENGTHS.end())
}

/// Whether one of the two days is a star, and not that alone.
fn has_day_of_star(text: &str) -> bool {
    let (first, given) = given(text);
    let days = [DAY_OF_MONTH, DAY_OF_WEEK].map(|place| given.get(place - first));
    days.into_iter().flatten().any(|day| day.len() > 1 && day.starts_with('*'))
}

/// Whether a second, minute or hour goes on in steps from a number (`0/15`), as from a star.
fn has_open_step(text: &str) -> bool {
    let (first, given) = given(text);
    let times = given.into_iter().take(DAY_OF_MONTH - first);
    let mut parts = times.flat_map(|field| field.split(','));
    parts.any(|part| part.split_once('/').is_some_and(|(from, _)| !from.contains('-')))
}

/// The fields that are given, and the place in [`FIELDS`] of the first; none of a nickname.
fn given(text: &str) -> (usize, Vec<&str>) {
    let given: Vec<&str> = text.split_whitespace().collect();
    match given.len() {
        5 => (1, given),
        6 | 7 => (0, given),
        _ => (0, Vec::new()),
    }
}

/// Refuses what `croner` reads and nobody means: `MON` as an hour, `15W3` as `15W`, `2#3L` as `2L`.
fn refuse_misplaced(text: &str) -> Result<(), CalendarError> {
    let (first, given) = given(text);
    let mut fields = given.into_iter().enumerate();
    let wrong = fields.find_map(|(place, field)| {
        let part = misplaced(first + place, &field.to_ascii_uppercase())?;
        Some((FIELDS[first + place], format!("`{part}` has no meaning there")))
    });
    match wrong {
        Some((name, reason)) => Err(CalendarError::Expression { field: Some(name), reason }),
        None => Ok(()),
    }
}

/// The part of a field that has no meaning there.
fn misplaced(place: usize, field: &str) -> Option<String> {
    let is_misplaced = |part: &&str| match place {
        // The other days of a list with `LW` would be forgotten.
        DAY_OF_MONTH if part.contains('W') => {
            part.find('W') != Some(part.len() - 1) || *part == "LW" && *part != field
        }
        DAY_OF_WEEK if *part == "L" || part.contains('#') && part.ends_with('L') => true,
        // Both days are to hold: said by a star, and not by a sign.
        _ if part.contains('+') || part.contains('?') && *part != "?" => true,
        _ => words(part).any(|word| !is_known(place, word)),
    };
    field.split(',').find(is_misplaced).map(str::to_owned)
}

fn words(part: &str) -> impl Iterator<Item = &str> {
    part.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| !word.is_empty())
}

fn is_known(place: usize, word: &str) -> bool {
    match place {
        DAY_OF_MONTH => word == "L",
        MONTH => MONTHS.contains(&word),
        DAY_OF_WEEK => word == "L" || DAYS.contains(&word.strip_suffix('L').unwrap_or(word)),
        _ => false,
    }
}

/// Finds the field that is wrong: the first that cannot be read among fields that can.
fn unreadable(dialect: Dialect, text: &str, error: CronError) -> CalendarError {
    let (parser, (first, given)) = (dialect.parser(text), given(text));
    let names = FIELDS.iter().skip(first);
    let wrong = names.zip(&given).enumerate().find_map(|(place, (name, field))| {
        let mut alone = vec!["*"; given.len()];
        *alone.get_mut(place)? = field;
        // Nothing else is wrong with a pattern of stars, unless it has too many fields.
        parser.parse(&vec!["*"; given.len()].join(" ")).ok()?;
        let reason = said(parser.parse(&alone.join(" ")).err()?);
        Some((*name, reason + dialect.hint(field).unwrap_or_default()))
    });
    match wrong {
        Some((name, reason)) => CalendarError::Expression { field: Some(name), reason },
        None => CalendarError::Expression { field: None, reason: said(error) },
    }
}

/// What is wrong, without a word on whose component that is.
fn said(error: CronError) -> String {
    match error {
        CronError::ComponentError(what) => what,
        error => error.to_string(),
    }
}
