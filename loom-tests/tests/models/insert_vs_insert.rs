//! Inserts against each other, competing for the last position in a block, the first block of a
//! slot, a new page, and the stack of vacant entries (ABA).

use loom_tests::{TICK, World, beside, model, sweep_after, v};

#[test]
fn first_block_and_first_page() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let other = beside(&wheel, move |wheel| wheel.insert(v(1), TICK).unwrap());
        let mine = wheel.insert(v(2), TICK).unwrap();
        assert_ne!(mine, other.join().unwrap());
        assert_eq!(wheel.len(), 2);
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [1, 2]);
    });
}

#[test]
fn last_place_in_a_block() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        wheel.insert(v(0), TICK).unwrap();
        let other = beside(&wheel, move |wheel| wheel.insert(v(1), TICK).unwrap());
        wheel.insert(v(2), TICK).unwrap();
        other.join().unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [0, 1, 2]);
    });
}

#[test]
fn the_vacant_stack_is_not_confused() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        // Two vacant entries, one on top of the other.
        let [a, b] = [1, 2].map(|value| wheel.insert(v(value), TICK * 2).unwrap());
        assert_eq!((wheel.cancel(a), wheel.cancel(b)), (Some(v(1)), Some(v(2))));
        // One thread takes the top. The other takes both and gives the first back.
        let other = beside(&wheel, move |wheel| {
            let first = wheel.insert(v(3), TICK).unwrap();
            wheel.insert(v(4), TICK).unwrap();
            assert_eq!(wheel.cancel(first), Some(v(3)));
        });
        wheel.insert(v(5), TICK).unwrap();
        other.join().unwrap();
        wheel.insert(v(6), TICK).unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [4, 5, 6]);
    });
}
