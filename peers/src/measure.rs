//! One measurement: one system, one workload, in the CPU time of the whole process.
//!
//! The process's time and not the thread's: what a system leaves to its own threads counts. For
//! that reason a measurement ends only when those have gone quiet, and begins only when what the
//! preparations left behind is done.

use crate::clock::{now, rest};
use crate::systems::System;
use crate::tally;
use crate::workload::{Plan, Workload};
use cpu_time::ProcessTime;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// How long no thread may have worked to be called quiet.
const QUIET: Duration = Duration::from_millis(50);
/// How often it is looked whether all have fired.
const LOOK: Duration = Duration::from_millis(5);
/// How late the last timer may fire.
const PATIENCE: Duration = Duration::from_secs(60);

/// CPU nanoseconds for each operation.
///
/// # Panics
///
/// If a timer was lost, was handed over twice, or fired that should not have.
pub(crate) fn measure<S: System>(workload: Workload, timers: u32) -> f64 {
    let Plan { delays, warm_up, moves } = workload.plan(timers);
    // Never dropped: the process ends with the measurement.
    let mut system = ManuallyDrop::new(S::new(delays.len()));
    settle();
    if workload == Workload::Insert {
        let spent = spent(|| system.insert(delays));
        assert_eq!(tally::count(), 0, "fired early");
        return spent / f64::from(timers);
    }
    system.insert(delays);
    settle();
    if workload == Workload::Fire {
        return fire(timers, delays);
    }
    let mut operate = |moves| match workload {
        Workload::CancelInsert => system.cancel_insert(moves),
        _ => system.reset(moves),
    };
    operate(warm_up);
    settle();
    let spent = spent(|| operate(moves));
    assert_eq!(tally::count(), 0, "fired early");
    spent / f64::from(timers)
}

/// Waits until all have fired.
fn fire(timers: u32, delays: &[Duration]) -> f64 {
    // If arming took so long that some have fired by now, their cost was not seen.
    let left = u64::from(timers) - tally::count();
    let last = now() + delays.iter().max().copied().unwrap_or_default();
    let spent = spent(|| {
        rest(last - now());
        while tally::count() < u64::from(timers) && now() < last + PATIENCE {
            rest(LOOK);
        }
    });
    tally::check(timers);
    spent / left as f64
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
