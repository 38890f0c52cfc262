//! [`Evicted`] and [`Cause`]: what a listener is told of a value that has left the cache.

#![forbid(unsafe_code)]

/// Why a value left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Its deadline had passed, whatever took it out: the sweep, or an insert, a removal or a load
    /// that came before the sweep. Its key may have a new value by the time the listener is called.
    Expired,
    /// Another value was inserted for its key.
    Replaced,
    /// It was removed, or the cache was cleared.
    Removed,
    /// The cache was full, and it gave way to another; a new value that the policy does not let in
    /// leaves at once.
    Size,
}

/// A value that has left the cache, with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted<K, V> {
    /// The key.
    pub key: K,
    /// The value. Clones of it may still be with readers.
    pub value: V,
    /// Why it left.
    pub cause: Cause,
}

/// Is told of each value that leaves.
pub(super) type Listener<K, V> = Box<dyn Fn(Evicted<K, V>) + Send + Sync>;
