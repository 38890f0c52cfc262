//! The driver's events for `tracing`: its start and end, late sweeps, overload, panics of handlers.
//!
//! The only file that knows of that crate. Without the feature all of this is empty, and with it no
//! operation of a wheel comes here: only the tick thread, batch by batch, and who starts and stops
//! it. An event that load brings about is told at most once a second by the wheel's clock, so that
//! a server with more than it can do is not given its log to write as well; the next one says how
//! many were not told.
//!
//! **Late** is a timer that is handed over more than 10 ms after its deadline, or more than a tick,
//! if that is longer: so long after it the tick thread should not have come by, unless it did not
//! get the processor, ran a slow handler itself, had very many timers to hand over, or had to wait
//! for room in flight.
//!
//! **Overloaded** is a driver from when the tick thread finds as many timers in flight as may be
//! until all that was due has been handed over. In between, each batch that ends makes room, which
//! the next one takes: that is no end. One that begins within a second of another is told when that
//! second is over, for which the tick thread wakes, or, if it is over before, with the next.

#![forbid(unsafe_code)]

#[cfg(feature = "tracing")]
pub(crate) use told::{Teller, Watch};
#[cfg(not(feature = "tracing"))]
pub(crate) use untold::{Teller, Watch};

#[cfg(feature = "tracing")]
mod told {
    use crate::panics::quietly;
    use crate::wheel::{Expired, Sweeper, TimerId};
    use std::any::Any;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use tracing::{Level, debug, enabled, error, info, warn};

    const TARGET: &str = "tourbillon";

    /// How late no timer is called late.
    const TOLERATED: Duration = Duration::from_millis(10);

    /// Between two events of a kind that load brings about.
    const PAUSE: Duration = Duration::from_secs(1);

    /// Tells an event. A subscriber that panics has nobody left to tell; it must not end the tick
    /// thread.
    fn tell(event: impl FnOnce()) {
        quietly(event);
    }

    /// Tells what happens to a driver, by the name of its tick thread.
    #[derive(Clone)]
    pub(crate) struct Teller {
        driver: Arc<str>,
    }

    impl Teller {
        pub(crate) fn new(driver: &str) -> Self {
            Self { driver: driver.into() }
        }

        pub(crate) fn started(&self, resolution: Duration, shards: usize) {
            tell(|| {
                debug!(
                    target: TARGET,
                    driver = &*self.driver,
                    ?resolution,
                    shards,
                    "the driver has started"
                );
            });
        }

        /// The `first` time that the driver was stopped: how many timers went back, and how many
        /// were dropped with it.
        pub(crate) fn stopped(&self, first: bool, handed_back: usize, dropped: usize) {
            if first {
                tell(|| {
                    debug!(
                        target: TARGET,
                        driver = &*self.driver,
                        handed_back,
                        dropped,
                        "the driver has stopped"
                    );
                });
            }
        }

        pub(crate) fn panicked(&self, timer: TimerId, payload: &(dyn Any + Send)) {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            tell(|| {
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
    pub(crate) struct Watch {
        teller: Teller,
        late: Pause,
        full: Pause,
        /// Since when the bound on timers in flight holds the driver back, and whether that was
        /// told.
        overload: Option<(Instant, bool)>,
    }

    impl Watch {
        pub(crate) fn new(teller: &Teller) -> Self {
            let (late, full) = (Pause::default(), Pause::default());
            Self { teller: teller.clone(), late, full, overload: None }
        }

        /// Timers are handed over.
        pub(crate) fn handed_over<T: Send>(&mut self, sweeper: &Sweeper<T>, timers: &[Expired<T>]) {
            if !enabled!(target: TARGET, Level::WARN) {
                return;
            }
            let wheel = sweeper.wheel();
            let (now, tick) = (wheel.clock().now(), wheel.resolution());
            let lateness = |timer: &Expired<T>| now.saturating_duration_since(timer.deadline);
            let late = timers.iter().map(lateness).filter(|&late| late > TOLERATED.max(tick));
            let (count, worst) = late.fold((0_usize, Duration::ZERO), |(count, worst), late| {
                (count + 1, worst.max(late))
            });
            if count == 0 {
                return;
            }
            let Ok(suppressed) = self.late.ends(now) else {
                self.late.suppressed += 1;
                return;
            };
            tell(|| {
                warn!(
                    target: TARGET,
                    driver = &*self.teller.driver,
                    timers = count,
                    late_by = ?worst,
                    suppressed,
                    "timers were swept late"
                );
            });
        }

        /// As many timers are in flight as may be. Returns when to look again at the latest, if
        /// that has yet to be told.
        pub(crate) fn held_back<T: Send>(
            &mut self,
            sweeper: &Sweeper<T>,
            in_flight: usize,
        ) -> Option<Duration> {
            if !enabled!(target: TARGET, Level::WARN) || matches!(self.overload, Some((_, true))) {
                return None;
            }
            let wheel = sweeper.wheel();
            let clock = wheel.clock();
            let now = clock.now();
            let (_, told) = self.overload.get_or_insert((now, false));
            match self.full.ends(now) {
                Ok(suppressed) => {
                    *told = true;
                    tell(|| {
                        warn!(
                            target: TARGET,
                            driver = &*self.teller.driver,
                            in_flight,
                            suppressed,
                            "overload: as many timers are in flight as may be"
                        );
                    });
                    None
                }
                Err(end) => clock.timeout(end),
            }
        }

        /// All that was due has been handed over.
        pub(crate) fn caught_up<T: Send>(&mut self, sweeper: &Sweeper<T>) {
            let Some((since, told)) = self.overload.take() else { return };
            if !told {
                self.full.suppressed += 1;
                return;
            }
            let now = sweeper.wheel().clock().now();
            tell(|| {
                info!(
                    target: TARGET,
                    driver = &*self.teller.driver,
                    lasted = ?now.saturating_duration_since(since),
                    "the overload is over"
                );
            });
        }
    }

    /// Keeps events of a kind apart.
    #[derive(Default)]
    struct Pause {
        last: Option<Instant>,
        /// How many events were not told since the last one.
        suppressed: u64,
    }

    impl Pause {
        /// How many events before this one were not told; or until when it may not be either.
        fn ends(&mut self, now: Instant) -> Result<u64, Instant> {
            match self.last.and_then(|last| last.checked_add(PAUSE)) {
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
mod untold {
    use crate::wheel::{Expired, Sweeper, TimerId};
    use std::any::Any;
    use std::time::Duration;

    pub(crate) struct Teller;

    impl Teller {
        pub(crate) fn new(_driver: &str) -> Self {
            Self
        }

        pub(crate) fn started(&self, _resolution: Duration, _shards: usize) {}

        pub(crate) fn stopped(&self, _first: bool, _handed_back: usize, _dropped: usize) {}

        pub(crate) fn panicked(&self, _timer: TimerId, _payload: &(dyn Any + Send)) {}
    }

    pub(crate) struct Watch;

    impl Watch {
        pub(crate) fn new(_teller: &Teller) -> Self {
            Self
        }

        pub(crate) fn handed_over<T: Send>(
            &mut self,
            _sweeper: &Sweeper<T>,
            _timers: &[Expired<T>],
        ) {
        }

        pub(crate) fn held_back<T: Send>(
            &mut self,
            _sweeper: &Sweeper<T>,
            _in_flight: usize,
        ) -> Option<Duration> {
            None
        }

        pub(crate) fn caught_up<T: Send>(&mut self, _sweeper: &Sweeper<T>) {}
    }
}
