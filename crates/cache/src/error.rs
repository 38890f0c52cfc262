//! The errors of a cache. Each message says what is wrong and what is allowed. A refused value is
//! returned.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tourbillon::{BuildError, Refusal};

/// The reason why a value was refused.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_cache::{Cache, CacheRefusal};
/// use tourbillon::{Builder, Refusal};
///
/// let cache = Cache::builder(Duration::from_secs(60)).spawn(Builder::new().driver())?;
/// let refused = cache.insert_with_ttl("token", 7, Duration::ZERO).unwrap_err();
/// assert_eq!(refused.reason, CacheRefusal::TimeToLive);
/// cache.shutdown();
/// let refused = cache.insert("token", 7).unwrap_err();
/// assert_eq!(refused.reason, CacheRefusal::Wheel(Refusal::Closed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheRefusal {
    /// The time to live was zero.
    TimeToLive,
    /// The wheel refused the value's timer because it is closed or at its capacity, or because its
    /// sweeper is so late that the time to live is [beyond its range](tourbillon::BeyondRange).
    Wheel(Refusal),
    /// The key has a value, and the new one was to be [inserted](super::Cache::insert_if_absent)
    /// only if it had none.
    Present,
    /// The key has no value, and the new one was to
    /// [replace](super::Cache::replace_if_present) the present one.
    Absent,
}

impl fmt::Display for CacheRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheRefusal::TimeToLive => f.write_str(NO_TIME_TO_LIVE),
            CacheRefusal::Wheel(refusal) => refusal.fmt(f),
            CacheRefusal::Present => f.write_str("the key has a value that has not expired"),
            CacheRefusal::Absent => f.write_str("the key has no value to replace"),
        }
    }
}

impl Error for CacheRefusal {}

const NO_TIME_TO_LIVE: &str = "the time to live must not be zero";

/// The reason why a load returned no value. `E` is the error type of the load.
///
/// `LoadError<E>` implements [`Error`] for every `E` that implements `Display` and `Debug`. The `?`
/// operator can therefore convert it to `Box<dyn Error + Send + Sync>` and similar types, even if
/// `E` is that type itself. The message includes the message of the load's error, which is
/// therefore not returned by [`source`](Error::source).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_cache::{Cache, LoadError};
///
/// let cache = Cache::<String, u16>::builder(Duration::from_secs(60));
/// let cache = cache.spawn(Builder::new().driver())?;
/// match cache.get_or_load("port", || "none".parse::<u16>()) {
///     Ok(port) => println!("port {port}"),
///     Err(LoadError::Failed(error)) => {
///         assert_eq!(error.to_string(), "invalid digit found in string");
///     }
///     Err(error) => eprintln!("{error}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With `?`:
///
/// ```
/// # use std::time::Duration;
/// # use tourbillon::Builder;
/// # use tourbillon_cache::Cache;
/// type Failure = Box<dyn std::error::Error + Send + Sync>;
///
/// fn from_the_store(key: &str) -> Result<u64, Failure> {
///     Ok(key.parse()?)
/// }
///
/// fn value(cache: &Cache<String, u64>, key: &str) -> Result<u64, Failure> {
///     Ok(cache.get_or_load(key, || from_the_store(key))?)
/// }
///
/// let cache = Cache::builder(Duration::from_secs(60)).spawn(Builder::new().driver())?;
/// assert_eq!(value(&cache, "7")?, 7);
/// let failure = value(&cache, "seven").unwrap_err();
/// assert_eq!(failure.to_string(), "the load failed: invalid digit found in string");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError<E> {
    /// The load failed with this error, which is shared by all callers that waited for it.
    Failed(Arc<E>),
    /// The load requested its own key on the same thread.
    Recursive,
    /// The load that this call [shares](super::Cache::get_or_load_shared) panicked while another
    /// caller polled it. The panic propagated to that caller.
    Panicked,
    /// The load reported that the present value is [unchanged](super::Loaded::unchanged), but the
    /// key has none, or none any more. Load it unconditionally.
    Unchanged,
}

impl<E> Clone for LoadError<E> {
    fn clone(&self) -> Self {
        match self {
            LoadError::Failed(error) => LoadError::Failed(Arc::clone(error)),
            LoadError::Recursive => LoadError::Recursive,
            LoadError::Panicked => LoadError::Panicked,
            LoadError::Unchanged => LoadError::Unchanged,
        }
    }
}

impl<E: fmt::Display> fmt::Display for LoadError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Failed(error) => {
                f.write_str("the load failed: ")?;
                // With the formatter's flags, because some errors use them to show their sources.
                error.fmt(f)
            }
            LoadError::Recursive => {
                f.write_str("the load of a key requested that key from the cache")
            }
            LoadError::Panicked => f.write_str("the load panicked while another caller polled it"),
            LoadError::Unchanged => {
                f.write_str("the load reported an unchanged value, but the key has no value")
            }
        }
    }
}

impl<E: fmt::Debug + fmt::Display> Error for LoadError<E> {}

/// The reason why a cache could not be built.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_cache::{Cache, CacheBuildError};
///
/// let wide = Cache::<u32, u32>::builder(Duration::from_secs(60)).jitter(80);
/// let error = wide.spawn(Builder::new().driver()).unwrap_err();
/// assert!(matches!(error, CacheBuildError::Jitter { asked: 80, most: 50 }));
/// assert_eq!(error.to_string(), "invalid jitter 80 %: must be between 0 and 50");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum CacheBuildError {
    /// The default time to live is zero.
    TimeToLive,
    /// The time to idle is zero.
    TimeToIdle,
    /// The [refresh-ahead](super::CacheBuilder::refresh_ahead) window is zero, or not shorter than
    /// the shortest default time to live.
    RefreshAhead {
        /// The time to live, less its jitter.
        below: Duration,
    },
    /// The maximum number or weight of the entries is zero or too large.
    Capacity {
        /// The requested value.
        asked: usize,
        /// The largest allowed value.
        most: usize,
    },
    /// The jitter is out of its range.
    Jitter {
        /// The requested value.
        asked: u32,
        /// The largest allowed value.
        most: u32,
    },
    /// The driver, or its wheel, could not be built.
    Driver(BuildError),
}

impl fmt::Display for CacheBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheBuildError::TimeToLive => f.write_str(NO_TIME_TO_LIVE),
            CacheBuildError::TimeToIdle => f.write_str("the time to idle must not be zero"),
            CacheBuildError::RefreshAhead { below } => {
                write!(
                    f,
                    "invalid refresh-ahead window: must be more than zero and less than {below:?}"
                )
            }
            CacheBuildError::Capacity { asked, most } => {
                write!(f, "invalid capacity {asked}: must be between 1 and {most}")
            }
            CacheBuildError::Jitter { asked, most } => {
                write!(f, "invalid jitter {asked} %: must be between 0 and {most}")
            }
            CacheBuildError::Driver(_) => f.write_str("could not build the driver of the cache"),
        }
    }
}

impl Error for CacheBuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CacheBuildError::Driver(source) => Some(source),
            _ => None,
        }
    }
}
