//! An insert against a sweep of the slot it files into. The reference is reserved but not yet
//! written, pushed just after the swap, or filed by an old tick of the sweep.

use loom_tests::{TICK, World, beside, model, sweep, sweep_after, v};

/// The timer fires exactly once, at the latest at the first sweep after its insert returned.
fn insert_while_sweeping(ticks: u32, delay: u32) {
    model(2, move || {
        let World { wheel, mut sweeper, clock } = World::new();
        clock.advance(TICK * ticks);
        let inserter = beside(&wheel, move |wheel| wheel.insert(v(7), TICK * delay).unwrap());
        let mut fired = sweep(&mut sweeper);
        assert!(delay == 0 || fired.is_empty(), "early");
        inserter.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, delay));
        assert_eq!(fired, [7]);
        assert!(wheel.is_empty());
        assert!(sweep_after(&mut sweeper, &clock, 9).is_empty());
    });
}

#[test]
fn overdue() {
    insert_while_sweeping(1, 0);
}

#[test]
fn next_tick() {
    insert_while_sweeping(1, 1);
}

#[test]
fn the_sweep_passes_the_slot_by() {
    insert_while_sweeping(3, 1);
}

#[test]
fn a_slot_of_the_level_above() {
    insert_while_sweeping(2, 3);
}

#[test]
fn into_a_block_that_is_being_taken() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        wheel.insert(v(1), TICK).unwrap();
        let deadline = clock.start() + TICK;
        let inserter = beside(&wheel, move |wheel| wheel.insert_at(v(2), deadline).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        inserter.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 1));
        fired.sort_unstable();
        assert_eq!(fired, [1, 2]);
        assert!(wheel.is_empty());
    });
}

/// The sweeper must see the block, although another inserter marked the slot.
#[test]
fn a_new_block_in_front_of_a_full_one() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        wheel.insert(v(1), TICK).unwrap();
        wheel.insert(v(2), TICK).unwrap();
        let deadline = clock.start() + TICK;
        let inserter = beside(&wheel, move |wheel| wheel.insert_at(v(3), deadline).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        inserter.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 1));
        fired.sort_unstable();
        assert_eq!(fired, [1, 2, 3]);
    });
}
