//! [`KeyedShared`]: the state that all handles of the timers share.
//!
//! A key that has fired for a handler with a [token](super::fired::Token) keeps its state, without
//! a value, until the handler has ended. A cancel, or an insert of another value, finds that state
//! and takes it away, which the token detects. Such a state is *vacated*, and its key counts as not
//! armed.

#![forbid(unsafe_code)]

use super::exclusive::Exclusive;
use super::map::KeyMap;
use super::timer::KeyedTimer;
use crate::sync::{AtomicU64, AtomicUsize, Relaxed};
use crate::{Driver, TimerId};
use std::hash::Hash;
use std::sync::{OnceLock, Weak};

/// The state of a key in the map.
pub(super) struct KeyState<V> {
    /// `None` while the state is vacated.
    value: Exclusive<Option<V>>,
    /// The timer that arms the key or has vacated its state.
    pub(super) id: TimerId,
    pub(super) owner: OwnerId,
    /// `true` if there is a value. For readers that share the lock.
    armed: bool,
}

impl<V> KeyState<V> {
    pub(super) fn new(value: V, id: TimerId, owner: OwnerId) -> Self {
        Self { value: Exclusive::new(Some(value)), id, owner, armed: true }
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    /// Returns `true` if this timer has vacated the state.
    pub(super) fn is_vacated_by(&self, id: TimerId) -> bool {
        !self.armed && self.id == id
    }

    /// Returns the value of an armed key.
    pub(super) fn value(&mut self) -> Option<&mut V> {
        self.value.get_mut().as_mut()
    }

    /// Arms the key with a value, and returns its previous value.
    pub(super) fn put(&mut self, value: V) -> Option<V> {
        self.armed = true;
        self.value.get_mut().replace(value)
    }

    /// Takes the value of an armed key.
    pub(super) fn vacate(&mut self) -> Option<V> {
        self.armed = false;
        self.value.get_mut().take()
    }

    pub(super) fn into_value(self) -> Option<V> {
        self.value.into_inner()
    }
}

/// The owner of a key, numbered from 1. Numbers are not reused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerId(u64);

impl OwnerId {
    /// The id of keys without an owner.
    pub(super) const NONE: OwnerId = OwnerId(0);
}

/// The state that all handles share.
pub(super) struct KeyedShared<K, V> {
    pub(super) map: KeyMap<K, KeyState<V>>,
    pub(super) driver: OnceLock<Weak<Driver<KeyedTimer<K>>>>,
    /// The number of vacated states.
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

    /// Counts a vacated state.
    pub(super) fn count_vacated(&self) {
        // Relaxed, in all three uses: the number publishes nothing, and only corrects the number of
        // keys in the map.
        self.vacated.fetch_add(1, Relaxed);
    }

    /// Counts a state that is no longer vacated.
    pub(super) fn discount_vacated(&self) {
        self.vacated.fetch_sub(1, Relaxed);
    }

    /// Returns the number of armed keys.
    pub(super) fn len(&self) -> usize {
        self.map.len().saturating_sub(self.vacated.load(Relaxed))
    }

    /// Returns the value of a state that was taken out of the map.
    pub(super) fn value_of(&self, state: KeyState<V>) -> Option<V> {
        if !state.is_armed() {
            self.discount_vacated();
        }
        state.into_value()
    }

    /// Returns an id that no key has.
    pub(super) fn next_owner(&self) -> OwnerId {
        // Relaxed: the numbers only have to differ.
        OwnerId(self.owners.fetch_add(1, Relaxed) + 1)
    }
}
