//! What the tests here share: virtual time, and in-memory connections.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;
use tourbillon::future::{SleepWaker, Timer};
use tourbillon::{Builder, ManualClock, Sweeper};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A timer on a wheel that the test sweeps, by a clock that the test moves.
pub(crate) struct Time {
    pub(crate) timer: Timer,
    clock: ManualClock,
    sweeper: Sweeper<SleepWaker>,
}

impl Time {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let (wheel, sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
        Self { timer: Timer::new(wheel), clock, sweeper }
    }

    /// Lets the tasks come to rest, lets time pass, and lets them come to rest again.
    pub(crate) async fn pass(&mut self, time: Duration) {
        settle().await;
        self.clock.advance(time);
        while self.sweeper.sweep(|timer| timer.value.wake()).expired > 0 {}
        settle().await;
    }

    /// How many sleeps lie in the wheel.
    pub(crate) fn armed(&self) -> usize {
        self.timer.wheel().len()
    }
}

/// Lets all tasks of this thread's runtime run until they wait for something else than each
/// other: with connections in memory, many turns are enough for all that can happen.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
