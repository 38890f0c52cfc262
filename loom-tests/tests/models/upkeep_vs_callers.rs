//! Upkeep against callers. A slot is taken early while a reference is filed into it or a timer in
//! it is reset. A page is taken out while a stale id is looked up, and while entries are claimed.

use loom_tests::{
    TICK, TimerId, Value, Wheel, World, beside, model, sweep, sweep_after, sweep_with_upkeep, v,
};
use std::time::Duration;

/// Produces garbage, in the form of `timers` ended timers that leave as many stale references and
/// vacant entries.
fn garbage(wheel: &Wheel<Value>, timers: u64) -> Vec<TimerId> {
    let ids: Vec<TimerId> = (0..timers).map(|n| wheel.insert(v(n), TICK * 2).unwrap()).collect();
    for &id in &ids {
        assert!(wheel.cancel(id).is_some());
    }
    ids
}

/// The inserter's entry has no reference from before, so it files one.
#[test]
fn an_insert_into_a_slot_that_is_pruned() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let stale = wheel.insert(v(1), TICK * 2).unwrap();
        wheel.insert(v(2), Duration::ZERO).unwrap();
        assert!(wheel.cancel(stale).is_some());
        assert_eq!(sweep(&mut sweeper), [2]);
        let inserter = beside(&wheel, move |wheel| wheel.insert(v(7), TICK * 2).unwrap());
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        inserter.join().unwrap();
        assert!(sweep_after(&mut sweeper, &clock, 1).is_empty());
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [7]);
    });
}

/// The inserter relies on a stale reference in the slot, or finds that it is gone.
#[test]
fn an_insert_that_relies_on_a_reference_that_is_pruned() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        garbage(&wheel, 4);
        // Keeps the page of the entry that is used next.
        wheel.insert(v(6), TICK * 2).unwrap();
        let inserter = beside(&wheel, move |wheel| wheel.insert(v(7), TICK * 2).unwrap());
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        inserter.join().unwrap();
        assert!(sweep_after(&mut sweeper, &clock, 1).is_empty());
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [6, 7]);
    });
}

#[test]
fn a_reset_of_a_timer_in_a_slot_that_is_pruned() {
    for (old, new) in [(2, 3), (3, 2), (3, 1)] {
        model(2, move || {
            let World { wheel, mut sweeper, clock } = World::new();
            garbage(&wheel, 2);
            let id = wheel.insert(v(7), TICK * old).unwrap();
            let resetter =
                beside(&wheel, move |wheel| assert_eq!(wheel.reset(id, TICK * new), Ok(true)));
            assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
            resetter.join().unwrap();
            assert!(sweep_after(&mut sweeper, &clock, new - 1).is_empty());
            assert_eq!(sweep_after(&mut sweeper, &clock, 1), [7]);
        });
    }
}

#[test]
fn a_redundant_reference_is_dropped_while_the_timer_is_reset() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        // There are two references, at 3 and at 1. The deadline is 3 again.
        let id = wheel.insert(v(7), TICK * 3).unwrap();
        assert_eq!(wheel.reset(id, TICK), Ok(true));
        assert_eq!(wheel.reset(id, TICK * 3), Ok(true));
        garbage(&wheel, 2);
        let resetter = beside(&wheel, move |wheel| assert_eq!(wheel.reset(id, TICK * 2), Ok(true)));
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        resetter.join().unwrap();
        assert!(sweep_after(&mut sweeper, &clock, 1).is_empty());
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [7]);
        assert!(wheel.is_empty());
    });
}

#[test]
fn a_stale_id_on_a_page_that_leaves() {
    model(2, || {
        let World { wheel, mut sweeper, .. } = World::new();
        let ids = garbage(&wheel, 3);
        let late = beside(&wheel, move |wheel| {
            for id in ids {
                assert_eq!(wheel.cancel(id), None);
                assert_eq!(wheel.reset(id, TICK), Ok(false));
            }
        });
        let before = wheel.metrics().bytes;
        sweep_with_upkeep(&wheel, &mut sweeper);
        assert!(wheel.metrics().bytes < before, "no page has gone");
        late.join().unwrap();
    });
}

#[test]
fn an_insert_while_pages_leave_and_come() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let old = garbage(&wheel, 2);
        let inserter = beside(&wheel, move |wheel| {
            let first = wheel.insert(v(7), TICK).unwrap();
            (first, wheel.insert(v(8), TICK).unwrap())
        });
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        let (first, second) = inserter.join().unwrap();
        let mine = wheel.insert(v(9), TICK).unwrap();
        let mut ids = vec![old[0], old[1], first, second, mine];
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 5, "an id was given out twice");
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [7, 8, 9]);
    });
}
