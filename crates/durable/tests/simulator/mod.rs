//! A deterministic simulator of a fleet: real workers, windows, ownership and engine, over servers,
//! a network and clocks that are simulated.
//!
//! ```text
//!  fleet ──► plan            what happens, and when: timers, faults
//!    │
//!    ├─ callers (workload)
//!    ├─ processes (world) ── worker, feed, window, attempts, engine: the code of this crate
//!    │       │ store         the store of a process: client, transport
//!    │       ▼
//!    ├─ network              requests, replies and notices, which may be late or lost
//!    │       ▼
//!    ├─ server               partitions, owners, kept replies, operations
//!    │
//!    └─ audit                the promises
//! ```
//!
//! `fleets` has larger fleets, and measures them.
//!
//! Everything is drawn from a seed, and runs in one thread in virtual time. A violation is reported
//! with its seed, after all faults and timers that it does not need were left out. `SIMULATOR=7`
//! runs the seed 7, and `SIMULATOR=0..1000` a thousand seeds. `SIMULATOR_LOG="timer 12"` prints
//! what happens to a timer.

#![forbid(unsafe_code)]

mod audit;
mod client;
mod faults;
mod fleet;
mod fleets;
mod network;
mod operations;
mod partition;
mod plan;
mod process;
mod requests;
mod server;
mod store;
mod timers;
mod transport;
mod workload;
mod world;

use self::plan::{LARGE, Plan, SMALL, Setting};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The seeds that each run of the tests tries.
const SEEDS: Range<u64> = 0..100;

#[test]
fn a_fleet_keeps_its_promises() {
    let seeds = asked().unwrap_or(SEEDS);
    let violations = violations(seeds, SMALL);
    if let Some((plan, violation)) = violations.into_iter().min_by_key(|(plan, _)| plan.seed) {
        let (plan, violation) = plan.shortened(violation, |plan| fleet::run(plan).map(drop));
        panic!("{violation}\nin this run: {plan:#?}");
    }
}

#[test]
#[ignore = "it takes minutes, for `ci/test simulator large`"]
fn a_thousand_workers_keep_their_promises() {
    let summary = fleet::run(&Plan::drawn(1, LARGE));
    assert!(summary.as_ref().is_ok_and(|it| it.timers == LARGE.timers), "{summary:?}");
}

#[test]
fn two_runs_of_a_seed_are_the_same() {
    let run = |seed| fleet::run(&Plan::drawn(seed, SMALL));
    let (first, second) = (run(3), run(3));
    assert!(first.is_ok(), "{first:?}");
    assert_eq!(first, second);
    assert_ne!(first, run(4));
}

/// Returns the seeds that were asked for.
fn asked() -> Option<Range<u64>> {
    let asked = std::env::var("SIMULATOR").ok()?;
    let number =
        |text: &str| text.parse::<u64>().expect("SIMULATOR is a seed, or a range of seeds");
    Some(match asked.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&asked)..number(&asked) + 1,
    })
}

/// Runs seeds, one on each processor at a time, until one violates a promise. Returns the plans of
/// the seeds that do.
#[allow(clippy::disallowed_methods, reason = "each simulation has one thread")]
fn violations(seeds: Range<u64>, setting: Setting) -> Vec<(Plan, String)> {
    let (next, violations) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let run = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                return;
            }
            let plan = Plan::drawn(seed, setting);
            if let Err(violation) = fleet::run(&plan) {
                next.store(seeds.end, Relaxed);
                violations.lock().expect("no thread panics").push((plan, violation));
            }
        }
    };
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (0..processors).for_each(|_| drop(scope.spawn(run)));
    });
    violations.into_inner().expect("no thread panics")
}
