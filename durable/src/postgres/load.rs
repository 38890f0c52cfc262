//! The requests of a worker for its heartbeat, its parts, and their keys.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::super::error::DurableError;
use super::super::key::{Key, Page, first_from};
use super::super::window::Window;
use super::link::{Param, Retry};
use super::operations::{Operations, unexpected_reply};
use super::rows::{Reader, signed};
use crate::panics::ignore_poison;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tourbillon::{Clock, MonotonicClock};

/// The time between two checks for overdue keys, in durations of such a check. While a transaction
/// is open for long, each of them passes all keys that have ended since.
const REST: u32 = 20;

/// The maximum number of keys that such a check finds, equal to that of `sql/load.sql`.
const LATE: usize = 64;

/// The distance from now to the latest position from which a window is loaded again.
const FLOOR: Millis = 60_000;

/// Returns a key as the arguments of a query, whose keys begin with it, or after it if the last is
/// `true`. No id has the character with which a window names the position after a key.
pub(super) fn bounded(from: &Key) -> (i64, &str, bool) {
    let id = from.1.strip_suffix('\0');
    (signed(from.0), id.unwrap_or(&from.1), id.is_some())
}

/// The checks for overdue keys, wherever a window begins. They are statements of their own, because
/// they may take long.
#[derive(Debug, Default)]
pub(super) struct LateChecks(Mutex<LateCheck>);

#[derive(Debug, Default)]
struct LateCheck {
    /// The time of the next check.
    next: Option<Instant>,
    running: bool,
    /// The keys that are added to the next page.
    found: Vec<Key>,
    /// The keys that the last check found.
    known: BTreeSet<Key>,
}

impl LateChecks {
    /// Returns `true` if the caller has to run a check.
    fn begin(&self, now: Instant) -> bool {
        let mut check = ignore_poison(self.0.lock());
        let due = !check.running && check.next.is_none_or(|next| next <= now);
        check.running |= due;
        due
    }

    /// Ends a check. Returns `true` if it found a key that the last one did not.
    fn end(&self, found: Vec<Key>, begun: Instant, now: Instant) -> bool {
        let mut check = ignore_poison(self.0.lock());
        let is_new = found.iter().any(|key| !check.known.contains(key));
        let next = Some(now + now.saturating_duration_since(begun) * REST);
        let known = found.iter().cloned().collect();
        *check = LateCheck { next, running: false, found, known };
        is_new
    }

    fn take(&self) -> Vec<Key> {
        std::mem::take(&mut ignore_poison(self.0.lock()).found)
    }
}

/// The positions from which windows are loaded again. A worker has no key before its position, except
/// those that appear later, which the checks for overdue keys find.
///
/// Without it each page from the first key on would pass the entries of all timers that repeat or are
/// paused, and of those that have ended while a transaction is open for long.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<BTreeMap<u64, Floor>>);

#[derive(Debug)]
struct Floor {
    due: Millis,
    parts: BTreeSet<u64>,
}

impl Floors {
    fn of(&self, worker: u64) -> Millis {
        ignore_poison(self.0.lock()).get(&worker).map_or(0, |floor| floor.due)
    }

    /// Notes the page of a worker that was loaded from its floor on. Returns `false` if it may lack
    /// keys, because the worker has other parts than before, or the clock was set back.
    fn note(&self, worker: u64, parts: &BTreeSet<u64>, page: &Page) -> bool {
        let mut floors = ignore_poison(self.0.lock());
        let holds =
            floors.get(&worker).is_none_or(|floor| floor.parts == *parts && floor.due <= page.now);
        if !holds {
            floors.remove(&worker);
        } else if !page.paused && !parts.is_empty() {
            let first = page.keys.first().map_or(page.until, |(due, _)| *due);
            let due = first.min(page.now.saturating_sub(FLOOR));
            floors.insert(worker, Floor { due, parts: parts.clone() });
        }
        holds
    }

    fn remove(&self, worker: u64) {
        ignore_poison(self.0.lock()).remove(&worker);
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
        self.floors.remove(worker);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_loaded_again_from_its_first_key_or_shortly_before_now() {
        let floors = Floors::default();
        let (all, half) = (BTreeSet::from([1, 2]), BTreeSet::from([1]));
        let page = |now: Millis, keys: &[Millis], paused| Page {
            now,
            until: now + 15_000,
            keys: keys.iter().map(|due| (*due, Arc::from("id"))).collect(),
            paused,
            ..Page::default()
        };
        assert_eq!(floors.of(7), 0);
        assert!(floors.note(7, &all, &page(100_000, &[5000, 110_000], false)));
        assert_eq!((floors.of(7), floors.of(8)), (5000, 0));
        assert!(floors.note(7, &all, &page(100_000, &[], true)), "it is paused");
        assert_eq!(floors.of(7), 5000);
        assert!(floors.note(7, &all, &page(100_000, &[101_000], false)));
        assert_eq!(floors.of(7), 40_000);
        assert!(!floors.note(7, &half, &page(100_000, &[], false)), "it may have gained parts");
        assert_eq!(floors.of(7), 0);
        assert!(floors.note(7, &half, &page(100_000, &[], false)));
        assert_eq!(floors.of(7), 40_000);
        assert!(!floors.note(7, &half, &page(39_000, &[], false)), "the clock was set back");
        assert_eq!(floors.of(7), 0);
    }

    #[test]
    fn a_check_for_overdue_keys_reports_new_ones_and_rests() {
        let checks = LateChecks::default();
        let now = MonotonicClock.now();
        let after = |millis| now + std::time::Duration::from_millis(millis);
        let key: Key = (7, Arc::from("id"));
        assert!(checks.begin(now) && !checks.begin(now));
        assert!(checks.end(vec![key.clone()], now, after(10)));
        assert_eq!((checks.take().len(), checks.take().len()), (1, 0));
        assert!(!checks.begin(after(209)) && checks.begin(after(210)));
        assert!(!checks.end(vec![key], after(210), after(210)), "it is known");
    }
}
