//! [`Rig`], a cache in virtual time, and [`CacheModel`], the specification of an unbounded cache.
//! The model is a map from key to value and deadline, which the tests drive side by side with a
//! cache by random operations.

use crate::common::{Bench, SMALL, Shape};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::{Expired, ManualClock, Sweeper, Wheel};
use tourbillon_cache::{Cache, CacheBuilder, CacheRefusal, CacheTimer, Cause, Computed};

pub(crate) const TICK: Duration = Duration::from_millis(1);
pub(crate) const TTL: Duration = Duration::from_millis(100);

pub(crate) type Key = u32;

/// The calls of a listener, each with key, value and cause.
type Told = Arc<Mutex<Vec<(Key, u64, Cause)>>>;

/// A cache in virtual time, and the calls of its listener.
pub(crate) struct Rig {
    pub(crate) cache: Cache<Key, u64>,
    pub(crate) wheel: Wheel<CacheTimer<Key>>,
    pub(crate) sweeper: Sweeper<CacheTimer<Key>>,
    pub(crate) clock: ManualClock,
    told: Told,
}

impl Rig {
    /// Creates a cache of entries that live for [`TTL`], with ticks of 1 ms.
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

    /// Sweeps without firing the timers in the cache. They are in flight.
    pub(crate) fn sweep_apart(&mut self) -> Vec<Expired<CacheTimer<Key>>> {
        let mut on_their_way = Vec::new();
        let _ = self.sweeper.sweep(|timer| on_their_way.push(timer));
        on_their_way
    }

    pub(crate) fn told(&self) -> Vec<(Key, u64, Cause)> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

/// One operation. Times are in quarters of a tick.
#[derive(Clone, Debug)]
pub(crate) enum CacheOp {
    Insert {
        key: Key,
        ttl: u32,
    },
    Get {
        key: Key,
    },
    Contains {
        key: Key,
    },
    Remove {
        key: Key,
    },
    Take {
        key: Key,
        succeeds: bool,
    },
    Touch {
        key: Key,
        ttl: u32,
    },
    InsertIfAbsent {
        key: Key,
    },
    ReplaceIfPresent {
        key: Key,
    },
    /// Removes the key's value if it is divisible by this.
    RemoveIf {
        key: Key,
        divisor: u64,
    },
    Compute {
        key: Key,
        /// The index of one of the variants of [`Computed`].
        step: u32,
        ttl: u32,
    },
    /// Removes the keys that are divisible by this.
    Retain {
        divisor: Key,
    },
    Clear,
    Advance {
        step: u32,
    },
    Sweep,
}

/// The model's default time to live, in quarters of a tick.
const QUARTERS: u32 = 37;

/// The entries, with times in nanoseconds since the start.
#[derive(Clone, Copy)]
struct Kept {
    value: u64,
    until: u128,
    at_most: u128,
    /// The deadline of its timer.
    armed: u128,
}

/// A cache and its model.
pub(crate) struct CacheModel {
    rig: Rig,
    tick: Duration,
    /// The time to idle, in quarters of a tick.
    idle: Option<u32>,
    held: BTreeMap<Key, Kept>,
    expected: Vec<(Key, u64, Cause)>,
    next_value: u64,
    hits: u64,
    misses: u64,
    loads: u64,
    expired: u64,
}

impl CacheModel {
    pub(crate) fn new(shape: Shape, idle: Option<u32>) -> Self {
        let set = |builder: CacheBuilder<Key, u64>| match idle {
            Some(idle) => builder.time_to_idle(shape.tick / 4 * idle),
            None => builder,
        };
        Self {
            rig: Rig::of(shape, shape.tick / 4 * QUARTERS, set),
            tick: shape.tick,
            idle,
            held: BTreeMap::new(),
            expected: Vec::new(),
            next_value: 0,
            hits: 0,
            misses: 0,
            loads: 0,
            expired: 0,
        }
    }

    /// Applies one operation to both and compares the results and the calls of the listener.
    pub(crate) fn apply(&mut self, op: &CacheOp) {
        match *op {
            CacheOp::Insert { key, ttl } => {
                let value = self.value();
                self.rig.cache.insert_with_ttl(key, value, self.tick / 4 * ttl).unwrap();
                self.give_up(key, Cause::Replaced);
                self.keep(key, value, ttl);
            }
            CacheOp::Get { key } => {
                let live = self.live(key);
                assert_eq!(self.rig.cache.get(&key), live);
                self.count(live);
                self.use_of(key);
            }
            CacheOp::Contains { key } => self.contains(key),
            CacheOp::Touch { key, ttl } => self.touch(key, ttl),
            CacheOp::InsertIfAbsent { key } => self.insert_if_absent(key),
            CacheOp::ReplaceIfPresent { key } => self.replace_if_present(key),
            CacheOp::Compute { key, step, ttl } => self.compute(key, step, ttl),
            CacheOp::RemoveIf { key, divisor } => {
                let leaves = self.live(key).filter(|value| value % divisor == 0);
                assert_eq!(self.rig.cache.remove_if(&key, |value| value % divisor == 0), leaves);
                if leaves.is_some() {
                    self.give_up(key, Cause::Removed);
                }
            }
            CacheOp::Retain { divisor } => self.retain(divisor),
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
        let live = |(&key, kept): (&Key, &Kept)| {
            Some((key, kept.value)).filter(|_| self.live(key).is_some())
        };
        let live: BTreeMap<Key, u64> = self.held.iter().filter_map(live).collect();
        assert_eq!(self.rig.cache.iter().collect::<BTreeMap<Key, u64>>(), live);
        assert_eq!(self.rig.cache.len(), self.held.len());
        assert_eq!(self.rig.wheel.len(), self.held.len(), "a value has a timer, and only a value");
    }

    /// Advances past all deadlines and checks that nothing is left.
    pub(crate) fn finish(mut self) {
        self.apply(&CacheOp::Advance { step: 1 << 20 });
        self.apply(&CacheOp::Sweep);
        assert!(self.rig.cache.is_empty());
        let stats = self.rig.cache.stats();
        assert_eq!((stats.hits, stats.misses), (self.hits, self.misses));
        assert_eq!((stats.loads, stats.expired), (self.loads, self.expired));
        assert_eq!(stats.evicted, 0);
    }

    fn contains(&self, key: Key) {
        assert_eq!(self.rig.cache.contains(&key), self.live(key).is_some());
        let deadline = self.rig.cache.deadline(&key);
        let since = deadline.map(|at| (at - self.rig.clock.start()).as_nanos());
        let live = self.held.get(&key).filter(|_| self.live(key).is_some());
        assert_eq!(since, live.map(|kept| kept.until));
    }

    fn touch(&mut self, key: Key, ttl: u32) {
        let live = self.live(key);
        let touched = self.rig.cache.touch(&key, self.tick / 4 * ttl).unwrap();
        assert_eq!(touched, live.is_some());
        if let Some(value) = live {
            self.keep(key, value, ttl);
        }
    }

    fn insert_if_absent(&mut self, key: Key) {
        let (live, value) = (self.live(key), self.value());
        let inserted = self.rig.cache.insert_if_absent(key, value);
        let refused = inserted.map_err(|refused| (refused.reason, refused.value));
        assert_eq!(refused.err(), live.map(|_| (CacheRefusal::Present, value)));
        if live.is_none() {
            self.give_up(key, Cause::Expired);
            self.keep(key, value, QUARTERS);
        }
    }

    fn replace_if_present(&mut self, key: Key) {
        let (live, value) = (self.live(key), self.value());
        let replaced = self.rig.cache.replace_if_present(key, value);
        let refused = replaced.map_err(|refused| (refused.reason, refused.value));
        if live.is_some() {
            assert_eq!(refused, Ok(()));
            self.give_up(key, Cause::Replaced);
            self.keep(key, value, QUARTERS);
        } else {
            assert_eq!(refused, Err((CacheRefusal::Absent, value)));
        }
    }

    fn compute(&mut self, key: Key, step: u32, ttl: u32) {
        let (live, value) = (self.live(key), self.value());
        let computed = match step {
            0 => Computed::Keep,
            1 => Computed::Insert(value),
            2 => Computed::InsertWithTtl(value, self.tick / 4 * ttl),
            3 => Computed::Replace(value),
            _ => Computed::Remove,
        };
        let done = self.rig.cache.compute(&key, |present| {
            assert_eq!(present.copied(), live);
            computed
        });
        done.unwrap();
        let before = self.held.get(&key).copied().filter(|_| live.is_some());
        if step > 0 {
            self.give_up(key, if step > 3 { Cause::Removed } else { Cause::Replaced });
        }
        match (computed, before) {
            (Computed::Keep | Computed::Remove, _) => {}
            (Computed::Replace(_), Some(before)) => {
                self.held.insert(key, Kept { value, ..before });
                self.use_of(key);
                let kept = self.held[&key];
                self.held.insert(key, Kept { armed: self.rounded(kept.until), ..kept });
            }
            _ => self.keep(key, value, if step == 2 { ttl } else { QUARTERS }),
        }
    }

    fn retain(&mut self, divisor: Key) {
        let stays = |key: &Key| key % divisor != 0;
        self.rig.cache.retain(|key, _| stays(key));
        let all = self.held.keys().copied();
        let leaves: Vec<Key> = all.filter(|key| !stays(key)).collect();
        leaves.into_iter().for_each(|key| self.give_up(key, Cause::Removed));
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
            self.use_of(key);
            return;
        }
        self.loads += 1;
        assert_eq!(taken.ok(), succeeds.then_some(value));
        self.give_up(key, Cause::Expired);
        if succeeds {
            self.keep(key, value, QUARTERS);
        }
    }

    fn sweep(&mut self) {
        self.rig.sweep();
        let now = self.now();
        let met = self.held.iter().filter(|(_, kept)| kept.armed <= now);
        for key in met.map(|(&key, _)| key).collect::<Vec<_>>() {
            match self.live(key) {
                None => self.give_up(key, Cause::Expired),
                // It has been used since.
                Some(_) => {
                    let kept = self.held[&key];
                    let armed = self.rounded(kept.until);
                    self.held.insert(key, Kept { armed, ..kept });
                }
            }
        }
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

    fn now(&self) -> u128 {
        self.rig.clock.elapsed().as_nanos()
    }

    fn rounded(&self, time: u128) -> u128 {
        time.next_multiple_of(self.tick.as_nanos())
    }

    /// Returns the time this many quarters of a tick from now.
    fn after(&self, quarters: u32) -> u128 {
        self.now() + (self.tick / 4 * quarters).as_nanos()
    }

    fn keep(&mut self, key: Key, value: u64, ttl: u32) {
        let until = self.rounded(self.after(self.idle.map_or(ttl, |idle| idle.min(ttl))));
        let at_most = until.max(if self.idle.is_some() { self.after(ttl) } else { 0 });
        self.held.insert(key, Kept { value, until, at_most, armed: until });
    }

    /// Records a read of the value, if there is one.
    fn use_of(&mut self, key: Key) {
        let (Some(idle), Some(_)) = (self.idle, self.live(key)) else { return };
        let until = self.after(idle);
        if let Some(kept) = self.held.get_mut(&key) {
            kept.until = kept.until.max(until.min(kept.at_most));
        }
    }

    fn live(&self, key: Key) -> Option<u64> {
        let kept = self.held.get(&key)?;
        (kept.until > self.now()).then_some(kept.value)
    }

    /// Removes the key's value. The cause is `Expired` if its deadline has passed, whatever removed
    /// it.
    fn give_up(&mut self, key: Key, cause: Cause) {
        let live = self.live(key).is_some();
        let Some(Kept { value, .. }) = self.held.remove(&key) else {
            return;
        };
        self.expired += u64::from(!live);
        self.expected.push((key, value, if live { cause } else { Cause::Expired }));
    }
}
