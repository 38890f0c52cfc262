//! [`Evicted`] and [`Cause`]: what a listener is told of a value that has left the cache.

#![forbid(unsafe_code)]

use std::time::Instant;

/// Why a value left the cache.
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
    /// Its deadline had passed, whatever took it out: the sweep, or an insert, a removal or a load
    /// that came before the sweep. Its key may have a new value by the time the listener is called.
    Expired,
    /// Another value was inserted for its key.
    Replaced,
    /// It was removed, or the cache was cleared.
    Removed,
    /// The cache was full and evicted the entry for another one, or the entry weighs more than a
    /// [part of the cache](super::CacheBuilder::capacity) can hold, or the wheel was full when the
    /// entry's timer had to be armed again after a use.
    Size,
}

/// A value that has left the cache, with its key.
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
    /// The value. Clones of it may still be with readers.
    pub value: V,
    /// Why it left.
    pub cause: Cause,
    /// Until when it was to be served; later than now unless it has [expired](Cause::Expired).
    pub deadline: Instant,
}

/// Is told of each value that leaves.
pub(super) type Listener<K, V> = Box<dyn Fn(Evicted<K, V>) + Send + Sync>;
