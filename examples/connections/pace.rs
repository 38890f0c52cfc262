//! [`Pace`], which keeps a worker busy for a share of the time.
//!
//! A worker rests as soon as it has been busy for longer than its share, as the loop of a server
//! waits for the next events. Time that the system gives to other threads counts as busy. The load
//! is therefore the same on a machine that becomes slower.

use std::time::{Duration, Instant};

/// The shortest rest. A sleep of less would mostly be the time that the system takes to end it.
const MIN_REST: Duration = Duration::from_micros(300);

/// The maximum excess of rest that a worker still makes up for.
const MAX_CREDIT: Duration = Duration::from_millis(1);

/// The pace of one worker.
pub(crate) struct Pace {
    /// The time to rest for each time that the worker is busy.
    rest_share: f64,
    /// The end of the counted time.
    counted: Instant,
    /// The time that the worker has to rest, and that it has rested too long.
    owed: Duration,
    credit: Duration,
}

impl Pace {
    /// Begins to be busy for the share `load` of the time.
    pub(crate) fn new(load: f64, now: Instant) -> Self {
        let (owed, credit) = (Duration::ZERO, Duration::ZERO);
        Self { rest_share: (1.0 - load) / load, counted: now, owed, credit }
    }

    /// Counts the time until `now` as busy, and returns how long the worker should rest, if it
    /// should.
    pub(crate) fn rest(&mut self, now: Instant) -> Option<Duration> {
        self.owed += now.saturating_duration_since(self.counted).mul_f64(self.rest_share);
        self.counted = now;
        let rest = self.owed.checked_sub(self.credit)?;
        (rest >= MIN_REST).then_some(rest)
    }

    /// Counts the time until `now` as a rest.
    pub(crate) fn rested(&mut self, now: Instant) {
        let rested = self.credit + now.saturating_duration_since(self.counted);
        self.credit = rested.saturating_sub(self.owed).min(MAX_CREDIT);
        (self.owed, self.counted) = (Duration::ZERO, now);
    }
}
