//! Resets against a sweep that leaps over several slots, and so visits references before their
//! expiry. `next_visit` must not stand for a reference that the sweep has moved.

use loom_tests::{Clock, TICK, World, beside, model, sweep, v};

/// The sweep leaps by two ticks. A timer is armed for the slot that it takes on the way, and one
/// resetter is overtaken by another in the middle of its work. Then the timer fires at its
/// deadline.
#[test]
fn a_resetter_is_overtaken() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let start = clock.start();
        clock.advance(TICK * 2);
        let callers = beside(&wheel, move |wheel| {
            let id = wheel.insert_at(v(7), start + TICK * 3).unwrap();
            let overtaken = beside(wheel, move |wheel| {
                assert!(wheel.reset_at(id, start + TICK * 2).is_ok());
            });
            let _ = wheel.reset_at(id, start + TICK * 6).unwrap();
            let _ = wheel.reset_at(id, start + TICK * 3).unwrap();
            overtaken.join().unwrap();
            id
        });
        let mut fired = sweep(&mut sweeper);
        let id = callers.join().unwrap();
        while fired.is_empty() {
            let due = wheel.deadline(id).unwrap() <= clock.now();
            fired = sweep(&mut sweeper);
            assert_eq!(!fired.is_empty(), due, "at {:?}", clock.elapsed());
            clock.advance(TICK);
        }
        assert_eq!(fired, [7]);
    });
}
