//! [`Shard`]: the keys of one lock of the [`Map`](super::map::Map), with the loads that are under
//! way. The only file that knows of `quick_cache`.

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

/// Hashes keys.
pub(super) type Hashes = DefaultHashBuilder;

/// How keys are hashed, in all caches of the process.
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

/// A key that is looked up, or a borrowed form of one, with its hash: shard and table both go by
/// that.
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

/// Hashes hashes.
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

/// What an operation made the map give up.
pub(super) type Removed<K, V> = Vec<(K, CacheEntry<V>)>;

/// Collects what a shard gives up, for the caller to see to outside of its lock.
#[derive(Clone)]
pub(super) struct Collect {
    /// Set while an entry is put in that is heavier than the policy by itself lets in.
    heavy: Arc<AtomicBool>,
}

impl<K, V> Lifecycle<StoredKey<K>, CacheEntry<V>> for Collect {
    type RequestState = Removed<K, V>;

    /// Returns `true` once for a heavy entry, which is the first that the policy asks about.
    fn is_pinned(&self, _: &StoredKey<K>, _: &CacheEntry<V>) -> bool {
        // Relaxed, both: the lock of the shard orders them.
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

/// Weighs entries.
pub(super) type Weigher<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

/// The weight of an entry in the bound, one by default.
pub(super) struct Weigh<K, V> {
    weigher: Option<Arc<Weigher<K, V>>>,
    /// What heavier entries count for.
    heaviest: u64,
}

impl<K, V> Weighter<StoredKey<K>, CacheEntry<V>> for Weigh<K, V> {
    fn weight(&self, StoredKey(key): &StoredKey<K>, entry: &CacheEntry<V>) -> u64 {
        // What weighs nothing would never be evicted.
        self.weigher.as_ref().map_or(1, |weigh| weigh(key, &entry.value).clamp(1, self.heaviest))
    }
}

pub(super) type Entries<K, V> =
    Cache<StoredKey<K>, CacheEntry<V>, Weigh<K, V>, BuildHasherDefault<IdentityHasher>, Collect>;
type Loads<K, V> = HashMap<K, Arc<Load<V>>, Hashes>;

/// The keys of one lock.
pub(super) struct Shard<K, V> {
    pub(super) entries: Entries<K, V>,
    pub(super) loads: Loads<K, V>,
    /// Loads that have lost their places, to be dropped without the lock.
    pub(super) overtaken: Vec<Arc<Load<V>>>,
    /// The most entries since these were built anew.
    most: usize,
    bound: Bound<K, V>,
    /// As in [`Collect`].
    heavy: Arc<AtomicBool>,
}

/// How much there may be.
pub(super) struct Bound<K, V> {
    /// The most, by weight.
    pub(super) most: Option<usize>,
    pub(super) weigher: Option<Arc<Weigher<K, V>>>,
    /// How many entries are expected.
    pub(super) expected: Option<usize>,
}

impl<K, V> Bound<K, V> {
    /// The most that entries may be allowed to weigh.
    pub(super) const HEAVIEST: usize = if usize::BITS < 64 { 1 << 30 } else { usize::MAX >> 17 };

    /// The fewest entries for which it is worth to have a further shard.
    const SHARD: usize = 32;

    /// What an entry is taken to weigh where nothing is known of it.
    const TYPICAL: usize = 1 << 10;

    /// For how many entries at most there are shards where a weight is all that is known: an entry
    /// may weigh a quarter of the bound then.
    const FEW: usize = 4 * Self::SHARD;

    /// For how many entries the policy of a shard is made where nothing is known.
    const GUESS: usize = 1 << 10;

    /// How many shards there are to be, at most so many: a power of two.
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

    /// The bound of one of so many shards.
    pub(super) fn share(&self, shards: usize) -> Self {
        Self {
            most: self.most.map(|most| most / shards),
            weigher: self.weigher.clone(),
            expected: self.expected.map(|expected| expected.div_ceil(shards)),
        }
    }

    /// How many entries the policy of a shard, whose bound this is, has to remember.
    fn known(&self) -> usize {
        let counted = self.most.filter(|_| self.weigher.is_none());
        counted.or(self.expected).or(self.most.map(|_| Self::GUESS)).unwrap_or(0)
    }

    /// How the entries of a shard are weighed. Their sum is no more than can be counted: those of a
    /// bounded shard weigh no more than that allows, and of others there are fewer than 2^32.
    fn weigh(&self) -> Weigh<K, V> {
        let heaviest = if self.most.is_some() { u64::MAX } else { u64::from(u32::MAX) };
        Weigh { weigher: self.weigher.clone(), heaviest }
    }
}

impl<K: Eq + Hash, V> Shard<K, V> {
    /// Fewer entries are not worth to be built anew.
    const WORTH: usize = 64;

    /// How much of the bound the policy keeps for what is used again. By itself it lets no entry in
    /// that is heavier than this.
    const HOT: f64 = 0.97;

    pub(super) fn new(bound: Bound<K, V>) -> Self {
        let heavy = Arc::default();
        let entries = Self::fresh(&bound, &heavy);
        Self { entries, loads: no_loads(), overtaken: Vec::new(), most: 0, bound, heavy }
    }

    fn fresh(bound: &Bound<K, V>, heavy: &Arc<AtomicBool>) -> Entries<K, V> {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(bound.known())
            .weight_capacity(bound.most.map_or(u64::MAX, |most| most as u64))
            .hot_allocation(Self::HOT)
            .build();
        let options = options.unwrap_or_else(|_| unreachable!("both numbers were given"));
        let collect = Collect { heavy: Arc::clone(heavy) };
        Cache::with_options(options, bound.weigh(), BuildHasherDefault::default(), collect)
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

    pub(super) fn insert(&mut self, key: K, entry: CacheEntry<V>) -> Removed<K, V> {
        let mut removed = Removed::new();
        self.admit(StoredKey(key), entry, &mut removed);
        self.most = self.most.max(self.entries.len());
        removed
    }

    /// Puts an entry in. It is kept if it weighs no more than the bound.
    fn admit(&mut self, stored: StoredKey<K>, entry: CacheEntry<V>, removed: &mut Removed<K, V>) {
        let (timer, before) = (entry.timer, removed.len());
        self.let_in(stored, entry, removed);
        // One that replaces another, or that was evicted not long ago, is itself among those that
        // the policy may evict for it. As a new one it is not.
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
            let weight = self.bound.weigh().weight(&stored, &entry);
            // Relaxed: as where it is read.
            self.heavy.store(Self::is_heavy(weight, most as u64), Relaxed);
        }
        self.entries.insert_with_lifecycle(stored, entry, removed);
    }

    /// Whether an entry fits, but is heavier than what the policy lets in, as that reckons.
    #[allow(clippy::cast_possible_truncation, reason = "the policy rounds down, too")]
    fn is_heavy(weight: u64, most: u64) -> bool {
        let hot = ((most as f64 * Self::HOT) as u64).max(1);
        weight > hot && weight <= most
    }

    /// Inserts, in the place of a load that is under way, if one is.
    pub(super) fn put(&mut self, key: K, entry: CacheEntry<V>) -> Removed<K, V> {
        self.overtake(&key);
        self.insert(key, entry)
    }

    /// Takes the place of a load that is under way, if one is.
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

    /// Takes the places of all loads that are under way.
    pub(super) fn overtake_all(&mut self) {
        self.overtaken.extend(std::mem::replace(&mut self.loads, no_loads()).into_values());
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
        self.overtake_all();
        self.most = 0;
        std::mem::replace(&mut self.entries, Self::fresh(&self.bound, &self.heavy))
    }

    /// Gives back the memory of entries that have gone.
    pub(super) fn shrink(&mut self) {
        let len = self.entries.len();
        if self.most <= Self::WORTH || len > self.most / 4 {
            return;
        }
        let fresh = Self::fresh(&self.bound, &self.heavy);
        let mut old = std::mem::replace(&mut self.entries, fresh);
        self.entries.reserve(len);
        for (stored, entry) in old.drain() {
            // None is evicted: they weigh no more than before.
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

    /// Removes the value that this timer ends, if the key still has that one.
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
