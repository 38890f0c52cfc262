//! [`Map`]: who has a value, who loads one, and who makes room. The only file that knows of
//! `quick_cache`.
//!
//! A key belongs to one of some shards, and each shard is a cache of `quick_cache`, with its policy
//! of eviction, and the loads that are under way, behind one lock. The lock is held for a look-up,
//! an exchange, and the clone of a value; what the map gives up is returned by each operation, so
//! that no listener and no `drop` of a value runs under it.
//!
//! **A load holds the key's place, not the lock** ([`Ticket`]). An insert or a removal of the key,
//! or a clear, takes the place away under the same lock: what the load gives is then not kept, and
//! whoever misses the key after that begins a load of their own.
//!
//! **Memory.** `quick_cache` does not shrink, so a shard that is down to a quarter of the most that
//! it held since the last time is built anew, with what it holds. That is paid by the removal that
//! brings it there, under the shard's lock: a quarter of what the last growth of the shard moved,
//! and O(1) for each removal in the long run. The policy forgets then what was used how often.

#![forbid(unsafe_code)]

use super::held::Held;
use super::load::{Load, Outcome};
use crate::panics::ignore_poison;
use crate::{Moment, Refusal, TimerId};
use crossbeam_utils::CachePadded;
use quick_cache::unsync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What an operation made the map give up.
pub(super) type Parted<K, V> = Vec<(K, Held<V>)>;

/// Collects what a shard gives up, for the caller to see to outside of its lock.
#[derive(Clone)]
pub(super) struct Collect;

impl<K, V> Lifecycle<K, Held<V>> for Collect {
    type RequestState = Parted<K, V>;

    fn on_evict(&self, parted: &mut Parted<K, V>, key: K, held: Held<V>) {
        parted.push((key, held));
    }
}

/// What an entry counts for in the bound: one, if not told otherwise.
#[derive(Clone)]
pub(super) struct Weigh<K, V>(pub(super) Option<Arc<Weigher<K, V>>>);

/// Weighs entries.
pub(super) type Weigher<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

impl<K, V> Weighter<K, Held<V>> for Weigh<K, V> {
    fn weight(&self, key: &K, held: &Held<V>) -> u64 {
        // What weighs nothing would never be evicted.
        self.0.as_ref().map_or(1, |weigh| weigh(key, &held.value).max(1))
    }
}

type Entries<K, V> = Cache<K, Held<V>, Weigh<K, V>, DefaultHashBuilder, Collect>;
type Loads<K, V> = HashMap<K, Arc<Load<V>>, DefaultHashBuilder>;

type Locked<K, V> = CachePadded<RwLock<Shard<K, V>>>;

/// The concurrent map from keys to values.
pub(super) struct Map<K, V> {
    shards: Box<[Locked<K, V>]>,
    hasher: DefaultHashBuilder,
}

/// The keys of one lock.
struct Shard<K, V> {
    entries: Entries<K, V>,
    loads: Loads<K, V>,
    /// The most entries since these were built anew.
    most: usize,
    bound: Bound<K, V>,
    hasher: DefaultHashBuilder,
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
    fn share(&self, shards: usize) -> Self {
        Self { most: self.most.map(|most| most / shards), weigh: Weigh(self.weigh.0.clone()) }
    }
}

/// What [`Map::value_or_load`] found.
pub(super) enum Found<'a, K: Eq + Hash, V> {
    Value(V),
    /// It was no longer to be served, and is out of the map.
    Stale(K, Held<V>),
    /// Another caller is loading it.
    Loading(Arc<Load<V>>),
    /// Nobody is: the caller is to load it.
    Missing(Ticket<'a, K, V>),
}

impl<K: Eq + Hash, V: Clone> Map<K, V> {
    /// The most entries that a capacity may allow.
    pub(super) const MOST: usize = 1 << 30;

    /// The fewest entries for which it is worth to have a further shard.
    const SHARD: usize = 32;

    /// An empty map with a bound, which is split evenly among the shards.
    pub(super) fn new(bound: &Bound<K, V>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = (4 * cores).next_power_of_two();
        let worth = bound.most.map_or(wanted, |most| (most / Self::SHARD).max(1));
        // Rounded down to a power of two.
        let shards = 1_usize << worth.min(wanted).ilog2();
        let hasher = DefaultHashBuilder::default();
        let shard = || CachePadded::new(RwLock::new(Shard::new(bound.share(shards), &hasher)));
        Self { shards: (0..shards).map(|_| shard()).collect(), hasher }
    }

    /// What `look` makes of the key's value, which counts as a use of it.
    pub(super) fn get<Q, R>(&self, key: &Q, look: impl FnOnce(&Held<V>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.read(key).entries.get(key).map(look)
    }

    /// What `look` makes of the key's value, without a word to the policy of eviction.
    pub(super) fn peek<Q, R>(&self, key: &Q, look: impl FnOnce(&Held<V>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.read(key).entries.peek(key).map(look)
    }

    /// What `change` makes of the key's value, whose weight it must leave alone.
    pub(super) fn change<Q, R>(&self, key: &Q, change: impl FnOnce(&mut Held<V>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.write(key).entries.peek_mut(key).map(|mut held| change(&mut held))
    }

    /// Puts a value in, unless the key has one that is to be served: it comes back then.
    pub(super) fn insert_if(
        &self,
        key: K,
        held: Held<V>,
        is_live: impl FnOnce(&Held<V>) -> bool,
    ) -> Result<Parted<K, V>, Held<V>> {
        let mut shard = self.write(&key);
        if shard.entries.peek(&key).is_some_and(is_live) {
            return Err(held);
        }
        Ok(shard.put(key, held))
    }

    /// The keys and values of one shard that are to be served, or `None` beyond the last one.
    pub(super) fn shard_of(
        &self,
        number: usize,
        is_live: impl Fn(&Held<V>) -> bool,
    ) -> Option<Vec<(K, V)>>
    where
        K: Clone,
    {
        let shard = ignore_poison(self.shards.get(number)?.read());
        let live = shard.entries.iter().filter(|(_, held)| is_live(held));
        Some(live.map(|(key, held)| (key.clone(), held.value.clone())).collect())
    }

    /// Removes what `stays` does not want, one shard after the other, each at once.
    pub(super) fn retain(&self, mut stays: impl FnMut(&K, &V) -> bool) -> Parted<K, V>
    where
        K: Clone,
    {
        let mut parted = Parted::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let all = shard.entries.iter().map(|(key, held)| (key, &held.value));
            let leaves = all.filter(|(key, value)| !stays(key, value)).map(|(key, _)| key.clone());
            for key in leaves.collect::<Vec<_>>() {
                parted.extend(shard.entries.remove(&key));
            }
            shard.shrink();
        }
        parted
    }

    pub(super) fn insert(&self, key: K, held: Held<V>) -> Parted<K, V> {
        self.write(&key).put(key, held)
    }

    pub(super) fn remove<Q>(&self, key: &Q) -> Option<(K, Held<V>)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut shard = self.write(key);
        shard.overtake(key);
        let removed = shard.entries.remove(key);
        shard.shrink();
        removed
    }

    /// This timer has fired: removes the value that it ends, if the key still has that one. Or arms
    /// it anew, if it is to be served for longer; if that is refused, it goes.
    pub(super) fn expire(
        &self,
        key: &K,
        timer: TimerId,
        is_live: impl FnOnce(&Held<V>) -> bool,
        arm: impl FnOnce(&K, Moment) -> Result<TimerId, Refusal>,
    ) -> Option<(K, Held<V>)> {
        let mut shard = self.write(key);
        if let Some(mut held) = shard.entries.peek_mut(key) {
            if held.timer == timer && is_live(&held) {
                match arm(key, held.until()) {
                    Ok(timer) => {
                        held.timer = timer;
                        return None;
                    }
                    // It is served until then, as others whose timers were handed back.
                    Err(Refusal::Closed) => return None,
                    Err(_) => {}
                }
            }
        }
        shard.remove_of(key, timer)
    }

    /// Removes the value of this timer, which is gone, if it is no longer to be served.
    pub(super) fn remove_of(
        &self,
        key: &K,
        timer: TimerId,
        is_live: impl FnOnce(&Held<V>) -> bool,
    ) -> Option<(K, Held<V>)> {
        let mut shard = self.write(key);
        let stays = shard.entries.peek(key).is_some_and(is_live);
        if stays { None } else { shard.remove_of(key, timer) }
    }

    /// Removes all: one shard after the other, each at once.
    pub(super) fn drain(&self) -> Parted<K, V> {
        let mut all = Parted::new();
        for shard in &self.shards {
            let mut taken = lock(shard).take();
            all.extend(taken.drain());
        }
        all
    }

    /// How many values the map holds. O(shards).
    pub(super) fn len(&self) -> usize {
        let len = |shard: &RwLock<Shard<K, V>>| ignore_poison(shard.read()).entries.len();
        self.shards.iter().map(|shard| len(shard)).sum()
    }

    /// The key's value if it is to be served; else the load that is under way, or the right to load
    /// it, for one caller at a time, with the key that `own` makes.
    pub(super) fn value_or_load<Q>(
        &self,
        key: &Q,
        serve: impl FnOnce(&Held<V>) -> Option<V>,
        own: impl FnOnce() -> K,
    ) -> Found<'_, K, V>
    where
        K: Borrow<Q> + Clone,
        Q: Eq + Hash + ?Sized,
    {
        let mut shard = self.write(key);
        if let Some(held) = shard.entries.get(key) {
            if let Some(value) = serve(held) {
                return Found::Value(value);
            }
            let removed = shard.entries.remove(key);
            shard.shrink();
            if let Some((key, held)) = removed {
                return Found::Stale(key, held);
            }
        }
        if let Some(load) = shard.loads.get(key) {
            return Found::Loading(Arc::clone(load));
        }
        let (key, load) = (own(), Arc::new(Load::new()));
        shard.loads.insert(key.clone(), Arc::clone(&load));
        Found::Missing(Ticket { map: self, key, load, runs: false, ended: false })
    }
}

impl<K: Eq + Hash, V> Map<K, V> {
    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> &RwLock<Shard<K, V>> {
        // Bits from the middle: the table of a shard goes by the lowest and the highest ones.
        let hash = self.hasher.hash_one(key).rotate_right(usize::BITS / 2);
        let last = self.shards.len() - 1;
        // The count of shards is a power of two.
        &self.shards[usize::try_from(hash & last as u64).unwrap_or(last)]
    }

    fn read<Q: Hash + ?Sized>(&self, key: &Q) -> RwLockReadGuard<'_, Shard<K, V>> {
        ignore_poison(self.shard(key).read())
    }

    fn write<Q: Hash + ?Sized>(&self, key: &Q) -> RwLockWriteGuard<'_, Shard<K, V>> {
        lock(self.shard(key))
    }
}

/// The shard, alone. A panic of a key or a clone leaves nothing half done.
fn lock<K, V>(shard: &RwLock<Shard<K, V>>) -> RwLockWriteGuard<'_, Shard<K, V>> {
    ignore_poison(shard.write())
}

impl<K: Eq + Hash, V> Shard<K, V> {
    /// Fewer entries are not worth to be built anew.
    const WORTH: usize = 64;

    /// For how many entries the policy of a shard is made, if a bound by weight does not tell.
    const GUESS: usize = 1 << 10;

    fn new(bound: Bound<K, V>, hasher: &DefaultHashBuilder) -> Self {
        let hasher = hasher.clone();
        let (entries, loads) = (Self::fresh(&bound, &hasher), Loads::with_hasher(hasher.clone()));
        Self { entries, loads, most: 0, bound, hasher }
    }

    fn fresh(bound: &Bound<K, V>, hasher: &DefaultHashBuilder) -> Entries<K, V> {
        let weigh = Weigh(bound.weigh.0.clone());
        let known = if weigh.0.is_some() { Self::GUESS } else { usize::MAX };
        let options = OptionsBuilder::new()
            .estimated_items_capacity(bound.most.map_or(0, |most| most.min(known)))
            .weight_capacity(bound.most.map_or(u64::MAX, |most| most as u64))
            .build();
        let options = options.unwrap_or_else(|_| unreachable!("both numbers were given"));
        Cache::with_options(options, weigh, hasher.clone(), Collect)
    }

    fn insert(&mut self, key: K, held: Held<V>) -> Parted<K, V> {
        let mut parted = Parted::new();
        self.entries.insert_with_lifecycle(key, held, &mut parted);
        self.most = self.most.max(self.entries.len());
        parted
    }

    /// Inserts, in the place of a load that is under way, if one is.
    fn put(&mut self, key: K, held: Held<V>) -> Parted<K, V> {
        self.overtake(&key);
        self.insert(key, held)
    }

    /// Takes the place of a load that is under way, if one is.
    fn overtake<Q>(&mut self, key: &Q)
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
    fn land(&mut self, key: &K, load: &Arc<Load<V>>) -> bool {
        let has_place = self.loads.get(key).is_some_and(|other| Arc::ptr_eq(other, load));
        if has_place {
            self.overtake(key);
        }
        has_place
    }

    /// Takes everything out, also the places of the loads.
    fn take(&mut self) -> Entries<K, V> {
        self.loads = Loads::with_hasher(self.hasher.clone());
        self.most = 0;
        std::mem::replace(&mut self.entries, Self::fresh(&self.bound, &self.hasher))
    }

    /// Gives back the memory of entries that have gone.
    fn shrink(&mut self) {
        let len = self.entries.len();
        if self.most <= Self::WORTH || len > self.most / 4 {
            return;
        }
        let fresh = Self::fresh(&self.bound, &self.hasher);
        let mut old = std::mem::replace(&mut self.entries, fresh);
        self.entries.reserve(len);
        for (key, held) in old.drain() {
            // None is evicted: they are fewer than before.
            self.entries.insert(key, held);
        }
        self.most = len;
    }

    /// Removes the value that this timer ends, if the key still has that one.
    fn remove_of(&mut self, key: &K, timer: TimerId) -> Option<(K, Held<V>)> {
        let removed = self.entries.remove_if(key, |held| held.timer == timer);
        self.shrink();
        removed
    }

    fn shrink_loads(&mut self) {
        let (len, room) = (self.loads.len(), self.loads.capacity());
        if room > Self::WORTH && len <= room / 4 {
            self.loads.shrink_to(2 * len);
        }
    }
}

/// The place of a key whose value is being loaded: for whoever loads it. Dropped without an end, as
/// by a panic, it tells those who wait that the load has panicked, or that they are to load.
pub(super) struct Ticket<'a, K: Eq + Hash, V> {
    map: &'a Map<K, V>,
    key: K,
    load: Arc<Load<V>>,
    /// Whether a part of the load is running: if it ends while that is so, it has panicked.
    runs: bool,
    ended: bool,
}

impl<K: Eq + Hash + Clone, V> Ticket<'_, K, V> {
    pub(super) fn key(&self) -> &K {
        &self.key
    }

    /// Runs the load, or as much of it as one poll does.
    pub(super) fn run<R>(&mut self, part: impl FnOnce() -> R) -> R {
        self.runs = true;
        let output = part();
        self.runs = false;
        output
    }

    /// Puts the value into the key's place; `None` if that was taken away by an insert or a removal
    /// of the key.
    pub(super) fn keep(&self, held: Held<V>) -> Option<Parted<K, V>> {
        let mut shard = self.map.write(&self.key);
        shard.land(&self.key, &self.load).then(|| shard.insert(self.key.clone(), held))
    }

    /// Ends the load, with what `outcome` makes if anybody waits for it.
    pub(super) fn end(mut self, outcome: impl FnOnce() -> Outcome<V>) {
        self.map.write(&self.key).land(&self.key, &self.load);
        // Nobody can find the load any more, so that those who wait can only become fewer.
        let outcome = (Arc::strong_count(&self.load) > 1).then(outcome);
        self.ended = true;
        if let Some(outcome) = outcome {
            self.load.end(outcome);
        }
    }
}

impl<K: Eq + Hash, V> Drop for Ticket<'_, K, V> {
    fn drop(&mut self) {
        if !self.ended {
            self.map.write(&self.key).land(&self.key, &self.load);
            self.load.end(if self.runs { Outcome::Panicked } else { Outcome::Dropped });
        }
    }
}
