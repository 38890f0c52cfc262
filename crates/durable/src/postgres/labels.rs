//! Reading timers by their labels.

#![forbid(unsafe_code)]

use super::lists::limit_of;
use super::operations::Operations;
use super::params::params;
use super::rows::{RECORD, Reader, named_record};
use crate::error::DurableError;
use crate::model::check::Finding;
use crate::model::label::Label;
use crate::model::record::Record;
use crate::store::remote::retry::RetryPolicy;
use crate::store::{Ids, MAX_LIST_BYTES};

impl Operations {
    pub(super) async fn label_ids(
        &self,
        label: Label,
        ids: Ids,
        limit: usize,
    ) -> Result<Vec<String>, DurableError> {
        let (id, chosen, order) = match ids {
            Ids::After(id) => (id.unwrap_or_default(), "id > $2", "id"),
            Ids::Before(None) => (String::new(), "id > $2", "id DESC"),
            // No id has the character that the server cannot store. The part before it comes before
            // a text with it.
            Ids::Before(Some(id)) if id.contains('\0') => (id, "id <= $2", "id DESC"),
            Ids::Before(Some(id)) => (id, "id < $2", "id DESC"),
        };
        let id = id.split('\0').next().unwrap_or_default();
        let sql = format!(
            "SELECT id FROM tb.labels WHERE label = $1 AND {chosen} ORDER BY {order} LIMIT $3"
        );
        let (label, limit) = (label.as_str(), limit_of(limit));
        let rows = self.read(RetryPolicy::Caller, &sql, &params![label, id, limit]).await?;
        rows.iter().map(|row| Reader::new(row, 0).next()).collect()
    }

    /// Returns the number of timers with a label, by reading its part of an index.
    pub(super) async fn label_len(&self, label: Label) -> Result<u64, DurableError> {
        let sql = "SELECT count(*) FROM tb.labels WHERE label = $1";
        let rows = self.read(RetryPolicy::Count, sql, &params![label.as_str()]).await?;
        Reader::first(&rows)?.number()
    }

    /// Returns the rows of the index whose timer lacks the label, among some rows after one, which
    /// is a label and an id with the character in between that neither has. Returns the last row as
    /// well.
    pub(super) async fn check_labels(
        &self,
        after: &str,
        limit: i64,
    ) -> Result<(Vec<Finding>, Option<String>), DurableError> {
        let sql = "SELECT entry.label, entry.id, coalesce(entry.label = ANY (timer.labels), false)
            FROM tb.labels AS entry LEFT JOIN tb.timers AS timer ON timer.id = entry.id
            WHERE (entry.label, entry.id) > ($1, $2) ORDER BY entry.label, entry.id LIMIT $3";
        let (label, id) = after.split_once('\0').unwrap_or_default();
        let rows = self.read(RetryPolicy::Count, sql, &params![label, id, limit]).await?;
        let (mut findings, mut last) = (Vec::new(), None);
        for row in &rows {
            let mut reader = Reader::new(row, 0);
            let (label, id): (String, String) = (reader.next()?, reader.next()?);
            last = Some(format!("{label}\0{id}"));
            if !reader.next::<bool>()? {
                findings.push(Finding::StrayLabel { id, label });
            }
        }
        Ok((findings, last))
    }

    /// Returns the timers with the first of some ids, or with all of them unless they are long.
    pub(super) async fn get_each(
        &self,
        ids: Vec<String>,
    ) -> Result<Vec<(String, Option<Record>)>, DurableError> {
        let sql = format!(
            "WITH sized AS (
                SELECT wanted.id AS of, place, sum(octet_length(payload) + 200) OVER (ORDER BY place)
                    - coalesce(octet_length(payload), 0) AS length
                FROM unnest($1) WITH ORDINALITY AS wanted (id, place)
                LEFT JOIN tb.timers AS timer ON timer.id = wanted.id)
            SELECT record.id, {RECORD}, of FROM sized LEFT JOIN tb.records AS record ON record.id = of
            WHERE coalesce(length, 0) < $2 ORDER BY place"
        );
        let longest = limit_of(MAX_LIST_BYTES);
        let rows = self.read(RetryPolicy::Caller, &sql, &params![ids, longest]).await?;
        let fields = RECORD.split(", ").count();
        let timer = |row| {
            let id = Reader::new(row, fields + 1).next()?;
            let found = named_record(row, self.link.address()).ok();
            Ok((id, found.and_then(|(_, record)| record.ok())))
        };
        rows.iter().map(timer).collect()
    }
}
