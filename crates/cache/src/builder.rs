//! [`CacheBuilder`]: the settings of a cache and their ranges.

#![forbid(unsafe_code)]

use super::eviction::{Evicted, Listener};
use super::jitter::Jitter;
use super::map::Map;
use super::notifier::Notifier;
use super::shard::{Bound, Weigher};
use super::shared::Shared;
use super::stats::Counters;
use super::{Cache, CacheBuildError, CacheTimer, WeakCache};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tourbillon::DriverBuilder;
use tourbillon::Expired;
use tourbillon::Wheel;

/// Creates the listener of a cache that is being built.
type MakeListener<K, V> = Box<dyn FnOnce(WeakCache<K, V>) -> Listener<K, V> + Send + Sync>;

/// The settings of a cache, created by [`Cache::builder`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_cache::{Cache, CacheBuildError, Cause};
///
/// let cache = Cache::builder(Duration::from_secs(60))
///     .capacity(10_000)
///     .jitter(5)
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
    idle: Option<Duration>,
    ahead: Option<Duration>,
    capacity: Option<usize>,
    weigher: Option<Arc<Weigher<K, V>>>,
    expected: Option<usize>,
    jitter: u32,
    seed: Option<u64>,
    listener: Option<MakeListener<K, V>>,
}

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone> CacheBuilder<K, V> {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            idle: None,
            ahead: None,
            capacity: None,
            weigher: None,
            expected: None,
            jitter: 0,
            seed: None,
            listener: None,
        }
    }

    /// Sets the time to idle. An entry expires if it is not read for this long. Each
    /// [`get`](Cache::get) that finds the entry, and each load that finds it, restarts the time, up
    /// to the entry's time to live. Must be positive. Disabled by default.
    ///
    /// A hit costs a clock reading and a store. The timer stays where it is, and is armed again
    /// when it fires. If the wheel is full at that moment, the entry is evicted with
    /// [`Cause::Size`](super::Cause::Size).
    ///
    /// # Examples
    ///
    /// Sessions that end after half an hour without a request, and after a day:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_cache::Cache;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let sessions = Cache::builder(day).time_to_idle(30 * minute).build(wheel)?;
    /// sessions.insert("session 7", "a basket")?;
    /// for _ in 0..10 {
    ///     clock.advance(20 * minute);
    ///     let _ = sweeper.sweep(|timer| sessions.fire(timer));
    ///     assert_eq!(sessions.get("session 7"), Some("a basket"));
    /// }
    /// clock.advance(30 * minute);
    /// assert_eq!(sessions.get("session 7"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_to_idle(mut self, idle: Duration) -> Self {
        self.idle = Some(idle);
        self
    }

    /// Enables refresh-ahead. During the last `ahead` of an entry's time to live, the next value is
    /// loaded while the present one is still served. `ahead` must be positive and less than the
    /// shortest time to live that the jitter allows. An entry whose own time to live is shorter
    /// than `ahead` is loaded again by each load.
    ///
    /// The first [`get_or_load`](Cache::get_or_load) or
    /// [`get_or_load_async`](Cache::get_or_load_async) in that time loads the next value and waits
    /// for it, and all other callers are served the present value at once. If the load fails, its
    /// caller is served the present value until that expires. An entry that no caller requests in
    /// that time expires. The window belongs to the whole time to live and does not depend on the
    /// time to idle.
    ///
    /// After a load ahead that failed, panicked, was dropped or returned nothing to keep, the next
    /// one does not begin before a pause has passed. All callers are served the present value
    /// meanwhile. The first pause is 1/32 of `ahead`, but at most a second. Each further pause is
    /// twice as long, but at most a minute. A backend that is down is therefore not called once per
    /// caller.
    ///
    /// *Stale while revalidate* ([RFC 5861]) is the same under other names: the time to live is the
    /// fresh and the stale time together, and `ahead` is the stale time. No caller waits at all
    /// with [`get_or_load_shared`](Cache::get_or_load_shared), or if the load runs elsewhere
    /// ([`Cache::try_refresh`]).
    ///
    /// [RFC 5861]: https://www.rfc-editor.org/rfc/rfc5861
    ///
    /// # Examples
    ///
    /// Fresh for a minute, and served for ten more while the next value is loaded:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_cache::Cache;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let minute = Duration::from_secs(60);
    /// let clock = ManualClock::new();
    /// let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let pages = Cache::<String, &str>::builder(11 * minute).refresh_ahead(10 * minute);
    /// let pages = pages.build(wheel)?;
    /// assert_eq!(pages.get_or_load("/", || Ok::<_, &str>("first")), Ok("first"));
    /// clock.advance(minute);
    /// assert_eq!(pages.get_or_load("/", || Err::<&str, _>("down")), Ok("first"));
    /// assert_eq!(pages.get_or_load("/", || Ok::<_, &str>("second")), Ok("first")); // a pause
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(pages.get_or_load("/", || Ok::<_, &str>("second")), Ok("second"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("refresh_after_write", "stale_while_revalidate"))]
    pub fn refresh_ahead(mut self, ahead: Duration) -> Self {
        self.ahead = Some(ahead);
        self
    }

    /// Sets the function that returns the weight of an entry, such as the bytes of its value, for
    /// the [capacity](Self::capacity). The default weight is one. A weight of zero counts as one.
    ///
    /// An entry is weighed once, when it is inserted. A value that grows later, such as one behind
    /// an `Arc` and a lock, keeps the weight of its insert until it is inserted again. The function
    /// is called under a lock of the cache, so it must not use the cache.
    ///
    /// Set the [expected number of entries](Self::expected_entries) if many threads share the
    /// cache, or if an entry may weigh more than a quarter of the capacity. Without a capacity, an
    /// entry counts as at most 2^32 - 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon_cache::Cache;
    ///
    /// let pages = Cache::builder(Duration::from_secs(60))
    ///     .weigher(|_: &u32, page: &String| page.len() as u64)
    ///     .capacity(10_000); // bytes
    /// let pages = pages.spawn(Builder::new().driver())?;
    /// for page in 0..10 {
    ///     pages.insert(page, "a page of many words. ".repeat(200))?; // 4400 bytes
    /// }
    /// assert_eq!((pages.len(), pages.weight()), (2, 8800));
    /// assert!(pages.contains(&9));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn weigher(mut self, weigh: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.weigher = Some(Arc::new(weigh));
        self
    }

    /// Sets the maximum number of entries, 1 to 2^30. With a [weigher](Self::weigher), it is the
    /// maximum total weight, 1 to 2^47 (2^30 on targets with 32-bit addresses). Unbounded by
    /// default. The maximum is never exceeded. Expired entries count until they are swept.
    ///
    /// The bound is divided evenly among the [parts](Self::expected_entries) of the cache and
    /// rounded down to a multiple of their number. If keys are distributed unevenly, a part evicts
    /// before the cache is full. An entry that weighs more than the share of one part is evicted at
    /// once, with [`Cause::Size`](super::Cause::Size).
    pub fn capacity(mut self, entries: usize) -> Self {
        self.capacity = Some(entries);
        self
    }

    /// Sets the expected number of entries, which determines the number of parts of the cache.
    /// Threads that use different parts do not wait for each other.
    ///
    /// The cache has one part for every 32 entries, but at least one part and at most four parts
    /// per core. By default it has one part for every 32 entries of the [capacity](Self::capacity).
    /// With a [weigher](Self::weigher), it has one part if the capacity is below 2^16 and otherwise
    /// up to four, so that an entry may weigh a quarter of the capacity on every machine. With up
    /// to 63 expected entries there is one part, and an entry may weigh as much as the capacity.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let images = Cache::builder(Duration::from_secs(60))
    ///     .weigher(|_: &&str, image: &Vec<u8>| image.len() as u64)
    ///     .capacity(1 << 20)
    ///     .expected_entries(10);
    /// let images = images.spawn(Builder::new().driver())?;
    /// images.insert("as large as it may be", vec![0; 1 << 20])?;
    /// assert_eq!(images.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expected_entries(mut self, entries: usize) -> Self {
        self.expected = Some(entries);
        self
    }

    /// Sets the jitter of times to live, in per cent to either side, from 0 to 50. The default is
    /// 0. With jitter, entries that were created together do not all expire and reload together. 5
    /// is a good value.
    pub fn jitter(mut self, percent: u32) -> Self {
        self.jitter = percent;
        self
    }

    /// Sets the seed of the [`jitter`](Self::jitter), which makes it reproducible in tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets a listener that is called once for each entry that leaves the cache, with the cause. It
    /// runs on the thread that removed the entry, outside the locks of the map. For an expired
    /// entry that is the thread that sweeps. The listener is not called for the entries that remain
    /// when the last handle of the cache is dropped.
    ///
    /// If the listener panics, the panic propagates to the caller after the operation is complete,
    /// except that a load does not follow an expired entry.
    ///
    /// Calls of the listener do not nest. If a call makes values leave the cache, the same thread
    /// calls the listener for them after that call has returned. A listener that inserts an entry
    /// for each value that leaves a full cache is therefore called forever.
    ///
    /// Create a listener that uses the cache with [`listener_with`](Self::listener_with). A
    /// [`Cache`] in the listener would keep itself alive forever.
    pub fn listener(self, told: impl Fn(Evicted<K, V>) + Send + Sync + 'static) -> Self {
        self.listener_with(|_| told)
    }

    /// Sets a listener that uses the cache itself. `make` is called when the cache is built, with a
    /// handle that does not keep the cache alive.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon_cache::{Cache, Cause};
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

    /// Builds a cache on a wheel whose owner sweeps it and passes each timer to [`Cache::fire`].
    /// The wheel needs no capacity, and inserts are refused if its capacity is too small.
    ///
    /// # Errors
    ///
    /// Fails if the time to live, time to idle, refresh ahead, capacity or jitter is out of its
    /// range. The error names the setting and the allowed range.
    ///
    /// # Examples
    ///
    /// In virtual time:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_cache::Cache;
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

    /// Builds a cache with a driver of its own, which stops when the last handle of the cache is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Fails like [`build`](Self::build), and if the driver could not be built.
    pub fn spawn(self, driver: DriverBuilder) -> Result<Cache<K, V>, CacheBuildError>
    where
        K: Sync,
        V: Send + Sync + 'static,
    {
        self.check()?;
        let mut made = None;
        let spawned = driver.detach_on_drop().spawn_with(|wheel| {
            let shared = made.insert(self.finish(wheel));
            // Weak: the cache owns the driver, which owns this handler.
            let shared = Arc::downgrade(shared);
            move |timer: Expired<CacheTimer<K>>| {
                if let Some(shared) = shared.upgrade() {
                    shared.fire(&timer);
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
            map: Map::new(&Bound {
                most: self.capacity,
                weigher: self.weigher,
                expected: self.expected,
            }),
            wheel,
            ttl: self.ttl,
            idle: self.idle,
            ahead: self.ahead,
            jitter: Jitter::new(self.jitter, self.seed),
            listener: self
                .listener
                .map(|make| Notifier::new(make(WeakCache { shared: shared.clone() }))),
            counters: Counters::new(),
            driver: OnceLock::new(),
            forget: Shared::forget,
        })
    }

    fn check(&self) -> Result<(), CacheBuildError> {
        let most =
            if self.weigher.is_some() { Bound::<K, V>::HEAVIEST } else { Map::<K, V>::MAX_ENTRIES };
        let below = Jitter::least(self.ttl, self.jitter);
        match self.capacity {
            _ if self.ttl.is_zero() => Err(CacheBuildError::TimeToLive),
            _ if self.idle.is_some_and(|idle| idle.is_zero()) => Err(CacheBuildError::TimeToIdle),
            _ if self.ahead.is_some_and(|ahead| ahead.is_zero() || ahead >= below) => {
                Err(CacheBuildError::RefreshAhead { below })
            }
            Some(asked) if !(1..=most).contains(&asked) => {
                Err(CacheBuildError::Capacity { asked, most })
            }
            _ if self.jitter > Jitter::MAX_PERCENT => {
                Err(CacheBuildError::Jitter { asked: self.jitter, most: Jitter::MAX_PERCENT })
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
            .field("jitter", &self.jitter)
            .field("idle", &self.idle)
            .field("ahead", &self.ahead)
            .finish_non_exhaustive()
    }
}
