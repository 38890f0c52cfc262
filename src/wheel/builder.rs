//! [`Builder`]: configures a wheel, checks the configuration, and builds the two halves.

#![forbid(unsafe_code)]

use crate::clock::{CachedClock, Clock, MonotonicClock};
use crate::counter;
use crate::error::BuildError;
use crate::sync::Arc;
use crate::wheel::cached_clock::{self, MAX_LAG, MAX_LAG_NANOS};
use crate::wheel::engine::{Engine, Parts};
use crate::wheel::hierarchy::geometry::Geometry;
use crate::wheel::id::TimerId;
use crate::wheel::progress::wakeup::{WakeFn, Wakeup};
use crate::wheel::shared::Shared;
use crate::wheel::sweep::Sweeper;
use crate::wheel::tick::Tick;
use crate::wheel::timeline::Timeline;
use crate::wheel::wheel::Wheel;
use std::fmt;
use std::time::{Duration, Instant};

/// Configures a wheel.
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
    start: Option<Instant>,
    term_cycles: u64,
}

const FINEST: Duration = Duration::from_micros(1);
const COARSEST: Duration = Duration::from_secs(3600);

/// The widest level that a geometry may have, in bits.
const MAX_LEVEL_BITS: u32 = 16;

impl Builder {
    /// Creates a builder for a wheel with ticks of 1 ms, as many shards as the machine has cores,
    /// no bound on the number of timers, and a [`CachedClock`].
    pub fn new() -> Self {
        Self {
            resolution: Duration::from_millis(1),
            shards: None,
            capacity: None,
            clock: None,
            waker: None,
            geometry: Geometry::default(),
            first_tick: 0,
            start: None,
            term_cycles: cached_clock::cycles(),
        }
    }

    /// Sets the length of a tick, 1 µs to 1 h. Deadlines are rounded up to it. The default is 1 ms.
    ///
    /// The range of delays is 2^37 - 2 ticks, which is 4.35 years at 1 ms and 38 hours at 1 µs, and
    /// 36 years at most.
    pub fn resolution(mut self, tick: Duration) -> Self {
        self.resolution = tick;
        self
    }

    /// Sets the number of shards, 1 to 256. Threads are spread over them. The default is the number
    /// of cores.
    ///
    /// A shard costs some memory, and the sweep only looks at the shards in which a timer is due. A
    /// wheel with one shard suits a program with many wheels, such as one for each session.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Sets the number of shards if the caller has not set one.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) fn or_shards(mut self, shards: usize) -> Self {
        self.shards = self.shards.or(Some(shards));
        self
    }

    /// Sets the shape of a wheel that is one of many, unless it has another than the default.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) fn or_small(mut self) -> Self {
        if self.geometry == Geometry::default() {
            self.geometry = Geometry::SMALL;
        }
        self
    }

    /// Sets the maximum number of armed timers, at least 1. Further inserts are refused. The
    /// default is no bound other than the 2^30 - 256 entries that a shard can address.
    ///
    /// The bound is split among the shards. With it, an insert and the end of a timer each change
    /// one word more. An insert that races with the end of other timers may be refused just after
    /// an entry became free. A `future::DelayQueue` takes a place when it is created. If another
    /// timer takes that place when the queue's sleep ends, the queue arms its next sleep beyond the
    /// bound, and so does an interval that is awaited after a refusal.
    pub fn capacity(mut self, timers: u64) -> Self {
        self.capacity = Some(timers);
        self
    }

    /// Sets the clock from which the wheel reads the time. The default is a [`CachedClock`], or a
    /// [`MonotonicClock`] for ticks finer than 1 ms.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Sets the function that a thread calls after it has armed a timer earlier than the sweeper's
    /// [`next_deadline`](Sweeper::next_deadline). It should wake the event loop, for example by a
    /// write to an event fd.
    ///
    /// The function is also called when the wheel is closed or wants upkeep, and may be called more
    /// often than needed, from any thread. It must not block or panic. It must not use a layer
    /// built on this wheel either, because that layer may hold a lock while it arms a timer. A
    /// [`Driver`](crate::Driver) replaces this function with its own.
    pub fn waker(mut self, wake: impl Fn() + Send + Sync + 'static) -> Self {
        self.waker = Some(Box::new(wake));
        self
    }

    /// Sets the shape of the wheel and its first tick. For tests of this crate.
    #[doc(hidden)]
    pub fn __shape(mut self, geometry: Geometry, first_tick: u64) -> Self {
        self.geometry = geometry;
        self.first_tick = first_tick;
        self
    }

    /// Sets the number of cycles for which a thread reuses a cached clock reading. For counts of
    /// instructions, which must not depend on time.
    #[doc(hidden)]
    pub fn __term(mut self, cycles: u64) -> Self {
        self.term_cycles = cycles;
        self
    }

    /// Sets the start of the first tick, which is the clock's reading by default. It must have
    /// passed.
    #[cfg(all(feature = "time", feature = "testing"))]
    pub(crate) fn start(mut self, start: Instant) -> Self {
        self.start = Some(start);
        self
    }

    /// Builds the two halves of a wheel. O(shards).
    ///
    /// A wheel with one shard takes some 5 KiB, and each further shard 2 KiB. Everything else is
    /// made when it is first needed. If the allocator has no memory for the wheel, the process
    /// aborts, as with the collections of the standard library. Inserts report a [lack of
    /// memory](crate::Refusal::OutOfMemory) instead.
    ///
    /// # Errors
    ///
    /// Fails if the resolution, the number of shards or the capacity is out of range. The error
    /// names the setting and its allowed range.
    pub fn build<T: Send>(self) -> Result<(Wheel<T>, Sweeper<T>), BuildError> {
        let shards = self.checked_shards()?;
        self.check(shards)?;
        let nanos = u64::try_from(self.resolution.as_nanos()).unwrap_or(u64::MAX);
        let origin = Tick(self.first_tick);
        let clock = self.clock.unwrap_or_else(|| default_clock(self.resolution));
        let cached = clock.is_cacheable() && counter::is_the_clocks();
        let max_lag = if cached { MAX_LAG } else { Duration::ZERO };
        let lag = clock.lag().saturating_add(max_lag);
        let start = self.start.unwrap_or_else(|| clock.now());
        let timeline = Timeline::new(start, origin, nanos, lag);
        let engine = Engine::new(Parts {
            shards,
            geometry: self.geometry,
            capacity: self.capacity,
            timeline,
            term_cycles: if cached { self.term_cycles } else { 0 },
            origin,
            wakeup: Wakeup::new(self.waker),
        });
        let max_lag = if cached { MAX_LAG_NANOS } else { 0 };
        let shared = Arc::new(Shared { engine, clock, max_lag });
        Ok((Wheel { shared: Arc::clone(&shared) }, Sweeper::new(shared)))
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
        let bits = 1..=MAX_LEVEL_BITS;
        let widths = bits.contains(&root_bits) && bits.contains(&level_bits);
        let height = root_bits.saturating_add(levels.saturating_mul(level_bits));
        if !widths || !bits.contains(&page_bits) || levels == 0 || height > 60 {
            return Err(BuildError::Geometry);
        }
        let most = u64::from(TimerId::INDICES - (1 << page_bits)) * shards as u64;
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
        self.shared.engine.capacity()
    }
}

/// The default clock. For ticks of 1 ms or more it is a cached one, because its lag is then small
/// compared with a tick.
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
