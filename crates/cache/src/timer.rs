//! [`CacheTimer`]: the values in the wheel of a cache.

#![forbid(unsafe_code)]

use std::fmt;

/// The value of a timer in the wheel of a cache. Its content is private to the cache.
///
/// # Examples
///
/// One iteration of an event loop that sweeps for its cache:
///
/// ```
/// use std::time::{Duration, Instant};
/// use tourbillon_cache::{Cache, CacheTimer};
/// use tourbillon::{Builder, ManualClock, Sweeper};
///
/// type Sessions = Cache<u32, String>;
/// fn turn(sweeper: &mut Sweeper<CacheTimer<u32>>, sessions: &Sessions) -> Option<Instant> {
///     sweeper.sweep(|timer| sessions.fire(timer)).next_deadline
/// }
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let sessions = Cache::builder(Duration::from_secs(60)).build(wheel)?;
/// sessions.insert(7, String::from("a basket"))?;
/// clock.advance(Duration::from_secs(60));
/// let _until = turn(&mut sweeper, &sessions);
/// assert!(sessions.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CacheTimer<K> {
    pub(super) key: K,
}

impl<K> fmt::Debug for CacheTimer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheTimer").finish_non_exhaustive()
    }
}
