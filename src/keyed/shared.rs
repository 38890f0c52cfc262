//! [`Shared`]: what all handles of the timers share: the map, and how to reach the driver.

#![forbid(unsafe_code)]

use super::exclusive::Exclusive;
use super::map::Map;
use super::timer::KeyedTimer;
use crate::{Driver, TimerId};
use std::hash::Hash;
use std::sync::{OnceLock, Weak};

/// What the map holds for a key.
pub(super) struct Slot<V> {
    pub(super) value: Exclusive<V>,
    pub(super) id: TimerId,
}

/// What all handles share.
pub(super) struct Shared<K, V> {
    pub(super) map: Map<K, Slot<V>>,
    pub(super) driver: OnceLock<Weak<Driver<KeyedTimer<K>>>>,
}

impl<K: Hash + Eq, V> Shared<K, V> {
    pub(super) fn new() -> Self {
        Self { map: Map::new(), driver: OnceLock::new() }
    }
}
