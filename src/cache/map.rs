//! [`Map`]: who has a value, and who makes room. The only file that knows of `quick_cache`.
//!
//! The map's locks are its own and are held for a look-up, an exchange, and the clone of a value;
//! what it gives up is handed back by each verb, and nobody is told under a lock. A load that is
//! under way holds the key's place ([`Guard`]), not a lock; an insert or a removal of that key
//! takes the place away, and what the load gives is then not kept.

#![forbid(unsafe_code)]

use crate::TimerId;
use quick_cache::sync::{Cache, EntryAction, EntryResult, PlaceholderGuard};
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, UnitWeighter};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::time::Instant;

/// A value in the map, with its timer.
#[derive(Clone)]
pub(super) struct Held<V> {
    pub(super) value: V,
    /// From when on it is not served.
    pub(super) deadline: Instant,
    /// Names this value among all that its key ever had, and the timer that ends it.
    pub(super) timer: TimerId,
}

/// What a verb made the map give up.
pub(super) type Parted<K, V> = Vec<(K, Held<V>)>;

/// Collects what the map gives up, for the caller to see to outside of its locks.
#[derive(Clone)]
pub(super) struct Collect;

impl<K, V> Lifecycle<K, Held<V>> for Collect {
    type RequestState = Parted<K, V>;

    fn on_evict(&self, parted: &mut Parted<K, V>, key: K, held: Held<V>) {
        parted.push((key, held));
    }
}

type Inner<K, V> = Cache<K, Held<V>, UnitWeighter, DefaultHashBuilder, Collect>;

/// The concurrent map from keys to values.
pub(super) struct Map<K, V>(Inner<K, V>);

/// The place of a key whose value is being loaded. Dropped without a value, it goes to one of those
/// that wait for it.
pub(super) struct Guard<'a, K, V>(
    PlaceholderGuard<'a, K, Held<V>, UnitWeighter, DefaultHashBuilder, Collect>,
);

/// What [`Map::value_or_guard`] found.
pub(super) enum Found<'a, K, V> {
    Value(V),
    /// It was no longer to be served, and is out of the map.
    Stale(K, Held<V>),
    Missing(Guard<'a, K, V>),
}

impl<K: Eq + Hash, V: Clone> Map<K, V> {
    /// The most entries that a capacity may allow.
    pub(super) const MOST: usize = 1 << 30;

    /// The fewest entries for which it is worth to have a further shard.
    const SHARD: usize = 32;

    /// An empty map of at most `capacity` entries. The bound is split evenly among the shards.
    pub(super) fn new(capacity: Option<usize>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = (4 * cores).next_power_of_two();
        let worth = capacity.map_or(wanted, |most| (most / Self::SHARD).max(1));
        // Rounded down to a power of two, which the map would else round up to.
        let shards = 1 << worth.min(wanted).ilog2();
        let weight = capacity.map_or(u64::MAX, |most| (most / shards * shards) as u64);
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(capacity.unwrap_or(Self::SHARD * shards))
            .weight_capacity(weight)
            .build();
        let options = options.unwrap_or_else(|_| unreachable!("both numbers were given"));
        let hasher = DefaultHashBuilder::default();
        Self(Cache::with_options(options, UnitWeighter, hasher, Collect))
    }

    pub(super) fn get<Q>(&self, key: &Q) -> Option<Held<V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.get(key)
    }

    /// As [`get`](Self::get), without a word to the policy of eviction.
    pub(super) fn peek<Q>(&self, key: &Q) -> Option<Held<V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.peek(key)
    }

    pub(super) fn insert(&self, key: K, held: Held<V>) -> Parted<K, V> {
        let mut parted = Parted::new();
        self.0.insert_with_lifecycle(key, held, &mut parted);
        parted
    }

    pub(super) fn remove<Q>(&self, key: &Q) -> Option<(K, Held<V>)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.remove(key)
    }

    /// Removes the value that this timer ends, if the key still has that one.
    pub(super) fn remove_of(&self, key: &K, timer: TimerId) -> Option<(K, Held<V>)> {
        self.0.remove_if(key, |held| held.timer == timer)
    }

    /// Removes all that is in the map now, one after the other.
    pub(super) fn drain(&self) -> impl Iterator<Item = (K, Held<V>)> {
        self.0.drain()
    }

    /// How many values the map holds. O(shards).
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The key's value if it is to be served; else the right to load it, for one caller at a time.
    /// Waits for the load that is under way, if there is one.
    pub(super) fn value_or_guard<Q>(
        &self,
        key: &Q,
        is_live: impl FnOnce(&Held<V>) -> bool,
    ) -> Found<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let look = |_: &K, held: &mut Held<V>| match is_live(held) {
            true => EntryAction::Retain(held.value.clone()),
            false => EntryAction::Remove,
        };
        match self.0.entry(key, None, look) {
            EntryResult::Retained(value) => Found::Value(value),
            EntryResult::Removed(key, held) => Found::Stale(key, held),
            EntryResult::Vacant(guard) => Found::Missing(Guard(guard)),
            EntryResult::Replaced(..) | EntryResult::Timeout => {
                unreachable!("neither was asked for")
            }
        }
    }
}

impl<K: Eq + Hash, V: Clone> Guard<'_, K, V> {
    /// Puts the value into its place, and lets those that wait for it have it; `None` if the place
    /// was taken away by an insert or a removal of the key.
    pub(super) fn insert(self, held: Held<V>) -> Option<Parted<K, V>> {
        let mut parted = Parted::new();
        let inserted = self.0.insert_with_lifecycle(held, &mut parted);
        inserted.is_ok().then_some(parted)
    }
}

impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").finish_non_exhaustive()
    }
}
