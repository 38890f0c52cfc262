//! [`Shard`]: the entries and loads behind one lock of the [`Map`](super::map::Map). No other file
//! uses `quick_cache`.

#![forbid(unsafe_code)]

use super::entry::CacheEntry;
use super::load::Load;
use quick_cache::unsync::Cache;
use quick_cache::{DefaultHashBuilder, Equivalent, Lifecycle, OptionsBuilder, Weighter};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use tourbillon::TimerId;

/// The hasher of keys.
pub(super) type Hashes = DefaultHashBuilder;

/// The hasher of the keys of all caches in the process.
pub(super) static HASHER: LazyLock<Hashes> = LazyLock::new(Hashes::default);

/// A key in the table of a shard.
pub(super) struct StoredKey<K>(pub(super) K);

impl<K: Hash> Hash for StoredKey<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(HASHER.hash_one(&self.0));
    }
}

impl<K: Eq> PartialEq for StoredKey<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K: Eq> Eq for StoredKey<K> {}

/// A key that is looked up, in a borrowed form, with its hash. The shard and its table both use the
/// hash.
pub(super) struct LookupKey<'q, Q: ?Sized> {
    pub(super) key: &'q Q,
    pub(super) hash: u64,
}

impl<Q: ?Sized> Hash for LookupKey<'_, Q> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<K: Borrow<Q>, Q: Eq + ?Sized> Equivalent<StoredKey<K>> for LookupKey<'_, Q> {
    fn equivalent(&self, stored: &StoredKey<K>) -> bool {
        self.key == stored.0.borrow()
    }
}

/// Returns hashes as they are.
#[derive(Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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

/// The entries that an operation removed from the map.
pub(super) type Removed<K, V> = Vec<(K, CacheEntry<V>)>;

/// Collects the entries that a shard evicts. The caller handles them outside the lock.
#[derive(Clone)]
pub(super) struct Collect {
    /// Set while an entry is inserted that is heavier than the policy admits by itself.
    heavy: Arc<AtomicBool>,
}

impl<K, V> Lifecycle<StoredKey<K>, CacheEntry<V>> for Collect {
    type RequestState = Removed<K, V>;

    /// Returns `true` once for a heavy entry, which is the first that the policy asks about.
    fn is_pinned(&self, _: &StoredKey<K>, _: &CacheEntry<V>) -> bool {
        // Relaxed, both, because the lock of the shard orders them.
        let heavy = self.heavy.load(Relaxed);
        if heavy {
            self.heavy.store(false, Relaxed);
        }
        heavy
    }

    fn on_evict(
        &self,
        removed: &mut Removed<K, V>,
        StoredKey(key): StoredKey<K>,
        entry: CacheEntry<V>,
    ) {
        removed.push((key, entry));
    }
}

/// The caller's function that weighs an entry.
pub(super) type Weigher<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

/// Returns the weights that entries had when they were inserted.
#[derive(Clone)]
pub(super) struct InsertedWeight;

impl<K, V> Weighter<StoredKey<K>, CacheEntry<V>> for InsertedWeight {
    fn weight(&self, _: &StoredKey<K>, entry: &CacheEntry<V>) -> u64 {
        entry.weight
    }
}

pub(super) type EntryTable<K, V> =
    Cache<StoredKey<K>, CacheEntry<V>, InsertedWeight, BuildHasherDefault<IdentityHasher>, Collect>;
type Loads<K, V> = HashMap<K, Arc<Load<V>>, Hashes>;

/// The entries and loads behind one lock.
pub(super) struct Shard<K, V> {
    pub(super) entries: EntryTable<K, V>,
    pub(super) loads: Loads<K, V>,
    /// Loads that have lost their places, to be dropped without the lock.
    pub(super) overtaken: Vec<Arc<Load<V>>>,
    /// The maximum number of entries since the last rebuild.
    most: usize,
    bound: Bound<K, V>,
    /// As in [`Collect`].
    heavy: Arc<AtomicBool>,
}

/// The bound of a map or of one shard.
pub(super) struct Bound<K, V> {
    /// The maximum weight.
    pub(super) most: Option<usize>,
    pub(super) weigher: Option<Arc<Weigher<K, V>>>,
    /// The expected number of entries.
    pub(super) expected: Option<usize>,
}

impl<K, V> Bound<K, V> {
    /// The largest capacity in weight.
    pub(super) const HEAVIEST: usize = if usize::BITS < 64 { 1 << 30 } else { usize::MAX >> 17 };

    /// The number of entries that justifies a further shard.
    const SHARD: usize = 32;

    /// The assumed weight of an entry if nothing is known.
    const TYPICAL: usize = 1 << 10;

    /// The number of entries that shards are made for if only a weight is known. An entry may then
    /// weigh a quarter of the bound.
    const FEW: usize = 4 * Self::SHARD;

    /// The number of entries that the policy of a shard is sized for if nothing is known.
    const GUESS: usize = 1 << 10;

    /// Returns the number of shards, a power of two of at most `wanted`.
    pub(super) fn shards(&self, wanted: usize) -> usize {
        let expected = match (self.most, &self.weigher) {
            (None, _) => self.expected,
            (Some(most), None) => Some(self.expected.map_or(most, |expected| expected.min(most))),
            (Some(most), Some(_)) => {
                let unknown = || (most / Self::TYPICAL).min(Self::FEW);
                Some(self.expected.unwrap_or_else(unknown).min(most))
            }
        };
        let worth = expected.map_or(wanted, |expected| (expected / Self::SHARD).max(1));
        // Rounded down to a power of two.
        1 << worth.min(wanted).ilog2()
    }

    /// Returns the bound of one of `shards` shards.
    pub(super) fn share(&self, shards: usize) -> Self {
        Self {
            most: self.most.map(|most| most / shards),
            weigher: self.weigher.clone(),
            expected: self.expected.map(|expected| expected.div_ceil(shards)),
        }
    }

    /// Returns the number of entries that the policy of a shard with this bound has to remember.
    fn known(&self) -> usize {
        let counted = self.most.filter(|_| self.weigher.is_none());
        counted.or(self.expected).or(self.most.map(|_| Self::GUESS)).unwrap_or(0)
    }

    /// Returns the weight of a new entry, which is one without a weigher. The sum of the weights
    /// fits into a `u64`, because the bound limits it, or there are fewer than 2^32 entries of
    /// clamped weight.
    fn weigh(&self, key: &K, value: &V) -> u64 {
        let heaviest = if self.most.is_some() { u64::MAX } else { u64::from(u32::MAX) };
        // An entry of weight zero would never be evicted.
        self.weigher.as_ref().map_or(1, |weigh| weigh(key, value).clamp(1, heaviest))
    }
}

impl<K: Eq + Hash, V> Shard<K, V> {
    /// The smallest maximum that is worth a rebuild.
    const WORTH: usize = 64;

    /// The share of the bound that the policy keeps for reused entries. By itself the policy admits
    /// no heavier entry.
    const HOT: f64 = 0.97;

    pub(super) fn new(bound: Bound<K, V>) -> Self {
        let heavy = Arc::default();
        let entries = Self::fresh(&bound, &heavy);
        Self { entries, loads: no_loads(), overtaken: Vec::new(), most: 0, bound, heavy }
    }

    fn fresh(bound: &Bound<K, V>, heavy: &Arc<AtomicBool>) -> EntryTable<K, V> {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(bound.known())
            .weight_capacity(bound.most.map_or(u64::MAX, |most| most as u64))
            .hot_allocation(Self::HOT)
            .build();
        let options = options.unwrap_or_else(|_| unreachable!("both numbers were given"));
        let collect = Collect { heavy: Arc::clone(heavy) };
        Cache::with_options(options, InsertedWeight, BuildHasherDefault::default(), collect)
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

    pub(super) fn insert(&mut self, key: K, mut entry: CacheEntry<V>) -> Removed<K, V> {
        entry.weight = self.bound.weigh(&key, &entry.value);
        let mut removed = Removed::new();
        self.admit(StoredKey(key), entry, &mut removed);
        self.most = self.most.max(self.entries.len());
        removed
    }

    /// Inserts an entry. It is kept if it weighs no more than the bound.
    fn admit(&mut self, stored: StoredKey<K>, entry: CacheEntry<V>, removed: &mut Removed<K, V>) {
        let (timer, before) = (entry.timer, removed.len());
        self.let_in(stored, entry, removed);
        // An entry that replaces another, or was evicted recently, is itself a candidate for
        // eviction. A new entry is not.
        let evicted = removed[before..].iter().position(|(_, entry)| entry.timer == timer);
        if let Some(at) = evicted {
            let (key, entry) = removed.remove(before + at);
            let stored = StoredKey(key);
            self.entries.remove(&stored);
            self.let_in(stored, entry, removed);
        }
    }

    fn let_in(&mut self, stored: StoredKey<K>, entry: CacheEntry<V>, removed: &mut Removed<K, V>) {
        if let (Some(most), Some(_)) = (self.bound.most, &self.bound.weigher) {
            // Relaxed, as at the read.
            self.heavy.store(Self::is_heavy(entry.weight, most as u64), Relaxed);
        }
        self.entries.insert_with_lifecycle(stored, entry, removed);
    }

    /// Returns `true` if an entry fits but is heavier than the policy admits, by the policy's
    /// arithmetic.
    #[allow(clippy::cast_possible_truncation, reason = "the policy rounds down, too")]
    fn is_heavy(weight: u64, most: u64) -> bool {
        let hot = ((most as f64 * Self::HOT) as u64).max(1);
        weight > hot && weight <= most
    }

    /// Inserts an entry and takes the place of a load in progress, if there is one.
    pub(super) fn put(&mut self, key: K, entry: CacheEntry<V>) -> Removed<K, V> {
        self.overtake(&key);
        self.insert(key, entry)
    }

    /// Takes the place of a load in progress, if there is one.
    pub(super) fn overtake<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if !self.loads.is_empty() {
            self.overtaken.extend(self.loads.remove(key));
            self.shrink_loads();
        }
    }

    /// Takes the places of all loads in progress.
    pub(super) fn overtake_all(&mut self) {
        self.overtaken.extend(std::mem::replace(&mut self.loads, no_loads()).into_values());
    }

    /// Takes the place of this load and returns `true` if the load still had it.
    pub(super) fn land(&mut self, key: &K, load: &Arc<Load<V>>) -> bool {
        let has_place = self.loads.get(key).is_some_and(|other| Arc::ptr_eq(other, load));
        if has_place {
            self.overtake(key);
        }
        has_place
    }

    /// Removes all entries, and the places of all loads.
    pub(super) fn take(&mut self) -> EntryTable<K, V> {
        self.overtake_all();
        self.most = 0;
        std::mem::replace(&mut self.entries, Self::fresh(&self.bound, &self.heavy))
    }

    /// Gives back the memory of removed entries.
    pub(super) fn shrink(&mut self) {
        let len = self.entries.len();
        if self.most <= Self::WORTH || len > self.most / 4 {
            return;
        }
        let fresh = Self::fresh(&self.bound, &self.heavy);
        let mut old = std::mem::replace(&mut self.entries, fresh);
        self.entries.reserve(len);
        for (stored, entry) in old.drain() {
            // None is evicted, because they weigh no more than before.
            self.admit(stored, entry, &mut Removed::new());
        }
        self.most = len;
    }

    pub(super) fn remove<Q>(&mut self, key: &LookupKey<'_, Q>) -> Option<(K, CacheEntry<V>)>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.entries.remove(key).map(|(StoredKey(key), entry)| (key, entry))
    }

    /// Removes an entry, and takes the place of a load in progress, if there is one.
    pub(super) fn withdraw<Q>(&mut self, key: &LookupKey<'_, Q>) -> Option<(K, CacheEntry<V>)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.overtake(key.key);
        let removed = self.remove(key);
        self.shrink();
        removed
    }

    /// Removes the entry that this timer ends, if the key still has it.
    pub(super) fn remove_of(
        &mut self,
        key: &LookupKey<'_, K>,
        timer: TimerId,
    ) -> Option<(K, CacheEntry<V>)> {
        let removed = self.entries.remove_if(key, |entry| entry.timer == timer);
        self.shrink();
        removed.map(|(StoredKey(key), entry)| (key, entry))
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
