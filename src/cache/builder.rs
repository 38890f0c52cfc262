//! [`CacheBuilder`]: says what a cache should be like, checks it, and builds it.

#![forbid(unsafe_code)]

use super::eviction::{Evicted, Listener};
use super::map::Map;
use super::shared::Shared;
use super::spread::Spread;
use super::stats::Counters;
use super::{Cache, CacheBuildError, CacheTimer, WeakCache};
use crate::DriverBuilder;
use crate::Expired;
use crate::Wheel;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Makes the listener, for a cache that is being built.
type MakeListener<K, V> = Box<dyn FnOnce(WeakCache<K, V>) -> Listener<K, V> + Send + Sync>;

/// Says what a cache should be like; made by [`Cache::builder`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::cache::{Cache, CacheBuildError, Cause};
///
/// let cache = Cache::builder(Duration::from_secs(60))
///     .capacity(10_000)
///     .spread(5)
///     .listener(|gone| {
///         if gone.cause == Cause::Expired {
///             println!("{} has expired", gone.key);
///         }
///     })
///     .spawn(Builder::new().driver())?;
/// cache.insert("session 7", 42)?;
///
/// let refused = Cache::<u32, u32>::builder(Duration::ZERO).spawn(Builder::new().driver());
/// assert!(matches!(refused, Err(CacheBuildError::TimeToLive)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct CacheBuilder<K, V> {
    ttl: Duration,
    capacity: Option<usize>,
    spread: u32,
    seed: Option<u64>,
    listener: Option<MakeListener<K, V>>,
}

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone> CacheBuilder<K, V> {
    pub(super) fn new(ttl: Duration) -> Self {
        Self { ttl, capacity: None, spread: 0, seed: None, listener: None }
    }

    /// The most entries, 1 to 2^30; unbounded by default. There are never more; entries that have
    /// expired count until they are swept. The bound is split evenly among the map's shards, each
    /// for 32 entries or more: it is rounded down to that, and where keys fall unevenly a shard
    /// evicts before the cache is full.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.capacity = Some(entries);
        self
    }

    /// How far times to live are drawn around the one asked for, in per cent to either side: 0 to
    /// 50; 0 by default. With some, entries that were made together do not all expire, and are not
    /// all loaded again, together; 5 is a good number.
    pub fn spread(mut self, percent: u32) -> Self {
        self.spread = percent;
        self
    }

    /// Makes the draws of the [`spread`](Self::spread) the same in each run, for tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Called once with each value that leaves the cache, and the cause: by the thread that took it
    /// out, outside of the map's locks. For an expired value that is whoever sweeps. Values that
    /// are still there when the last handle of the cache is dropped are not told. A panic goes on
    /// to the caller, who has then done what it was to do (but for a load that would have followed
    /// an expired value).
    ///
    /// A listener that uses the cache is made by [`listener_with`](Self::listener_with): with a
    /// [`Cache`] in it the cache would hold itself, and never end.
    pub fn listener(self, told: impl Fn(Evicted<K, V>) + Send + Sync + 'static) -> Self {
        self.listener_with(|_| told)
    }

    /// As [`listener`](Self::listener), for a listener that uses the cache itself: `make` makes it
    /// when the cache is built, with a handle that does not keep the cache.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::cache::{Cache, Cause};
    ///
    /// let cache = Cache::builder(Duration::from_secs(60)).listener_with(|cache| {
    ///     move |gone| {
    ///         let Some(cache) = cache.upgrade().filter(|_| gone.cause == Cause::Removed) else {
    ///             return;
    ///         };
    ///         let _ = cache.insert("removed last", gone.key);
    ///     }
    /// });
    /// let cache = cache.spawn(Builder::new().driver())?;
    /// cache.insert("key", "value")?;
    /// cache.remove("key");
    /// assert_eq!(cache.get("removed last"), Some("key"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listener_with<L: Fn(Evicted<K, V>) + Send + Sync + 'static>(
        mut self,
        make: impl FnOnce(WeakCache<K, V>) -> L + Send + Sync + 'static,
    ) -> Self {
        self.listener = Some(Box::new(|cache| Box::new(make(cache))));
        self
    }

    /// Builds a cache on a wheel that somebody else sweeps, and hands each timer to
    /// [`Cache::fire`]. The wheel needs no capacity: one that is too small refuses inserts.
    ///
    /// # Errors
    ///
    /// Time to live, capacity or spread are out of their ranges; the error tells which and what is
    /// allowed. A time to live beyond the wheel's range is refused by each insert.
    ///
    /// # Examples
    ///
    /// In virtual time:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::cache::Cache;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let cache = Cache::builder(Duration::from_secs(2)).build(wheel)?;
    /// cache.insert("answer", 42)?;
    ///
    /// clock.advance(Duration::from_millis(1999));
    /// let _ = sweeper.sweep(|timer| cache.fire(timer));
    /// assert_eq!(cache.get("answer"), Some(42));
    /// clock.advance(Duration::from_millis(1));
    /// assert_eq!((cache.get("answer"), cache.len()), (None, 1));
    /// let _ = sweeper.sweep(|timer| cache.fire(timer));
    /// assert_eq!(cache.len(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build(self, wheel: Wheel<CacheTimer<K>>) -> Result<Cache<K, V>, CacheBuildError> {
        self.check()?;
        Ok(Cache { shared: self.finish(wheel) })
    }

    /// Builds a cache with a driver of its own, which ends with the last handle of the cache.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build); or the driver could not be built.
    pub fn spawn(self, driver: DriverBuilder) -> Result<Cache<K, V>, CacheBuildError>
    where
        K: Sync,
        V: Send + Sync + 'static,
    {
        self.check()?;
        let mut made = None;
        let spawned = driver.spawn_with(|wheel| {
            let shared = made.insert(self.finish(wheel));
            // Weak: the cache owns the driver, which owns this handler.
            let shared = Arc::downgrade(shared);
            move |timer: Expired<CacheTimer<K>>| {
                if let Some(shared) = shared.upgrade() {
                    shared.fire(&timer.value.key, timer.id);
                }
            }
        });
        let driver = spawned.map_err(CacheBuildError::Driver)?;
        let shared = made.unwrap_or_else(|| unreachable!("a driver that spawned has its handler"));
        let _ = shared.driver.set(driver);
        Ok(Cache { shared })
    }

    fn finish(self, wheel: Wheel<CacheTimer<K>>) -> Arc<Shared<K, V>> {
        Arc::new_cyclic(|shared| Shared {
            map: Map::new(self.capacity),
            wheel,
            ttl: self.ttl,
            spread: Spread::new(self.spread, self.seed),
            listener: self.listener.map(|make| make(WeakCache { shared: shared.clone() })),
            counters: Counters::default(),
            driver: OnceLock::new(),
            forget: Shared::forget,
        })
    }

    fn check(&self) -> Result<(), CacheBuildError> {
        let most = Map::<K, V>::MOST;
        match self.capacity {
            _ if self.ttl.is_zero() => Err(CacheBuildError::TimeToLive),
            Some(asked) if !(1..=most).contains(&asked) => {
                Err(CacheBuildError::Capacity { asked, most })
            }
            _ if self.spread > Spread::MOST => {
                Err(CacheBuildError::Spread { asked: self.spread, most: Spread::MOST })
            }
            _ => Ok(()),
        }
    }
}

impl<K, V> fmt::Debug for CacheBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBuilder")
            .field("ttl", &self.ttl)
            .field("capacity", &self.capacity)
            .field("spread", &self.spread)
            .finish_non_exhaustive()
    }
}
