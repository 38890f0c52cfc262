//! [`Loaded`]: the result of a load, and how long it is kept.

#![forbid(unsafe_code)]

use std::time::Duration;

/// The result of a load: a value, and how long the cache is to keep it.
///
/// It is converted [`From`] a value, which is kept for the cache's time to live, or from a pair of
/// a value and its own time to live. A load may return any of the three. A value that is not to be
/// kept is returned only to the callers of that load.
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
    pub(super) value: V,
    /// `None` is the cache's own. With a time of zero the value is not kept.
    pub(super) ttl: Option<Duration>,
}

impl<V> Loaded<V> {
    /// Creates a value that is returned to the callers and not kept.
    #[must_use]
    pub fn uncached(value: V) -> Self {
        Self { value, ttl: Some(Duration::ZERO) }
    }
}

/// Keeps the value for the cache's time to live.
impl<V> From<V> for Loaded<V> {
    fn from(value: V) -> Self {
        Self { value, ttl: None }
    }
}

/// Keeps the value for the given time, and not at all if that is zero. The jitter applies.
impl<V> From<(V, Duration)> for Loaded<V> {
    fn from((value, ttl): (V, Duration)) -> Self {
        Self { value, ttl: Some(ttl) }
    }
}
