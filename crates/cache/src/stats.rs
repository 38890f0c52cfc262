//! [`CacheStats`] and the counters behind it. Each of up to 64 threads has a row of counters that
//! it alone writes, so that counting is a plain load and store.

#![forbid(unsafe_code)]

use crate::row::{self, ROWS};
use crossbeam_utils::CachePadded;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The counters of a cache since its creation.
///
/// # Examples
///
/// The share of reads that needed no load:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_cache::Cache;
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
    /// Reads that found a value or received one from another caller's load.
    pub hits: u64,
    /// Reads that found no live value or loaded the next value ahead, and those that waited in vain
    /// for another caller's load.
    pub misses: u64,
    /// Loads that began.
    pub loads: u64,
    /// Loads that returned a value or found it unchanged. The others failed, panicked, or are still
    /// running.
    pub loaded: u64,
    /// Entries that left the cache because their deadline had passed.
    pub expired: u64,
    /// Entries that were evicted because the cache was full.
    pub evicted: u64,
}

/// The counted events.
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
type Row = CachePadded<[AtomicU64; KINDS]>;

/// The counters of a cache.
#[derive(Debug)]
pub(super) struct Counters {
    /// One row for each thread that [owns](row::current) its index.
    own: Box<[Row; ROWS]>,
    /// The row of all other threads.
    shared: Row,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self { own: Box::new(std::array::from_fn(|_| Row::default())), shared: Row::default() }
    }

    pub(super) fn add(&self, count: Count) {
        // Relaxed, as everywhere in this file, because these are statistics. A row passes from one
        // thread to the next under a lock, so the next owner continues from the previous one's
        // counts.
        match row::current() {
            Some(row) => {
                let counter = &self.own[row][count as usize];
                counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
            }
            None => {
                self.shared[count as usize].fetch_add(1, Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> CacheStats {
        let sum = |count: Count| {
            let rows = self.own.iter().chain([&self.shared]);
            rows.map(|row| row[count as usize].load(Relaxed)).sum()
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

#[cfg(test)]
mod tests {
    use super::{Count, Counters, ROWS};
    use std::sync::Barrier;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about threads")]
    fn no_count_is_lost_of_more_threads_than_have_their_own() {
        const THREADS: usize = ROWS + 16;
        let (counters, all_alive) = (Counters::new(), Barrier::new(THREADS));
        let counts = || {
            counters.add(Count::Hit);
            all_alive.wait();
            (1..10_000).for_each(|_| counters.add(Count::Hit));
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(counts);
            }
        });
        assert_eq!(counters.read().hits, THREADS as u64 * 10_000);
    }
}
