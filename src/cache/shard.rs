//! [`Shard`]: the keys of one lock of the [`Map`](super::map::Map), with the loads that are under
//! way. The only file that knows of `quick_cache`.

#![forbid(unsafe_code)]

use super::held::Held;
use super::load::Load;
use crate::TimerId;
use quick_cache::unsync::Cache;
use quick_cache::{DefaultHashBuilder, Equivalent, Lifecycle, OptionsBuilder, Weighter};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, LazyLock};

/// Hashes keys.
pub(super) type Hashes = DefaultHashBuilder;

/// How keys are hashed, in all caches of the process.
pub(super) static HASHER: LazyLock<Hashes> = LazyLock::new(Hashes::default);

/// A key in the table of a shard.
pub(super) struct Own<K>(pub(super) K);

impl<K: Hash> Hash for Own<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(HASHER.hash_one(&self.0));
    }
}

impl<K: Eq> PartialEq for Own<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K: Eq> Eq for Own<K> {}

/// A key that is looked up, or a borrowed form of one, with its hash: shard and table both go by
/// that.
pub(super) struct Sought<'q, Q: ?Sized> {
    pub(super) key: &'q Q,
    pub(super) hash: u64,
}

impl<Q: ?Sized> Hash for Sought<'_, Q> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<K: Borrow<Q>, Q: Eq + ?Sized> Equivalent<Own<K>> for Sought<'_, Q> {
    fn equivalent(&self, own: &Own<K>) -> bool {
        self.key == own.0.borrow()
    }
}

/// Hashes hashes.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are hashed before");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What an operation made the map give up.
pub(super) type Parted<K, V> = Vec<(K, Held<V>)>;

/// Collects what a shard gives up, for the caller to see to outside of its lock.
#[derive(Clone)]
pub(super) struct Collect;

impl<K, V> Lifecycle<Own<K>, Held<V>> for Collect {
    type RequestState = Parted<K, V>;

    fn on_evict(&self, parted: &mut Parted<K, V>, Own(key): Own<K>, held: Held<V>) {
        parted.push((key, held));
    }
}

/// What an entry counts for in the bound: one, if not told otherwise.
#[derive(Clone)]
pub(super) struct Weigh<K, V>(pub(super) Option<Arc<Weigher<K, V>>>);

/// Weighs entries.
pub(super) type Weigher<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

impl<K, V> Weighter<Own<K>, Held<V>> for Weigh<K, V> {
    fn weight(&self, Own(key): &Own<K>, held: &Held<V>) -> u64 {
        // What weighs nothing would never be evicted.
        self.0.as_ref().map_or(1, |weigh| weigh(key, &held.value).max(1))
    }
}

pub(super) type Entries<K, V> =
    Cache<Own<K>, Held<V>, Weigh<K, V>, BuildHasherDefault<AsItIs>, Collect>;
type Loads<K, V> = HashMap<K, Arc<Load<V>>, Hashes>;

/// The keys of one lock.
pub(super) struct Shard<K, V> {
    pub(super) entries: Entries<K, V>,
    pub(super) loads: Loads<K, V>,
    /// The most entries since these were built anew.
    most: usize,
    bound: Bound<K, V>,
}

/// How much there may be.
pub(super) struct Bound<K, V> {
    /// The most, by weight.
    pub(super) most: Option<usize>,
    pub(super) weigh: Weigh<K, V>,
}

impl<K, V> Bound<K, V> {
    /// The most that entries may be allowed to weigh.
    pub(super) const HEAVIEST: usize = if usize::BITS < 64 { 1 << 30 } else { usize::MAX >> 17 };

    /// The bound of one of so many shards.
    pub(super) fn share(&self, shards: usize) -> Self {
        Self { most: self.most.map(|most| most / shards), weigh: Weigh(self.weigh.0.clone()) }
    }
}

impl<K: Eq + Hash, V> Shard<K, V> {
    /// Fewer entries are not worth to be built anew.
    const WORTH: usize = 64;

    /// For how many entries the policy of a shard is made, if a bound by weight does not tell.
    const GUESS: usize = 1 << 10;

    pub(super) fn new(bound: Bound<K, V>) -> Self {
        Self { entries: Self::fresh(&bound), loads: no_loads(), most: 0, bound }
    }

    fn fresh(bound: &Bound<K, V>) -> Entries<K, V> {
        let weigh = Weigh(bound.weigh.0.clone());
        let known = if weigh.0.is_some() { Self::GUESS } else { usize::MAX };
        let options = OptionsBuilder::new()
            .estimated_items_capacity(bound.most.map_or(0, |most| most.min(known)))
            .weight_capacity(bound.most.map_or(u64::MAX, |most| most as u64))
            .build();
        let options = options.unwrap_or_else(|_| unreachable!("both numbers were given"));
        Cache::with_options(options, weigh, BuildHasherDefault::default(), Collect)
    }

    /// A load takes the key's place.
    pub(super) fn begin(&mut self, key: K) -> (K, Arc<Load<V>>)
    where
        K: Clone,
    {
        let load = Arc::new(Load::new());
        self.loads.insert(key.clone(), Arc::clone(&load));
        (key, load)
    }

    pub(super) fn insert(&mut self, key: K, held: Held<V>) -> Parted<K, V> {
        let mut parted = Parted::new();
        self.entries.insert_with_lifecycle(Own(key), held, &mut parted);
        self.most = self.most.max(self.entries.len());
        parted
    }

    /// Inserts, in the place of a load that is under way, if one is.
    pub(super) fn put(&mut self, key: K, held: Held<V>) -> Parted<K, V> {
        self.overtake(&key);
        self.insert(key, held)
    }

    /// Takes the place of a load that is under way, if one is.
    pub(super) fn overtake<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if !self.loads.is_empty() {
            self.loads.remove(key);
            self.shrink_loads();
        }
    }

    /// Takes the place of this load, and returns whether it still had it.
    pub(super) fn land(&mut self, key: &K, load: &Arc<Load<V>>) -> bool {
        let has_place = self.loads.get(key).is_some_and(|other| Arc::ptr_eq(other, load));
        if has_place {
            self.overtake(key);
        }
        has_place
    }

    /// Takes everything out, also the places of the loads.
    pub(super) fn take(&mut self) -> Entries<K, V> {
        self.loads = no_loads();
        self.most = 0;
        std::mem::replace(&mut self.entries, Self::fresh(&self.bound))
    }

    /// Gives back the memory of entries that have gone.
    pub(super) fn shrink(&mut self) {
        let len = self.entries.len();
        if self.most <= Self::WORTH || len > self.most / 4 {
            return;
        }
        let fresh = Self::fresh(&self.bound);
        let mut old = std::mem::replace(&mut self.entries, fresh);
        self.entries.reserve(len);
        for (key, held) in old.drain() {
            // None is evicted: they are fewer than before.
            self.entries.insert(key, held);
        }
        self.most = len;
    }

    pub(super) fn remove<Q>(&mut self, key: &Sought<'_, Q>) -> Option<(K, Held<V>)>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.entries.remove(key).map(|(Own(key), held)| (key, held))
    }

    /// Removes the value that this timer ends, if the key still has that one.
    pub(super) fn remove_of(
        &mut self,
        key: &Sought<'_, K>,
        timer: TimerId,
    ) -> Option<(K, Held<V>)> {
        let removed = self.entries.remove_if(key, |held| held.timer == timer);
        self.shrink();
        removed.map(|(Own(key), held)| (key, held))
    }

    fn shrink_loads(&mut self) {
        let (len, room) = (self.loads.len(), self.loads.capacity());
        if room > Self::WORTH && len <= room / 4 {
            self.loads.shrink_to(2 * len);
        }
    }
}

fn no_loads<K, V>() -> Loads<K, V> {
    Loads::with_hasher(HASHER.clone())
}
