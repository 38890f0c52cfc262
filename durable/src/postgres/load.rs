//! The requests of a worker for its heartbeat, its parts, and their keys.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::super::error::DurableError;
use super::super::key::{Key, Page};
use super::super::window::Window;
use super::link::{Param, Retry};
use super::operations::{Operations, unexpected_reply};
use super::rows::{Reader, signed};
use crate::panics::ignore_poison;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tourbillon::{Clock, MonotonicClock};

/// The time between two checks for overdue keys, in durations of such a check. While a transaction
/// is open for long, each of them passes all keys that have ended since.
const REST: u32 = 20;

/// Returns a key as the arguments of a query, whose keys begin with it, or after it if the last is
/// `true`. No id has the character with which a window names the position after a key.
pub(super) fn bounded(from: &Key) -> (i64, &str, bool) {
    let id = from.1.strip_suffix('\0');
    (signed(from.0), id.unwrap_or(&from.1), id.is_some())
}

/// The time of the next check for overdue keys.
#[derive(Debug, Default)]
pub(super) struct LateChecks(Mutex<Option<Instant>>);

impl LateChecks {
    fn is_due(&self, now: Instant) -> bool {
        ignore_poison(self.0.lock()).is_none_or(|next| next <= now)
    }

    fn took(&self, duration: Duration, now: Instant) {
        *ignore_poison(self.0.lock()) = Some(now + duration * REST);
    }
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
        let (sql, at) = ("SELECT FROM tb.leave($1, $2)", self.at());
        let params: [Param<'_>; 2] = [(&signed(worker), Type::INT8), (&at, Type::INT8)];
        self.read(Retry::Caller, sql, &params).await.map(drop)
    }

    pub(super) async fn load(
        &self,
        worker: u64,
        from: &Key,
        until: Millis,
        limit: usize,
    ) -> Result<Page, DurableError> {
        let (due, id, after) = bounded(from);
        let (worker_id, at, until) = (signed(worker), self.at(), signed(until));
        let begun = MonotonicClock.now();
        let late = self.late.is_due(begun);
        let most = i32::try_from(limit).unwrap_or(i32::MAX);
        let params: [Param<'_>; 10] = [
            (&worker_id, Type::INT8),
            (&self.process, Type::INT8),
            (&self.listens, Type::BOOL),
            (&due, Type::INT8),
            (&id, Type::TEXT),
            (&after, Type::BOOL),
            (&until, Type::INT8),
            (&most, Type::INT4),
            (&late, Type::BOOL),
            (&at, Type::INT8),
        ];
        let rows = self.link.query(Retry::Worker, &self.statements.load, &params).await?;
        if late {
            let ended = MonotonicClock.now();
            self.late.took(ended.saturating_duration_since(begun), ended);
        }
        let row = rows.first().ok_or_else(unexpected_reply)?;
        let (parts, page) = page(row, limit).ok_or_else(unexpected_reply)?;
        self.ownership.set_owned(worker, &parts);
        self.ownership.set_paused(worker, page.paused);
        Ok(page)
    }
}

/// Reads the parts of a worker and its page.
fn page(row: &Row, limit: usize) -> Option<(BTreeSet<u64>, Page)> {
    let mut reader = Reader::new(row, 0);
    let (now, paused) = (reader.number()?, reader.next()?);
    let parts: Vec<i32> = reader.next()?;
    let parts = parts.into_iter().filter_map(|part| u64::try_from(part).ok()).collect();
    let until = reader.number()?;
    let mut keys = keys(&mut reader)?;
    let more = keys.len() >= limit;
    if !more {
        keys.extend(self::keys(&mut reader)?);
    }
    Some((parts, Page { now, until, keys, more, paused, misplaced: None }))
}

fn keys(reader: &mut Reader<'_>) -> Option<Vec<Key>> {
    let dues: Option<Vec<i64>> = reader.next()?;
    let ids: Option<Vec<&str>> = reader.next()?;
    let pairs = dues.unwrap_or_default().into_iter().zip(ids.unwrap_or_default());
    Some(pairs.map(|(due, id)| (due.cast_unsigned(), Arc::from(id))).collect())
}
