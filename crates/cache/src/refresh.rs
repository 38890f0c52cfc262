//! [`Refresh`]: the right to load a new value before the present one expires.

#![forbid(unsafe_code)]

use super::entry::CacheEntry;
use super::get_or_load::finish;
use super::load_guard::LoadGuard;
use super::stats::Count;
use super::{Cache, IntoKey, LoadError, Loaded};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone> Cache<K, V> {
    /// Returns the right to load a new value for the key if the present one is in the refresh-ahead
    /// window ([`CacheBuilder::refresh_ahead`](super::CacheBuilder::refresh_ahead)), no other
    /// caller is loading it, and no pause after a failed load is in effect. The right is given to
    /// one caller at a time. The call does not count as a use of the entry. O(1).
    ///
    /// The load can run elsewhere, while this caller serves what [`get`](Self::get) has found.
    ///
    /// # Examples
    ///
    /// No caller waits for a page that is there:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_cache::Cache;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// const LIVES: Duration = Duration::from_secs(60);
    ///
    /// /// As one would call `tokio::spawn`.
    /// fn spawn(load: impl Future<Output = ()> + Send + 'static) {
    ///     pollster::block_on(load);
    /// }
    ///
    /// fn page(pages: &Cache<String, &'static str>) -> Option<&'static str> {
    ///     let page = pages.get("/")?;
    ///     if let Some(refresh) = pages.try_refresh("/") {
    ///         spawn(async {
    ///             let load = async { Ok::<_, String>(("new", LIVES)) };
    ///             let _logged = refresh.load_async(load).await;
    ///         });
    ///     }
    ///     Some(page)
    /// }
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let pages = Cache::builder(LIVES).refresh_ahead(LIVES / 4).build(wheel)?;
    /// pages.insert(String::from("/"), "old")?;
    /// assert!(pages.try_refresh("/").is_none());
    /// clock.advance(LIVES - LIVES / 4);
    /// assert_eq!((page(&pages), page(&pages)), (Some("old"), Some("new")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_refresh<'q, Q>(&self, key: &'q Q) -> Option<Refresh<K, V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
        &'q Q: IntoKey<K>,
    {
        let shared = &*self.shared;
        shared.ahead?;
        let ages = |entry: &CacheEntry<V>| shared.is_live_and_ages(entry);
        let (key, load) = shared.map.load_ahead(key, ages, || key.into_key())?;
        shared.counters.add(Count::Load);
        Some(Refresh { guard: LoadGuard::new(Arc::clone(&self.shared), key, load) })
    }
}

/// The right to load a new value for a key before the present one expires, created by
/// [`Cache::try_refresh`].
///
/// Until it is dropped, callers that miss the key wait for its result. It keeps the cache alive.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_cache::{Cache, Refresh};
/// use tourbillon::{Builder, ManualClock};
///
/// fn reload(refresh: Refresh<u32, String>) {
///     let text = format!("page {}, again", refresh.key());
///     let _kept = refresh.load(|| Ok::<_, ()>((text, Duration::from_secs(60))));
/// }
///
/// let clock = ManualClock::new();
/// let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let pages = Cache::builder(Duration::from_secs(60)).refresh_ahead(Duration::from_secs(15));
/// let pages = pages.build(wheel)?;
/// pages.insert(7, String::from("page 7"))?;
/// clock.advance(Duration::from_secs(50));
/// pages.try_refresh(&7).map(reload);
/// assert_eq!(pages.get(&7).as_deref(), Some("page 7, again"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "callers that miss the key wait for it"]
pub struct Refresh<K: Eq + Hash + Clone + Send, V: Clone> {
    guard: LoadGuard<K, V>,
}

impl<K: Eq + Hash + Clone + Send, V: Clone> Refresh<K, V> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        self.guard.key()
    }

    /// Runs the load and replaces the present value with its result, unless the key was inserted or
    /// removed meanwhile. The load may determine how long its value is kept, or report that the
    /// present one is [unchanged](Loaded::unchanged).
    ///
    /// A value that should not or cannot be kept is returned, and the present value stays.
    ///
    /// # Errors
    ///
    /// Returns the error of the load, or [`LoadError::Unchanged`]. The present value stays.
    ///
    /// # Examples
    ///
    /// On a thread of a pool:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_cache::Cache;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let minute = Duration::from_secs(60);
    /// let clock = ManualClock::new();
    /// let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let rates = Cache::builder(2 * minute).refresh_ahead(minute).build(wheel)?;
    /// rates.insert("EUR", 107)?;
    /// clock.advance(minute);
    /// if let Some(refresh) = rates.try_refresh(&"EUR") {
    ///     rayon::scope(|pool| pool.spawn(|_| {
    ///         let _logged = refresh.load(|| Ok::<_, std::io::Error>((108, 2 * minute)));
    ///     }));
    /// }
    /// assert_eq!(rates.get(&"EUR"), Some(108));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load<T: Into<Loaded<V>>, E: Send + Sync + 'static>(
        self,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<V, LoadError<E>> {
        let loaded = self.guard.run(load);
        finish(self.guard, loaded)
    }

    /// Runs the load like [`load`](Self::load), for tasks. If the future is dropped before its end,
    /// one of the waiting callers loads instead.
    ///
    /// # Errors
    ///
    /// Fails like [`load`](Self::load).
    ///
    /// # Examples
    ///
    /// See [`Cache::try_refresh`].
    pub async fn load_async<T: Into<Loaded<V>>, E: Send + Sync + 'static>(
        self,
        load: impl Future<Output = Result<T, E>>,
    ) -> Result<V, LoadError<E>> {
        let loaded = self.guard.run_async(pin!(load)).await;
        finish(self.guard, loaded)
    }
}

impl<K: Eq + Hash + Clone + Send + fmt::Debug, V: Clone> fmt::Debug for Refresh<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refresh").field("key", self.guard.key()).finish_non_exhaustive()
    }
}
