//! [`Plan`], the size of a fleet, its timers and its faults, drawn from a seed.

use super::faults::{Fault, Kind};
use super::timers::TimerPlan;
use super::world::{MILLISECOND, Nanos, SECOND};
use std::mem;

/// The size of a fleet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) workers: usize,
    pub(crate) partitions: u64,
    pub(crate) servers: usize,
    pub(crate) timers: usize,
    pub(crate) length: Nanos,
}

/// The usual size.
pub(crate) const SMALL: Setting =
    Setting { workers: 5, partitions: 16, servers: 3, timers: 500, length: 600 * SECOND };

/// A thousand workers for an hour.
pub(crate) const LARGE: Setting = Setting {
    workers: 1000,
    partitions: 1024,
    servers: 3,
    timers: 1_000_000,
    length: 3600 * SECOND,
};

/// The longest latencies between a process and a server.
const LATENCIES: [Nanos; 4] = [MILLISECOND, 10 * MILLISECOND, 30 * MILLISECOND, 100 * MILLISECOND];

/// The numbers of handlers of a worker.
const CONCURRENCIES: [usize; 4] = [1, 2, 3, 8];

/// A fleet with its timers and faults.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) setting: Setting,
    pub(crate) latency: Nanos,
    pub(crate) concurrency: usize,
    /// The number of workers that start at the beginning.
    pub(crate) starts: usize,
    pub(crate) timers: Vec<TimerPlan>,
    pub(crate) faults: Vec<Fault>,
}

impl Plan {
    /// Draws what happens in the run of a seed.
    pub(crate) fn drawn(seed: u64, setting: Setting) -> Self {
        let random = &mut fastrand::Rng::with_seed(seed ^ 0x5eed);
        let latency = LATENCIES[random.usize(..LATENCIES.len())];
        let concurrency = CONCURRENCIES[random.usize(..CONCURRENCIES.len())];
        // Some are alone for a while, and some overlap.
        let most = if random.bool() { 4 } else { 9 };
        let count = random.usize(..most);
        let mut faults: Vec<Fault> = (0..count).map(|_| Fault::drawn(random, setting)).collect();
        place_pause(random, &mut faults);
        faults.sort_by_key(|fault| fault.begin);
        let timers = TimerPlan::drawn(random, setting, &faults);
        let starts = setting.workers;
        Self { seed, setting, latency, concurrency, starts, timers, faults }
    }

    /// Leaves out faults and timers that a violation does not need. `run` returns the violation of
    /// a plan.
    pub(crate) fn shortened(
        mut self,
        mut violation: String,
        run: impl Fn(&Self) -> Result<(), String>,
    ) -> (Self, String) {
        let mut without = |kept: &mut Self, leave_out: &dyn Fn(&mut Self)| {
            let mut shorter = kept.clone();
            leave_out(&mut shorter);
            let Err(same) = run(&shorter) else { return false };
            (*kept, violation) = (shorter, same);
            true
        };
        let mut place = 0;
        while place < self.faults.len() {
            let left_out = without(&mut self, &|plan| _ = plan.faults.remove(place));
            place += usize::from(!left_out);
        }
        let mut length = self.timers.len().div_ceil(2);
        while length > 0 {
            let mut place = 0;
            while place < self.timers.len() {
                let end = (place + length).min(self.timers.len());
                let left_out = without(&mut self, &|plan| drop(plan.timers.drain(place..end)));
                place = if left_out { place } else { end };
            }
            length /= 2;
        }
        (self, violation)
    }
}

/// Leaves at most one pause, because the end of one ends another as well, and none if a server may
/// lose the end of it. Half of them end during another fault, which disturbs their requests.
fn place_pause(random: &mut fastrand::Rng, faults: &mut Vec<Fault>) {
    let mut may_pause = !faults.iter().any(|fault| matches!(fault.kind, Kind::Lose { .. }));
    faults.retain(|fault| !fault.is_pause() || mem::take(&mut may_pause));
    let (pauses, others): (Vec<&mut Fault>, Vec<&mut Fault>) =
        faults.iter_mut().partition(|fault| fault.is_pause());
    let other = random.choice(others).filter(|other| other.end() > other.begin);
    if let Some((pause, other)) = pauses.into_iter().next().zip(other)
        && random.bool()
    {
        pause.begin = other.begin.saturating_sub(random.u64(..20 * SECOND));
        pause.length = random.u64(other.begin..=other.end()) - pause.begin;
    }
}
