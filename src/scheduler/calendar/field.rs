//! [`CronField`]: one field of a cron expression, and its grammar.
//!
//! ```text
//! field = part { "," part }
//! part  = ( "*" | value | value "-" value ) [ "/" step ] | word
//! value = number | name
//! word  = "L" | number "W"               a day of the month
//!       | value "#" number | value "L"   a day of the week
//! ```
//!
//! The words `?`, `LW` and Quartz's `L-3` stand alone in their field.

#![forbid(unsafe_code)]

use super::dialect::Dialect;
use super::relative_day::RelativeDay;
use jiff::civil::Date;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// The reason why a step from a weekday is refused.
const OPEN_WEEKDAYS: &str = "programs differ about the Sunday at the end of such a step; use a \
                             range such as `1-6/3`, or a list";

/// The grammar of one field.
pub(super) struct CronField {
    pub(super) name: &'static str,
    kind: Kind,
    /// The allowed numbers.
    allowed: RangeInclusive<u16>,
    /// The number of different values before they repeat.
    cycle: u16,
    /// The first number in [`FieldValues`]. For weekdays, Sunday is 0.
    first: u16,
    dialect: Dialect,
}

/// The kind of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    DayOfMonth,
    Month,
    DayOfWeek,
    Year,
}

/// The values that a field selects.
#[derive(Clone, Default)]
pub(super) struct FieldValues {
    /// The numbers. For weekdays, Sunday is 0.
    pub(super) numbers: BTreeSet<u16>,
    relative: Vec<RelativeDay>,
    /// `true` if the field is only a star or a question mark.
    pub(super) any: bool,
    /// `true` if the field has a step from a star or from a number.
    pub(super) is_open: bool,
}

/// The reason why a part of a field is invalid.
pub(super) struct FieldError {
    pub(super) part: String,
    pub(super) reason: &'static str,
    pub(super) allowed: Option<RangeInclusive<u16>>,
}

/// The reason and the allowed numbers, before the part is known.
type Unread = (&'static str, Option<RangeInclusive<u16>>);

impl CronField {
    /// Returns the fields of an expression, from seconds to years.
    pub(super) fn all(dialect: Dialect) -> [Self; 7] {
        let field = |name, kind, allowed: RangeInclusive<u16>| {
            let (first, cycle) = (*allowed.start(), allowed.end() - allowed.start() + 1);
            Self { name, kind, allowed, cycle, first, dialect }
        };
        let weekdays = match dialect {
            Dialect::Unix => 0..=7,
            Dialect::Quartz => 1..=7,
        };
        [
            field("second", Kind::Time, 0..=59),
            field("minute", Kind::Time, 0..=59),
            field("hour", Kind::Time, 0..=23),
            field("day of the month", Kind::DayOfMonth, 1..=31),
            field("month", Kind::Month, 1..=12),
            Self { cycle: 7, first: 0, ..field("day of the week", Kind::DayOfWeek, weekdays) },
            field("year", Kind::Year, 1970..=4999),
        ]
    }

    /// Parses a field.
    pub(super) fn read(&self, text: &str) -> Result<FieldValues, FieldError> {
        let upper = text.to_ascii_uppercase();
        let error = |part: &str, (reason, allowed): Unread| FieldError {
            part: if part.is_empty() { text } else { part }.to_owned(),
            reason,
            allowed,
        };
        if let Some(values) = self.read_alone(&upper).map_err(|unread| error(text, unread))? {
            return Ok(values);
        }
        let mut values = FieldValues { any: upper == "*", ..FieldValues::default() };
        for (part, written) in upper.split(',').zip(text.split(',')) {
            self.read_part(part, &mut values).map_err(|unread| error(written, unread))?;
        }
        Ok(values)
    }

    /// Parses a word that stands alone in its field. Returns `None` for other texts.
    fn read_alone(&self, text: &str) -> Result<Option<FieldValues>, Unread> {
        let quartz = self.dialect == Dialect::Quartz;
        let values = match (self.kind, text) {
            (Kind::DayOfMonth | Kind::DayOfWeek, "?") => {
                FieldValues { any: true, ..FieldValues::default() }
            }
            (Kind::DayOfMonth, "LW") => {
                FieldValues { relative: vec![RelativeDay::LastWorkday], ..FieldValues::default() }
            }
            (Kind::DayOfWeek, "L") if quartz => {
                FieldValues { numbers: BTreeSet::from([6]), ..FieldValues::default() }
            }
            (Kind::DayOfMonth, _) if text.starts_with("L-") => return self.before_last(&text[2..]),
            _ => return Ok(None),
        };
        Ok(Some(values))
    }

    /// Parses the rest of `L-3`, the number of days before the last of a month.
    fn before_last(&self, days: &str) -> Result<Option<FieldValues>, Unread> {
        if self.dialect == Dialect::Unix {
            return Err(("days before the last of a month need the dialect of Quartz", None));
        }
        if days.contains(|sign: char| !sign.is_ascii_digit()) {
            return Err(("`L-` needs a number of days, alone in its field", None));
        }
        let before = days.parse::<i8>().ok().filter(|days| *days <= 30);
        let before = before.ok_or(("too many days before the last of a month", Some(0..=30)))?;
        let relative = vec![RelativeDay::BeforeLast(before)];
        Ok(Some(FieldValues { relative, ..FieldValues::default() }))
    }

    /// Parses one item of a list and adds its values.
    fn read_part(&self, part: &str, values: &mut FieldValues) -> Result<(), Unread> {
        if part.is_empty() {
            return Err(("the list has an empty item", None));
        }
        let (base, step) = match part.split_once('/') {
            Some((base, step)) => (base, Some(self.step(step)?)),
            None => (part, None),
        };
        if let (None, Some(day)) = (step, self.relative(base)?) {
            values.relative.push(day);
            return Ok(());
        }
        let last = self.allowed.start() + self.cycle - 1;
        let (from, to) = match (base.split_once('-'), step) {
            _ if base == "*" || base.is_empty() && self.dialect == Dialect::Quartz => {
                values.is_open = true;
                (*self.allowed.start(), last)
            }
            _ if base.is_empty() => return Err(("a step needs a start, such as `*`", None)),
            (Some((from, to)), _) => self.range(from, to)?,
            (None, Some(step)) => {
                values.is_open = true;
                let first = self.allowed.start() + self.in_cycle(self.value(base)?);
                if self.kind == Kind::DayOfWeek && self.may_reach_sunday(first, step) {
                    return Err((OPEN_WEEKDAYS, None));
                }
                (first, last)
            }
            (None, None) => {
                let value = self.value(base)?;
                (value, value)
            }
        };
        let numbers = (from..=to).step_by(step.unwrap_or(1).into());
        values.numbers.extend(numbers.map(|number| self.first + self.in_cycle(number)));
        Ok(())
    }

    /// Returns `true` if steps from a weekday reach the number 7, a Sunday. For some readers of
    /// cron expressions the steps end there. For others the week ends with a Saturday.
    fn may_reach_sunday(&self, first: u16, step: u16) -> bool {
        const SUNDAY: u16 = 7;
        self.dialect == Dialect::Unix && first > 0 && (SUNDAY - first) % step == 0
    }

    /// Parses a range, whose end may lie in the next cycle.
    fn range(&self, from: &str, to: &str) -> Result<(u16, u16), Unread> {
        let (from, to) = (self.value(from)?, self.value(to)?);
        match (from <= to, self.kind) {
            (true, _) => Ok((from, to)),
            (false, Kind::Year) => Err(("a range of years cannot wrap around", None)),
            (false, _) => Ok((from, to + self.cycle)),
        }
    }

    /// Parses a day that depends on the month.
    fn relative(&self, text: &str) -> Result<Option<RelativeDay>, Unread> {
        let weekday = |day: &str| Ok(self.in_cycle(self.value(day)?));
        match self.kind {
            Kind::DayOfMonth if text == "L" => Ok(Some(RelativeDay::BeforeLast(0))),
            Kind::DayOfMonth if text == "LW" => Err(("`LW` must be alone in its field", None)),
            Kind::DayOfMonth => match text.strip_suffix('W') {
                Some(day) => Ok(Some(RelativeDay::NearestWorkday(self.value(day)?))),
                None => Ok(None),
            },
            Kind::DayOfWeek => match (text.split_once('#'), text.strip_suffix('L')) {
                (Some((day, nth)), _) => {
                    let nth = within(nth, 1..=5, "out of range after `#`", "not a number")?;
                    Ok(Some(RelativeDay::Nth(weekday(day)?, nth)))
                }
                (None, Some("")) => Err(("`L` must follow a weekday, as in `5L`", None)),
                (None, Some(day)) => Ok(Some(RelativeDay::Last(weekday(day)?))),
                (None, None) => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Parses a number or a name.
    fn value(&self, text: &str) -> Result<u16, Unread> {
        let names: &[&str] = match self.kind {
            Kind::Month => &MONTHS,
            Kind::DayOfWeek => &WEEKDAYS,
            _ => &[],
        };
        if let Some((number, _)) = self.allowed.clone().zip(names).find(|(_, name)| **name == text)
        {
            return Ok(number);
        }
        let beyond = match (self.kind, self.dialect) {
            (Kind::DayOfWeek, Dialect::Unix) => "out of range, where Sunday is 0 or 7",
            (Kind::DayOfWeek, Dialect::Quartz) => "out of range, where Sunday is 1",
            _ => "out of range",
        };
        let unknown = match self.kind {
            Kind::Time | Kind::Year => "not a number",
            Kind::DayOfMonth => "expected a number, `L`, `LW`, or a number before `W`",
            Kind::Month => "expected a number or a name such as `JAN`",
            Kind::DayOfWeek => "expected a number or a name such as `MON`",
        };
        within(text, self.allowed.clone(), beyond, unknown)
    }

    /// Parses a step, which is limited to the largest number of the field.
    fn step(&self, text: &str) -> Result<u16, Unread> {
        within(text, 1..=*self.allowed.end(), "step out of range", "the step is not a number")
    }

    /// Returns how many numbers of the cycle precede this one.
    fn in_cycle(&self, number: u16) -> u16 {
        (number - self.allowed.start()) % self.cycle
    }
}

impl FieldValues {
    /// Returns `true` if the field selects a number, which is a part of `date`.
    pub(super) fn select(&self, number: u16, date: Date) -> bool {
        self.any || self.numbers.contains(&number) || self.relative.iter().any(|day| day.is(date))
    }
}

/// Parses a number in a range.
fn within(
    text: &str,
    allowed: RangeInclusive<u16>,
    beyond: &'static str,
    unknown: &'static str,
) -> Result<u16, Unread> {
    // A sign is not allowed either.
    if text.is_empty() || text.contains(|digit: char| !digit.is_ascii_digit()) {
        return Err((unknown, Some(allowed)));
    }
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or((beyond, Some(allowed)))
}
