//! The conversion of operations, records and letters to and from the columns of SQL.
//!
//! Durations that only workers compute with are stored as a `bigint`, which bounds them by 292
//! million years. Headers are a JSON array of pairs, which keeps their order, or an object that
//! another client has written.

#![forbid(unsafe_code)]

use super::link::Param;
use super::operation::{Operation, Reply};
use super::params::Typed;
use crate::error::DurableError;
use crate::model::backoff::Backoff;
use crate::model::clock::{Millis, whole_millis};
use crate::model::label::Label;
use crate::model::record::{Dead, DeadReason, Record, Settings};
use crate::model::rule::Rule;
use crate::store::remote::answers::unexpected_reply;
use serde_json::json;
use std::borrow::Cow;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

/// The columns of a record, in the order that [`Reader::record`] reads them.
pub(super) const RECORD: &str = "fence, cancelled, paused, run_now, due, planned, plan, attempt, error, \
    first, most, jitter, attempts, lease, lives, every, cron, zone, misfire, headers, labels, payload, next_due, \
    next_planned, next_first, next_most, next_jitter, next_attempts, next_lease, next_lives, \
    next_every, next_cron, next_zone, next_misfire, next_headers, next_labels, next_payload";

/// The columns of a letter, in the order that [`letter`] reads them.
pub(super) const LETTER: &str = "number, id, died, reason, due, planned, attempt, error, first, most, \
    jitter, attempts, lease, lives, every, cron, zone, misfire, headers::text, labels, payload";

/// Converts a number of this crate to a column.
pub(super) fn signed(number: u64) -> i64 {
    number.cast_signed()
}

/// Converts a duration to a column.
pub(super) fn duration(millis: Millis) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// Returns `true` if a text of the settings has the character that the server cannot store.
pub(super) fn has_zero(settings: &Settings) -> bool {
    let rule = match &settings.rule {
        Some(Rule::Cron { expression, zone }) => expression.contains('\0') || zone.contains('\0'),
        _ => false,
    };
    rule || settings.headers.iter().any(|(name, value)| name.contains('\0') || value.contains('\0'))
}

/// Replaces the character that the server cannot store.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// The columns of settings.
pub(super) struct SettingColumns<'a> {
    pub(super) every: Option<i64>,
    pub(super) cron: Option<&'a str>,
    pub(super) zone: Option<&'a str>,
    /// With the labels, as `sql/batch.sql` takes them.
    pub(super) headers: Option<String>,
    pub(super) lease: i32,
}

impl<'a> SettingColumns<'a> {
    pub(super) fn of(settings: &'a Settings) -> Self {
        let (mut every, mut cron, mut zone) = (None, None, None);
        match &settings.rule {
            None => {}
            Some(Rule::Every(interval)) => every = Some(duration(whole_millis(*interval))),
            Some(Rule::Cron { expression, zone: of }) => {
                (cron, zone) = (Some(&**expression), Some(&**of));
            }
        }
        let Settings { headers, labels, .. } = settings;
        let pairs = (!headers.is_empty()).then(|| json!(headers));
        let headers = match labels.is_empty() {
            true => pairs,
            false => Some(json!({ "headers": pairs, "labels": texts(labels) })),
        };
        let headers = headers.map(|headers| headers.to_string());
        let lease = i32::try_from(settings.lease).unwrap_or(i32::MAX);
        Self { every, cron, zone, headers, lease }
    }
}

/// Returns the texts of labels.
pub(super) fn texts(labels: &[Label]) -> Vec<&str> {
    labels.iter().map(Label::as_str).collect()
}

/// The arguments of a batch, by column.
pub(super) struct Columns<'a>(Vec<Column<'a>>);

type Column<'a> = (Box<dyn ToSql + Send + Sync + 'a>, Type);

impl<'a> Columns<'a> {
    pub(super) fn of(operations: impl Iterator<Item = &'a Operation>) -> Self {
        let row = |op: &'a Operation| {
            let settings = op.body.as_ref().map(|body| &body.settings);
            (op, settings, settings.map(SettingColumns::of))
        };
        let rows: Vec<_> = operations.map(row).collect();
        Self(vec![
            column(&rows, |(op, ..)| op.kind),
            column(&rows, |(op, ..)| &*op.id),
            column(&rows, |(op, ..)| op.due.map(signed)),
            column(&rows, |(op, ..)| op.wait.map(|wait| signed(wait.min(1 << 60)))),
            column(&rows, |(op, ..)| op.fence.map(signed)),
            column(&rows, |(op, ..)| op.how),
            column(&rows, |(op, ..)| op.note.as_deref()),
            column(&rows, |(op, ..)| op.flag),
            column(&rows, |(op, ..)| op.reason),
            column(&rows, |(_, settings, _)| settings.map(|of| duration(of.backoff.first))),
            column(&rows, |(_, settings, _)| settings.map(|of| duration(of.backoff.most))),
            column(&rows, |(.., split)| split.as_ref()?.every),
            column(&rows, |(_, settings, _)| settings.as_ref()?.time_to_live.map(duration)),
            column(&rows, |(_, settings, _)| settings.as_ref()?.window.map(duration)),
            column(&rows, |(_, settings, _)| settings.map(|of| i64::from(of.attempts))),
            column(&rows, |(.., split)| Some(split.as_ref()?.lease)),
            column(&rows, |(_, settings, _)| settings.map(|of| of.backoff.jitter)),
            column(&rows, |(.., split)| split.as_ref()?.cron),
            column(&rows, |(.., split)| split.as_ref()?.zone),
            column(&rows, |(.., split)| split.as_ref()?.headers.clone()),
            column(&rows, |(op, ..)| Some(&op.body.as_ref()?.payload[..])),
        ])
    }

    /// Returns the parameters of the batch in order, which begin with these.
    pub(super) fn params<'b>(&'b self, first: [Param<'b>; 8]) -> Vec<Param<'b>> {
        let columns =
            self.0.iter().map(|(values, kind)| -> Param<'b> { (&**values, kind.clone()) });
        first.into_iter().chain(columns).collect()
    }
}

fn column<'a, R, T: Typed + 'a>(rows: &[R], value: impl Fn(&R) -> T) -> Column<'a> {
    (Box::new(rows.iter().map(value).collect::<Vec<T>>()), T::ARRAY)
}

/// The statement that executes a batch.
pub(super) fn batch_statement() -> String {
    let params: Vec<String> = (1..=29).map(|number| format!("${number}")).collect();
    let fields: Vec<String> =
        RECORD.split(", ").map(|name| format!("(done.record).{}", name.trim())).collect();
    format!(
        "SELECT now, answer, due, part, fence, before, (done.record).id, {} FROM tb.batch({}) AS done",
        fields.join(", "),
        params.join(", ")
    )
}

/// Reads the columns of a row in order.
pub(super) struct Reader<'a> {
    row: &'a Row,
    place: usize,
}

impl<'a> Reader<'a> {
    /// Returns a reader that begins with a column.
    pub(super) fn new(row: &'a Row, place: usize) -> Self {
        Self { row, place }
    }

    /// Returns a reader of the only row.
    pub(super) fn first(rows: &'a [Row]) -> Result<Self, DurableError> {
        rows.first().map(|row| Self::new(row, 0)).ok_or_else(unexpected_reply)
    }

    /// Returns the next value. Fails if it has another type.
    pub(super) fn next<T: FromSql<'a>>(&mut self) -> Result<T, DurableError> {
        self.place += 1;
        self.row.try_get(self.place - 1).map_err(|_| unexpected_reply())
    }

    /// Returns the next value, converted.
    fn converted<T: FromSql<'a>, U: TryFrom<T>>(&mut self) -> Result<U, DurableError> {
        U::try_from(self.next()?).map_err(|_| unexpected_reply())
    }

    /// Returns the next number.
    pub(super) fn number(&mut self) -> Result<u64, DurableError> {
        self.next().map(i64::cast_unsigned)
    }

    /// Returns the next number, which may be absent.
    pub(super) fn optional(&mut self) -> Result<Option<u64>, DurableError> {
        Ok(self.next::<Option<i64>>()?.map(i64::cast_unsigned))
    }

    /// Reads the columns [`RECORD`].
    pub(super) fn record(&mut self) -> Result<Record, DurableError> {
        let fence = self.optional()?;
        let (cancelled, paused, run_now) = (self.next()?, self.next()?, self.next()?);
        let (due, planned, plan) = (self.number()?, self.number()?, self.optional()?);
        let attempt = u32::try_from(self.number()?).unwrap_or(u32::MAX);
        let error = self.next()?;
        let (settings, payload) = self.body()?;
        let resting = Record::resting(due, settings, payload);
        let mut record =
            Record { fence, cancelled, paused, run_now, planned, plan, attempt, error, ..resting };
        if let Some(due) = self.optional()? {
            let planned = self.number()?;
            let (settings, payload) = self.body()?;
            let next = Record { planned, ..Record::resting(due, settings, payload) };
            record.next = Some(Box::new(next));
        }
        Ok(record)
    }

    fn body(&mut self) -> Result<(Settings, Vec<u8>), DurableError> {
        let (first, most, jitter) = (self.number()?, self.number()?, self.next()?);
        let attempts = self.converted::<i64, u32>()?;
        let lease = self.converted::<i32, u64>()?;
        let lives = self.optional()?;
        let every = self.optional()?;
        let (cron, zone): (Option<String>, Option<String>) = (self.next()?, self.next()?);
        let misfire = self.optional()?;
        let headers = match self.next::<Option<&str>>()? {
            None => Vec::new(),
            Some(text) => headers(text).ok_or_else(unexpected_reply)?,
        };
        let labels = self.next::<Option<Vec<&str>>>()?.unwrap_or_default();
        let labels = labels.into_iter().map(Label::new).collect::<Result<_, _>>();
        let labels = labels.map_err(|_| unexpected_reply())?;
        let rule = match (every, cron, zone) {
            (None, None, None) => None,
            (Some(every), None, None) => Some(Rule::Every(Duration::from_millis(every))),
            (None, Some(expression), Some(zone)) => Some(Rule::Cron { expression, zone }),
            _ => return Err(unexpected_reply()),
        };
        let settings = Settings {
            attempts,
            backoff: Backoff { first, most, jitter },
            lease,
            time_to_live: lives,
            rule,
            window: misfire,
            headers,
            labels,
        };
        Ok((settings, self.next()?))
    }
}

/// Reads headers, which are an array of pairs or an object of texts.
fn headers(text: &str) -> Option<Vec<(String, String)>> {
    if let Ok(pairs) = serde_json::from_str(text) {
        return Some(pairs);
    }
    let object: std::collections::BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    Some(object.into_iter().collect())
}

/// Returns an id, and its record, from a row that begins with both.
pub(super) fn named_record(
    row: &Row,
    address: &str,
) -> Result<(String, Result<Record, DurableError>), DurableError> {
    let mut reader = Reader::new(row, 0);
    let id: String = reader.next()?;
    let record = reader.record().map_err(|_| DurableError::corrupt_timer(&id).at(address));
    Ok((id, record))
}

/// Reads the reply to an operation about an id.
pub(super) fn reply(row: &Row, id: &str, address: &str) -> Result<Reply, DurableError> {
    let mut reader = Reader::new(row, 0);
    let (now, answer) = (reader.number()?, reader.next()?);
    let (due, part) = (reader.optional()?, reader.converted::<i32, u64>()?);
    let (fence, before) = (reader.optional()?, reader.optional()?);
    let leased: Option<&str> = reader.next()?;
    let damaged = |_| DurableError::corrupt_timer(id).at(address);
    let record = leased.map(|_| reader.record().map_err(damaged));
    Ok(Reply { now, answer, due, part, fence, before, record })
}

/// Reads the columns [`LETTER`]. Returns the number of a letter, and the letter.
pub(super) fn letter(row: &Row, address: &str) -> Result<(u64, Dead), DurableError> {
    let mut reader = Reader::new(row, 0);
    let number = reader.number()?;
    let damaged = |_| DurableError::corrupt_letter(number).at(address);
    Ok((number, dead(&mut reader).map_err(damaged)?))
}

fn dead(reader: &mut Reader<'_>) -> Result<Dead, DurableError> {
    let (id, died) = (reader.next()?, reader.number()?);
    let reason = DeadReason::of_number(reader.next::<i16>()?).ok_or_else(unexpected_reply)?;
    let (due, planned) = (reader.number()?, reader.number()?);
    let attempt = u32::try_from(reader.number()?).unwrap_or(u32::MAX);
    let error = reader.next()?;
    let (settings, payload) = reader.body()?;
    let record = Record { planned, attempt, error, ..Record::resting(due, settings, payload) };
    Ok(Dead { id, died, reason, record })
}
