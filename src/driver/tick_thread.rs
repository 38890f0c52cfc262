//! [`TickThread`], which sweeps the wheel and hands expired timers over to the executor.

#![forbid(unsafe_code)]

use super::batch::{Batch, DriverShared, LastSweepGuard};
use super::events::LoadMonitor;
use super::executor::Executor;
use crate::panics::{drop_payload, quietly};
use crate::sync::Acquire;
use crate::wheel::{Expired, Sweeper};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// The state of the tick thread. The order of the drops matters: the sweeper is dropped before the
/// end of the last sweep is announced. The executor is dropped after that, because its drop may
/// wait for a handler that waits for the announcement.
pub(super) struct TickThread<T> {
    pub(super) shared: Arc<DriverShared<T>>,
    pub(super) sweeper: Sweeper<T>,
    pub(super) _last_sweep_guard: LastSweepGuard<T>,
    pub(super) executor: Box<dyn Executor>,
    pub(super) batch: usize,
    pub(super) monitor: LoadMonitor,
}

impl<T: Send + 'static> TickThread<T> {
    /// Runs until the driver stops, or until a panic that an event reports.
    pub(super) fn run_and_report(self) {
        let events = self.shared.events.clone();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run())) {
            events.tick_thread_panicked(&*panic);
            drop_payload(panic);
        }
    }

    fn run(mut self) {
        self.shared.parker.register_current();
        // Acquire: pairs with the Release of `Driver::stop`.
        while !self.shared.stopping.load(Acquire) {
            // Acquire: pairs with the Release of `DriverShared::release_room`.
            let in_flight = self.shared.timers_in_flight.load(Acquire);
            let room = self.shared.max_in_flight.saturating_sub(in_flight);
            if room == 0 {
                let overload = self.monitor.report_overload(&self.sweeper, in_flight);
                let stuck = self.monitor.report_stuck(&self.sweeper);
                self.wait(overload.into_iter().chain(stuck).min());
                continue;
            }
            let (timers, finished) = self.sweeper.collect(self.batch.min(room));
            if !timers.is_empty() {
                self.monitor.report_late(&self.sweeper, &timers);
                self.hand_over(timers);
            }
            if finished {
                self.monitor.report_caught_up(&self.sweeper);
                self.rest();
            }
        }
    }

    fn hand_over(&self, timers: Vec<Expired<T>>) {
        let batch = Batch::new(timers, Arc::clone(&self.shared));
        // An executor that panics has dropped the batch or has run it. Nothing is lost in either
        // case.
        quietly(|| self.executor.execute(batch.into_job()));
    }

    /// Parks until the next sweep is due, or until a wake-up, a batch or the clock ends the rest.
    fn rest(&mut self) {
        let next = self.sweeper.next_deadline();
        let wheel = self.sweeper.wheel();
        let clock = wheel.clock();
        let latest = clock.now().checked_add(self.sweeper.longest_rest());
        let stuck = self.monitor.report_stuck(&self.sweeper);
        self.wait(next.into_iter().chain(latest).chain(stuck).min());
    }

    /// Parks until the instant, if there is one, or until a wake-up, a batch or the clock ends the
    /// rest.
    fn wait(&self, until: Option<Instant>) {
        let clock = self.shared.wheel.clock();
        self.shared.parker.park(until.and_then(|until| clock.timeout(until)));
    }
}
