//! The end of a block against an inserter that stores its reference late. The block outlives the
//! reference, and the reference is read once.
//!
//! AddressSanitizer (`ci/sanitize asan`) shows that no reference is stored in a freed block.

use loom_tests::{TICK, World, beside, model, sweep, sweep_after, v};
use std::time::Instant;

/// A wheel whose timer 1 waits in a block and is due at the returned instant.
fn one_due() -> (World, Instant) {
    let world = World::new();
    world.wheel.insert(v(1), TICK).unwrap();
    world.clock.advance(TICK);
    let due = world.clock.start() + TICK;
    (world, due)
}

/// The slot is taken twice while the inserter is between its reservation and its store. The block
/// that replaces the taken one may have the same address.
#[test]
fn taken_twice() {
    model(2, || {
        let (World { wheel, mut sweeper, clock }, due) = one_due();
        let late = beside(&wheel, move |wheel| wheel.insert_at(v(2), due).unwrap());
        let mut fired = sweep(&mut sweeper);
        wheel.insert(v(3), TICK).unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 1));
        late.join().unwrap();
        fired.extend(sweep(&mut sweeper));
        fired.sort_unstable();
        assert_eq!(fired, [1, 2, 3]);
        assert!(wheel.is_empty());
    });
}

/// The sweeper is dropped, and the wheel with it, before the inserter has stored its reference.
#[test]
fn the_sweeper_is_dropped() {
    model(3, || {
        let (World { wheel, mut sweeper, .. }, due) = one_due();
        let late = beside(&wheel, move |wheel| wheel.insert_at(v(2), due).is_ok());
        drop(wheel);
        let fired = sweep(&mut sweeper);
        drop(sweeper);
        // The insert was accepted or refused. The value is dropped with the wheel or with the
        // refusal.
        late.join().unwrap();
        assert!(fired == [1] || fired == [1, 2] || fired == [2, 1], "{fired:?}");
    });
}

/// Two inserters want the last position of a block that is being taken.
#[test]
fn two_inserters_and_one_place() {
    model(1, || {
        let (World { wheel, mut sweeper, .. }, due) = one_due();
        let others = [2, 3].map(|number| {
            beside(&wheel, move |wheel| assert!(wheel.insert_at(v(number), due).is_ok()))
        });
        let mut fired = sweep(&mut sweeper);
        others.into_iter().for_each(|other| other.join().unwrap());
        fired.extend(sweep(&mut sweeper));
        fired.sort_unstable();
        assert_eq!(fired, [1, 2, 3]);
    });
}
