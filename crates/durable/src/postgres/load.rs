//! The requests of a worker for its heartbeat, its parts, and their keys.

#![forbid(unsafe_code)]

use super::floors::Late;
use super::operations::Operations;
use super::params::params;
use super::rows::{Reader, signed};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::{Key, Page, first_from};
use crate::store::remote::retry::RetryPolicy;
use std::collections::BTreeSet;
use std::sync::Arc;
use tourbillon::{Clock, MonotonicClock};

/// The number of parts.
const PARTS: u64 = 64;

/// The minimum number of keys that a check for overdue keys finds, and the maximum number of keys
/// of other workers. Most of these keys are overdue because their owners are busy, and not because
/// their owners missed them.
const LATE: usize = 64;

/// How long a key has been overdue when its own worker looks for it, and when any worker does.
const AGES: [Millis; 2] = [1000, 5000];

/// Returns a key as the arguments of a query, whose keys begin with it, or after it if the last
/// argument is `true`. No id has the character that a window uses for the position after a key.
pub(super) fn bounded(from: &Key) -> (i64, &str, bool) {
    let id = from.1.strip_suffix('\0');
    (signed(from.0), id.unwrap_or(&from.1), id.is_some())
}

impl Operations {
    /// Removes a worker.
    pub(super) async fn leave(&self, worker: u64) -> Result<(), DurableError> {
        self.floors.remove(worker);
        self.beats.remove(worker);
        let (sql, at) = ("SELECT FROM tb.leave($1, $2)", self.at());
        self.read(RetryPolicy::Caller, sql, &params![signed(worker), at]).await.map(drop)
    }

    pub(super) async fn load(
        self: &Arc<Self>,
        worker: u64,
        from: Key,
        until: Millis,
        limit: usize,
    ) -> Result<Page, DurableError> {
        let whole = from == first_from(0);
        let (parts, mut page) = loop {
            let floor = first_from(self.floors.of(worker));
            let (parts, page) =
                self.page(worker, if whole { &floor } else { &from }, until, limit).await?;
            if !whole || self.floors.note(worker, &parts, &page) {
                break (parts, page);
            }
        };
        if !page.paused {
            self.check_for_late(worker, &parts, &from, limit, &mut page);
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
        let params = params![worker, self.process, self.listens, due, id, after, until, most, at];
        let sql = "SELECT * FROM tb.load($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let rows = self.read(RetryPolicy::Worker, sql, &params).await?;
        page(Reader::first(&rows)?, limit)
    }

    /// Adds the overdue keys that were found, and begins the next checks for them.
    ///
    /// Most keys that appear late are after the floor. A check before it may take long, because it
    /// passes the entries of timers that have ended, so it is separate. Every page but the first
    /// begins at the low watermark, and keys from there on are loaded in any case.
    fn check_for_late(
        self: &Arc<Self>,
        worker: u64,
        parts: &BTreeSet<u64>,
        low_watermark: &Key,
        limit: usize,
        page: &mut Page,
    ) {
        let floor = self.floors.of(worker);
        let until = if *low_watermark == first_from(0) { page.until } else { low_watermark.0 };
        let numbers = |which: &dyn Fn(&u64) -> bool| -> Option<Vec<i32>> {
            Some((0..PARTS).filter(which).filter_map(|part| i32::try_from(part).ok()).collect())
        };
        let own = numbers(&|part| parts.contains(part));
        let others = numbers(&|part| !parts.contains(part));
        let [age, age_of_others] = AGES;
        let most = limit.max(LATE);
        let checks = [
            Late { from: floor, until, age, most, parts: own },
            Late { from: floor, until, age: age_of_others, most: LATE, parts: others },
            Late { from: 0, until: floor, age: age_of_others, most, parts: None },
        ];
        for (place, check) in checks.into_iter().enumerate() {
            // The last key of a page counts as its end, so these come first.
            page.keys.splice(0..0, self.late[place].take());
            if self.late[place].begin(MonotonicClock.now()) {
                let operations = Arc::clone(self);
                tokio::spawn(async move { operations.check_late(place, check).await });
            }
        }
    }

    /// Finds keys that have been overdue for long, for the next page.
    async fn check_late(&self, place: usize, check: Late) {
        let begun = MonotonicClock.now();
        let Late { from, until, age, most, parts } = check;
        let from = self.late[place].position(from);
        let (due, id, after) = bounded(&from);
        let (until, age, at) = (signed(until), signed(age), self.at());
        let limit = i32::try_from(most).unwrap_or(i32::MAX);
        let params = params![due, id, after, until, age, limit, parts, at];
        let sql = "SELECT * FROM tb.late($1, $2, $3, $4, $5, $6, $7, $8)";
        let rows = self.read(RetryPolicy::Count, sql, &params).await.unwrap_or_default();
        let found = Reader::first(&rows).and_then(|mut reader| keys(&mut reader));
        let found = found.unwrap_or_default();
        if self.late[place].end(found, most, begun, MonotonicClock.now()) {
            self.ownership.request_checks();
        }
    }
}

/// Reads the parts of a worker and its page.
fn page(mut reader: Reader<'_>, limit: usize) -> Result<(BTreeSet<u64>, Page), DurableError> {
    let (now, paused) = (reader.number()?, reader.next()?);
    let parts: Vec<i32> = reader.next()?;
    let parts = parts.into_iter().filter_map(|part| u64::try_from(part).ok()).collect();
    let until = reader.number()?;
    let keys = keys(&mut reader)?;
    let more = keys.len() >= limit;
    Ok((parts, Page { now, until, keys, more, paused, misplaced: None }))
}

fn keys(reader: &mut Reader<'_>) -> Result<Vec<Key>, DurableError> {
    let dues: Option<Vec<i64>> = reader.next()?;
    let ids: Option<Vec<&str>> = reader.next()?;
    let pairs = dues.unwrap_or_default().into_iter().zip(ids.unwrap_or_default());
    Ok(pairs.map(|(due, id)| (due.cast_unsigned(), Arc::from(id))).collect())
}
