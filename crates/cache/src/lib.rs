//! A concurrent cache whose entries expire on time.
//!
//! Each entry has a deadline and its own timer on a timing wheel. A [`Cache`] does not return an
//! entry after its deadline, to one tick. A sweep of the wheel then removes the entry and calls the
//! listener, even if no thread uses the cache. The cache is therefore suited to entries that stand
//! for something with an end, such as sessions, leases, tokens, and responses with their own time
//! to live.
//!
//! # When another cache is the better choice
//!
//! [moka](https://docs.rs/moka) has the eviction policy TinyLFU and user-defined expiry policies.
//! It also checks deadlines on reads, but it removes expired entries and calls its listener only
//! during later calls. Use it if you need those policies and no exact expiry.
//! [quick_cache](https://docs.rs/quick_cache), which is the map and the eviction policy of this
//! crate, is enough if nothing expires.
//!
//! # What differs from go-zero's `collection.Cache`
//!
//! - An entry lives for its whole time to live. In go-zero the wheel rounds down by up to two of
//!   its ticks of one second, so an entry of 2 s may be gone after a few milliseconds.
//! - A time to live of zero is refused. In go-zero it makes an entry that never expires.
//! - An old timer never removes a newer value, and a removal never ends the timer of a newer value,
//!   because timers are distinguished by their ids and not by the key.
//! - A load that was overtaken by an insert or a removal does not put back the value it read
//!   before.
//! - A cache ends with its last handle or by [`shutdown`](Cache::shutdown).
//! - Jitter on the times to live is optional ([`CacheBuilder::jitter`]).
//! - The eviction policy is of the S3-FIFO kind, which keeps reused entries during a scan. The
//!   policy of go-zero is LRU.
//!
//! # Keys and values
//!
//! Reads return clones of values, which are made under a lock of the map. Put a large value into an
//! `Arc`. A key is cloned for its timer. `Arc<str>` is cheaper than `String` and can be looked up
//! by `&str` as well. The hash, comparison, clone and drop of keys and the clone of a value must
//! not use the cache.
//!
//! # Memory
//!
//! Removed entries give their memory back, even after a burst. [`clear`](Cache::clear) does so at
//! once. Expired and removed entries do so when a part of the map is down to a quarter of its
//! previous maximum. The removal that reaches that point moves the remaining entries under the lock
//! of that part. The insert that grew the part moved more.
//!
//! # What keeps a cache
//!
//! A cache lives as long as one of its handles, or a [`Refresh`] that runs. A handle held by the
//! cache itself, in its listener or in a value, would keep the cache and its driver alive forever.
//! Use a [`WeakCache`] there, from [`CacheBuilder::listener_with`] or [`Cache::downgrade`]. A load
//! may borrow any handle, because it ends.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::Builder;
//! use tourbillon_cache::Cache;
//!
//! let cache = Cache::builder(Duration::from_secs(60)).jitter(5).spawn(Builder::new().driver())?;
//! let load = || Ok::<_, std::io::Error>(String::from("from the database"));
//! assert_eq!(cache.get_or_load("user 7", load)?, "from the database");
//! assert_eq!(cache.get("user 7").as_deref(), Some("from the database"));
//!
//! cache.insert_with_ttl(String::from("token"), String::from("secret"), Duration::from_secs(5))?;
//! assert_eq!(cache.remove("token").as_deref(), Some("secret"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Denied in examples, so that a copied example gives no warning.
#![doc(test(attr(allow(unused), deny(unused_must_use))))]

mod builder;
mod compute;
mod entry;
mod error;
mod eviction;
#[cfg(feature = "metrics")]
mod export;
mod get_or_load;
mod inside;
mod iter;
mod jitter;
mod key;
mod lifetime;
mod load;
mod load_guard;
mod loaded;
mod map;
mod notifier;
mod panics;
mod refresh;
mod row;
mod shard;
mod shared;
mod stats;
mod stored_load;
mod timer;
mod waiters;
mod weak;

pub use builder::CacheBuilder;
pub use compute::Computed;
pub use error::{CacheBuildError, CacheRefusal, LoadError};
pub use eviction::{Cause, Evicted};
#[cfg(feature = "metrics")]
pub use export::CacheExporter;
pub use iter::Entries;
pub use key::IntoKey;
pub use loaded::Loaded;
pub use refresh::Refresh;
pub use stats::CacheStats;
pub use timer::CacheTimer;
pub use weak::WeakCache;

use entry::CacheEntry;
use map::Served;
use shard::Removed;
use shared::Shared;
use stats::Count;
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;
use tourbillon::{Driver, Expired, Refused};

/// A concurrent cache whose entries expire on time. Clones are handles of the same cache.
///
/// The [crate page](crate) has the guarantees. [`builder`](Self::builder) creates a cache.
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
/// let users = Cache::builder(Duration::from_secs(60)).capacity(10_000).build(wheel)?;
/// let load = || Ok::<_, std::io::Error>("Ada");
/// assert_eq!(users.get_or_load(&7, load)?, "Ada"); // by one of those who miss together
/// users.insert_with_ttl(8, "a guest", Duration::from_secs(5))?;
///
/// clock.advance(Duration::from_secs(5));
/// assert_eq!((users.get(&7), users.get(&8)), (Some("Ada"), None));
/// let _ = sweeper.sweep(|timer| users.fire(timer)); // a driver does so by itself
/// assert_eq!(users.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the last handle ends it, and its entries"]
pub struct Cache<K, V> {
    shared: Arc<Shared<K, V>>,
}

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone> Cache<K, V> {
    /// Returns a builder for a cache whose entries live for `ttl` by default, which must be greater
    /// than zero.
    ///
    /// With [`Duration::MAX`], entries stay until they are removed or evicted. (Times end 584 years
    /// after the wheel was built.) A time to live beyond the [wheel's
    /// range](tourbillon::Wheel::longest_delay) is covered by several timers, one after another.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon_cache::Cache;
    ///
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(ttl: Duration) -> CacheBuilder<K, V> {
        CacheBuilder::new(ttl)
    }

    /// Returns a clone of the key's value, or `None` if there is none or it has expired by the
    /// wheel's clock, swept or not.
    ///
    /// O(1). It takes the lock of the key's shard for reading.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// assert_eq!((cache.get(&7), cache.get(&8)), (Some("seven"), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let value = self.live(key);
        let count = if value.is_some() { Count::Hit } else { Count::Miss };
        self.shared.counters.add(count);
        value
    }

    /// Returns `true` if the key has a value that has not expired. Does not count as a use of the
    /// entry. O(1).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// assert!(cache.contains(&7) && !cache.contains(&8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.shared.map.peek(key, |entry| self.shared.is_live(entry)).unwrap_or(false)
    }

    /// Inserts a value for the cache's time to live and replaces the key's previous value.
    ///
    /// The entry expires at the deadline of its timer, which is rounded up to the wheel's
    /// resolution. If a load of the key is in progress, its result is not kept. O(1).
    ///
    /// # Errors
    ///
    /// Fails if the wheel is closed, full or [far behind](CacheRefusal::Wheel). The error contains
    /// the value, and the key keeps its previous one.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// cache.shutdown();
    /// let refused = cache.insert(8, "eight").unwrap_err();
    /// assert_eq!(refused.value, "eight");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(&self, key: K, value: V) -> Result<(), Refused<CacheRefusal, V>> {
        self.insert_with_ttl(key, value, self.shared.ttl)
    }

    /// Inserts a value, as [`insert`](Self::insert) does, with its own time to live, which must be
    /// greater than zero. The jitter applies to it as well.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert), and if the time to live is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::{Cache, CacheRefusal};
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert_with_ttl(7, "seven", Duration::from_secs(3600))?;
    /// let refused = cache.insert_with_ttl(8, "eight", Duration::ZERO).unwrap_err();
    /// assert_eq!((refused.reason, refused.value), (CacheRefusal::TimeToLive, "eight"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_with_ttl(
        &self,
        key: K,
        value: V,
        ttl: Duration,
    ) -> Result<(), Refused<CacheRefusal, V>> {
        self.put(key, value, ttl, |key, entry| Ok(self.shared.map.insert(key, entry)))
    }

    /// Inserts a value like [`insert`](Self::insert) if the key has none.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert), and if the key [has a value](CacheRefusal::Present)
    /// that has not expired.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::{Cache, CacheRefusal};
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert_if_absent(7, "seven")?;
    /// let refused = cache.insert_if_absent(7, "again").unwrap_err();
    /// assert_eq!((refused.reason, refused.value), (CacheRefusal::Present, "again"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_if_absent(&self, key: K, value: V) -> Result<(), Refused<CacheRefusal, V>> {
        let shared = &*self.shared;
        let is_live = |entry: &CacheEntry<V>| shared.is_live(entry);
        self.put(key, value, shared.ttl, |key, entry| {
            let inserted = shared.map.insert_if_absent(key, entry, is_live);
            inserted.map_err(|entry| (CacheRefusal::Present, entry))
        })
    }

    /// Replaces the key's value, as [`insert`](Self::insert) does, if the key has one.
    ///
    /// Use it if a value that arrives late, such as a session that is saved after the log-out, must
    /// not create the entry again. If a load of the key is in progress, its result is not kept,
    /// even if the value is refused, because the load may have read an older value.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert), and if the key [has no value](CacheRefusal::Absent) or
    /// its value has expired.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::{Cache, CacheRefusal};
    /// let sessions = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// sessions.insert("session 7", "an empty basket")?;
    /// sessions.replace_if_present("session 7", "a book")?;
    /// assert_eq!(sessions.remove("session 7"), Some("a book")); // logs out
    /// let refused = sessions.replace_if_present("session 7", "two books").unwrap_err();
    /// assert_eq!((refused.reason, refused.value), (CacheRefusal::Absent, "two books"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_if_present(&self, key: K, value: V) -> Result<(), Refused<CacheRefusal, V>> {
        let shared = &*self.shared;
        let is_live = |entry: &CacheEntry<V>| shared.is_live(entry);
        self.put(key, value, shared.ttl, |key, entry| {
            let replaced = shared.map.replace_if_present(key, entry, is_live);
            replaced.map_err(|entry| (CacheRefusal::Absent, entry))
        })
    }

    /// Arms a value's timer and passes the value to the map with `publish`, which may return it.
    fn put(
        &self,
        key: K,
        value: V,
        ttl: Duration,
        publish: impl FnOnce(K, CacheEntry<V>) -> Result<Removed<K, V>, (CacheRefusal, CacheEntry<V>)>,
    ) -> Result<(), Refused<CacheRefusal, V>> {
        let shared = &*self.shared;
        let (timer, lives) = match shared.arm(key.clone(), ttl) {
            Ok(armed) => armed,
            Err(reason) => return Err(Refused { reason, value }),
        };
        match publish(key.clone(), CacheEntry::new(value, timer, lives)) {
            Ok(removed) => {
                shared.settle(&key, (timer, lives), removed);
                Ok(())
            }
            Err((reason, entry)) => {
                shared.wheel.cancel(timer);
                Err(Refused { reason, value: entry.value })
            }
        }
    }

    /// Removes the key's value and returns it unless it has expired. If a load of the key is in
    /// progress, its result is not kept. O(1).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// assert_eq!((cache.remove(&7), cache.remove(&7)), (Some("seven"), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.removed(self.shared.map.remove(key)?)
    }

    /// Removes the key's value and returns it if it has not expired and `condition` returns `true`
    /// for it. O(1).
    ///
    /// Use it to remove a value that was found invalid, and not the next one, which another caller
    /// may have inserted meanwhile. If it removes the value and a load of the key is in progress,
    /// the result of the load is not kept.
    ///
    /// `condition` runs under a lock of the cache, so it must not use the cache. If it panics, the
    /// value stays.
    ///
    /// # Examples
    ///
    /// Several callers find that a server has rejected a token. The first removes it, and the
    /// others do not remove the next token:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let tokens = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// tokens.insert("Ada", 7)?;
    /// let rejected = tokens.get("Ada");
    /// assert_eq!(tokens.remove_if("Ada", |token| Some(*token) == rejected), Some(7));
    /// tokens.insert("Ada", 8)?;
    /// assert_eq!(tokens.remove_if("Ada", |token| Some(*token) == rejected), None);
    /// assert_eq!(tokens.get("Ada"), Some(8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_if<Q>(&self, key: &Q, condition: impl FnOnce(&V) -> bool) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let leaves = |entry: &CacheEntry<V>| self.shared.is_live(entry) && condition(&entry.value);
        self.removed(self.shared.map.remove_if(key, leaves)?)
    }

    /// Handles an entry that the caller removed, and returns a clone of its value unless it has
    /// expired.
    fn removed(&self, (key, entry): (K, CacheEntry<V>)) -> Option<V> {
        let clone = || self.shared.is_live(&entry).then(|| entry.value.clone());
        let value = catch_unwind(AssertUnwindSafe(clone));
        self.shared.evict([(key, entry, Cause::Removed)]);
        value.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Returns the number of entries, including expired entries that were not swept yet. O(shards
    /// of the map).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// assert_eq!(cache.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.map.len()
    }

    /// Returns the total weight of the entries that [`len`](Self::len) counts, which the
    /// [capacity](CacheBuilder::capacity) bounds. O(shards of the map).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::<_, &str>::builder(Duration::from_secs(1));
    /// let cache = cache.weigher(|_, page| page.len() as u64).spawn(Builder::new().driver())?;
    /// cache.insert("/", "hello")?;
    /// assert_eq!(cache.weight(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.shared.map.weight()
    }

    /// Returns the time to live of entries that are inserted without their own.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert_with_ttl(7, "seven", cache.ttl() / 2)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.shared.ttl
    }

    /// Returns `true` if [`len`](Self::len) is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::<u64, u64>::builder(Duration::from_secs(1));
    /// assert!(cache.spawn(Builder::new().driver())?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries and calls the listener for each. Entries that are inserted meanwhile may
    /// stay. The results of loads in progress are not kept. O(entries).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// cache.clear();
    /// assert!(cache.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&self) {
        let removed = self.shared.map.drain().into_iter();
        self.shared.evict(removed.map(|(key, entry)| (key, entry, Cause::Removed)));
    }

    /// Returns the counters of the cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// cache.get(&7);
    /// cache.get(&8);
    /// assert_eq!((cache.stats().hits, cache.stats().misses), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.shared.counters.read()
    }

    /// Removes the entry whose timer was swept, unless its value was replaced, removed or used
    /// since. O(1).
    ///
    /// The owner of the sweeper calls this for each timer if the cache was
    /// [built](CacheBuilder::build) on a wheel. There is an example.
    pub fn fire(&self, timer: Expired<CacheTimer<K>>) {
        self.shared.fire(&timer);
    }

    /// Closes the wheel and shuts down the cache's own driver, if it has one. Later inserts are
    /// refused. Reads still return entries that have not expired.
    ///
    /// The listener is called for the entries that have expired by now. A call in progress
    /// continues. Entries that expire later are not returned by reads, but nothing sweeps them.
    /// They are dropped with the cache, unless they are removed before. [`clear`](Self::clear)
    /// removes all that are left and calls the listener for them.
    ///
    /// Further calls have no effect. The listener may call this method. Do not call it under a lock
    /// that the listener takes, because it waits until the tick thread has finished its sweep,
    /// which includes the calls of the listener if they run [inline](tourbillon::Inline).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(60)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// cache.shutdown();
    /// assert_eq!(cache.get(&7), Some("seven"));
    /// assert!(cache.insert(7, "again").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self) {
        let shared = &*self.shared;
        shared.wheel.close();
        shared.end(shared.driver.get().map(Driver::shutdown).unwrap_or_default());
    }

    /// Returns the cache's own driver, if it has one. Use it to wait for the listener after a
    /// [`shutdown`](Self::shutdown), and for the driver's metrics.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::<u64, u64>::builder(Duration::from_secs(60));
    /// let cache = cache.spawn(Builder::new().driver())?;
    /// cache.shutdown();
    /// if let Some(driver) = cache.driver() {
    ///     driver.wait()?; // no entry is being told of any more
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn driver(&self) -> Option<&Driver<CacheTimer<K>>> {
        self.shared.driver.get()
    }

    fn live<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        // The clock is read after the map was: the value is live now, and not only when the
        // look-up began.
        match self.shared.map.get(key, |entry| self.shared.serve(entry)) {
            Served::Value(value) | Served::RefreshDue(value) | Served::Refreshing(value, _) => {
                Some(value)
            }
            Served::Expired => None,
        }
    }
}

impl<K, V> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.shared.counters.read()).finish_non_exhaustive()
    }
}

/// The README, whose examples are tested with the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
