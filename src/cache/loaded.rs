//! [`Loaded`]: what a load gives, and for how long it is kept.

#![forbid(unsafe_code)]

use std::time::Duration;

/// What a load gives: a value, and for how long the cache is to keep it.
///
/// It is made [`From`] a value, which is kept for the cache's time to live, and from a value with a
/// time to live; a load may return any of the three. What is not to be kept is returned to the
/// callers of the load alone.
///
/// # Examples
///
/// An answer that says how long it holds, or that it does not:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::cache::{Cache, Loaded};
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
/// assert_eq!(pages.get_or_load_with_ttl("/now", || fetch(0))?, "a page");
/// assert_eq!(pages.get_or_load_with_ttl("/", || fetch(3600))?, "a page");
/// assert!(!pages.contains("/now") && pages.contains("/"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded<V> {
    pub(super) value: V,
    /// The cache's own, if there is none. It is not kept for a time of zero.
    pub(super) ttl: Option<Duration>,
}

impl<V> Loaded<V> {
    /// A value that is returned and not kept.
    #[must_use]
    pub fn uncached(value: V) -> Self {
        Self { value, ttl: Some(Duration::ZERO) }
    }
}

/// It is kept for the cache's time to live.
impl<V> From<V> for Loaded<V> {
    fn from(value: V) -> Self {
        Self { value, ttl: None }
    }
}

/// It is kept for this time; zero: it is not kept. The spread applies to it, too.
impl<V> From<(V, Duration)> for Loaded<V> {
    fn from((value, ttl): (V, Duration)) -> Self {
        Self { value, ttl: Some(ttl) }
    }
}
