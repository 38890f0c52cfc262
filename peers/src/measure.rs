//! One measurement: one system, one workload, in the CPU time of the whole process.
//!
//! The process's time and not the thread's: what a system leaves to its own threads counts. For
//! that reason a measurement ends only when those have gone quiet, and begins only when what the
//! preparations left behind is done.

use crate::callers::{Callers, Step};
use crate::clock::{now, rest};
use crate::systems::System;
use crate::tally;
use crate::workload::{Plan, Workload};
use cpu_time::ProcessTime;
use std::time::Duration;

/// How long no thread may have worked to be called quiet.
const QUIET: Duration = Duration::from_millis(50);
/// How often it is looked whether all have fired.
const LOOK: Duration = Duration::from_millis(5);
/// How late the last timer may fire.
const PATIENCE: Duration = Duration::from_secs(60);

/// CPU nanoseconds for each operation, of so many callers who share the timers out.
///
/// # Panics
///
/// If a timer was lost, was handed over twice, or fired that should not have.
pub(crate) fn measure<S: System>(workload: Workload, timers: u32, threads: u32) -> f64 {
    let plans: Vec<_> =
        (0..threads).map(|number| workload.plan(timers / threads, number)).collect();
    let callers = Callers::start::<S>(workload, &plans);
    settle();
    if workload == Workload::Insert {
        let spent = spent(|| callers.all(Step::Insert));
        assert_eq!(tally::count(), 0, "fired early");
        return spent / total(&plans, |plan| plan.delays.len());
    }
    callers.all(Step::Insert);
    settle();
    if workload == Workload::Fire {
        return fire(&plans);
    }
    callers.all(Step::WarmUp);
    settle();
    let spent = spent(|| callers.all(Step::Measured));
    assert_eq!(tally::count(), 0, "fired early");
    spent / total(&plans, |plan| plan.moves.len())
}

/// What the plans have together.
fn total(plans: &[Plan], of: impl Fn(&Plan) -> usize) -> f64 {
    plans.iter().map(of).sum::<usize>() as f64
}

/// Waits until all have fired.
fn fire(plans: &[Plan]) -> f64 {
    let timers = total(plans, |plan| plan.delays.len());
    // If arming took so long that some have fired by now, their cost was not seen.
    let left = timers - tally::count() as f64;
    let delays = plans.iter().flat_map(|plan| plan.delays);
    let last = now() + delays.max().copied().unwrap_or_default();
    let spent = spent(|| {
        rest(last - now());
        while (tally::count() as f64) < timers && now() < last + PATIENCE {
            rest(LOOK);
        }
    });
    tally::check(plans);
    spent / left
}

/// The CPU nanoseconds that `work` takes, on all threads, with what it leaves to others.
fn spent(work: impl FnOnce()) -> f64 {
    let start = ProcessTime::now();
    work();
    settle();
    start.elapsed().as_secs_f64() * 1e9
}

/// Waits until the process's threads are all but idle.
fn settle() {
    loop {
        let start = ProcessTime::now();
        rest(QUIET);
        if start.elapsed() < QUIET / 20 {
            return;
        }
    }
}
