//! Reading timers in the order of the index, and the ages of dead letters.

#![forbid(unsafe_code)]

use super::error::TransitionError;
use super::letters::letter_age;
use super::snapshot::Snapshot;
use super::tables::{DEAD, DUE, META, TIMERS, named};
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::model::record::Record;
use crate::store::{Found, MAX_LIST_BYTES};
use std::ops::Bound;
use std::sync::Arc;

impl Snapshot {
    /// Returns the timers of up to `limit` keys, or of fewer if they are long.
    pub(super) fn find(
        &self,
        from: &Key,
        until: Millis,
        limit: usize,
    ) -> Result<Found, TransitionError> {
        let (timers, due) = (self.0.open_table(TIMERS)?, self.0.open_table(DUE)?);
        let (mut found, mut length) = (Found::default(), 0);
        let range = (from.0, from.1.as_bytes())..(until.saturating_add(1), &[][..]);
        for (count, entry) in due.range::<(u64, &[u8])>(range)?.enumerate() {
            let key = entry?.0;
            let (time, id) = (key.value().0, named(key.value().1));
            if count == limit || length >= MAX_LIST_BYTES {
                found.next = Some((time, Arc::from(id)));
                break;
            }
            let Some(bytes) = timers.get(key.value().1)? else { continue };
            length += bytes.value().len();
            let record = Record::decode(&id, bytes.value());
            if let Some(record) = record.filter(|record| record.indexed() == time) {
                found.timers.push((id.into_owned(), record));
            }
        }
        Ok(found)
    }

    /// Returns the latest due time of any retry that was planned.
    pub(super) fn retries_until(&self) -> Result<Millis, TransitionError> {
        let latest = self.0.open_table(META)?.get("retried")?;
        Ok(latest.map_or(0, |latest| latest.value()))
    }

    /// Returns the numbers of dead letters, and when each was given up.
    pub(super) fn letter_ages(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, Millis)>, TransitionError> {
        let dead = self.0.open_table(DEAD)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut ages = Vec::new();
        for entry in dead.range::<u64>((from, Bound::Unbounded))?.take(limit) {
            ages.push(letter_age(entry?));
        }
        Ok(ages)
    }
}
