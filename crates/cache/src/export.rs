//! [`CacheExporter`]: the figures of a cache for the facade `metrics`.

#![forbid(unsafe_code)]

use crate::{Cache, CacheStats};
use ::metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use std::hash::Hash;

/// Reads a figure from a snapshot.
type Figure<N> = fn(&Snapshot) -> N;

/// A counter's name, its description, and its figure.
type Total = (&'static str, &'static str, Figure<u64>);

/// A gauge's name, its description, and its figure.
type Level = (&'static str, &'static str, Figure<f64>);

/// The counters and the size of a cache.
#[derive(Debug)]
struct Snapshot {
    stats: CacheStats,
    entries: usize,
    weight: u64,
}

const TOTALS: [Total; 6] = [
    ("tourbillon_cache_hits_total", "Reads that found a value.", |s| s.stats.hits),
    ("tourbillon_cache_misses_total", "Reads that found no value.", |s| s.stats.misses),
    ("tourbillon_cache_loads_total", "Loads that began.", |s| s.stats.loads),
    ("tourbillon_cache_loaded_total", "Loads that returned a value.", |s| s.stats.loaded),
    ("tourbillon_cache_expired_total", "Values whose time had passed.", |s| s.stats.expired),
    ("tourbillon_cache_evicted_total", "Values evicted to make room.", |s| s.stats.evicted),
];

const LEVELS: [Level; 2] = [
    ("tourbillon_cache_entries", "Values in the cache.", |s| s.entries as f64),
    ("tourbillon_cache_weight", "Weight of the values in the cache.", |s| s.weight as f64),
];

/// Records the figures of a cache with the facade `metrics`.
///
/// * The counters `tourbillon_cache_hits_total`, `…_misses_total`, `…_loads_total`,
///   `…_loaded_total`, `…_expired_total` and `…_evicted_total` are the fields of [`CacheStats`].
/// * The gauge `tourbillon_cache_entries` is [`Cache::len`], and `tourbillon_cache_weight` is
///   [`Cache::weight`].
///
/// Each has the label `cache`. Nothing is recorded automatically. Call [`record`](Self::record)
/// from the handler of the scrape, or from a timer, as with `tourbillon::MetricsExporter`, which
/// records the figures of a wheel.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_cache::{Cache, CacheExporter};
/// use tourbillon::Builder;
///
/// // The program's recorder has been installed by now: its exporter for Prometheus, say.
/// let exporter = CacheExporter::new("sessions");
///
/// let cache = Cache::builder(Duration::from_secs(60)).spawn(Builder::new().driver())?;
/// cache.insert(7, "Ada")?;
/// exporter.record(&cache); // for each scrape
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CacheExporter {
    totals: [(Counter, Figure<u64>); 6],
    levels: [(Gauge, Figure<f64>); 2],
}

impl CacheExporter {
    /// Registers and describes the figures with the current recorder. A recorder that is installed
    /// later receives nothing. `cache` is the value of the label.
    ///
    /// # Examples
    ///
    /// ```
    /// let exporter = tourbillon_cache::CacheExporter::new("sessions");
    /// # drop(exporter);
    /// ```
    #[must_use]
    pub fn new(cache: impl Into<String>) -> Self {
        let cache = cache.into();
        let totals = TOTALS.map(|(name, description, value)| {
            describe_counter!(name, Unit::Count, description);
            (counter!(name, "cache" => cache.clone()), value)
        });
        let levels = LEVELS.map(|(name, description, value)| {
            describe_gauge!(name, Unit::Count, description);
            (gauge!(name, "cache" => cache.clone()), value)
        });
        Self { totals, levels }
    }

    /// Records the counters and the present size of `cache`, which must be the same cache at each
    /// call. It sums some counters and takes the lock of each part of the map twice.
    pub fn record<K, V>(&self, cache: &Cache<K, V>)
    where
        K: Eq + Hash + Clone + Send + 'static,
        V: Clone,
    {
        let (stats, entries, weight) = (cache.stats(), cache.len(), cache.weight());
        let snapshot = Snapshot { stats, entries, weight };
        for (counter, value) in &self.totals {
            counter.absolute(value(&snapshot));
        }
        for (gauge, value) in &self.levels {
            gauge.set(value(&snapshot));
        }
    }
}
