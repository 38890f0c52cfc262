//! [`Scenario`], a fleet of some size and what happens to it.

use crate::simulator::faults::{Fault, Kind};
use crate::simulator::plan::{Plan, Setting};
use crate::simulator::timers::{Change, TimerPlan, handlers};
use crate::simulator::transport::partition_of;
use crate::simulator::world::{MILLISECOND, Nanos, SECOND};
use std::ops::Range;

/// The seed of all scenarios.
const SEED: u64 = 1;

/// The variation of the latency.
const VARIATION: Nanos = MILLISECOND / 10;

/// The minute in which a fleet is at rest. All windows are loaded again once a minute.
pub(super) const REST: Range<Nanos> = 10 * SECOND..70 * SECOND;

/// The time of the first change.
const FIRST: Nanos = 80 * SECOND;

/// The time that the fleet is observed after the last change.
const AFTERWARDS: Nanos = 20 * SECOND;

/// The time between the cancels of all resting timers and the end.
const CANCELLED: Nanos = 5 * SECOND;

/// The time between two joins. After a third of it the worker leaves or dies.
const GAP: Nanos = 30 * SECOND;

/// The time until a process that has ended is replaced.
const SUCCESSOR: Nanos = 2 * SECOND;

/// A number of workers and partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) workers: usize,
    pub(crate) partitions: u64,
}

/// The events in the life of a fleet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Story {
    Rest,
    /// Another worker joins this many times, one after another.
    Joins(u64),
    /// A worker leaves this many times.
    Leaves(u64),
    /// A worker dies this many times.
    Deaths(u64),
    /// Each of `workers` workers leaves and is replaced, `at_once` of them at a time.
    Deploy {
        workers: usize,
        at_once: usize,
    },
    /// A third of the workers dies at the same time.
    Zone,
    /// All workers start within a second.
    Start,
    /// The handlers of one worker take this much longer from then on.
    SlowHandlers(Nanos),
    /// The requests of one worker and the replies take this much longer from then on.
    SlowNetwork(Nanos),
    /// One partition has half of the timers.
    Hot,
}

/// A change of a fleet, after which the partitions are shared again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) begin: Nanos,
    /// When its last worker has joined, left or died.
    pub(crate) end: Nanos,
}

/// A fleet, and what happens to it.
pub(crate) struct Scenario {
    pub(crate) plan: Plan,
    /// The latency between a process and the server, beyond the shortest, and without variation.
    pub(crate) distance: Nanos,
    pub(crate) steps: Vec<Step>,
}

impl Scenario {
    /// Describes a fleet to which timers are delivered at a rate per second from the first change
    /// on.
    pub(crate) fn of(size: Size, story: Story, rate: u64, distance: Nanos) -> Self {
        let random = &mut fastrand::Rng::with_seed(SEED);
        let (steps, faults) = changes(size, story, random);
        let last = steps.iter().map(|step| step.end).max().unwrap_or(FIRST + 100 * SECOND);
        let length = last.div_ceil(SECOND) * SECOND + AFTERWARDS;
        let joins = faults.iter().filter_map(|fault| match fault.kind {
            Kind::Leave { worker } if worker >= size.workers => Some(worker + 1 - size.workers),
            _ => None,
        });
        let workers = size.workers + joins.max().unwrap_or(0);
        let timers = timers(size.partitions, story, (rate, length), random);
        let setting = Setting {
            workers,
            partitions: size.partitions,
            servers: 1,
            timers: timers.len(),
            length,
        };
        let starts = if matches!(story, Story::Start) { 0 } else { size.workers };
        let (seed, latency, concurrency) = (SEED, VARIATION, 8);
        let plan = Plan { seed, setting, latency, concurrency, starts, timers, faults };
        Self { plan, distance, steps }
    }
}

/// Draws when workers join, leave and die.
fn changes(size: Size, story: Story, random: &mut fastrand::Rng) -> (Vec<Step>, Vec<Fault>) {
    // Out of step with the heartbeats, which are a second apart.
    let mut at = |step: u64, gap: Nanos| FIRST + step * gap + random.u64(..SECOND);
    let forever = Nanos::MAX / 4;
    let (mut steps, mut faults) = (Vec::new(), Vec::new());
    let mut add = |begin: Nanos, length: Nanos, kind: Kind| {
        faults.push(Fault { begin, length, kind });
    };
    match story {
        Story::Rest | Story::Hot => {}
        Story::Joins(count) | Story::Leaves(count) | Story::Deaths(count) => {
            for step in 0..count {
                // Another worker joins, and then leaves or dies.
                let worker = size.workers;
                let (joins, ends) = (at(step, GAP), at(step, GAP) + GAP / 3);
                let end = if matches!(story, Story::Deaths(_)) {
                    Kind::Kill { worker }
                } else {
                    Kind::Leave { worker }
                };
                add(joins - 1, 1, Kind::Leave { worker });
                add(ends, forever, end);
                let begin = if matches!(story, Story::Joins(_)) { joins } else { ends };
                steps.push(Step { begin, end: begin });
            }
        }
        Story::Deploy { workers, at_once } => {
            let begin = FIRST;
            let mut end = begin;
            for worker in 0..workers {
                let leaves = begin + (worker / at_once) as u64 * 2 * SUCCESSOR;
                add(leaves, SUCCESSOR, Kind::Leave { worker });
                end = leaves + SUCCESSOR;
            }
            steps.push(Step { begin, end });
        }
        Story::Zone => {
            let begin = at(0, 0);
            (0..size.workers / 3).for_each(|worker| add(begin, forever, Kind::Kill { worker }));
            steps.push(Step { begin, end: begin });
        }
        Story::Start => {
            for worker in 0..size.workers {
                let joins = at(0, 0);
                add(joins - 1, 1, Kind::Leave { worker });
            }
            steps.push(Step { begin: FIRST, end: FIRST + SECOND });
        }
        Story::SlowHandlers(handlers) => {
            add(FIRST, forever, Kind::Drag { worker: 0, handlers, network: 0 });
        }
        Story::SlowNetwork(network) => {
            add(FIRST, forever, Kind::Drag { worker: 0, handlers: 0, network });
        }
    }
    (steps, faults)
}

/// Returns timers that rest until the end, one in each partition, and timers that are delivered.
fn timers(
    partitions: u64,
    story: Story,
    (rate, length): (u64, Nanos),
    random: &mut fastrand::Rng,
) -> Vec<TimerPlan> {
    let plan = |number: usize, inserted: u64, delay: u64, changes: Vec<(u64, Change)>| TimerPlan {
        number,
        inserted,
        delay,
        handler: handlers::QUICK,
        every: None,
        changes,
    };
    let of = |number: usize| partition_of(&format!("timer {number}"), partitions);
    let mut numbers = 0..;
    let (mut timers, mut has) = (Vec::new(), std::collections::BTreeSet::new());
    let cancelled = (length - CANCELLED) / MILLISECOND;
    while (has.len() as u64) < partitions {
        let number = numbers.next().unwrap_or_default();
        if has.insert(of(number)) {
            let wait = cancelled - 5000;
            timers.push(plan(number, 5000, 4_000_000, vec![(wait, Change::Cancel)]));
        }
    }
    let (from, until) = (FIRST / MILLISECOND, cancelled - 15_000);
    let hot = matches!(story, Story::Hot);
    for place in 0..rate * until.saturating_sub(from) / 1000 {
        let wants_hot = hot && place % 2 == 0;
        let number = numbers.find(|number| !wants_hot || of(*number) == 0).unwrap_or_default();
        timers.push(plan(number, 5000, random.u64(from..until) - 5000, Vec::new()));
    }
    timers
}
