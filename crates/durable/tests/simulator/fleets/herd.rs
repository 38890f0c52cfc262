//! [`Herd`], many timers that are due together, as at midnight, and others that become due while
//! the herd is worked off.

use super::law;
use super::measured::Figures;
use super::scenario::{Scenario, Size};
use crate::simulator::plan::{Plan, Setting};
use crate::simulator::timers::{TimerPlan, handlers};
use crate::simulator::world::{MILLISECOND, Nanos, SECOND};

/// The milliseconds from the start until the first timer of the herd is due.
const MIDNIGHT: u64 = 80_000;

/// The period of the inserts, in milliseconds from the start.
const INSERTED: std::ops::Range<u64> = 5000..65_000;

/// The number of other timers that are due each second from midnight on.
const OTHERS: u64 = 20;

/// The time that a fleet is observed after the herd.
const AFTERWARDS: Nanos = 20 * SECOND;

/// Timers that are due together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Herd {
    pub(super) size: Size,
    /// The number of handlers of each worker, each of which takes as long as a webhook.
    pub(super) concurrency: usize,
    pub(super) timers: usize,
    /// The time from midnight until the last of them is due.
    pub(super) spread: Nanos,
}

impl Herd {
    /// Simulates the herd.
    pub(super) fn measure(&self, distance: Nanos) -> Figures {
        let random = &mut fastrand::Rng::with_seed(1);
        let takes = (law::lateness_of_herd(self).as_secs() + 1) * SECOND + self.spread;
        let length = MIDNIGHT * MILLISECOND + takes.div_ceil(SECOND) * SECOND + AFTERWARDS;
        let spread = (self.spread / MILLISECOND).max(1);
        let herd = (0..self.timers).map(|number| {
            let inserted = random.u64(INSERTED);
            (number, inserted, MIDNIGHT + random.u64(..spread) - inserted, handlers::LIKE_A_WEBHOOK)
        });
        let mut all: Vec<_> = herd.collect();
        let until = (length - AFTERWARDS / 2) / MILLISECOND;
        let others = OTHERS * until.saturating_sub(MIDNIGHT) / 1000;
        all.extend((self.timers..).take(others as usize).map(|number| {
            let inserted = random.u64(INSERTED);
            (number, inserted, random.u64(MIDNIGHT..until) - inserted, handlers::QUICK)
        }));
        let timer = |(number, inserted, delay, handler)| TimerPlan {
            number,
            inserted,
            delay,
            handler,
            every: None,
            changes: Vec::new(),
        };
        let timers: Vec<TimerPlan> = all.into_iter().map(timer).collect();
        let setting = Setting {
            workers: self.size.workers,
            partitions: self.size.partitions,
            servers: 1,
            timers: timers.len(),
            length,
        };
        let (seed, latency, concurrency) = (1, MILLISECOND / 10, self.concurrency);
        let (starts, faults) = (setting.workers, Vec::new());
        let plan = Plan { seed, setting, latency, concurrency, starts, timers, faults };
        Scenario { plan, distance, steps: Vec::new() }.measure()
    }
}
