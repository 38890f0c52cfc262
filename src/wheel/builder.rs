//! [`Builder`]: says what a wheel should be like, checks it, and builds the two halves.

#![forbid(unsafe_code)]

use crate::clock::{CachedClock, Clock, MonotonicClock};
use crate::counter;
use crate::error::BuildError;
use crate::sync::Arc;
use crate::wheel::cached_clock::{self, MAX_LAG};
use crate::wheel::deadline::Inner;
use crate::wheel::engine::{Engine, Parts};
use crate::wheel::hierarchy::geometry::Geometry;
use crate::wheel::id::TimerId;
use crate::wheel::progress::wakeup::{WakeFn, Wakeup};
use crate::wheel::sweep::Sweeper;
use crate::wheel::tick::{Tick, Timeline};
use crate::wheel::wheel::Wheel;
use std::fmt;
use std::time::Duration;

/// Says what a wheel should be like.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{BuildError, Builder};
///
/// let (wheel, sweeper) = Builder::new()
///     .resolution(Duration::from_millis(10))
///     .shards(4)
///     .capacity(1_000_000)
///     .build::<String>()?;
/// # drop((wheel, sweeper));
///
/// let refused = Builder::new().resolution(Duration::ZERO).build::<String>();
/// assert!(matches!(refused, Err(BuildError::Resolution(_))));
/// # Ok::<(), BuildError>(())
/// ```
#[must_use]
pub struct Builder {
    resolution: Duration,
    shards: Option<usize>,
    capacity: Option<u64>,
    clock: Option<Box<dyn Clock>>,
    waker: Option<WakeFn>,
    geometry: Geometry,
    first_tick: u64,
    term_cycles: u64,
}

const FINEST: Duration = Duration::from_micros(1);
const COARSEST: Duration = Duration::from_secs(3600);

/// The widest level that a geometry may have.
const MOST_LEVEL_BITS: u32 = 16;

impl Builder {
    /// A wheel with ticks of 1 ms, as many shards as the machine has cores, no bound on its
    /// timers, and a [`CachedClock`].
    pub fn new() -> Self {
        Self {
            resolution: Duration::from_millis(1),
            shards: None,
            capacity: None,
            clock: None,
            waker: None,
            geometry: Geometry::default(),
            first_tick: 0,
            term_cycles: cached_clock::cycles(),
        }
    }

    /// The length of a tick, 1 µs to 1 h: deadlines round up to it. 1 ms by default.
    ///
    /// The range of delays is 2^37 - 2 ticks: 4.35 years at 1 ms, 38 hours at 1 µs.
    pub fn resolution(mut self, tick: Duration) -> Self {
        self.resolution = tick;
        self
    }

    /// How many shards the wheel has, 1 to 256. Threads spread over them; as many as the threads
    /// that arm timers, or as the cores (the default), is a good number.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// That many shards where none were asked for.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) fn or_shards(mut self, shards: usize) -> Self {
        self.shards = self.shards.or(Some(shards));
        self
    }

    /// The most timers that may be armed at a time, at least 1; further inserts are refused.
    /// Unbounded by default, but for the 2^30 - 256 timers that a shard can tell apart. The bound
    /// is split among the shards: an insert that looks while timers end may be refused a moment
    /// after a place has become free. If no place is left, a `future::DelayQueue` arms the one
    /// sleep by which it waits beyond the bound, as does an interval that is awaited after a
    /// refusal.
    pub fn capacity(mut self, timers: u64) -> Self {
        self.capacity = Some(timers);
        self
    }

    /// Where the wheel reads the time. By default a [`CachedClock`], and for ticks finer than 1 ms
    /// a [`MonotonicClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Called by the thread that arms a timer earlier than the sweeper's
    /// [`next_deadline`](Sweeper::next_deadline), so that an event loop can wake up: write to its
    /// event fd, or wake its poll. It is called also when the wheel is closed or wants upkeep, may
    /// be called more often than needed, from any thread, and must neither block nor panic, nor use
    /// a layer of this wheel's, which may have locked what it arms a timer for. A
    /// [`Driver`](crate::Driver) brings its own and replaces this one.
    pub fn waker(mut self, wake: impl Fn() + Send + Sync + 'static) -> Self {
        self.waker = Some(Box::new(wake));
        self
    }

    /// The shape of the wheel, and its first tick: for tests of this crate.
    #[doc(hidden)]
    pub fn __shape(mut self, geometry: Geometry, first_tick: u64) -> Self {
        self.geometry = geometry;
        self.first_tick = first_tick;
        self
    }

    /// How many cycles a reading of the clock is used for, by threads that cache their readings:
    /// for counts of instructions, which time must not change.
    #[doc(hidden)]
    pub fn __term(mut self, cycles: u64) -> Self {
        self.term_cycles = cycles;
        self
    }

    /// Builds the two halves of a wheel. O(shards).
    ///
    /// An empty wheel takes some 80 KiB with one shard, and 45 KiB for each further shard. If the
    /// allocator has no memory for that, the process aborts, as with the collections of the
    /// standard library. Inserts report a [lack of memory](crate::Refusal::OutOfMemory) instead.
    ///
    /// # Errors
    ///
    /// Resolution, shards or capacity are out of their ranges; the error tells which and what is
    /// allowed.
    pub fn build<T: Send>(self) -> Result<(Wheel<T>, Sweeper<T>), BuildError> {
        let shards = self.checked_shards()?;
        self.check(shards)?;
        let nanos = u64::try_from(self.resolution.as_nanos()).unwrap_or(u64::MAX);
        let origin = Tick(self.first_tick);
        let clock = self.clock.unwrap_or_else(|| default_clock(self.resolution));
        let cached = clock.is_cacheable() && counter::is_the_clocks();
        let max_lag = if cached { MAX_LAG } else { Duration::ZERO };
        let lag = clock.lag().saturating_add(max_lag);
        let engine = Engine::new(Parts {
            shards,
            geometry: self.geometry,
            capacity: self.capacity,
            timeline: Timeline::new(clock.now(), origin, nanos, lag),
            term_cycles: if cached { self.term_cycles } else { 0 },
            origin,
            wakeup: Wakeup::new(self.waker),
        });
        let inner = Arc::new(Inner { engine, clock, cached });
        Ok((Wheel { inner: Arc::clone(&inner) }, Sweeper::new(inner)))
    }

    fn checked_shards(&self) -> Result<usize, BuildError> {
        match self.shards {
            Some(shards) if (1..=TimerId::SHARDS).contains(&shards) => Ok(shards),
            Some(shards) => Err(BuildError::Shards(shards)),
            None => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                Ok(cores.min(TimerId::SHARDS))
            }
        }
    }

    fn check(&self, shards: usize) -> Result<(), BuildError> {
        if !(FINEST..=COARSEST).contains(&self.resolution) {
            return Err(BuildError::Resolution(self.resolution));
        }
        let Geometry { root_bits, level_bits, levels, page_bits } = self.geometry;
        let bits = 1..=MOST_LEVEL_BITS;
        let widths = bits.contains(&root_bits) && bits.contains(&level_bits);
        let height = root_bits.saturating_add(levels.saturating_mul(level_bits));
        if !widths || !bits.contains(&page_bits) || levels == 0 || height > 60 {
            return Err(BuildError::Geometry);
        }
        let most = (TimerId::INDICES - (1 << page_bits)) * shards as u64;
        match self.capacity {
            Some(asked) if !(1..=most).contains(&asked) => {
                Err(BuildError::Capacity { asked, most })
            }
            _ => Ok(()),
        }
    }
}

impl<T: Send> Wheel<T> {
    /// Returns the maximum number of armed timers, as set by
    /// [`Builder::capacity`](crate::Builder::capacity), or `None` for a wheel without a bound.
    /// O(1).
    ///
    /// # Examples
    ///
    /// ```
    /// let (wheel, _sweeper) = tourbillon::Builder::new().capacity(64).build::<u64>()?;
    /// assert_eq!(wheel.capacity(), Some(64));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn capacity(&self) -> Option<u64> {
        self.inner.engine.capacity()
    }
}

/// The clock of a wheel that was given none: the lag of a cached one is small beside a tick of 1
/// ms.
fn default_clock(resolution: Duration) -> Box<dyn Clock> {
    if resolution < Duration::from_millis(1) {
        return Box::new(MonotonicClock);
    }
    Box::new(CachedClock)
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("resolution", &self.resolution)
            .field("shards", &self.shards)
            .field("capacity", &self.capacity)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
