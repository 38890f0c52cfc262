//! One measurement: one system, one workload, in the CPU time of the whole process.
//!
//! The time of the process includes the work that a system leaves to its own threads. So a
//! measurement ends when those are quiet, and begins when the preparations' work is done.

use crate::callers::{Callers, Step};
use crate::clock::{now, rest};
use crate::system::System;
use crate::tally;
use crate::workload::{Plan, Workload};
use cpu_time::ProcessTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The time without work before the process counts as quiet.
const QUIET: Duration = Duration::from_millis(50);
/// The time between two checks if all timers have fired.
const CHECK: Duration = Duration::from_millis(5);
/// The greatest lateness of the last timer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of one measurement.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Taken {
    /// CPU time of the process per operation, in nanoseconds.
    pub(crate) cpu_ns: f64,
    /// Operations per second of all callers together, by the wall clock. `None` for timers that
    /// fire, because their deadlines set the pace.
    pub(crate) per_second: Option<f64>,
}

/// Measures one workload with `threads` callers, which share the timers.
///
/// # Panics
///
/// Panics if a timer was lost, was handed over twice, or fired before its deadline.
pub(crate) fn measure<S: System>(workload: Workload, timers: u32, threads: u32) -> Taken {
    let plans: Vec<_> =
        (0..threads).map(|number| workload.plan(timers / threads, number)).collect();
    let callers = Callers::start::<S>(workload, &plans);
    settle();
    if workload == Workload::Insert {
        return operate(&callers, Step::Insert, total(&plans, |plan| plan.delays.len()));
    }
    callers.all(Step::Insert);
    settle();
    if workload == Workload::Fire {
        return fire(&plans);
    }
    callers.all(Step::WarmUp);
    settle();
    operate(&callers, Step::Measured, total(&plans, |plan| plan.moves.len()))
}

/// Lets all callers take a step of so many operations in all.
fn operate(callers: &Callers, step: Step, operations: f64) -> Taken {
    let mut wall = Duration::ZERO;
    let cpu = spent(|| {
        let start = now();
        callers.all(step);
        wall = now() - start;
    });
    assert_eq!(tally::count(), 0, "fired early");
    Taken { cpu_ns: cpu / operations, per_second: Some(operations / wall.as_secs_f64()) }
}

/// The sum over all plans.
fn total(plans: &[Plan], of: impl Fn(&Plan) -> usize) -> f64 {
    plans.iter().map(of).sum::<usize>() as f64
}

/// Waits until all timers have fired.
fn fire(plans: &[Plan]) -> Taken {
    let timers = total(plans, |plan| plan.delays.len());
    // If arming took so long that some have fired by now, their cost was not measured.
    let left = timers - tally::count() as f64;
    let delays = plans.iter().flat_map(|plan| plan.delays);
    let last = now() + delays.max().copied().unwrap_or_default();
    let spent = spent(|| {
        rest(last - now());
        while (tally::count() as f64) < timers && now() < last + PATIENCE {
            rest(CHECK);
        }
    });
    tally::check(plans);
    Taken { cpu_ns: spent / left, per_second: None }
}

/// The CPU time of `work` on all threads in nanoseconds, including the work it leaves to others.
fn spent(work: impl FnOnce()) -> f64 {
    let start = ProcessTime::now();
    work();
    settle();
    start.elapsed().as_secs_f64() * 1e9
}

/// Waits until the threads of the process are almost idle.
fn settle() {
    loop {
        let start = ProcessTime::now();
        rest(QUIET);
        if start.elapsed() < QUIET / 20 {
            return;
        }
    }
}
