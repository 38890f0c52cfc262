//! The driver's events for `tracing`: start, end, late sweeps, stuck batches, overload and panics
//! of handlers.
//!
//! This is the only file that uses that crate. Without the feature all of it is empty. With the
//! feature no operation of a wheel runs any of it. It is called only by the tick thread, once per
//! batch, and by the threads that start and stop the driver. An event that is caused by load is
//! emitted at most once a second by the wheel's clock, so that an overloaded server does not have
//! to write its log as well. The next event has the number of suppressed events.
//!
//! **Late.** A timer is late if it is handed over more than [`WarnLimits::late`] after its
//! deadline, or more than a tick if that is longer. The causes are a tick thread that did not get
//! the processor, ran a slow handler itself, had very many timers to hand over, or had to wait for
//! room in flight.
//!
//! **Stuck.** A batch is stuck if it has not ended [`WarnLimits::stuck`] after it was handed over,
//! because a handler blocks or the executor has not started it. The tick thread notes each batch
//! before it rests, so it knows when it has to check again. A batch that the tick thread runs
//! itself is reported when it has ended.
//!
//! **Overloaded.** An overload begins when the tick thread finds the bound on timers in flight
//! reached, and ends when all due timers have been handed over. In between, batches that end make
//! room for the next ones, which does not end the overload. If an overload begins within a second
//! of another one, the tick thread wakes at the end of that second and reports it. If it ends
//! before that, it is counted with the next one.

#![forbid(unsafe_code)]

#[cfg(not(feature = "tracing"))]
pub(crate) use disabled::{BatchNumber, DriverEvents, LoadMonitor};
#[cfg(feature = "tracing")]
pub(crate) use enabled::{BatchNumber, DriverEvents, LoadMonitor};

use std::time::Duration;

/// The thresholds of the driver's warnings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WarnLimits {
    /// The tolerated lateness of a timer.
    pub(crate) late: Duration,
    /// The tolerated time from the hand-over of a batch to its end.
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

    /// The minimum time between two events of a kind that load causes.
    const MIN_GAP: Duration = Duration::from_secs(1);

    /// Emits an event. A panic of the subscriber is discarded, because it must neither end a thread
    /// of the driver nor reach a caller.
    fn emit(event: impl FnOnce()) {
        quietly(event);
    }

    /// Emits the events of a driver, which is identified by the name of its tick thread.
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

    impl BatchNumber {
        /// The number of a batch that was not handed over.
        pub(crate) const NONE: Self = Self(0);
    }

    impl DriverEvents {
        pub(crate) fn new(driver: &str, limits: WarnLimits) -> Self {
            Self { driver: driver.into(), limits, in_flight: Arc::default() }
        }

        /// Notes a batch that the tick thread is about to hand over.
        pub(crate) fn batch_handed_over(&self, now: impl FnOnce() -> Instant) -> BatchNumber {
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

        /// Removes a batch, and reports it if it took long.
        pub(crate) fn batch_ended(&self, batch: &BatchNumber, now: impl FnOnce() -> Instant) {
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
                        "stuck batch ended"
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
                    "batch took long"
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
                    "driver started"
                );
            });
        }

        /// Reports the end of the driver at the `first` call, with the number of timers that were
        /// returned. Warns at each call if timers were dropped.
        pub(crate) fn stopped(&self, first: bool, handed_back: usize, dropped: usize) {
            if first {
                emit(|| {
                    debug!(
                        target: TARGET,
                        driver = &*self.driver,
                        handed_back,
                        dropped,
                        "driver stopped"
                    );
                });
            }
            if dropped > 0 {
                emit(|| {
                    warn!(
                        target: TARGET,
                        driver = &*self.driver,
                        dropped,
                        "driver dropped with timers that had not fired"
                    );
                });
            }
        }

        pub(crate) fn panicked(&self, timer: TimerId, payload: &(dyn Any + Send)) {
            emit(|| {
                error!(
                    target: TARGET,
                    driver = &*self.driver,
                    %timer,
                    panic = text_of(payload),
                    "handler panicked"
                );
            });
        }

        /// Reports a panic that has ended the tick thread.
        pub(crate) fn tick_thread_panicked(&self, payload: &(dyn Any + Send)) {
            emit(|| {
                error!(
                    target: TARGET,
                    driver = &*self.driver,
                    panic = text_of(payload),
                    "tick thread panicked, and no timer fires any more"
                );
            });
        }
    }

    /// Returns the message of a panic.
    fn text_of(payload: &(dyn Any + Send)) -> &str {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        text.unwrap_or("a payload without text")
    }

    /// The state that the tick thread uses to decide what to report.
    ///
    /// A panic in any part of a report is discarded, because it must not end the tick thread. Even
    /// the check whether a subscriber is interested calls the subscriber.
    pub(crate) struct LoadMonitor {
        events: DriverEvents,
        late: RateLimit,
        full: RateLimit,
        /// The start of the current overload by the bound on timers in flight, and whether it was
        /// reported.
        overload: Option<(Instant, bool)>,
    }

    impl LoadMonitor {
        pub(crate) fn new(events: &DriverEvents) -> Self {
            let (late, full) = (RateLimit::default(), RateLimit::default());
            Self { events: events.clone(), late, full, overload: None }
        }

        /// Checks the lateness of timers that are handed over.
        pub(crate) fn report_late<T: Send>(&mut self, sweeper: &Sweeper<T>, timers: &[Expired<T>]) {
            quietly(|| self.check_late(sweeper, timers));
        }

        /// Warns of batches that are stuck. Returns the latest time of the next check.
        pub(crate) fn report_stuck<T: Send>(&mut self, sweeper: &Sweeper<T>) -> Option<Instant> {
            let mut next = None;
            quietly(|| next = self.check_stuck(sweeper));
            next
        }

        /// Handles the case that the bound on timers in flight is reached. Returns the latest time
        /// of the next check, if the overload has yet to be reported.
        pub(crate) fn report_overload<T: Send>(
            &mut self,
            sweeper: &Sweeper<T>,
            in_flight: usize,
        ) -> Option<Instant> {
            let mut next = None;
            quietly(|| next = self.check_overload(sweeper, in_flight));
            next
        }

        /// Handles the case that all due timers have been handed over.
        pub(crate) fn report_caught_up<T: Send>(&mut self, sweeper: &Sweeper<T>) {
            quietly(|| self.check_caught_up(sweeper));
        }

        fn check_late<T: Send>(&mut self, sweeper: &Sweeper<T>, timers: &[Expired<T>]) {
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
            warn!(
                target: TARGET,
                driver = &*self.events.driver,
                timers = count,
                late_by = ?worst,
                suppressed,
                "timers were swept late"
            );
        }

        fn check_stuck<T: Send>(&self, sweeper: &Sweeper<T>) -> Option<Instant> {
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
            warn!(
                target: TARGET,
                driver = &*self.events.driver,
                batches,
                lasts = ?longest,
                suppressed,
                "batches are stuck because a handler blocks or the executor is behind"
            );
            next
        }

        fn check_overload<T: Send>(
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
                    warn!(
                        target: TARGET,
                        driver = &*self.events.driver,
                        in_flight,
                        suppressed,
                        "overload: the bound on timers in flight is reached"
                    );
                    None
                }
                Err(end) => Some(end),
            }
        }

        fn check_caught_up<T: Send>(&mut self, sweeper: &Sweeper<T>) {
            let Some((since, reported)) = self.overload.take() else { return };
            if !reported {
                self.full.suppressed += 1;
                return;
            }
            let now = sweeper.wheel().clock().now();
            info!(
                target: TARGET,
                driver = &*self.events.driver,
                lasted = ?now.saturating_duration_since(since),
                "overload ended"
            );
        }
    }

    /// The rate limit of one kind of event.
    #[derive(Default)]
    struct RateLimit {
        last: Option<Instant>,
        /// The number of events that were suppressed since the last one.
        suppressed: u64,
    }

    impl RateLimit {
        /// Returns the number of events that were suppressed before this one. If this one is
        /// suppressed too, returns the end of the suppression.
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

    #[derive(Clone)]
    pub(crate) struct DriverEvents;

    #[derive(Debug)]
    pub(crate) struct BatchNumber;

    impl BatchNumber {
        pub(crate) const NONE: Self = Self;
    }

    impl DriverEvents {
        pub(crate) fn new(_driver: &str, _limits: WarnLimits) -> Self {
            Self
        }

        pub(crate) fn batch_handed_over(&self, _now: impl FnOnce() -> Instant) -> BatchNumber {
            BatchNumber
        }

        pub(crate) fn batch_ended(&self, _batch: &BatchNumber, _now: impl FnOnce() -> Instant) {}

        pub(crate) fn started(&self, _resolution: Duration, _shards: usize) {}

        pub(crate) fn stopped(&self, _first: bool, _handed_back: usize, _dropped: usize) {}

        pub(crate) fn panicked(&self, _timer: TimerId, _payload: &(dyn Any + Send)) {}

        pub(crate) fn tick_thread_panicked(&self, _payload: &(dyn Any + Send)) {}
    }

    pub(crate) struct LoadMonitor;

    impl LoadMonitor {
        pub(crate) fn new(_events: &DriverEvents) -> Self {
            Self
        }

        pub(crate) fn report_late<T: Send>(
            &mut self,
            _sweeper: &Sweeper<T>,
            _timers: &[Expired<T>],
        ) {
        }

        pub(crate) fn report_stuck<T: Send>(&mut self, _sweeper: &Sweeper<T>) -> Option<Instant> {
            None
        }

        pub(crate) fn report_overload<T: Send>(
            &mut self,
            _sweeper: &Sweeper<T>,
            _in_flight: usize,
        ) -> Option<Instant> {
            None
        }

        pub(crate) fn report_caught_up<T: Send>(&mut self, _sweeper: &Sweeper<T>) {}
    }
}
