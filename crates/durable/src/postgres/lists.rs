//! Reading many timers and dead letters, and counting them.

#![forbid(unsafe_code)]

use super::load::bounded;
use super::operations::Operations;
use super::params::params;
use super::rows::{LETTER, RECORD, Reader, letter, named_record, signed};
use crate::error::DurableError;
use crate::model::check::{Checked, Cursor, Finding};
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::model::record::{Dead, PARKED, Record};
use crate::model::stats::Counts;
use crate::store::remote::retry::RetryPolicy;
use crate::store::{Found, Letters, LettersOf, MAX_LIST_BYTES};
use std::sync::Arc;

/// The maximum number of rows that one step of a check reads.
const STEP: i64 = 1000;

/// The parts of a check.
const TIMERS: u64 = 0;
const STATES: u64 = 1;
const LABELS: u64 = 2;

pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Returns a number of a letter, and the condition and the order of the letters beyond it.
fn bounds(letters: Letters) -> (i64, &'static str, &'static str) {
    let bounded = |number| i64::try_from(number).unwrap_or(i64::MAX);
    match letters {
        Letters::After(number) => (number.map_or(-1, bounded), "number > $1", "number"),
        Letters::Before(number) => (number.map_or(i64::MAX, bounded), "number < $1", "number DESC"),
    }
}

impl Operations {
    /// Lists timers in the order of ids.
    pub(super) async fn list(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<(String, Record)>, DurableError> {
        // The length of a payload is known without reading it.
        let sql = format!(
            "WITH page AS (
                SELECT id, row_number() OVER (ORDER BY id) AS place,
                    sum(octet_length(payload) + 200) OVER (ORDER BY id) - octet_length(payload) AS length
                FROM (SELECT id, payload FROM tb.timers WHERE id > $1 ORDER BY id LIMIT $2) AS chosen)
            SELECT record.id, {RECORD} FROM page JOIN tb.records AS record ON record.id = page.id
            WHERE length < $3 ORDER BY place"
        );
        // No id has the character that the server cannot store, so the ids after a text with it are
        // the ids after the part before it.
        let after = after.as_deref().and_then(|id| id.split('\0').next()).unwrap_or_default();
        let (limit, longest) = (limit_of(limit), limit_of(MAX_LIST_BYTES));
        let rows = self.read(RetryPolicy::Caller, &sql, &params![after, limit, longest]).await?;
        let address = self.link.address();
        let record = |row| {
            let (id, record) = named_record(row, address)?;
            Ok((id, record?))
        };
        rows.iter().map(record).collect()
    }

    /// Returns timers in the order of their keys.
    pub(super) async fn find(
        &self,
        from: Key,
        until: Millis,
        limit: usize,
    ) -> Result<Found, DurableError> {
        let (due, id, after) = bounded(&from);
        // One more than the limit tells where the next page begins. The timers of the keys are not
        // joined, because the plan of a join could read all timers.
        let sql = format!(
            "WITH page AS (
                SELECT due AS key_due, key.id AS key_id, row_number() OVER (ORDER BY due, key.id) AS place,
                    (SELECT octet_length(payload) FROM tb.timers AS timer WHERE timer.id = key.id) AS size
                FROM tb.keys($1, $2, $3, $4, $5, NULL) AS key),
            sized AS (
                SELECT page.*, sum(size + 200) OVER (ORDER BY place) - size AS length FROM page)
            SELECT record.id, {RECORD}, key_due, key_id, place, length < $6
            FROM sized LEFT JOIN LATERAL (
                    SELECT * FROM tb.records AS found WHERE found.id = key_id LIMIT 1
                ) AS record ON record.key = key_due AND length < $6 AND place < $5
            ORDER BY place"
        );
        let (until, longest) = (signed(until), limit_of(MAX_LIST_BYTES));
        let limit = i32::try_from(limit.saturating_add(1)).unwrap_or(i32::MAX);
        let params = params![due, id, after, until, limit, longest];
        let rows = self.read(RetryPolicy::Caller, &sql, &params).await?;
        let mut found = Found::default();
        let fields = RECORD.split(", ").count();
        for row in &rows {
            let mut reader = Reader::new(row, fields + 1);
            let (key_due, key_id) = (reader.number()?, reader.next::<&str>()?);
            let (place, short) = (reader.next::<i64>()?, reader.next::<Option<bool>>()?);
            if place >= limit.into() || short == Some(false) {
                found.next = Some((key_due, Arc::from(key_id)));
                break;
            }
            if let Ok((id, Ok(record))) = named_record(row, self.link.address()) {
                found.timers.push((id, record));
            }
        }
        Ok(found)
    }

    /// Returns the number of keys in each range of due times, up to a number.
    pub(super) async fn due_counts(
        &self,
        ranges: Vec<(Millis, Millis)>,
        most: u64,
    ) -> Result<Vec<u64>, DurableError> {
        let sql = "SELECT (SELECT count(*) FROM tb.keys(first, '', false, beyond - 1, $3, NULL))
            FROM unnest($1, $2) WITH ORDINALITY AS range (first, beyond, place) ORDER BY place";
        let (first, beyond): (Vec<i64>, Vec<i64>) =
            ranges.into_iter().map(|(from, beyond)| (signed(from), signed(beyond))).unzip();
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        let rows = self.read(RetryPolicy::Count, sql, &params![first, beyond, most]).await?;
        rows.iter().map(|row| Reader::new(row, 0).number()).collect()
    }

    /// Returns the latest due time of a timer that waits for a retry.
    pub(super) async fn retries_until(&self) -> Result<Millis, DurableError> {
        let rows = self.read(RetryPolicy::Count, "SELECT tb.retries_until()", &[]).await?;
        Reader::first(&rows)?.number()
    }

    /// Returns the number of timers and of dead letters, by reading an index of each.
    pub(super) async fn len(&self) -> Result<(u64, u64), DurableError> {
        let sql = "SELECT (SELECT count(*) FROM tb.timers), (SELECT count(*) FROM tb.letters)";
        let rows = self.read(RetryPolicy::Count, sql, &[]).await?;
        let mut reader = Reader::first(&rows)?;
        Ok((reader.number()?, reader.number()?))
    }

    pub(super) async fn stats(&self) -> Result<Counts, DurableError> {
        let sql = "SELECT * FROM tb.stats($1)";
        let rows = self.read(RetryPolicy::Count, sql, &params![self.at()]).await?;
        let mut reader = Reader::first(&rows)?;
        Ok(Counts {
            now: reader.number()?,
            timers: reader.number()?,
            leased: reader.number()?,
            parked: reader.number()?,
            overdue: reader.number()?,
            oldest: reader.optional()?.filter(|oldest| *oldest < PARKED),
            dead: reader.number()?,
            paused: reader.next()?,
            next: None,
        })
    }

    pub(super) async fn dead(
        &self,
        letters: Letters,
        limit: usize,
    ) -> Result<Vec<(u64, Dead)>, DurableError> {
        let (from, chosen, order) = bounds(letters);
        let sql = format!(
            "WITH page AS (
                SELECT number AS of, sum(octet_length(payload) + 200) OVER (ORDER BY {order})
                    - octet_length(payload) AS length
                FROM (SELECT number, payload FROM tb.letters WHERE {chosen} ORDER BY {order} LIMIT $2)
                    AS chosen)
            SELECT {LETTER} FROM page JOIN tb.letters ON number = of WHERE length < $3 ORDER BY {order}"
        );
        let (limit, longest) = (limit_of(limit), limit_of(MAX_LIST_BYTES));
        let rows = self.read(RetryPolicy::Caller, &sql, &params![from, limit, longest]).await?;
        rows.iter().map(|row| letter(row, self.link.address())).collect()
    }

    /// Returns the numbers of letters by one of their two indexes.
    pub(super) async fn letters_of(
        &self,
        of: LettersOf,
        letters: Letters,
        limit: usize,
    ) -> Result<Vec<u64>, DurableError> {
        let (table, name) = match &of {
            // No id has the character that the server cannot store.
            LettersOf::Id(id) if id.contains('\0') => return Ok(Vec::new()),
            LettersOf::Id(id) => ("tb.letters WHERE id", &**id),
            LettersOf::Label(label) => ("tb.letter_labels WHERE label", label.as_str()),
        };
        let (from, chosen, order) = bounds(letters);
        let sql = format!("SELECT number FROM {table} = $2 AND {chosen} ORDER BY {order} LIMIT $3");
        let limit = limit_of(limit);
        let rows = self.read(RetryPolicy::Caller, &sql, &params![from, name, limit]).await?;
        rows.iter().map(|row| Reader::new(row, 0).number()).collect()
    }

    pub(super) async fn letter(&self, number: u64) -> Result<Option<Dead>, DurableError> {
        let sql = format!("SELECT {LETTER} FROM tb.letters WHERE number = $1");
        let rows = self.read(RetryPolicy::Caller, &sql, &params![signed(number)]).await?;
        rows.first().map(|row| Ok(letter(row, self.link.address())?.1)).transpose()
    }

    pub(super) async fn letter_ages(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, Millis)>, DurableError> {
        let sql = "SELECT number, died FROM tb.letters WHERE number > $1 ORDER BY number LIMIT $2";
        let (after, limit) = (after.map_or(-1, signed), limit_of(limit));
        let rows = self.read(RetryPolicy::Caller, sql, &params![after, limit]).await?;
        let age = |row| {
            let mut reader = Reader::new(row, 0);
            Ok((reader.number()?, reader.number()?))
        };
        rows.iter().map(age).collect()
    }

    /// Runs one step of a check, of timers that must be readable, or of states and labels that must
    /// have a timer. The server keeps its indexes consistent with the rows.
    pub(super) async fn check(&self, from: Cursor) -> Result<Checked, DurableError> {
        let Cursor { part, after: (_, after) } = from;
        if part == LABELS {
            let (findings, last) = self.check_labels(&after, STEP).await?;
            let next = last.map(|last| Cursor { part, after: (0, Arc::from(last)) });
            return Ok(Checked { findings, next, ..Checked::default() });
        }
        let sql = match part {
            TIMERS => format!(
                "SELECT id, {RECORD}, key FROM tb.records WHERE id > $1 ORDER BY id LIMIT $2"
            ),
            _ => "SELECT state.id, state.key, timer.id IS NULL FROM tb.states AS state
                LEFT JOIN tb.timers AS timer ON timer.id = state.id
                WHERE state.id > $1 ORDER BY state.id LIMIT $2"
                .to_owned(),
        };
        let rows = self.read(RetryPolicy::Count, &sql, &params![&*after, STEP]).await?;
        let (mut checked, mut last) = (Checked::default(), None);
        for row in &rows {
            let id = if part == TIMERS {
                let (id, record) = named_record(row, self.link.address())?;
                checked.timers += 1;
                checked.keys += 1;
                match record {
                    Ok(record) => checked.leased += u64::from(record.fence.is_some()),
                    Err(_) => checked.findings.push(Finding::Unreadable { id: id.clone() }),
                }
                id
            } else {
                let mut reader = Reader::new(row, 0);
                let (id, key) = (reader.next::<String>()?, reader.number()?);
                if reader.next()? {
                    checked.keys += 1;
                    checked.findings.push(Finding::stray(key, &id));
                }
                id
            };
            last = Some((0, Arc::from(id)));
        }
        let next = last.map(|after| Cursor { part, after });
        checked.next = next.or(Some(Cursor::part(if part == TIMERS { STATES } else { LABELS })));
        Ok(checked)
    }

    /// Removes states and labels without a timer.
    pub(super) async fn repair(&self) -> Result<(), DurableError> {
        let sql = "SELECT FROM tb.remove_strays()";
        self.read(RetryPolicy::Count, sql, &[]).await.map(drop)
    }
}
