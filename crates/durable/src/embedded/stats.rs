//! Counting the timers of an embedded store.

#![forbid(unsafe_code)]

use super::error::TransitionError;
use super::snapshot::Snapshot;
use super::tables::{DUE, META, named};
use crate::model::clock::Millis;
use crate::model::key::{Key, first_from};
use crate::model::record::PARKED;
use crate::model::stats::Counts;
use redb::ReadableTable;
use std::sync::Arc;

/// The maximum number of keys that one step counts.
const STEP: usize = 10_000;

impl Snapshot {
    /// Runs one step, from the first key or from the end of the step before. The first step has all
    /// numbers that the store keeps. Each step counts keys that are due, and then keys of paused
    /// timers.
    pub(super) fn stats(&self, from: &Key, now: Millis) -> Result<Counts, TransitionError> {
        let due = self.0.open_table(DUE)?;
        let mut counts = Counts { now, ..Counts::default() };
        if *from == first_from(0) {
            (counts.timers, counts.dead) = self.len()?;
            counts.paused = self.is_paused()?;
            let leased = self.0.open_table(META)?.get("leased")?;
            counts.leased = leased.map_or(0, |leased| leased.value());
            let oldest = due.first()?.map(|(key, _)| key.value().0);
            counts.oldest = oldest.filter(|oldest| *oldest < PARKED);
        }
        for (count, row) in due.range::<(u64, &[u8])>((from.0, from.1.as_bytes())..)?.enumerate() {
            let key = row?.0;
            let (time, id) = key.value();
            let next = match time {
                _ if count == STEP => (time, Arc::from(named(id))),
                PARKED.. => {
                    counts.parked += 1;
                    continue;
                }
                _ if time <= now => {
                    counts.overdue += 1;
                    continue;
                }
                _ => first_from(PARKED),
            };
            // Damaged keys may be out of order.
            counts.next = Some(next).filter(|next| next > from);
            break;
        }
        Ok(counts)
    }
    /// Returns the number of keys in each range of due times, up to a number.
    pub(super) fn due_counts(
        &self,
        ranges: &[(Millis, Millis)],
        most: u64,
    ) -> Result<Vec<u64>, TransitionError> {
        let due = self.0.open_table(DUE)?;
        let mut counts = Vec::new();
        for (from, beyond) in ranges {
            let mut count = 0;
            for row in due.range::<(u64, &[u8])>((*from, &[][..])..(*beyond, &[][..]))? {
                row?;
                count += 1;
                if count == most {
                    break;
                }
            }
            counts.push(count);
        }
        Ok(counts)
    }
}
