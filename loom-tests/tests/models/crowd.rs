//! More concurrent callers and operations than loom can explore, on random schedules.

use loom_tests::explorer::sync::Mutex;
use loom_tests::{
    Clock, TICK, TimerId, World, any_operations, as_if_many_had_fired, beside, drain, random,
    sweep, sweep_with_upkeep, v,
};
use shuttle::rand::{Rng, thread_rng};
use std::sync::Arc;

/// The number of random schedules of each model.
const SCHEDULES: usize = 30_000;

/// Three callers reset two timers repeatedly, while the sweeper sweeps and does its upkeep. Each
/// timer fires at its final deadline.
#[test]
fn many_resets_against_sweeps_and_upkeep() {
    random(SCHEDULES, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let start = clock.start();
        let ids = [3, 6].map(|ticks| wheel.insert(v(ticks.into()), TICK * ticks).unwrap());
        let resetters = [(); 3].map(|()| {
            beside(&wheel, move |wheel| {
                for _ in 0..3 {
                    let (id, at) =
                        (ids[thread_rng().gen_range(0..2)], thread_rng().gen_range(1..9));
                    let _ = wheel.reset_at(id, start + TICK * at).unwrap();
                }
            })
        });
        for step in [0, 1, thread_rng().gen_range(0..3)] {
            clock.advance(TICK * step);
            let _ = sweep_with_upkeep(&wheel, &mut sweeper);
        }
        resetters.into_iter().for_each(|resetter| resetter.join().unwrap());
        for step in [0, 1, 1, 1, 1, 1, 1, 1, 1] {
            clock.advance(TICK * step);
            let due = |id: &TimerId| wheel.deadline(*id).is_some_and(|at| at <= clock.now());
            let expected = ids.iter().filter(|id| due(id)).count();
            assert_eq!(sweep(&mut sweeper).len(), expected, "at {:?}", clock.elapsed());
        }
        assert!(wheel.is_empty(), "lost");
    });
}

#[test]
fn all_verbs() {
    random(SCHEDULES, || any_operations(8));
}

/// Runs every operation, with any id, at any time, and then reuses the entries. Each timer fires at
/// its final deadline.
fn then_all_fire_in_time(drains: bool, upkeep: bool, hoards: bool) {
    random(SCHEDULES, move || {
        let World { wheel, mut sweeper, clock } = World::new();
        let start = clock.start();
        let shared = Arc::new(Mutex::new(Vec::<TimerId>::new()));
        let callers = [0, 100, 200].map(|first| {
            let shared = Arc::clone(&shared);
            beside(&wheel, move |wheel| {
                for number in first..first + 6 {
                    let at = start + TICK * thread_rng().gen_range(0..9);
                    let ids = shared.lock().unwrap().clone();
                    let recent = ids.len().saturating_sub(thread_rng().gen_range(1..4));
                    match (thread_rng().gen_range(0..7 + u32::from(drains)), ids.get(recent)) {
                        (0..=2, Some(&id)) => drop(wheel.reset_at(id, at).unwrap()),
                        (3..=4, Some(&id)) => drop(wheel.cancel(id)),
                        (7, _) => drop(drain(wheel)),
                        _ => {
                            let id = wheel.insert_at(v(number), at).unwrap();
                            shared.lock().unwrap().push(id);
                        }
                    }
                }
            })
        });
        for _ in 0..3 {
            clock.advance(TICK * [0, 1, 2, 2, 3, 4][thread_rng().gen_range(0..6)]);
            if hoards {
                as_if_many_had_fired(&wheel);
            }
            if upkeep {
                let _ = sweep_with_upkeep(&wheel, &mut sweeper);
            } else {
                let _ = sweep(&mut sweeper);
            }
        }
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        let mut ids = shared.lock().unwrap().clone();
        for number in 1000..1004 {
            let at = clock.now() + TICK * thread_rng().gen_range(1..8);
            ids.push(wheel.insert_at(v(number), at).unwrap());
        }
        let mut waiting: Vec<_> = ids.iter().filter_map(|&id| wheel.deadline(id)).collect();
        assert_eq!(waiting.len(), wheel.len());
        for _ in 0..14 {
            let now = clock.now();
            let due = waiting.iter().filter(|&&at| at <= now).count();
            waiting.retain(|&at| at > now);
            assert_eq!(sweep(&mut sweeper).len(), due, "at {:?}", clock.elapsed());
            clock.advance(TICK);
        }
        assert!(wheel.is_empty(), "lost");
    });
}

#[test]
fn all_fire_in_time_after_any_verbs() {
    then_all_fire_in_time(false, false, false);
}

#[test]
fn all_fire_in_time_after_any_verbs_and_upkeep() {
    then_all_fire_in_time(false, true, false);
}

#[test]
fn all_fire_in_time_after_any_verbs_upkeep_and_drains() {
    then_all_fire_in_time(true, true, false);
}

#[test]
fn all_fire_in_time_after_any_verbs_and_hoards() {
    then_all_fire_in_time(false, true, true);
}

/// An inserter is held up on the old top of the vacant stack. Meanwhile the sweeper takes the
/// vacant entries and gives them back, and another inserter is served in between.
#[test]
fn inserts_while_entries_are_hoarded_and_given_back() {
    random(SCHEDULES, || {
        let World { wheel, mut sweeper, .. } = World::new();
        let ids: Vec<_> = (0..6).map(|n| wheel.insert(v(n), TICK * 3).unwrap()).collect();
        // One of three pages is vacant, and so is one entry of each of the others.
        for vacant in [5, 4, 0, 2] {
            assert!(wheel.cancel(ids[vacant]).is_some());
        }
        let inserters =
            [7, 8].map(|n| beside(&wheel, move |wheel| wheel.insert(v(n), TICK * 3).unwrap()));
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        for inserter in inserters {
            inserter.join().unwrap();
        }
        wheel.insert(v(9), TICK * 3).unwrap();
        let mut values = drain(&wheel);
        values.sort_unstable();
        assert_eq!(values, [1, 3, 7, 8, 9]);
    });
}
