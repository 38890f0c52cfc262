//! [`Cache::compute`]: a change that depends on the present value.

#![forbid(unsafe_code)]

use super::entry::CacheEntry;
use super::eviction::Cause;
use super::map::Decision;
use super::{Cache, CacheRefusal, IntoKey};
use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;
use tourbillon::Refused;

/// The change that the closure of [`Cache::compute`] asks for.
///
/// # Examples
///
/// Taking the last book removes the basket. Taking another book restarts its time to live:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_cache::{Cache, Computed};
///
/// fn take_one(books: Option<&u32>) -> Computed<u32> {
///     match books {
///         None => Computed::Keep,
///         Some(1) => Computed::Remove,
///         Some(books) => Computed::Insert(books - 1),
///     }
/// }
///
/// let baskets = Cache::builder(Duration::from_secs(60)).spawn(Builder::new().driver())?;
/// baskets.insert("Ada", 2)?;
/// baskets.compute("Ada", take_one)?;
/// assert_eq!(baskets.get("Ada"), Some(1));
/// baskets.compute("Ada", take_one)?;
/// assert_eq!(baskets.get("Ada"), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Computed<V> {
    /// Leaves the entry as it is, and a load in progress, too.
    Keep,
    /// Inserts the value for the cache's time to live, as [`Cache::insert`] does.
    Insert(V),
    /// Inserts the value with its own time to live, as [`Cache::insert_with_ttl`] does.
    InsertWithTtl(V, Duration),
    /// Replaces the present value for the rest of its time to live. Restarts the [time to
    /// idle](super::CacheBuilder::time_to_idle). If the key has no value, inserts the
    /// value for the cache's time to live.
    Replace(V),
    /// Removes the entry, as [`Cache::remove`] does.
    Remove,
}

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone> Cache<K, V> {
    /// Calls `compute` with the key's value, or with `None` if there is none or it has expired, and
    /// makes the [change](Computed) that it returns. No other caller changes the key's value
    /// meanwhile.
    ///
    /// Neither the call nor its value is counted as a hit or a miss. If a load of the key is in
    /// progress, its result is not kept, unless `compute` returns [`Computed::Keep`]. O(1).
    ///
    /// `compute` runs under a lock of the cache, which keys share. It must therefore be short, and
    /// must not use the cache or wait for a thread that does. If it panics, the entry stays as it
    /// was.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert) if there is a value to insert or to replace the present
    /// one, and if its time to live is zero. The entry stays as it was.
    ///
    /// # Examples
    ///
    /// A limit of two requests per minute, in which a request does not extend the minute:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_cache::{Cache, Computed};
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// fn is_allowed(requests: &Cache<String, u32>, client: &str) -> bool {
    ///     let mut count = 0;
    ///     let counted = requests.compute(client, |before| {
    ///         count = before.map_or(1, |before| before + 1);
    ///         Computed::Replace(count)
    ///     });
    ///     counted.is_ok() && count <= 2
    /// }
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let requests = Cache::builder(Duration::from_secs(60)).build(wheel)?;
    /// assert!(is_allowed(&requests, "Ada"));
    /// clock.advance(Duration::from_secs(59));
    /// assert!(is_allowed(&requests, "Ada"));
    /// assert!(!is_allowed(&requests, "Ada"));
    /// clock.advance(Duration::from_secs(1));
    /// assert!(is_allowed(&requests, "Ada"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("and_compute_with", "and_upsert_with", "update"))]
    pub fn compute<'q, Q>(
        &self,
        key: &'q Q,
        compute: impl FnOnce(Option<&V>) -> Computed<V>,
    ) -> Result<(), Refused<CacheRefusal, V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
        &'q Q: IntoKey<K>,
    {
        let shared = &*self.shared;
        let mut armed = Ok(None);
        let removed = shared.map.compute(key, |entry| {
            let entry = entry.filter(|entry| shared.is_live(entry));
            let (value, ttl, replaced) = match compute(entry.map(|entry| &entry.value)) {
                Computed::Keep => return Decision::Keep,
                Computed::Remove => return Decision::Remove,
                Computed::Insert(value) => (value, shared.ttl, None),
                Computed::InsertWithTtl(value, ttl) => (value, ttl, None),
                Computed::Replace(value) => (value, shared.ttl, entry),
            };
            let key = key.into_key();
            let timer = match replaced {
                Some(entry) => shared.arm_like(key.clone(), entry),
                None => shared.arm(key.clone(), ttl),
            };
            match timer {
                Ok((timer, lives)) => {
                    armed = Ok(Some((key.clone(), (timer, lives))));
                    Decision::Put(key, CacheEntry::new(value, timer, lives))
                }
                // The value is dropped by the caller, without the lock.
                Err(reason) => {
                    armed = Err(Refused { reason, value });
                    Decision::Keep
                }
            }
        });
        match armed? {
            Some((key, armed)) => shared.settle(&key, armed, removed),
            None => {
                let removed = removed.into_iter();
                shared.evict(removed.map(|(key, entry)| (key, entry, Cause::Removed)));
            }
        }
        Ok(())
    }
}
