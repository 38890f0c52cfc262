//! [`Cache::iter`] and [`Cache::retain`], which visit all entries of a cache.

#![forbid(unsafe_code)]

use super::eviction::Cause;
use super::{Cache, Shared};
use std::fmt;
use std::hash::Hash;

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone> Cache<K, V> {
    /// Returns an iterator over clones of all entries that have not expired, in no particular
    /// order.
    ///
    /// Each part of the map is copied under its lock when the iteration reaches it. An entry that
    /// is inserted or removed meanwhile may appear or not. The iteration does not count as a use of
    /// the entries. O(1) per entry, and memory for one part.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(7, "seven")?;
    /// cache.insert(8, "eight")?;
    /// let mut keys: Vec<i32> = cache.iter().map(|(key, _)| key).collect();
    /// keys.sort();
    /// assert_eq!(keys, [7, 8]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> Entries<'_, K, V> {
        Entries { shared: &self.shared, next: 0, part: Vec::new().into_iter() }
    }

    /// Removes the entries that `stays` returns `false` for, including expired ones, and calls the
    /// listener for each. O(entries).
    ///
    /// `stays` runs under the locks of the map, one after the other, and must not use the cache. If
    /// it panics, the entries that it has already rejected are removed, and the listener is not
    /// called for them.
    ///
    /// Loads in progress are overtaken, whatever their keys: their results are returned to their
    /// callers but not kept, since they may be based on older data. The same applies to a
    /// [`Refresh`](super::Refresh).
    ///
    /// # Examples
    ///
    /// Everything that depends on one user:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// cache.insert(("Ada", 1), "a page")?;
    /// cache.insert(("Ben", 1), "a page")?;
    /// cache.retain(|(user, _), _| *user != "Ada");
    /// assert!(!cache.contains(&("Ada", 1)) && cache.contains(&("Ben", 1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "invalidate_entries_if")]
    pub fn retain(&self, stays: impl FnMut(&K, &V) -> bool) {
        let removed = self.shared.map.retain(stays).into_iter();
        self.shared.evict(removed.map(|(key, entry)| (key, entry, Cause::Removed)));
    }
}

impl<'a, K: Eq + Hash + Clone + Send + 'static, V: Clone> IntoIterator for &'a Cache<K, V> {
    type Item = (K, V);
    type IntoIter = Entries<'a, K, V>;

    fn into_iter(self) -> Entries<'a, K, V> {
        self.iter()
    }
}

/// An iterator over clones of the entries of a cache, created by [`Cache::iter`].
#[must_use = "an iterator does nothing unless it is asked"]
pub struct Entries<'a, K, V> {
    shared: &'a Shared<K, V>,
    /// The index of the next part of the map.
    next: usize,
    part: std::vec::IntoIter<(K, V)>,
}

impl<K: Eq + Hash + Clone + Send, V: Clone> Iterator for Entries<'_, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(entry) = self.part.next() {
                return Some(entry);
            }
            let is_live = |entry: &_| self.shared.is_live(entry);
            self.part = self.shared.map.shard_of(self.next, is_live)?.into_iter();
            self.next += 1;
        }
    }
}

impl<K, V> fmt::Debug for Entries<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").finish_non_exhaustive()
    }
}
