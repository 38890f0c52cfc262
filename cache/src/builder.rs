//! [`CacheBuilder`]: says what a cache should be like, checks it, and builds it.

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

/// Makes the listener, for a cache that is being built.
type MakeListener<K, V> = Box<dyn FnOnce(WeakCache<K, V>) -> Listener<K, V> + Send + Sync>;

/// Says what a cache should be like; made by [`Cache::builder`].
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

    /// How long an entry lives that is not used, more than zero: each [`get`](Cache::get) that
    /// finds it, and each load that need not be, gives it as long again, until its time to live has
    /// passed. Not limited by default.
    ///
    /// A use costs a look at the clock and a store; the wheel is told when the timer fires. It then
    /// needs a place in the wheel: on one that is full the entry goes, by
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

    /// In the last part of its life, which is so long, an entry is served as before, but the next
    /// value is loaded already. More than zero, and less than the shortest time to live that the
    /// jitter allows; an entry that is given less time than that by itself is loaded anew by each
    /// load that comes.
    ///
    /// The first [`get_or_load`](Cache::get_or_load) or
    /// [`get_or_load_async`](Cache::get_or_load_async) in that time loads the next value and waits
    /// for it, and all other callers are served the present value at once. If the load fails, so
    /// does the call that ran it. An entry that no caller requests in that time expires. The last
    /// part belongs to the whole time to live and does not depend on the time to idle.
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
    /// Fresh for a minute, and served for ten more while it is loaded anew:
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

    /// What an entry counts for in the [capacity](Self::capacity), one by default: such as the
    /// bytes of its value. The same at each call; zero counts as one. It must not use the cache.
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

    /// The most entries, 1 to 2^30, or with a [weigher](Self::weigher) the most that they may
    /// weigh, 1 to 2^47 (2^30 where addresses have 32 bits); unbounded by default. There are never
    /// more; entries that have expired count until they are swept.
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

    /// How far times to live are drawn around the one asked for, in per cent to either side: 0 to
    /// 50; 0 by default. With some, entries that were made together do not all expire, and are not
    /// all loaded again, together; 5 is a good number.
    pub fn jitter(mut self, percent: u32) -> Self {
        self.jitter = percent;
        self
    }

    /// Makes the draws of the [`jitter`](Self::jitter) the same in each run, for tests.
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
    /// Calls of the listener do not nest. If a call makes values leave the cache, the same thread
    /// calls the listener for them after that call has returned. A listener that inserts an entry
    /// for each value that leaves a full cache is therefore called forever.
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

    /// Builds a cache on a wheel that somebody else sweeps, and hands each timer to
    /// [`Cache::fire`]. The wheel needs no capacity: one that is too small refuses inserts.
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
        let most = if self.weigher.is_some() { Bound::<K, V>::HEAVIEST } else { Map::<K, V>::MOST };
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
            _ if self.jitter > Jitter::MOST => {
                Err(CacheBuildError::Jitter { asked: self.jitter, most: Jitter::MOST })
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
