//! Virtual time and settling, for tests over connections in memory.

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

    /// Lets the tasks settle, advances the time, and lets them settle again.
    pub(crate) async fn pass(&mut self, time: Duration) {
        settle().await;
        self.clock.advance(time);
        while self.sweeper.sweep(|timer| timer.value.wake()).expired > 0 {}
        settle().await;
    }

    /// The number of armed sleeps.
    pub(crate) fn armed(&self) -> usize {
        self.timer.wheel().len()
    }
}

/// Runs the tasks of this thread's runtime until each waits for something other than the others.
/// With connections in memory, many turns are enough for that.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
