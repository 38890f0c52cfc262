//! [`UnfiredKey`]: a key that a shutdown returns.

#![forbid(unsafe_code)]

use std::time::Instant;

/// A key that was armed when its timers were shut down; returned by
/// [`KeyedTimers::shutdown`](super::KeyedTimers::shutdown).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfiredKey<K, V> {
    /// The key.
    pub key: K,
    /// The value of the key.
    pub value: V,
    /// The instant when the key would have fired, rounded up to the wheel's resolution. For a key
    /// that was already on its way to the handler, it is the time of the shutdown.
    pub deadline: Instant,
}
