//! [`Snapshot`], which reads an embedded store as it was after a transaction.

#![forbid(unsafe_code)]

use super::error::TransitionError;
use super::tables::{DEAD, DUE, META, TIMERS, named, record};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::{Key, Page};
use crate::model::record::Record;
use crate::store::MAX_LIST_BYTES;
use redb::{AccessGuard, ReadTransaction, ReadableTableMetadata, StorageError};
use std::ops::Bound;
use std::sync::Arc;

/// The store after a transaction.
pub(super) struct Snapshot(pub(super) ReadTransaction);

impl Snapshot {
    pub(super) fn new(inner: ReadTransaction) -> Self {
        Self(inner)
    }

    pub(super) fn get(&self, id: &str) -> Result<Option<Record>, TransitionError> {
        let timers = self.0.open_table(TIMERS)?;
        let found = timers.get(id.as_bytes())?;
        found.map(|bytes| Ok(record(id, bytes.value())?)).transpose()
    }

    pub(super) fn list(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Record)>, TransitionError> {
        let timers = self.0.open_table(TIMERS)?;
        let from = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_bytes()));
        let entries = timers.range::<&[u8]>((from, Bound::Unbounded))?;
        page(entries, limit, |id, bytes| {
            let id = named(id).into_owned();
            record(&id, bytes).map(|record| (id, record))
        })
    }

    pub(super) fn len(&self) -> Result<(u64, u64), TransitionError> {
        Ok((self.0.open_table(TIMERS)?.len()?, self.0.open_table(DEAD)?.len()?))
    }

    pub(super) fn is_paused(&self) -> Result<bool, TransitionError> {
        let meta = self.0.open_table(META)?;
        Ok(meta.get("paused")?.is_some_and(|paused| paused.value() != 0))
    }

    pub(super) fn load(
        &self,
        from: &Key,
        until: Millis,
        limit: usize,
        now: Millis,
    ) -> Result<Page, TransitionError> {
        if self.is_paused()? {
            let keys = Vec::new();
            return Ok(Page { now, until, keys, more: false, paused: true, misplaced: None });
        }
        let due = self.0.open_table(DUE)?;
        let (mut keys, mut beyond, mut misplaced) = (Vec::<Key>::new(), Vec::<Key>::new(), None);
        for entry in due.range::<(u64, &[u8])>((from.0, from.1.as_bytes())..)? {
            // A key that is too late may precede others. The next key reveals that.
            if keys.len() == limit || beyond.len() == 2 {
                break;
            }
            let (key, _) = entry?;
            let (time, id) = key.value();
            let key: Key = (time, Arc::from(named(id)));
            if beyond.last().or(keys.last()).is_some_and(|last| *last >= key) {
                misplaced = misplaced.or_else(|| Some(key.clone()));
            }
            if time <= until && beyond.is_empty() { &mut keys } else { &mut beyond }.push(key);
        }
        let more = keys.len() == limit;
        Ok(Page { now, until, keys, more, paused: false, misplaced })
    }
}

/// A key and its value.
type Entry<'a, K> = (AccessGuard<'a, K>, AccessGuard<'a, &'static [u8]>);

/// Returns up to `limit` entries, or fewer if they are long.
pub(super) fn page<'a, K: redb::Key + 'static, R>(
    entries: impl Iterator<Item = Result<Entry<'a, K>, StorageError>>,
    limit: usize,
    read: impl Fn(K::SelfType<'_>, &[u8]) -> Result<R, DurableError>,
) -> Result<Vec<R>, TransitionError> {
    let (mut list, mut length) = (Vec::new(), 0);
    for entry in entries.take(limit) {
        let (key, bytes) = entry?;
        length += bytes.value().len();
        list.push(read(key.value(), bytes.value())?);
        if length >= MAX_LIST_BYTES {
            break;
        }
    }
    Ok(list)
}
