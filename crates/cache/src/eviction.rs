//! [`Evicted`] and [`Cause`]: an entry that has left the cache, and why.

#![forbid(unsafe_code)]

use std::time::Instant;

/// The reason why an entry left the cache.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_cache::{Cache, Cause};
///
/// let (send, causes) = mpsc::channel();
/// let cache = Cache::builder(Duration::from_secs(60))
///     .listener(move |gone| drop(send.send(gone.cause)))
///     .spawn(Builder::new().driver())?;
/// cache.insert("key", 1)?;
/// cache.insert("key", 2)?;
/// cache.remove("key");
/// assert_eq!(causes.try_iter().collect::<Vec<_>>(), [Cause::Replaced, Cause::Removed]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The entry's deadline had passed. A sweep removed it, or an insert, a removal or a load that
    /// came before the sweep. Its key may have a new value by the time the listener is called.
    Expired,
    /// Another value was inserted for its key.
    Replaced,
    /// The entry was removed, or the cache was cleared.
    Removed,
    /// The cache was full and evicted the entry for another one, or the entry weighs more than a
    /// [part of the cache](super::CacheBuilder::capacity) can hold, or the wheel was full when the
    /// entry's timer had to be armed again after a use.
    Size,
}

/// An entry that has left the cache.
///
/// # Examples
///
/// A session that ends, in virtual time:
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon_cache::{Cache, Cause, Evicted};
/// use tourbillon::{Builder, Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let (send, gone) = mpsc::channel();
/// let minute = Duration::from_secs(60);
/// let cache = Cache::builder(minute).listener(move |gone| drop(send.send(gone))).build(wheel)?;
/// cache.insert("session 7", "a basket")?;
///
/// clock.advance(minute);
/// let _ = sweeper.sweep(|timer| cache.fire(timer));
/// let Evicted { key, value, cause, deadline, .. } = gone.recv()?;
/// assert_eq!((key, value), ("session 7", "a basket"));
/// assert_eq!((cause, deadline), (Cause::Expired, clock.now()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evicted<K, V> {
    /// The key.
    pub key: K,
    /// The value. Readers may still hold clones of it.
    pub value: V,
    /// The reason why it left.
    pub cause: Cause,
    /// The deadline of the entry. It is later than now unless the entry has
    /// [expired](Cause::Expired).
    pub deadline: Instant,
}

/// The function that is called for each entry that leaves.
pub(super) type Listener<K, V> = Box<dyn Fn(Evicted<K, V>) + Send + Sync>;
