//! [`PartitionPage`], a page of the keys of one partition, for workers, for queries and for checks.

#![forbid(unsafe_code)]

use crate::model::clock::Millis;
use crate::model::key::Key;

/// A page of the keys of one partition.
#[derive(Debug)]
pub(crate) struct PartitionPage {
    /// The time of the partition's server.
    pub(crate) now: Millis,
    pub(crate) keys: Vec<Key>,
    /// Set if there may be more keys because the limit was reached.
    pub(crate) more: bool,
    /// The due time of the first key beyond the range.
    pub(crate) beyond: Option<Millis>,
}

/// Returns the limit for each of some partitions that together have a page. A partition has more
/// keys in the page only if it has more than its share.
pub(crate) fn share(limit: usize, partitions: usize) -> usize {
    (limit * 2 / partitions.max(1) + 16).min(limit)
}

/// Merges pages of partitions. Returns the keys in order up to the end of the first page that has
/// more, and that end.
pub(crate) fn merged(pages: Vec<PartitionPage>) -> (Vec<Key>, Option<Key>) {
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
