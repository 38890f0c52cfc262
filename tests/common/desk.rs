//! A scheduler in virtual time, and closures that count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tourbillon::scheduler::{Due, Scheduler};
use tourbillon::{Builder, Expired, ManualClock, Sweeper};

/// A scheduler in virtual time.
pub(crate) struct Desk {
    pub(crate) clock: ManualClock,
    pub(crate) sweeper: Sweeper<Due>,
    pub(crate) scheduler: Scheduler,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::of(Builder::new())
    }

    pub(crate) fn of(builder: Builder) -> Self {
        let clock = ManualClock::new();
        let (wheel, sweeper) =
            builder.clock(clock.clone()).build().expect("the builder is in range");
        Self { clock, sweeper, scheduler: Scheduler::new(wheel) }
    }

    /// Moves the clock on and fires what is due.
    pub(crate) fn advance(&mut self, step: Duration) {
        self.clock.advance(step);
        let _ = self.sweeper.sweep(|timer| self.scheduler.fire(timer));
    }

    /// Moves the clock on, and takes what is due without firing it.
    pub(crate) fn take(&mut self, step: Duration) -> Vec<Expired<Due>> {
        self.clock.advance(step);
        let mut taken = Vec::new();
        let _ = self.sweeper.sweep(|timer| taken.push(timer));
        taken
    }

    pub(crate) fn since_start(&self, at: Option<Instant>) -> Option<Duration> {
        Some(at? - self.clock.start())
    }
}

/// A count, and a closure that counts.
pub(crate) fn counting() -> (Arc<AtomicU32>, impl FnMut() + Send + 'static) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    (count, move || {
        counted.fetch_add(1, Relaxed);
    })
}
