//! All entries of a cache: [`Cache::iter`] and [`Cache::retain`].

#![forbid(unsafe_code)]

use super::eviction::Cause;
use super::{Cache, Shared};
use std::fmt;
use std::hash::Hash;

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone> Cache<K, V> {
    /// Clones of all entries that have not expired, in no order.
    ///
    /// Each part of the map is looked at as a whole, under its lock, when the iteration comes to
    /// it: what is inserted or removed meanwhile may be there or not. It counts as no use. O(1) an
    /// entry, and memory for one part.
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

    /// Removes the entries for which `stays` returns `false`, those included that have expired. The
    /// listener is told of each. O(entries).
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
    /// All that depends on one user:
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

/// Clones of the entries of a cache; made by [`Cache::iter`].
#[must_use = "an iterator does nothing unless it is asked"]
pub struct Entries<'a, K, V> {
    shared: &'a Shared<K, V>,
    /// The part of the map that comes next.
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
