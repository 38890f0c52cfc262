//! The check and the repair of a store in Redis.
//!
//! Each partition has two parts. Part `2 p` has the buckets, whose records are looked up in the
//! index. Part `2 p + 1` has the keys of the index, which are followed to their records. A step
//! consists of one or two scripts, and each script compares one consistent state.

#![forbid(unsafe_code)]

use super::bytes::{self, Stored};
use super::keys::{BUCKETS, Location};
use super::operations::{Operations, text};
use crate::error::DurableError;
use crate::model::check::{Checked, Cursor, Finding, FoundLeases, LeaseCounter};
use crate::model::clock::LATEST;
use crate::model::key::{Key, first_after, first_from};
use crate::model::record::PARKED;
use crate::store::MAX_LIST_BYTES;
use crate::store::partitions::Partitioned;
use crate::store::remote::notices::Listener;
use crate::store::remote::retry::RetryPolicy;

/// The number of records or keys in a step.
const STEP: usize = 1000;

/// An id, its record, its long payloads, and 1 if the index has its key.
type Looked = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, u8);

impl Operations {
    /// Runs one step of a check from a position.
    pub(super) async fn check(&self, from: Cursor) -> Result<Checked, DurableError> {
        self.step(from, false).await
    }

    /// Runs one step of a check, and repairs what it finds if `mends` is set.
    async fn step(&self, from: Cursor, mends: bool) -> Result<Checked, DurableError> {
        let parts = 2 * self.keys.partitions();
        let Cursor { part, after } = from;
        if part >= parts {
            return Ok(Checked::default());
        }
        let (mut checked, next) = match part % 2 {
            0 => self.check_records(part / 2, after.0, mends).await?,
            _ => self.check_keys(part / 2, after, mends).await?,
        };
        let next = next.map(|after| Cursor { part, after });
        checked.next = next.or_else(|| (part + 1 < parts).then(|| Cursor::part(part + 1)));
        Ok(checked)
    }

    /// Repairs everything that a check finds, and makes the workers of this process load again.
    /// Workers of other processes do so within a minute.
    pub(super) async fn repair(&self) -> Result<(), DurableError> {
        let (mut at, mut leases) = (Some(Cursor::part(0)), None);
        while let Some(from) = at {
            let part = from.part;
            let checked = self.step(from, true).await?;
            if let Some(found) = FoundLeases::add(&mut leases, part, &checked)
                && found.finding().is_some()
            {
                self.recount(part / 2, found).await?;
            }
            at = checked.next;
        }
        self.notices_lost();
        Ok(())
    }

    /// Corrects the number of leases of a partition, unless leases began or ended meanwhile.
    async fn recount(&self, partition: u64, leases: FoundLeases) -> Result<(), DurableError> {
        let FoundLeases { counter: LeaseCounter { counted, fence }, found, .. } = leases;
        let args = [text(fence), text(counted), text(found)];
        let _: u8 = self.call(&self.scripts.recount, partition, &args, RetryPolicy::Caller).await?;
        Ok(())
    }

    /// Checks records from a bucket on. The cursor has the bucket in place of a due time.
    async fn check_records(
        &self,
        partition: u64,
        bucket: u64,
        mends: bool,
    ) -> Result<(Checked, Option<Key>), DurableError> {
        let args = [text(bucket), text(BUCKETS), text(STEP), text(MAX_LIST_BYTES), word(mends)];
        let (next, leased, counted, fence, found): (i64, u64, i64, u64, Vec<Looked>) =
            self.call(&self.scripts.records, partition, &args, RetryPolicy::Caller).await?;
        let counter = Some(LeaseCounter { counted, fence });
        let timers = found.len() as u64;
        let mut checked = Checked { timers, leased, counter, ..Checked::default() };
        for (name, record, payload, next, indexed) in found {
            let id = String::from_utf8_lossy(&name).into_owned();
            let stored = Stored { record, payload, next };
            if std::str::from_utf8(&name).is_err() || bytes::record(&id, stored).is_none() {
                checked.findings.push(Finding::Unreadable { id });
            } else if indexed == 0 {
                checked.findings.push(Finding::Unindexed { id });
            }
        }
        Ok((checked, u64::try_from(next).ok().map(first_from)))
    }

    /// Checks keys of the index.
    async fn check_keys(
        &self,
        partition: u64,
        from: Key,
        mends: bool,
    ) -> Result<(Checked, Option<Key>), DurableError> {
        let retry = RetryPolicy::Caller;
        let page = self.read_keys(partition, &from, PARKED + LATEST, STEP, retry).await?;
        let mut args = vec![word(mends)];
        for (due, id) in &page.keys {
            let Location { bucket, .. } = self.keys.location(id);
            args.extend([text(bucket), id.as_bytes().to_vec(), text(due)]);
        }
        let strays: Vec<u8> = self.call(&self.scripts.strays, partition, &args, retry).await?;
        let found = page.keys.iter().zip(strays).filter(|(_, stray)| *stray == 1);
        let findings = found.map(|((due, id), _)| Finding::stray(*due, id)).collect();
        let next = page.keys.last().filter(|_| page.more).map(first_after);
        Ok((Checked { keys: page.keys.len() as u64, findings, ..Checked::default() }, next))
    }
}

fn word(mends: bool) -> Vec<u8> {
    text(if mends { "mend" } else { "" })
}
