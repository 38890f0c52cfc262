//! [`WeakCache`]: a handle that does not keep the cache alive, for use within the cache itself.

#![forbid(unsafe_code)]

use super::Cache;
use super::shared::Shared;
use std::fmt;
use std::sync::{Arc, Weak};

/// A handle that does not keep the cache alive. Use it in the cache's listener and in everything
/// else that lives as long as the cache. Created by [`Cache::downgrade`] or
/// [`CacheBuilder::listener_with`](super::CacheBuilder::listener_with).
///
/// # Examples
///
/// A gauge that may outlive the cache:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_cache::{Cache, WeakCache};
///
/// let cache = Cache::builder(Duration::from_secs(60)).spawn(Builder::new().driver())?;
/// let weak: WeakCache<u32, &str> = cache.downgrade();
/// let gauge = move || weak.upgrade().map(|cache| cache.len());
///
/// cache.insert(7, "seven")?;
/// assert_eq!(gauge(), Some(1));
/// drop(cache);
/// assert_eq!(gauge(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WeakCache<K, V> {
    pub(super) shared: Weak<Shared<K, V>>,
}

impl<K, V> WeakCache<K, V> {
    /// Returns a handle that keeps the cache alive, or `None` if the last one was dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// let weak = cache.downgrade();
    /// cache.insert(7, "seven")?;
    /// assert_eq!(weak.upgrade().and_then(|cache| cache.get(&7)), Some("seven"));
    /// drop(cache);
    /// assert!(weak.upgrade().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn upgrade(&self) -> Option<Cache<K, V>> {
        self.shared.upgrade().map(|shared| Cache { shared })
    }
}

impl<K, V> Cache<K, V> {
    /// Returns a handle that does not keep the cache alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakCache<K, V> {
        WeakCache { shared: Arc::downgrade(&self.shared) }
    }
}

impl<K, V> Clone for WeakCache<K, V> {
    fn clone(&self) -> Self {
        Self { shared: Weak::clone(&self.shared) }
    }
}

impl<K, V> fmt::Debug for WeakCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakCache").finish_non_exhaustive()
    }
}
