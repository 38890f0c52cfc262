//! The next timer of an entry relies on a reference that was filed for an earlier one. No reference
//! that `next_visit` stands for is gone.
//!
//! Shuttle finds the faults that the second and the last model are for. Loom finds neither within
//! one or two preemptions. With two (`ci/models loom 1`) they take as long as all other models
//! together.

use loom_tests::{Clock, TICK, World, beside, drain, model, sweep, sweep_after, v};

/// The sweep visits the reference and discards it, because the timer for which it was filed has
/// been cancelled. The next timer either relies on it before that, or files its own.
#[test]
fn while_the_sweep_visits_the_reference() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let (start, before) = (clock.start(), wheel.insert(v(1), TICK).unwrap());
        assert_eq!(wheel.cancel(before), Some(v(1)));
        let swept = beside(&wheel, {
            let clock = clock.clone();
            move |_| (sweep_after(&mut sweeper, &clock, 1), sweeper)
        });
        wheel.insert_at(v(7), start + TICK * 2).unwrap();
        let (mut fired, mut sweeper) = swept.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 1));
        assert_eq!(fired, [7]);
    });
}

/// A drain ends a timer whose insert has written `next_visit` and not yet filed the reference.
#[test]
fn after_a_drain_during_the_insert() {
    model(1, || {
        let World { wheel, mut sweeper, clock } = World::new();
        // The insert must be the first thread, because loom does not reach a drain beside one that
        // begins later.
        let drainer = beside(&wheel, move |wheel| {
            drain(wheel);
            wheel.insert(v(2), TICK).unwrap();
            let fired = sweep_after(&mut sweeper, &clock, 1);
            assert!(fired.contains(&2), "late: {fired:?}");
            sweeper
        });
        wheel.insert(v(1), TICK).unwrap();
        drop(drainer.join().unwrap());
    });
}

/// A reference is visited one expiry early and ends its timer, which was reset to a tick that has
/// passed.
#[test]
fn after_a_reference_was_due_before_its_expiry() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let start = clock.start();
        clock.advance(TICK * 2);
        let caller = beside(&wheel, move |wheel| {
            let id = wheel.insert_at(v(7), start + TICK * 3).unwrap();
            wheel.reset_at(id, start + TICK * 2).unwrap()
        });
        let mut fired = sweep(&mut sweeper);
        assert!(caller.join().unwrap());
        fired.extend(sweep(&mut sweeper));
        assert_eq!(fired, [7]);
        wheel.insert_at(v(8), start + TICK * 3).unwrap();
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [8]);
    });
}

/// The same, while the resetter that filed the reference has not written `next_visit` yet.
#[test]
fn after_a_reference_was_due_before_its_expiry_and_its_next_visit() {
    model(1, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let start = clock.start();
        let id = wheel.insert_at(v(7), start + TICK * 9).unwrap();
        clock.advance(TICK * 2);
        let resetters = [3, 2].map(|ticks| {
            beside(&wheel, move |wheel| wheel.reset_at(id, start + TICK * ticks).unwrap())
        });
        let mut fired = sweep(&mut sweeper);
        for resetter in resetters {
            let _ = resetter.join().unwrap();
        }
        fired.extend(sweep(&mut sweeper));
        if fired == [7] {
            wheel.insert_at(v(8), start + TICK * 3).unwrap();
            assert_eq!(sweep_after(&mut sweeper, &clock, 1), [8]);
        } else {
            assert_eq!(wheel.deadline(id), Some(start + TICK * 3));
            assert_eq!(sweep_after(&mut sweeper, &clock, 1), [7]);
        }
        assert!(clock.now() == start + TICK * 3 && wheel.is_empty());
    });
}
