//! [`Cache::touch`] and [`Cache::deadline`].

#![forbid(unsafe_code)]

use super::{Cache, CacheRefusal};
use std::borrow::Borrow;
use std::hash::Hash;
use std::time::{Duration, Instant};

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone> Cache<K, V> {
    /// Sets a new time to live for the key's value, counted from now and greater than zero. Returns
    /// `true` if the key has a value that has not expired.
    ///
    /// The jitter and the [time to idle](super::CacheBuilder::time_to_idle) apply to it as well. It
    /// does not count as a use for the eviction policy. O(1).
    ///
    /// # Errors
    ///
    /// Fails if the time to live is zero, or if the wheel is closed or [far
    /// behind](CacheRefusal::Wheel). The value keeps its previous time to live.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::{Builder, ManualClock};
    /// # use tourbillon_cache::Cache;
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let leases = Cache::builder(Duration::from_secs(10)).build(wheel)?;
    /// leases.insert("worker 7", "partition 3")?;
    /// clock.advance(Duration::from_secs(9));
    /// assert!(leases.touch("worker 7", Duration::from_secs(10))?); // a heartbeat
    /// clock.advance(Duration::from_secs(9));
    /// let _ = sweeper.sweep(|timer| leases.fire(timer));
    /// assert_eq!(leases.get("worker 7"), Some("partition 3"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn touch<Q>(&self, key: &Q, ttl: Duration) -> Result<bool, CacheRefusal>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let shared = &*self.shared;
        shared.map.change(key, |entry| shared.touch(entry, ttl)).unwrap_or(Ok(false))
    }

    /// Returns the deadline of the key's value, which applies if the value is not used, touched or
    /// removed before. Returns `None` if the key has no value or it has expired. Does not count as
    /// a use. O(1).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(60)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// assert!(cache.deadline(&7) > Some(Instant::now() + Duration::from_secs(50)));
    /// assert_eq!(cache.deadline(&8), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deadline<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let shared = &*self.shared;
        let until = shared.map.peek(key, |entry| shared.is_live(entry).then(|| entry.until()))?;
        until.map(|until| shared.wheel.instant(until))
    }
}
