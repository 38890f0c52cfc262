//! [`PartitionPage`], a page of the keys of one partition, for workers, for queries and for checks.

#![forbid(unsafe_code)]

use super::operations::{Operations, text};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::store::remote::retry::RetryPolicy;
use std::sync::Arc;

/// A page of the keys of one partition.
pub(super) struct PartitionPage {
    /// The time of the partition's server.
    pub(super) now: Millis,
    pub(super) keys: Vec<Key>,
    /// Set if there may be more keys because the limit was reached.
    pub(super) more: bool,
    /// The due time of the first key beyond the range.
    pub(super) beyond: Option<Millis>,
}

impl Operations {
    /// Reads up to `limit` keys of a partition, in order.
    pub(super) async fn read_keys(
        &self,
        partition: u64,
        from: &Key,
        until: Millis,
        limit: usize,
        retry: RetryPolicy,
    ) -> Result<PartitionPage, DurableError> {
        let args = [text(from.0), from.1.as_bytes().to_vec(), text(until), text(limit)];
        let page = self.call(&self.scripts.load, partition, &args, retry).await?;
        let (now, more, beyond, keys): (Millis, u8, i64, Vec<(String, Millis)>) = page;
        let keys = keys.into_iter().map(|(id, due)| (due, Arc::from(id))).collect();
        Ok(PartitionPage { now, keys, more: more == 1, beyond: Millis::try_from(beyond).ok() })
    }
}

/// Returns the limit for each of some partitions that together have a page. A partition has more
/// keys in the page only if it has more than its share.
pub(super) fn share(limit: usize, partitions: usize) -> usize {
    (limit * 2 / partitions.max(1) + 16).min(limit)
}

/// Merges pages of partitions. Returns the keys in order up to the end of the first page that has
/// more, and that end.
pub(super) fn merged(pages: Vec<PartitionPage>) -> (Vec<Key>, Option<Key>) {
    let mut keys = Vec::new();
    let mut end: Option<Key> = None;
    for page in pages {
        if page.more {
            // Beyond its last key, this partition may have keys before the keys of the others.
            let last = page.keys.last().cloned();
            end = if end.is_none() { last } else { end.min(last) };
        }
        keys.extend(page.keys);
    }
    keys.sort_unstable();
    if let Some(end) = &end {
        keys.retain(|key| key <= end);
    }
    (keys, end)
}
