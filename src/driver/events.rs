//! The driver's events for `tracing`: its start and end, late sweeps, batches that do not end,
//! overload, panics of handlers.
//!
//! The only file that knows of that crate. Without the feature all of this is empty, and with it no
//! operation of a wheel comes here: only the tick thread, batch by batch, and who starts and stops
//! it. An event that load brings about is told at most once a second by the wheel's clock, so that
//! a server with more than it can do is not given its log to write as well; the next one says how
//! many were not told.
//!
//! **Late** is a timer that is handed over more than [`WarnLimits::late`] after its deadline, or more
//! than a tick, if that is longer: so long after it the tick thread should not have come by, unless
//! it did not get the processor, ran a slow handler itself, had very many timers to hand over, or
//! had to wait for room in flight.
//!
//! **Stuck** is a batch that has not ended [`WarnLimits::stuck`] after it was handed over, because a
//! handler blocks or the executor does not come round to it. The tick thread notes each batch
//! before it rests, and so knows until when it may rest without a look. A batch that the tick
//! thread runs itself is reported when it has ended.
//!
//! **Overloaded** is a driver from when the tick thread finds as many timers in flight as may be
//! until all that was due has been handed over. In between, each batch that ends makes room, which
//! the next one takes: that is no end. One that begins within a second of another is told when that
//! second is over, for which the tick thread wakes, or, if it is over before, with the next.

#![forbid(unsafe_code)]

#[cfg(not(feature = "tracing"))]
pub(crate) use disabled::{BatchNumber, DriverEvents, LoadMonitor};
#[cfg(feature = "tracing")]
pub(crate) use enabled::{BatchNumber, DriverEvents, LoadMonitor};

use std::time::Duration;

/// From when on the driver warns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WarnLimits {
    /// How late no timer is called late.
    pub(crate) late: Duration,
    /// How long a batch may take from the hand-over to its end.
    pub(crate) stuck: Duration,
}

impl Default for WarnLimits {
    fn default() -> Self {
        Self { late: Duration::from_millis(10), stuck: Duration::from_secs(1) }
    }
}

#[cfg(feature = "tracing")]
mod enabled {
    use crate::driver::events::WarnLimits;
    use crate::panics::{ignore_poison, quietly};
    use crate::sync::Mutex;
    use crate::wheel::{Expired, Sweeper, TimerId};
    use std::any::Any;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use tracing::{Level, debug, enabled, error, info, warn};

    const TARGET: &str = "tourbillon";

    /// Between two events of a kind that load brings about.
    const MIN_GAP: Duration = Duration::from_secs(1);

    /// Tells an event. A subscriber that panics has nobody left to tell; it must not end the tick
    /// thread.
    fn emit(event: impl FnOnce()) {
        quietly(event);
    }

    /// Tells what happens to a driver, by the name of its tick thread.
    #[derive(Clone)]
    pub(crate) struct DriverEvents {
        driver: Arc<str>,
        limits: WarnLimits,
        in_flight: Arc<Mutex<BatchesInFlight>>,
    }

    /// The batches between their hand-over and their end.
    #[derive(Default)]
    struct BatchesInFlight {
        batches: Vec<NotedBatch>,
        handed_over: u64,
        rate_limit: RateLimit,
    }

    struct NotedBatch {
        batch: BatchNumber,
        since: Instant,
        reported: bool,
    }

    /// The number of a batch that was handed over.
    #[derive(Debug, PartialEq, Eq)]
    pub(crate) struct BatchNumber(u64);

    impl DriverEvents {
        pub(crate) fn new(driver: &str, limits: WarnLimits) -> Self {
            Self { driver: driver.into(), limits, in_flight: Arc::default() }
        }

        /// Notes a batch that the tick thread is about to hand over.
        pub(crate) fn handed_over(&self, now: impl FnOnce() -> Instant) -> BatchNumber {
            let mut in_flight = ignore_poison(self.in_flight.lock());
            in_flight.handed_over += 1;
            let number = in_flight.handed_over;
            in_flight.batches.push(NotedBatch {
                batch: BatchNumber(number),
                since: now(),
                reported: false,
            });
            BatchNumber(number)
        }

        /// Strikes a batch off, and reports one that took long.
        pub(crate) fn ended(&self, batch: &BatchNumber, now: impl FnOnce() -> Instant) {
            let mut in_flight = ignore_poison(self.in_flight.lock());
            let Some(place) = in_flight.batches.iter().position(|noted| noted.batch == *batch)
            else {
                return;
            };
            let noted = in_flight.batches.swap_remove(place);
            let now = now();
            let lasted = now.saturating_duration_since(noted.since);
            if lasted < self.limits.stuck {
                return;
            }
            if noted.reported {
                drop(in_flight);
                emit(|| {
                    info!(
                        target: TARGET,
                        driver = &*self.driver,
                        ?lasted,
                        "a batch that was stuck has ended"
                    );
                });
                return;
            }
            let Ok(suppressed) = in_flight.rate_limit.admit(now) else {
                in_flight.rate_limit.suppressed += 1;
                return;
            };
            drop(in_flight);
            emit(|| {
                warn!(
                    target: TARGET,
                    driver = &*self.driver,
                    ?lasted,
                    suppressed,
                    "a batch took long"
                );
            });
        }

        pub(crate) fn started(&self, resolution: Duration, shards: usize) {
            emit(|| {
                debug!(
                    target: TARGET,
                    driver = &*self.driver,
                    ?resolution,
                    shards,
                    "the driver has started"
                );
            });
        }

        /// The `first` time that the driver was stopped: how many timers went back. Each time: how
        /// many were dropped.
        pub(crate) fn stopped(&self, first: bool, handed_back: usize, dropped: usize) {
            if first {
                emit(|| {
                    debug!(
                        target: TARGET,
                        driver = &*self.driver,
                        handed_back,
                        dropped,
                        "the driver has stopped"
                    );
                });
            }
            if dropped > 0 {
                emit(|| {
                    warn!(
                        target: TARGET,
                        driver = &*self.driver,
                        dropped,
                        "the driver was dropped with timers that had not fired"
                    );
                });
            }
        }

        pub(crate) fn panicked(&self, timer: TimerId, payload: &(dyn Any + Send)) {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            emit(|| {
                error!(
                    target: TARGET,
                    driver = &*self.driver,
                    %timer,
                    panic = text.unwrap_or("a payload that is no text"),
                    "a handler has panicked"
                );
            });
        }
    }

    /// What the tick thread remembers of what it has told.
    pub(crate) struct LoadMonitor {
        events: DriverEvents,
        late: RateLimit,
        full: RateLimit,
        /// Since when the bound on timers in flight holds the driver back, and whether that was
        /// told.
        overload: Option<(Instant, bool)>,
    }

    impl LoadMonitor {
        pub(crate) fn new(events: &DriverEvents) -> Self {
            let (late, full) = (RateLimit::default(), RateLimit::default());
            Self { events: events.clone(), late, full, overload: None }
        }

        /// Timers are handed over.
        pub(crate) fn handed_over<T: Send>(&mut self, sweeper: &Sweeper<T>, timers: &[Expired<T>]) {
            if !enabled!(target: TARGET, Level::WARN) {
                return;
            }
            let wheel = sweeper.wheel();
            let (now, tick) = (wheel.clock().now(), wheel.resolution());
            let lateness = |timer: &Expired<T>| now.saturating_duration_since(timer.deadline);
            let tolerated = self.events.limits.late.max(tick);
            let late = timers.iter().map(lateness).filter(|&late| late > tolerated);
            let (count, worst) = late.fold((0_usize, Duration::ZERO), |(count, worst), late| {
                (count + 1, worst.max(late))
            });
            if count == 0 {
                return;
            }
            let Ok(suppressed) = self.late.admit(now) else {
                self.late.suppressed += 1;
                return;
            };
            emit(|| {
                warn!(
                    target: TARGET,
                    driver = &*self.events.driver,
                    timers = count,
                    late_by = ?worst,
                    suppressed,
                    "timers were swept late"
                );
            });
        }

        /// Warns of batches that are stuck. Returns when to look again at the latest.
        pub(crate) fn stuck<T: Send>(&mut self, sweeper: &Sweeper<T>) -> Option<Instant> {
            if !enabled!(target: TARGET, Level::WARN) {
                return None;
            }
            let mut in_flight = ignore_poison(self.events.in_flight.lock());
            let limit = self.events.limits.stuck;
            let ends = |noted: &NotedBatch| noted.since.checked_add(limit);
            let first =
                in_flight.batches.iter().filter(|noted| !noted.reported).filter_map(ends).min();
            let first = first?;
            let now = sweeper.wheel().clock().now();
            if now < first {
                return Some(first);
            }
            let suppressed = match in_flight.rate_limit.admit(now) {
                Ok(suppressed) => suppressed,
                Err(end) => return Some(end),
            };
            let mut batches = 0_usize;
            let mut longest = Duration::ZERO;
            for noted in &mut in_flight.batches {
                let lasts = now.saturating_duration_since(noted.since);
                if lasts >= limit {
                    noted.reported = true;
                    batches += 1;
                    longest = longest.max(lasts);
                }
            }
            let next =
                in_flight.batches.iter().filter(|noted| !noted.reported).filter_map(ends).min();
            drop(in_flight);
            emit(|| {
                warn!(
                    target: TARGET,
                    driver = &*self.events.driver,
                    batches,
                    lasts = ?longest,
                    suppressed,
                    "batches are stuck: a handler blocks, or the executor is behind"
                );
            });
            next
        }

        /// As many timers are in flight as may be. Returns when to look again at the latest, if
        /// that has yet to be told.
        pub(crate) fn held_back<T: Send>(
            &mut self,
            sweeper: &Sweeper<T>,
            in_flight: usize,
        ) -> Option<Instant> {
            if !enabled!(target: TARGET, Level::WARN) || matches!(self.overload, Some((_, true))) {
                return None;
            }
            let wheel = sweeper.wheel();
            let clock = wheel.clock();
            let now = clock.now();
            let (_, reported) = self.overload.get_or_insert((now, false));
            match self.full.admit(now) {
                Ok(suppressed) => {
                    *reported = true;
                    emit(|| {
                        warn!(
                            target: TARGET,
                            driver = &*self.events.driver,
                            in_flight,
                            suppressed,
                            "overload: as many timers are in flight as may be"
                        );
                    });
                    None
                }
                Err(end) => Some(end),
            }
        }

        /// All that was due has been handed over.
        pub(crate) fn caught_up<T: Send>(&mut self, sweeper: &Sweeper<T>) {
            let Some((since, reported)) = self.overload.take() else { return };
            if !reported {
                self.full.suppressed += 1;
                return;
            }
            let now = sweeper.wheel().clock().now();
            emit(|| {
                info!(
                    target: TARGET,
                    driver = &*self.events.driver,
                    lasted = ?now.saturating_duration_since(since),
                    "the overload is over"
                );
            });
        }
    }

    /// Keeps events of a kind apart.
    #[derive(Default)]
    struct RateLimit {
        last: Option<Instant>,
        /// How many events were not told since the last one.
        suppressed: u64,
    }

    impl RateLimit {
        /// How many events before this one were not reported; or until when it may not be either.
        fn admit(&mut self, now: Instant) -> Result<u64, Instant> {
            match self.last.and_then(|last| last.checked_add(MIN_GAP)) {
                Some(end) if now < end => Err(end),
                _ => {
                    self.last = Some(now);
                    Ok(std::mem::take(&mut self.suppressed))
                }
            }
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod disabled {
    use crate::driver::events::WarnLimits;
    use crate::wheel::{Expired, Sweeper, TimerId};
    use std::any::Any;
    use std::time::{Duration, Instant};

    pub(crate) struct DriverEvents;

    #[derive(Debug)]
    pub(crate) struct BatchNumber;

    impl DriverEvents {
        pub(crate) fn new(_driver: &str, _limits: WarnLimits) -> Self {
            Self
        }

        pub(crate) fn handed_over(&self, _now: impl FnOnce() -> Instant) -> BatchNumber {
            BatchNumber
        }

        pub(crate) fn ended(&self, _batch: &BatchNumber, _now: impl FnOnce() -> Instant) {}

        pub(crate) fn started(&self, _resolution: Duration, _shards: usize) {}

        pub(crate) fn stopped(&self, _first: bool, _handed_back: usize, _dropped: usize) {}

        pub(crate) fn panicked(&self, _timer: TimerId, _payload: &(dyn Any + Send)) {}
    }

    pub(crate) struct LoadMonitor;

    impl LoadMonitor {
        pub(crate) fn new(_teller: &DriverEvents) -> Self {
            Self
        }

        pub(crate) fn handed_over<T: Send>(
            &mut self,
            _sweeper: &Sweeper<T>,
            _timers: &[Expired<T>],
        ) {
        }

        pub(crate) fn stuck<T: Send>(&mut self, _sweeper: &Sweeper<T>) -> Option<Instant> {
            None
        }

        pub(crate) fn held_back<T: Send>(
            &mut self,
            _sweeper: &Sweeper<T>,
            _in_flight: usize,
        ) -> Option<Instant> {
            None
        }

        pub(crate) fn caught_up<T: Send>(&mut self, _sweeper: &Sweeper<T>) {}
    }
}
