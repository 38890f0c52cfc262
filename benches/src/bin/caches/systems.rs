//! The caches that are compared, behind one trait.

use clap::ValueEnum;
use hdrhistogram::Histogram;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Sweeper, Wheel, WheelInstant};
use tourbillon_benches::now;

/// The type of keys and values.
pub(crate) type Number = u64;

/// Called with each value that expires.
pub(crate) type Told = Arc<dyn Fn(Number) + Send + Sync>;

pub(crate) trait Cache {
    fn get(&self, key: Number) -> Option<Number>;
    /// Inserts an entry with its own time to live, if the cache supports that.
    fn insert(&self, key: Number, value: Number, ttl: Duration);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// tourbillon's.
    Tourbillon,
    /// tourbillon's, with a time to idle.
    TourbillonIdle,
    /// moka, with a time to live for each entry.
    Moka,
    /// moka, with a time to idle as well.
    MokaIdle,
    /// quick_cache with a check of a deadline for each value, which is the least that a cache with
    /// expiry needs.
    QuickCacheLooks,
    /// quick_cache, where nothing expires.
    QuickCache,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] = [
        Kind::Tourbillon,
        Kind::TourbillonIdle,
        Kind::Moka,
        Kind::MokaIdle,
        Kind::QuickCacheLooks,
        Kind::QuickCache,
    ];

    /// Creates a cache with room for `room` entries.
    pub(crate) fn build(self, room: usize, told: Option<Told>) -> Box<dyn Cache> {
        let hour = Duration::from_secs(3600);
        match self {
            Kind::Tourbillon | Kind::TourbillonIdle => {
                let mut builder = tourbillon_cache::Cache::builder(hour).capacity(room);
                if self == Kind::TourbillonIdle {
                    builder = builder.time_to_idle(hour / 2);
                }
                if let Some(told) = told {
                    builder = builder.listener(move |gone| told(gone.value));
                }
                Box::new(builder.spawn(Builder::new().driver()).expect("the bounds are in range"))
            }
            Kind::Moka | Kind::MokaIdle => {
                let mut builder = moka::sync::Cache::builder().max_capacity(room as u64);
                builder = builder.expire_after(Lives);
                if self == Kind::MokaIdle {
                    builder = builder.time_to_idle(hour / 2);
                }
                if let Some(told) = told {
                    builder = builder.eviction_listener(move |_, (value, _), _| told(value));
                }
                Box::new(builder.build())
            }
            Kind::QuickCacheLooks => {
                let (wheel, sweeper) = Builder::new().build().expect("the defaults are in range");
                let until = wheel.wheel_instant_after(hour);
                let cache = quick_cache::sync::Cache::new(room);
                Box::new(Looks { cache, wheel, until, _sweeper: sweeper })
            }
            Kind::QuickCache => Box::new(quick_cache::sync::Cache::<Number, Number>::new(room)),
        }
    }

    /// Returns `true` if entries expire by themselves and a listener is called.
    pub(crate) fn tells(self) -> bool {
        matches!(self, Kind::Tourbillon | Kind::Moka)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Tourbillon => "tourbillon",
            Kind::TourbillonIdle => "tourbillon, time to idle",
            Kind::Moka => "moka",
            Kind::MokaIdle => "moka, time to idle",
            Kind::QuickCacheLooks => "quick_cache, and a look",
            Kind::QuickCache => "quick_cache",
        })
    }
}

impl Cache for tourbillon_cache::Cache<Number, Number> {
    fn get(&self, key: Number) -> Option<Number> {
        self.get(&key)
    }

    fn insert(&self, key: Number, value: Number, ttl: Duration) {
        self.insert_with_ttl(key, value, ttl).expect("the wheel is open");
    }
}

/// quick_cache, and a wheel that checks deadlines.
struct Looks {
    cache: quick_cache::sync::Cache<Number, Number>,
    wheel: Wheel<()>,
    until: WheelInstant,
    /// Its drop would close the wheel.
    _sweeper: Sweeper<()>,
}

impl Cache for Looks {
    fn get(&self, key: Number) -> Option<Number> {
        self.cache.get(&key).filter(|_| !self.wheel.has_passed(self.until))
    }

    fn insert(&self, key: Number, value: Number, _ttl: Duration) {
        self.cache.insert(key, value);
    }
}

/// Gives each entry the time to live that is stored in it.
struct Lives;

impl moka::Expiry<Number, (Number, Duration)> for Lives {
    fn expire_after_create(
        &self,
        _: &Number,
        value: &(Number, Duration),
        _: Instant,
    ) -> Option<Duration> {
        Some(value.1)
    }

    fn expire_after_update(
        &self,
        _: &Number,
        value: &(Number, Duration),
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(value.1)
    }
}

impl Cache for moka::sync::Cache<Number, (Number, Duration)> {
    fn get(&self, key: Number) -> Option<Number> {
        self.get(&key).map(|(value, _)| value)
    }

    fn insert(&self, key: Number, value: Number, ttl: Duration) {
        self.insert(key, (value, ttl));
    }
}

impl Cache for quick_cache::sync::Cache<Number, Number> {
    fn get(&self, key: Number) -> Option<Number> {
        self.get(&key)
    }

    fn insert(&self, key: Number, value: Number, _: Duration) {
        self.insert(key, value);
    }
}

/// The lateness of a cache's expiry listener in microseconds, if no thread calls the cache.
///
/// Counts the calls of the listener until `patience` after the last deadline.
pub(crate) fn lateness(kind: Kind, entries: u64, patience: Duration) -> Histogram<u64> {
    let late = Histogram::new(3).expect("three digits are allowed");
    let late = Arc::new(std::sync::Mutex::new(late));
    let (hears, start) = (Arc::clone(&late), now());
    let due = move |value: Number| start + Duration::from_micros(value);
    let told = move |value: Number| {
        let after = now().saturating_duration_since(due(value));
        let after = u64::try_from(after.as_micros()).expect("it waits for seconds");
        *hears.lock().expect("nobody panics") += after;
    };
    let cache = kind.build(1 << 20, Some(Arc::new(told)));
    for key in 0..entries {
        // Due within half a second, a second from now.
        let value = 1_000_000 + key * 500_000 / entries;
        cache.insert(key, value, due(value).saturating_duration_since(now()));
    }
    std::thread::sleep(Duration::from_millis(1500).saturating_sub(start.elapsed()) + patience);
    let late = late.lock().expect("nobody panics").clone();
    drop(cache);
    late
}
