//! [`Loaded`]: the result of a load, and how long it is kept.

#![forbid(unsafe_code)]

use std::time::Duration;

/// The result of a load: a value, and how long the cache is to keep it.
///
/// It is converted [`From`] a value, which is kept for the cache's time to live, or from a pair of
/// a value and its own time to live. A load may return any of the three. A value that is not to be
/// kept is returned only to the callers of that load. A load ahead of the present value's end
/// ([`refresh_ahead`](super::CacheBuilder::refresh_ahead)) may also report that the value is
/// [unchanged](Self::unchanged).
///
/// # Examples
///
/// A response that states how long it may be cached, if at all:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_cache::{Cache, Loaded};
///
/// fn fetch(max_age: u64) -> Result<Loaded<String>, std::io::Error> {
///     let page = String::from("a page");
///     Ok(match max_age {
///         0 => Loaded::uncached(page),
///         seconds => Loaded::from((page, Duration::from_secs(seconds))),
///     })
/// }
///
/// let pages = Cache::<String, String>::builder(Duration::from_secs(60));
/// let pages = pages.spawn(Builder::new().driver())?;
/// assert_eq!(pages.get_or_load("/now", || fetch(0))?, "a page");
/// assert_eq!(pages.get_or_load("/", || fetch(3600))?, "a page");
/// assert!(!pages.contains("/now") && pages.contains("/"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded<V> {
    /// `None` if the present value is unchanged.
    pub(super) value: Option<V>,
    /// `None` is the cache's own. With a time of zero the value is not kept.
    pub(super) ttl: Option<Duration>,
}

impl<V> Loaded<V> {
    /// Creates a value that is returned to the callers and not kept.
    #[must_use]
    pub fn uncached(value: V) -> Self {
        Self { value: Some(value), ttl: Some(Duration::ZERO) }
    }

    /// Reports that the present value is still the right one, as HTTP's status 304 does. The value
    /// stays, and the cache's time to live begins anew. The listener is not called.
    ///
    /// If the key has no value any more because it has expired or was removed while the load ran,
    /// or never had one, the load fails with [`LoadError::Unchanged`](super::LoadError::Unchanged).
    /// Callers that wait for the load then run their own loads. If another value was inserted
    /// meanwhile, it stays as it is and is returned.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_cache::{Cache, Loaded};
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// #[derive(Clone)]
    /// struct Page {
    ///     etag: &'static str,
    /// }
    ///
    /// /// Sends the tag as `If-None-Match`.
    /// fn fetch(etag: Option<&str>) -> Result<Loaded<Page>, std::io::Error> {
    ///     let current = Page { etag: "v1" };
    ///     let is_unchanged = etag == Some(current.etag);
    ///     Ok(if is_unchanged { Loaded::unchanged() } else { Loaded::from(current) })
    /// }
    ///
    /// let minute = Duration::from_secs(60);
    /// let clock = ManualClock::new();
    /// let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let pages = Cache::<String, Page>::builder(2 * minute).refresh_ahead(minute).build(wheel)?;
    /// let page = pages.get_or_load("/", || fetch(None))?;
    /// clock.advance(minute);
    /// if let Some(refresh) = pages.try_refresh("/") {
    ///     refresh.load(|| fetch(Some(page.etag)))?;
    /// }
    /// clock.advance(minute);
    /// assert!(pages.contains("/"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn unchanged() -> Self {
        Self { value: None, ttl: None }
    }

    /// Reports that the present value is [unchanged](Self::unchanged) and begins a time to live of
    /// its own. With a time of zero, the value keeps its previous one.
    #[must_use]
    pub fn unchanged_with_ttl(ttl: Duration) -> Self {
        Self { value: None, ttl: Some(ttl) }
    }
}

/// Keeps the value for the cache's time to live.
impl<V> From<V> for Loaded<V> {
    fn from(value: V) -> Self {
        Self { value: Some(value), ttl: None }
    }
}

/// Keeps the value for the given time, and not at all if that is zero. The jitter applies.
impl<V> From<(V, Duration)> for Loaded<V> {
    fn from((value, ttl): (V, Duration)) -> Self {
        Self { value: Some(value), ttl: Some(ttl) }
    }
}
