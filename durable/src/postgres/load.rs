//! The requests of a worker for its heartbeat, its parts, and their keys.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::super::error::DurableError;
use super::super::key::{Key, Page, first_from};
use super::super::window::Window;
use super::link::{Param, Retry};
use super::operations::{Operations, unexpected_reply};
use super::rows::{Reader, signed};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tourbillon::{Clock, MonotonicClock};

/// The maximum number of keys that such a check finds, equal to that of `sql/load.sql`.
const LATE: usize = 64;

/// Returns a key as the arguments of a query, whose keys begin with it, or after it if the last is
/// `true`. No id has the character with which a window names the position after a key.
pub(super) fn bounded(from: &Key) -> (i64, &str, bool) {
    let id = from.1.strip_suffix('\0');
    (signed(from.0), id.unwrap_or(&from.1), id.is_some())
}

impl Operations {
    /// Adds a worker of this process, which owns no part yet.
    pub(super) fn join(&self, window: &Arc<Window>) -> u64 {
        let worker = fastrand::u64(..);
        self.ownership.join(worker, window);
        worker
    }

    /// Removes a worker.
    pub(super) async fn leave(&self, worker: u64) -> Result<(), DurableError> {
        self.floors.remove(worker);
        self.beats.remove(worker);
        let (sql, at) = ("SELECT FROM tb.leave($1, $2)", self.at());
        let params: [Param<'_>; 2] = [(&signed(worker), Type::INT8), (&at, Type::INT8)];
        self.read(Retry::Caller, sql, &params).await.map(drop)
    }

    pub(super) async fn load(
        self: &Arc<Self>,
        worker: u64,
        from: &Key,
        until: Millis,
        limit: usize,
    ) -> Result<Page, DurableError> {
        let whole = *from == first_from(0);
        let (parts, mut page) = loop {
            let floor = first_from(self.floors.of(worker));
            let (parts, page) =
                self.page(worker, if whole { &floor } else { from }, until, limit).await?;
            if !whole || self.floors.note(worker, &parts, &page) {
                break (parts, page);
            }
        };
        // Most keys that appear late are after the floor, and a check of all others may take long.
        for (place, from) in [self.floors.of(worker), 0].into_iter().enumerate() {
            if page.paused {
                break;
            }
            if !page.more && page.keys.len() + LATE < limit {
                page.keys.extend(self.late[place].take());
            }
            if self.late[place].begin(MonotonicClock.now()) {
                let (operations, parts) = (Arc::clone(self), parts.clone());
                tokio::spawn(async move { operations.check_late(place, from, &parts).await });
            }
        }
        self.ownership.set_owned(worker, &parts);
        if self.beats.note(worker, page.now) {
            self.ownership.invalidate();
        }
        self.ownership.set_paused(worker, page.paused);
        Ok(page)
    }

    async fn page(
        &self,
        worker: u64,
        from: &Key,
        until: Millis,
        limit: usize,
    ) -> Result<(BTreeSet<u64>, Page), DurableError> {
        let (due, id, after) = bounded(from);
        let (worker, at, until) = (signed(worker), self.at(), signed(until));
        let most = i32::try_from(limit).unwrap_or(i32::MAX);
        let params: [Param<'_>; 9] = [
            (&worker, Type::INT8),
            (&self.process, Type::INT8),
            (&self.listens, Type::BOOL),
            (&due, Type::INT8),
            (&id, Type::TEXT),
            (&after, Type::BOOL),
            (&until, Type::INT8),
            (&most, Type::INT4),
            (&at, Type::INT8),
        ];
        let rows = self.link.query(Retry::Worker, &self.statements.load, &params).await?;
        let row = rows.first().ok_or_else(unexpected_reply)?;
        page(row, limit).ok_or_else(unexpected_reply)
    }

    /// Finds keys that have been overdue for long, for the next page.
    async fn check_late(&self, place: usize, from: Millis, parts: &BTreeSet<u64>) {
        let begun = MonotonicClock.now();
        let parts: Vec<i32> = parts.iter().filter_map(|part| i32::try_from(*part).ok()).collect();
        let (from, at) = (signed(from), self.at());
        let params: [Param<'_>; 3] =
            [(&from, Type::INT8), (&parts, Type::INT4_ARRAY), (&at, Type::INT8)];
        let rows = self.read(Retry::Count, "SELECT * FROM tb.late($1, $2, $3)", &params).await;
        let rows = rows.unwrap_or_default();
        let found = rows.first().and_then(|row| keys(&mut Reader::new(row, 0)));
        let found = found.unwrap_or_default();
        if self.late[place].end(found, begun, MonotonicClock.now()) {
            self.ownership.request_checks();
        }
    }
}

/// Reads the parts of a worker and its page.
fn page(row: &Row, limit: usize) -> Option<(BTreeSet<u64>, Page)> {
    let mut reader = Reader::new(row, 0);
    let (now, paused) = (reader.number()?, reader.next()?);
    let parts: Vec<i32> = reader.next()?;
    let parts = parts.into_iter().filter_map(|part| u64::try_from(part).ok()).collect();
    let until = reader.number()?;
    let keys = keys(&mut reader)?;
    let more = keys.len() >= limit;
    Some((parts, Page { now, until, keys, more, paused, misplaced: None }))
}

fn keys(reader: &mut Reader<'_>) -> Option<Vec<Key>> {
    let dues: Option<Vec<i64>> = reader.next()?;
    let ids: Option<Vec<&str>> = reader.next()?;
    let pairs = dues.unwrap_or_default().into_iter().zip(ids.unwrap_or_default());
    Some(pairs.map(|(due, id)| (due.cast_unsigned(), Arc::from(id))).collect())
}
