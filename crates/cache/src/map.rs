//! [`Map`]: the entries, their loads, and eviction.
//!
//! A key belongs to one of several [shards](Shard). Each shard has one lock, behind which it keeps
//! a cache of `quick_cache` with its eviction policy, and the loads in progress. The lock is held
//! for a look-up, an exchange, and the clone of a value. Each operation returns what the map gives
//! up, so that no listener and no `drop` of a value runs under the lock.
//!
//! **A load holds the key's place, not the lock** ([`LoadGuard`](super::load_guard::LoadGuard)). An
//! insert or a removal of the key, a clear or a retain takes the place away under the same lock.
//! The result of the load is then not kept, so the load cannot put back a value that it read before
//! the write, and a caller that misses the key later begins a new load.
//!
//! **Memory.** `quick_cache` does not shrink. A shard that is down to a quarter of its maximum
//! since the last rebuild is therefore rebuilt with its entries. The removal that reaches that
//! point pays for it under the shard's lock. It moves a quarter of the entries that the last growth
//! moved, which is O(1) per removal, amortised. The policy then forgets the use counts.

#![forbid(unsafe_code)]

use super::entry::CacheEntry;
use super::load::Load;
use super::shard::{Bound, HASHER, Hashes, LookupKey, Removed, Shard, StoredKey};
use crate::panics::{ignore_poison, quietly};
use crossbeam_utils::CachePadded;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tourbillon::{Refusal, TimerId, WheelInstant};

type Locked<K, V> = CachePadded<RwLock<Shard<K, V>>>;

/// The concurrent map from keys to values.
pub(super) struct Map<K, V> {
    shards: Box<[Locked<K, V>]>,
    hasher: Hashes,
}

/// The state of an entry.
pub(super) enum Served<V> {
    /// It is served.
    Value(V),
    /// It is served, but is due for a refresh.
    RefreshDue(V),
    /// It is served, and the next value is being loaded.
    Refreshing(V, Arc<Load<V>>),
    /// It is not served.
    Expired,
}

/// The result of [`Map::value_or_load`].
pub(super) enum Found<K, V> {
    Value(V),
    /// It was expired and has been removed from the map.
    Expired(K, CacheEntry<V>),
    /// Another caller is loading it.
    Loading(Arc<Load<V>>),
    /// No caller is loading it. This caller now has the key's place and has to load. The value is
    /// one that is due for a refresh, if there is one.
    Missing(K, Arc<Load<V>>, Option<V>),
}

/// The change that [`Map::compute`] makes to an entry.
pub(super) enum Decision<K, V> {
    Keep,
    Put(K, CacheEntry<V>),
    Remove,
}

impl<K: Eq + Hash, V: Clone> Map<K, V> {
    /// The largest capacity in entries.
    pub(super) const MAX_ENTRIES: usize = 1 << 30;

    /// Creates an empty map with a bound, which is split evenly among the shards.
    pub(super) fn new(bound: &Bound<K, V>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = bound.shards((4 * cores).next_power_of_two());
        let shard = || CachePadded::new(RwLock::new(Shard::new(bound.share(shards))));
        Self { shards: (0..shards).map(|_| shard()).collect(), hasher: HASHER.clone() }
    }

    /// Returns what `serve` returns for the key's entry, which counts as a use. If a refresh is due
    /// but another caller loads, returns that load.
    pub(super) fn get<Q>(
        &self,
        key: &Q,
        serve: impl FnOnce(&CacheEntry<V>) -> Served<V>,
    ) -> Served<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let lookup = self.lookup_key(key);
        let shard = self.read(&lookup);
        match shard.entries.get(&lookup).map_or(Served::Expired, serve) {
            Served::RefreshDue(value) => match shard.loads.get(key) {
                Some(load) => Served::Refreshing(value, Arc::clone(load)),
                None => Served::RefreshDue(value),
            },
            served => served,
        }
    }

    /// Returns what `read` returns for the key's entry, without informing the eviction policy.
    pub(super) fn peek<Q, R>(&self, key: &Q, read: impl FnOnce(&CacheEntry<V>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let key = self.lookup_key(key);
        self.read(&key).entries.peek(&key).map(read)
    }

    /// Returns what `change` returns for the key's entry.
    pub(super) fn change<Q, R>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut CacheEntry<V>) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let key = self.lookup_key(key);
        self.write(&key).entries.peek_mut(&key).map(|mut entry| change(&mut entry))
    }

    /// Inserts an entry, or returns it if the key has a live one.
    pub(super) fn insert_if_absent(
        &self,
        key: K,
        entry: CacheEntry<V>,
        is_live: impl FnOnce(&CacheEntry<V>) -> bool,
    ) -> Result<Removed<K, V>, CacheEntry<V>> {
        let lookup = self.lookup_key(&key);
        let mut shard = self.write(&lookup);
        if shard.entries.peek(&lookup).is_some_and(is_live) {
            return Err(entry);
        }
        Ok(shard.put(key, entry))
    }

    /// Inserts an entry if the key has a live one, and otherwise returns it. A load in progress is
    /// overtaken in both cases.
    pub(super) fn replace_if_present(
        &self,
        key: K,
        entry: CacheEntry<V>,
        is_live: impl FnOnce(&CacheEntry<V>) -> bool,
    ) -> Result<Removed<K, V>, CacheEntry<V>> {
        let lookup = self.lookup_key(&key);
        let mut shard = self.write(&lookup);
        shard.overtake(&key);
        if !shard.entries.peek(&lookup).is_some_and(is_live) {
            return Err(entry);
        }
        Ok(shard.insert(key, entry))
    }

    /// Makes the change that `decide` returns for the key's entry.
    pub(super) fn compute<Q>(
        &self,
        key: &Q,
        decide: impl FnOnce(Option<&CacheEntry<V>>) -> Decision<K, V>,
    ) -> Removed<K, V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let lookup = self.lookup_key(key);
        let mut shard = self.write(&lookup);
        match decide(shard.entries.peek(&lookup)) {
            Decision::Keep => Removed::new(),
            Decision::Put(key, entry) => shard.put(key, entry),
            Decision::Remove => shard.withdraw(&lookup).into_iter().collect(),
        }
    }

    /// Returns clones of the live entries of one shard, or `None` beyond the last one.
    pub(super) fn shard_of(
        &self,
        number: usize,
        is_live: impl Fn(&CacheEntry<V>) -> bool,
    ) -> Option<Vec<(K, V)>>
    where
        K: Clone,
    {
        let shard = ignore_poison(self.shards.get(number)?.read());
        let live = shard.entries.iter().filter(|(_, entry)| is_live(entry));
        Some(live.map(|(StoredKey(key), entry)| (key.clone(), entry.value.clone())).collect())
    }

    /// Removes the entries that `stays` rejects, shard by shard. Loads in progress are overtaken,
    /// because they have no value yet to pass to `stays`.
    pub(super) fn retain(&self, mut stays: impl FnMut(&K, &V) -> bool) -> Removed<K, V>
    where
        K: Clone,
    {
        let mut removed = Removed::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.overtake_all();
            let all = shard.entries.iter().map(|(StoredKey(key), entry)| (key, &entry.value));
            let leaves = all.filter(|(key, value)| !stays(key, value)).map(|(key, _)| key.clone());
            for key in leaves.collect::<Vec<_>>() {
                removed.extend(shard.remove(&self.lookup_key(&key)));
            }
            shard.shrink();
        }
        removed
    }

    pub(super) fn insert(&self, key: K, entry: CacheEntry<V>) -> Removed<K, V> {
        self.write(&self.lookup_key(&key)).put(key, entry)
    }

    pub(super) fn remove<Q>(&self, key: &Q) -> Option<(K, CacheEntry<V>)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let lookup = self.lookup_key(key);
        self.write(&lookup).withdraw(&lookup)
    }

    /// Removes the key's entry if `leaves` returns `true` for it.
    pub(super) fn remove_if<Q>(
        &self,
        key: &Q,
        leaves: impl FnOnce(&CacheEntry<V>) -> bool,
    ) -> Option<(K, CacheEntry<V>)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let lookup = self.lookup_key(key);
        let mut shard = self.write(&lookup);
        if shard.entries.peek(&lookup).is_some_and(leaves) { shard.withdraw(&lookup) } else { None }
    }

    /// Handles a timer of the key that fired or was handed back. If it belongs to a load that
    /// [belongs to its key](Load::store), the load loses its place, unless a caller waits for it
    /// and the timer can be armed again.
    pub(super) fn check_load(
        &self,
        key: &K,
        timer: TimerId,
        arm: impl FnOnce() -> Option<TimerId>,
    ) {
        let lookup = self.lookup_key(key);
        let is_its = |load: &&Arc<Load<V>>| load.timer() == Some(timer);
        if self.read(&lookup).loads.get(key).filter(is_its).is_none() {
            return;
        }
        let mut shard = self.write(&lookup);
        let Some(load) = shard.loads.get(key).filter(is_its) else { return };
        // Callers get it from the map, under this lock.
        let next = (Arc::strong_count(load) > 1).then(arm).flatten();
        match next {
            Some(_) => load.set_timer(next),
            None => shard.overtake(key),
        }
    }

    /// Handles a fired timer. Removes the entry that it ends, if the key still has it. Arms the
    /// timer again if the entry is live, and removes the entry if that is refused.
    pub(super) fn expire(
        &self,
        key: &K,
        timer: TimerId,
        is_live: impl FnOnce(&CacheEntry<V>) -> bool,
        arm: impl FnOnce(&K, WheelInstant) -> Result<TimerId, Refusal>,
    ) -> Option<(K, CacheEntry<V>)> {
        let lookup = self.lookup_key(key);
        let mut shard = self.write(&lookup);
        if let Some(mut entry) = shard.entries.peek_mut(&lookup) {
            if entry.timer == timer && is_live(&entry) {
                match arm(key, entry.until()) {
                    Ok(timer) => {
                        entry.timer = timer;
                        return None;
                    }
                    // It is served until then, like others whose timers were handed back.
                    Err(Refusal::Closed) => return None,
                    Err(_) => {}
                }
            }
        }
        shard.remove_of(&lookup, timer)
    }

    /// Removes the entry of this timer, which has ended, unless it is live.
    pub(super) fn remove_of(
        &self,
        key: &K,
        timer: TimerId,
        is_live: impl FnOnce(&CacheEntry<V>) -> bool,
    ) -> Option<(K, CacheEntry<V>)> {
        let lookup = self.lookup_key(key);
        let mut shard = self.write(&lookup);
        let stays = shard.entries.peek(&lookup).is_some_and(is_live);
        if stays { None } else { shard.remove_of(&lookup, timer) }
    }

    /// Removes all entries, shard by shard.
    pub(super) fn drain(&self) -> Removed<K, V> {
        let mut all = Removed::new();
        for shard in &self.shards {
            let mut taken = lock(shard).take();
            all.extend(taken.drain().map(|(StoredKey(key), entry)| (key, entry)));
        }
        all
    }

    /// Returns the number of entries. O(shards).
    pub(super) fn len(&self) -> usize {
        let len = |shard: &RwLock<Shard<K, V>>| ignore_poison(shard.read()).entries.len();
        self.shards.iter().map(|shard| len(shard)).sum()
    }

    /// Returns the total weight of the entries. O(shards).
    pub(super) fn weight(&self) -> u64 {
        let weight = |shard: &RwLock<Shard<K, V>>| ignore_poison(shard.read()).entries.weight();
        self.shards.iter().map(|shard| weight(shard)).fold(0, u64::saturating_add)
    }

    /// Returns the key's value if it is live, and otherwise the load in progress, or the right to
    /// load for one caller at a time, with the key that `make_key` creates.
    pub(super) fn value_or_load<Q>(
        &self,
        key: &Q,
        serve: impl FnOnce(&CacheEntry<V>) -> Served<V>,
        make_key: impl FnOnce() -> K,
    ) -> Found<K, V>
    where
        K: Borrow<Q> + Clone,
        Q: Eq + Hash + ?Sized,
    {
        let lookup = self.lookup_key(key);
        // Declared before the lock and therefore dropped after it.
        let mut ageing = None;
        let mut shard = self.write(&lookup);
        if let Some(entry) = shard.entries.get(&lookup) {
            match serve(entry) {
                Served::Value(value) | Served::Refreshing(value, _) => return Found::Value(value),
                Served::RefreshDue(value) => ageing = Some(value),
                Served::Expired => {
                    let removed = shard.remove(&lookup);
                    shard.shrink();
                    if let Some((key, entry)) = removed {
                        return Found::Expired(key, entry);
                    }
                }
            }
        }
        let Some(load) = shard.loads.get(key) else {
            let (key, load) = shard.begin(make_key());
            return Found::Missing(key, load, ageing);
        };
        ageing.take().map_or_else(|| Found::Loading(Arc::clone(load)), Found::Value)
    }

    /// Returns the right to load the key's value, for one caller at a time, if it has an entry that
    /// `ages` returns `true` for.
    pub(super) fn load_ahead<Q>(
        &self,
        key: &Q,
        ages: impl Fn(&CacheEntry<V>) -> bool,
        make_key: impl FnOnce() -> K,
    ) -> Option<(K, Arc<Load<V>>)>
    where
        K: Borrow<Q> + Clone,
        Q: Eq + Hash + ?Sized,
    {
        let lookup = self.lookup_key(key);
        let wanted = |shard: &Shard<K, V>| {
            shard.entries.peek(&lookup).is_some_and(&ages) && !shard.loads.contains_key(key)
        };
        // In most cases the answer is no, which readers find concurrently.
        if !wanted(&self.read(&lookup)) {
            return None;
        }
        let mut shard = self.write(&lookup);
        wanted(&shard).then(|| shard.begin(make_key()))
    }

    /// Puts the result of a load into the key's place. Returns it if an insert or a removal of the
    /// key has taken the place.
    pub(super) fn keep(
        &self,
        key: &K,
        load: &Arc<Load<V>>,
        entry: CacheEntry<V>,
    ) -> Result<Removed<K, V>, CacheEntry<V>>
    where
        K: Clone,
    {
        let mut shard = self.write(&self.lookup_key(key));
        if shard.land(key, load) { Ok(shard.insert(key.clone(), entry)) } else { Err(entry) }
    }
}

impl<K: Eq + Hash, V> Map<K, V> {
    /// Releases the key's place that a load holds.
    pub(super) fn land(&self, key: &K, load: &Arc<Load<V>>) {
        self.write(&self.lookup_key(key)).land(key, load);
    }

    /// Releases the place of a load that returned no new value. Returns what `tell` returns for the
    /// entry that the load was to replace, if there is one and the load still had its place.
    pub(super) fn release<R>(
        &self,
        key: &K,
        load: &Arc<Load<V>>,
        tell: impl FnOnce(&mut CacheEntry<V>) -> R,
    ) -> Option<R> {
        let lookup = self.lookup_key(key);
        let mut shard = self.write(&lookup);
        if !shard.land(key, load) {
            return None;
        }
        shard.entries.peek_mut(&lookup).map(|mut entry| tell(&mut entry))
    }

    fn lookup_key<'q, Q: Hash + ?Sized>(&self, key: &'q Q) -> LookupKey<'q, Q> {
        LookupKey { key, hash: self.hasher.hash_one(key) }
    }

    fn shard<Q: ?Sized>(&self, key: &LookupKey<'_, Q>) -> &RwLock<Shard<K, V>> {
        // Bits from the middle, because the table of a shard uses the lowest and the highest ones.
        let hash = key.hash.rotate_right(usize::BITS / 2);
        let last = self.shards.len() - 1;
        // The count of shards is a power of two.
        &self.shards[usize::try_from(hash & last as u64).unwrap_or(last)]
    }

    fn read<Q: ?Sized>(&self, key: &LookupKey<'_, Q>) -> RwLockReadGuard<'_, Shard<K, V>> {
        ignore_poison(self.shard(key).read())
    }

    fn write<Q: ?Sized>(&self, key: &LookupKey<'_, Q>) -> Writing<'_, K, V> {
        lock(self.shard(key))
    }
}

/// Locks a shard for writing. A panic of a key or a clone leaves it consistent.
fn lock<K, V>(shard: &RwLock<Shard<K, V>>) -> Writing<'_, K, V> {
    Writing { shard: ignore_poison(shard.write()), overtaken: Overtaken(Vec::new()) }
}

/// The exclusive guard of a shard. Loads that lose their places meanwhile are dropped after the
/// lock is released, because they may hold the user's futures.
struct Writing<'a, K, V> {
    shard: RwLockWriteGuard<'a, Shard<K, V>>,
    /// After the lock in the order of drops.
    overtaken: Overtaken<V>,
}

/// Loads that have lost their places. A panic in the drop of one does not prevent the remaining
/// work of its overtaker.
struct Overtaken<V>(Vec<Arc<Load<V>>>);

impl<V> Drop for Overtaken<V> {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|load| quietly(|| drop(load)));
    }
}

impl<K, V> Deref for Writing<'_, K, V> {
    type Target = Shard<K, V>;

    fn deref(&self) -> &Shard<K, V> {
        &self.shard
    }
}

impl<K, V> DerefMut for Writing<'_, K, V> {
    fn deref_mut(&mut self) -> &mut Shard<K, V> {
        &mut self.shard
    }
}

impl<K, V> Drop for Writing<'_, K, V> {
    fn drop(&mut self) {
        self.overtaken.0 = std::mem::take(&mut self.shard.overtaken);
    }
}
