//! What the tests of the cache share: [`Rig`], a cache in virtual time; and [`CacheModel`], the
//! specification of one without a bound, a map from key to value and deadline, driven side by side
//! with a cache by operations of pretended callers.

use crate::common::{Bench, SMALL, Shape};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::cache::{Cache, CacheBuilder, CacheTimer, Cause};
use tourbillon::{Expired, ManualClock, Sweeper, Wheel};

pub(crate) const TICK: Duration = Duration::from_millis(1);
pub(crate) const TTL: Duration = Duration::from_millis(100);

pub(crate) type Key = u32;

/// What a listener was told: key, value and cause.
type Told = Arc<Mutex<Vec<(Key, u64, Cause)>>>;

/// A cache in virtual time, and what its listener was told.
pub(crate) struct Rig {
    pub(crate) cache: Cache<Key, u64>,
    pub(crate) wheel: Wheel<CacheTimer<Key>>,
    pub(crate) sweeper: Sweeper<CacheTimer<Key>>,
    pub(crate) clock: ManualClock,
    told: Told,
}

impl Rig {
    /// A cache of entries that live for [`TTL`], on ticks of 1 ms.
    pub(crate) fn new(set: impl FnOnce(CacheBuilder<Key, u64>) -> CacheBuilder<Key, u64>) -> Self {
        Self::of(Shape { tick: TICK, shards: 2, geometry: SMALL, first_tick: 0 }, TTL, set)
    }

    pub(crate) fn of(
        shape: Shape,
        ttl: Duration,
        set: impl FnOnce(CacheBuilder<Key, u64>) -> CacheBuilder<Key, u64>,
    ) -> Self {
        let Bench { wheel, sweeper, clock, .. } = Bench::new(shape);
        let told = Told::default();
        let tell = Arc::clone(&told);
        let builder = Cache::builder(ttl)
            .listener(move |gone| tell.lock().unwrap().push((gone.key, gone.value, gone.cause)));
        let cache = set(builder).build(wheel.clone()).unwrap();
        Self { cache, wheel, sweeper, clock, told }
    }

    pub(crate) fn sweep(&mut self) {
        let _ = self.sweeper.sweep(|timer| self.cache.fire(timer));
    }

    pub(crate) fn advance(&mut self, step: Duration) {
        self.clock.advance(step);
        self.sweep();
    }

    /// Sweeps, but hands nothing to the cache yet: those timers are on their way.
    pub(crate) fn sweep_apart(&mut self) -> Vec<Expired<CacheTimer<Key>>> {
        let mut on_their_way = Vec::new();
        let _ = self.sweeper.sweep(|timer| on_their_way.push(timer));
        on_their_way
    }

    pub(crate) fn told(&self) -> Vec<(Key, u64, Cause)> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

/// One operation of a pretended caller. Times are in quarters of a tick.
#[derive(Clone, Debug)]
pub(crate) enum CacheOp {
    Insert { key: Key, ttl: u32 },
    Get { key: Key },
    Contains { key: Key },
    Remove { key: Key },
    Take { key: Key, succeeds: bool },
    Clear,
    Advance { step: u32 },
    Sweep,
}

/// The model's default time to live, in quarters of a tick.
const QUARTERS: u32 = 37;

/// A cache and its model.
pub(crate) struct CacheModel {
    rig: Rig,
    tick: Duration,
    /// What the cache holds: the value, and the tick (since the start) of its deadline.
    held: BTreeMap<Key, (u64, u128)>,
    expected: Vec<(Key, u64, Cause)>,
    next_value: u64,
    hits: u64,
    misses: u64,
    loads: u64,
    expired: u64,
}

impl CacheModel {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            rig: Rig::of(shape, shape.tick / 4 * QUARTERS, |builder| builder),
            tick: shape.tick,
            held: BTreeMap::new(),
            expected: Vec::new(),
            next_value: 0,
            hits: 0,
            misses: 0,
            loads: 0,
            expired: 0,
        }
    }

    /// Applies one operation to both and compares the answers, and what the listener was told.
    pub(crate) fn apply(&mut self, op: &CacheOp) {
        match *op {
            CacheOp::Insert { key, ttl } => {
                let value = self.value();
                self.rig.cache.insert_with_ttl(key, value, self.tick / 4 * ttl).unwrap();
                self.give_up(key, Cause::Replaced);
                self.held.insert(key, (value, self.due(ttl)));
            }
            CacheOp::Get { key } => {
                let live = self.live(key);
                assert_eq!(self.rig.cache.get(&key), live);
                self.count(live);
            }
            CacheOp::Contains { key } => {
                assert_eq!(self.rig.cache.contains(&key), self.live(key).is_some());
            }
            CacheOp::Remove { key } => {
                assert_eq!(self.rig.cache.remove(&key), self.live(key));
                self.give_up(key, Cause::Removed);
            }
            CacheOp::Take { key, succeeds } => self.take(key, succeeds),
            CacheOp::Clear => {
                self.rig.cache.clear();
                let keys: Vec<Key> = self.held.keys().copied().collect();
                keys.into_iter().for_each(|key| self.give_up(key, Cause::Removed));
            }
            CacheOp::Advance { step } => self.rig.clock.advance(self.tick / 4 * step),
            CacheOp::Sweep => self.sweep(),
        }
        let mut told = self.rig.told();
        let mut expected = std::mem::take(&mut self.expected);
        told.sort_unstable_by_key(|told| told.1);
        expected.sort_unstable_by_key(|told| told.1);
        assert_eq!(told, expected, "told, and to be told");
        assert_eq!(self.rig.cache.len(), self.held.len());
        assert_eq!(self.rig.wheel.len(), self.held.len(), "a value has a timer, and only a value");
    }

    /// Lets all deadlines pass, and compares what is left: nothing.
    pub(crate) fn finish(mut self) {
        self.apply(&CacheOp::Advance { step: 1 << 20 });
        self.apply(&CacheOp::Sweep);
        assert!(self.rig.cache.is_empty());
        let stats = self.rig.cache.stats();
        assert_eq!((stats.hits, stats.misses), (self.hits, self.misses));
        assert_eq!((stats.loads, stats.expired), (self.loads, self.expired));
        assert_eq!(stats.evicted, 0);
    }

    fn take(&mut self, key: Key, succeeds: bool) {
        let (live, value) = (self.live(key), self.value());
        let mut loaded = false;
        let taken = self.rig.cache.get_or_load(&key, || {
            loaded = true;
            if succeeds { Ok(value) } else { Err("refused") }
        });
        self.count(live);
        assert_eq!(loaded, live.is_none(), "a load for a miss, and only then");
        if live.is_some() {
            assert_eq!(taken.ok(), live);
            return;
        }
        self.loads += 1;
        assert_eq!(taken.ok(), succeeds.then_some(value));
        self.give_up(key, Cause::Expired);
        if succeeds {
            self.held.insert(key, (value, self.due(QUARTERS)));
        }
    }

    fn sweep(&mut self) {
        self.rig.sweep();
        let stale: Vec<Key> =
            self.held.keys().copied().filter(|&key| self.live(key).is_none()).collect();
        stale.into_iter().for_each(|key| self.give_up(key, Cause::Expired));
    }

    fn value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    fn count(&mut self, live: Option<u64>) {
        match live {
            Some(_) => self.hits += 1,
            None => self.misses += 1,
        }
    }

    /// The tick of a deadline so many quarters of a tick from now: rounded up.
    fn due(&self, quarters: u32) -> u128 {
        let deadline = self.rig.clock.elapsed() + self.tick / 4 * quarters;
        deadline.as_nanos().div_ceil(self.tick.as_nanos())
    }

    fn live(&self, key: Key) -> Option<u64> {
        let &(value, due) = self.held.get(&key)?;
        (due * self.tick.as_nanos() > self.rig.clock.elapsed().as_nanos()).then_some(value)
    }

    /// The key's value leaves; it has expired, whatever took it out, if its deadline has passed.
    fn give_up(&mut self, key: Key, cause: Cause) {
        let live = self.live(key).is_some();
        let Some((value, _)) = self.held.remove(&key) else {
            return;
        };
        self.expired += u64::from(!live);
        self.expected.push((key, value, if live { cause } else { Cause::Expired }));
    }
}
