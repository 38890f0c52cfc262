//! [`CacheTimer`]: what the wheel of a cache holds.

#![forbid(unsafe_code)]

use std::fmt;

/// What the wheel of a cache holds: the timer of one value. Only the cache looks inside.
pub struct CacheTimer<K> {
    pub(super) key: K,
}

impl<K> fmt::Debug for CacheTimer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheTimer").finish_non_exhaustive()
    }
}
