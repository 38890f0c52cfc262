//! [`Shared`]: what all handles of the timers share: the map, and how to reach the driver.

#![forbid(unsafe_code)]

use super::exclusive::Exclusive;
use super::map::Map;
use super::timer::KeyedTimer;
use crate::sync::{AtomicU64, Relaxed};
use crate::{Driver, TimerId};
use std::hash::Hash;
use std::sync::{OnceLock, Weak};

/// What the map holds for a key.
pub(super) struct Slot<V> {
    pub(super) value: Exclusive<V>,
    pub(super) id: TimerId,
    pub(super) owner: Owner,
}

/// Whose a key is: a number for each owner that there ever was.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner(u64);

impl Owner {
    /// No owner's.
    pub(super) const NOBODY: Owner = Owner(0);
}

/// What all handles share.
pub(super) struct Shared<K, V> {
    pub(super) map: Map<K, Slot<V>>,
    pub(super) driver: OnceLock<Weak<Driver<KeyedTimer<K>>>>,
    owners: AtomicU64,
}

impl<K: Hash + Eq, V> Shared<K, V> {
    pub(super) fn new() -> Self {
        Self { map: Map::new(), driver: OnceLock::new(), owners: AtomicU64::new(0) }
    }

    /// One that no key has.
    pub(super) fn next_owner(&self) -> Owner {
        // Relaxed: any number that is not given out twice.
        Owner(self.owners.fetch_add(1, Relaxed) + 1)
    }
}
