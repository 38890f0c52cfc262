//! The errors of a cache. Each says what was wrong and what is allowed; a refused value comes back.

#![forbid(unsafe_code)]

use crate::{BuildError, Refusal, Refused};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a value was refused.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::cache::{Cache, CacheRefusal};
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
    /// The wheel refused the value's timer: it is closed, or at its capacity; or its sweeper is so
    /// late that the time to live is [beyond its range](crate::BeyondRange).
    Wheel(Refusal),
    /// The key has a value, and the new one was to be [inserted](super::Cache::insert_if_absent)
    /// only if it had none.
    Present,
}

impl fmt::Display for CacheRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheRefusal::TimeToLive => f.write_str(NO_TIME_TO_LIVE),
            CacheRefusal::Wheel(refusal) => refusal.fmt(f),
            CacheRefusal::Present => f.write_str("the key has a value that has not expired"),
        }
    }
}

impl Error for CacheRefusal {}

const NO_TIME_TO_LIVE: &str = "a time to live of zero was asked for; more than that is allowed";

/// Why [`get_or_load`](super::Cache::get_or_load) gave no value.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::cache::{Cache, LoadError};
///
/// let cache = Cache::<String, u16>::builder(Duration::from_secs(60));
/// let cache = cache.spawn(Builder::new().driver())?;
/// match cache.get_or_load("port", || "none".parse()) {
///     Ok(port) => println!("port {port}"),
///     Err(LoadError::Failed(error)) => {
///         assert_eq!(error.to_string(), "invalid digit found in string");
///     }
///     Err(error) => eprintln!("{error}"), // refused, or the load of another thread panicked
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError<V, E> {
    /// The load failed with this error, which its caller shares with those who waited for it.
    Failed(Arc<E>),
    /// The load gave a value, and that was refused. Those who waited for it have a clone each.
    Refused(Refused<CacheRefusal, V>),
    /// Another caller's load of the key, for which this call waited, panicked. The panic itself
    /// went on to that caller.
    Panicked,
}

impl<V, E: fmt::Display> fmt::Display for LoadError<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Failed(error) => write!(f, "the load failed: {error}"),
            LoadError::Refused(refused) => refused.fmt(f),
            LoadError::Panicked => f.write_str("the load, by another caller, panicked"),
        }
    }
}

impl<V: fmt::Debug, E: Error + 'static> Error for LoadError<V, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            LoadError::Failed(error) => Some(&**error),
            LoadError::Refused(_) | LoadError::Panicked => None,
        }
    }
}

/// Why a cache could not be built.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::cache::{Cache, CacheBuildError};
///
/// let wide = Cache::<u32, u32>::builder(Duration::from_secs(60)).spread(80);
/// let error = wide.spawn(Builder::new().driver()).unwrap_err();
/// assert!(matches!(error, CacheBuildError::Spread { asked: 80, most: 50 }));
/// assert_eq!(error.to_string(), "a spread of 80 % was asked for; 0 to 50 is allowed");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum CacheBuildError {
    /// The default time to live is zero.
    TimeToLive,
    /// The time to idle is zero.
    TimeToIdle,
    /// The time in which entries are [refreshed ahead](super::CacheBuilder::refresh_ahead) is zero,
    /// or not below the shortest time that an entry lives by default.
    RefreshAhead {
        /// The time to live, less its spread.
        below: Duration,
    },
    /// The bound on the entries, or on their weight, is zero, or absurd.
    Capacity {
        /// What was asked for.
        asked: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// The spread is more than so many per cent.
    Spread {
        /// What was asked for.
        asked: u32,
        /// The most that is allowed.
        most: u32,
    },
    /// The driver, or its wheel, could not be built.
    Driver(BuildError),
}

impl fmt::Display for CacheBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheBuildError::TimeToLive => f.write_str(NO_TIME_TO_LIVE),
            CacheBuildError::TimeToIdle => {
                f.write_str("a time to idle of zero was asked for; more than that is allowed")
            }
            CacheBuildError::RefreshAhead { below } => {
                write!(
                    f,
                    "entries are refreshed ahead by more than zero, and less than the {below:?} that they live"
                )
            }
            CacheBuildError::Capacity { asked, most } => {
                write!(f, "a capacity of {asked} was asked for; 1 to {most} is allowed")
            }
            CacheBuildError::Spread { asked, most } => {
                write!(f, "a spread of {asked} % was asked for; 0 to {most} is allowed")
            }
            CacheBuildError::Driver(_) => f.write_str("the driver of the cache could not be built"),
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
