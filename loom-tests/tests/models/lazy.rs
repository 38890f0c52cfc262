//! The parts of a wheel that are made when they are first needed. A thread makes the slots that it
//! files a reference in, and its own state by its first call. The other models make them before
//! their threads start.

#[cfg(loom)]
use loom_tests::LazyNumber;
use loom_tests::{TICK, World, beside, model, seated, sweep_after, v};

/// Threads that make the same value at the same time agree on one, and see its content.
#[cfg(loom)]
#[test]
fn one_value_is_published() {
    model(3, || {
        let lazy = std::sync::Arc::new(LazyNumber::new());
        let others = [7, 8].map(|number| {
            let lazy = std::sync::Arc::clone(&lazy);
            loom_tests::explorer::thread::spawn(move || lazy.get_or_make(number))
        });
        let seen = lazy.get();
        let [first, second] = others.map(|other| other.join().unwrap());
        assert!(first == second && matches!(first, Some(7 | 8)));
        assert!(seen.is_none() || seen == first);
        assert_eq!(lazy.get(), first);
    });
}

/// A sweep that runs beside the first insert finds its reference, or the insert files it again.
#[test]
fn the_first_insert_beside_a_sweep() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::lazy();
        let other = beside(&wheel, |wheel| wheel.insert(v(1), TICK).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        other.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 1));
        assert_eq!(fired, [1]);
    });
}

/// Two threads make the slots of one row.
#[test]
fn two_first_inserts() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::lazy();
        let other = beside(&wheel, |wheel| wheel.insert(v(1), TICK).unwrap());
        wheel.insert(v(2), TICK).unwrap();
        other.join().unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [1, 2]);
    });
}

/// A thread that has seen the end of a timer also counts its beginning, though the state of the
/// thread that began it is new.
#[test]
fn the_counts_of_a_new_thread() {
    model(2, || {
        let World { wheel, sweeper: _sweeper, .. } = World::lazy();
        let other = seated(&wheel, |wheel| {
            let id = wheel.insert(v(1), TICK).unwrap();
            beside(wheel, move |wheel| assert_eq!(wheel.cancel(id), Some(v(1))))
        });
        let ended = wheel.metrics().cancelled;
        assert!(ended <= wheel.metrics().inserted, "ended and not begun");
        other.join().unwrap().join().unwrap();
        assert_eq!(wheel.len(), 0);
    });
}

/// The next owner gets what a thread leaves behind in a new state.
#[test]
fn a_new_state_is_handed_over() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::lazy();
        let other = seated(&wheel, |wheel| wheel.insert(v(1), TICK).unwrap());
        let mine = seated(&wheel, |wheel| wheel.insert(v(2), TICK).unwrap());
        assert_ne!(other.join().unwrap(), mine.join().unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [1, 2]);
    });
}
