//! A scenario of random operations, for the models that only shuttle can explore.

#![allow(clippy::unwrap_used, reason = "a model fails by panicking")]

use crate::wheel::probe::{acquire_thread_id, release_thread_id};
use crate::{TICK, TimerId, World, beside, drain, sweep_after, sweep_with_upkeep, v};
use shuttle::rand::{Rng, thread_rng};
use std::sync::{Arc, Mutex};

/// Runs `each` operations of any kind, with any id, on each of three callers, while the sweeper
/// sweeps and does its upkeep. Each value ends once. Two callers may have vacant entries in their
/// magazines, and orphan them repeatedly.
pub fn any_operations(each: u64) {
    let World { wheel, mut sweeper, clock } = World::new();
    // The standard library's lock. Shuttle never switches inside it, so a thread that stops for
    // good holds up no other thread there.
    let shared = Arc::new(Mutex::new(Vec::<TimerId>::new()));
    let callers = [0, 100, 200].map(|first| {
        let shared = Arc::clone(&shared);
        beside(&wheel, move |wheel| {
            let mut cancelled = Vec::<u64>::new();
            for number in first..first + each {
                match thread_rng().gen_range(0..9) {
                    0..2 => acquire_thread_id(wheel),
                    2 => release_thread_id(wheel),
                    _ => {}
                }
                let delay = TICK * thread_rng().gen_range(0..7);
                let ids = shared.lock().unwrap().clone();
                let id = ids.get(thread_rng().gen_range(0..ids.len().max(1)));
                match (thread_rng().gen_range(0..3), id) {
                    (1, Some(&id)) => drop(wheel.reset(id, delay).unwrap()),
                    (2, Some(&id)) => cancelled.extend(wheel.cancel(id).map(u64::from)),
                    _ => {
                        let id = wheel.insert(v(number), delay).unwrap();
                        shared.lock().unwrap().push(id);
                    }
                }
            }
            release_thread_id(wheel);
            cancelled
        })
    });
    let mut ended = Vec::new();
    for step in [0, 1, 0, 2, 5] {
        clock.advance(TICK * step);
        ended.extend(sweep_with_upkeep(&wheel, &mut sweeper));
    }
    for caller in callers {
        ended.extend(caller.join().unwrap());
    }
    ended.extend(sweep_after(&mut sweeper, &clock, 7));
    assert!(drain(&wheel).is_empty(), "due and not handed over");
    let inserted = shared.lock().unwrap().len();
    assert_eq!(ended.len(), inserted, "lost or doubled");
    ended.sort_unstable();
    ended.dedup();
    assert_eq!(ended.len(), inserted, "doubled");
    assert!(wheel.is_empty());
}
