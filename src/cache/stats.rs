//! [`CacheStats`], what a cache counts, and the counters behind it: a stripe for each of some
//! threads, so that readers do not write to one word.

#![forbid(unsafe_code)]

use crossbeam_utils::CachePadded;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// What a cache has counted since it was made.
///
/// # Examples
///
/// How often the cache has spared a load:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::cache::Cache;
///
/// let cache = Cache::builder(Duration::from_secs(60)).spawn(Builder::new().driver())?;
/// for key in [7, 7, 7, 8] {
///     cache.get_or_load(&key, || Ok::<_, std::io::Error>("from the database"))?;
/// }
/// let stats = cache.stats();
/// assert_eq!((stats.loads, stats.loaded), (2, 2));
/// assert_eq!(stats.hits as f64 / (stats.hits + stats.misses) as f64, 0.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Reads that found a value, or had one from another caller's load.
    pub hits: u64,
    /// Reads that found none, or one that had expired, those included that waited for another
    /// caller's load in vain.
    pub misses: u64,
    /// Loads that began.
    pub loads: u64,
    /// Loads that gave a value; the others failed, panicked, or still run.
    pub loaded: u64,
    /// Values that left the cache because their time had passed.
    pub expired: u64,
    /// Values that gave way to others because the cache was full.
    pub evicted: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Hit,
    Miss,
    Load,
    Loaded,
    Expired,
    Evicted,
}

const KINDS: usize = 6;
const STRIPES: usize = 16;

/// The counters of a cache.
#[derive(Debug, Default)]
pub(super) struct Counters {
    stripes: Box<[CachePadded<[AtomicU64; KINDS]>; STRIPES]>,
}

thread_local! {
    /// Which stripe this thread counts in.
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: threads take turns, in whatever order.
        NEXT.fetch_add(1, Relaxed) % STRIPES
    };
}

impl Counters {
    pub(super) fn add(&self, count: Count) {
        let stripe = STRIPE.try_with(|&stripe| stripe).unwrap_or(0);
        // Relaxed: a figure.
        self.stripes[stripe][count as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> CacheStats {
        // Relaxed: figures.
        let sum = |count: Count| {
            self.stripes.iter().map(|stripe| stripe[count as usize].load(Relaxed)).sum()
        };
        CacheStats {
            hits: sum(Count::Hit),
            misses: sum(Count::Miss),
            loads: sum(Count::Load),
            loaded: sum(Count::Loaded),
            expired: sum(Count::Expired),
            evicted: sum(Count::Evicted),
        }
    }
}
