//! [`KeyedShared`]: what all handles of the timers share: the map, and how to reach the driver.
//!
//! A key that has fired for a handler with a [token](super::fired::Token) keeps its slot, without a
//! value, until the handler has ended: so a cancel or an insert of another value finds it, takes it
//! away, and the token finds it gone. Such a slot is *vacated*, and its key counts as not armed.

#![forbid(unsafe_code)]

use super::exclusive::Exclusive;
use super::map::KeyMap;
use super::timer::KeyedTimer;
use crate::sync::{AtomicU64, AtomicUsize, Relaxed};
use crate::{Driver, TimerId};
use std::hash::Hash;
use std::sync::{OnceLock, Weak};

/// What the map holds for a key.
pub(super) struct KeyState<V> {
    /// `None` while the slot is vacated.
    value: Exclusive<Option<V>>,
    /// The timer that it is armed with, or that has vacated it.
    pub(super) id: TimerId,
    pub(super) owner: OwnerId,
    /// Whether it has a value, for readers that share the lock.
    armed: bool,
}

impl<V> KeyState<V> {
    pub(super) fn new(value: V, id: TimerId, owner: OwnerId) -> Self {
        Self { value: Exclusive::new(Some(value)), id, owner, armed: true }
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    /// Returns `true` if this timer has vacated it.
    pub(super) fn is_vacated_by(&self, id: TimerId) -> bool {
        !self.armed && self.id == id
    }

    /// The value of an armed slot.
    pub(super) fn value(&mut self) -> Option<&mut V> {
        self.value.get_mut().as_mut()
    }

    /// Arms the slot with a value, and returns the one that it had.
    pub(super) fn put(&mut self, value: V) -> Option<V> {
        self.armed = true;
        self.value.get_mut().replace(value)
    }

    /// Vacates an armed slot.
    pub(super) fn vacate(&mut self) -> Option<V> {
        self.armed = false;
        self.value.get_mut().take()
    }

    pub(super) fn into_value(self) -> Option<V> {
        self.value.into_inner()
    }
}

/// Whose a key is: a number for each owner that there ever was.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerId(u64);

impl OwnerId {
    /// No owner's.
    pub(super) const NONE: OwnerId = OwnerId(0);
}

/// What all handles share.
pub(super) struct KeyedShared<K, V> {
    pub(super) map: KeyMap<K, KeyState<V>>,
    pub(super) driver: OnceLock<Weak<Driver<KeyedTimer<K>>>>,
    /// How many slots are vacated.
    vacated: AtomicUsize,
    owners: AtomicU64,
}

impl<K: Hash + Eq, V> KeyedShared<K, V> {
    pub(super) fn new() -> Self {
        Self {
            map: KeyMap::new(),
            driver: OnceLock::new(),
            vacated: AtomicUsize::new(0),
            owners: AtomicU64::new(0),
        }
    }

    /// Notes that a slot was vacated.
    pub(super) fn count_vacated(&self) {
        // Relaxed, in all three: a figure beside that of the map.
        self.vacated.fetch_add(1, Relaxed);
    }

    /// Notes that a slot is vacated no more.
    pub(super) fn discount_vacated(&self) {
        self.vacated.fetch_sub(1, Relaxed);
    }

    /// How many keys are armed.
    pub(super) fn len(&self) -> usize {
        self.map.len().saturating_sub(self.vacated.load(Relaxed))
    }

    /// The value of a slot that was taken out of the map.
    pub(super) fn value_of(&self, state: KeyState<V>) -> Option<V> {
        if !state.is_armed() {
            self.discount_vacated();
        }
        state.into_value()
    }

    /// One that no key has.
    pub(super) fn next_owner(&self) -> OwnerId {
        // Relaxed: any number that is not given out twice.
        OwnerId(self.owners.fetch_add(1, Relaxed) + 1)
    }
}
