//! The sweep advances by more than the window while an insert or a reset is in progress. The tick
//! that the operation has written into the state may by then stand for another one, and the timer
//! is due all the same.

use loom_tests::{HIGH, PAST, TICK, TINY, World, beside, model, sweep, sweep_after, v};

/// Farther than a tick may lie behind the sweep and still be told apart.
const LEAP: u32 = PAST + PAST / 2;

#[test]
fn an_insert_during_a_leap() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::shaped(TINY, 0);
        // The insert must be the first thread, because loom does not reach the whole sweep within
        // it otherwise.
        let sweeping = beside(&wheel, move |_| {
            let fired = sweep_after(&mut sweeper, &clock, LEAP);
            (fired, sweeper, clock)
        });
        wheel.insert(v(7), TICK * 3).unwrap();
        let (mut fired, mut sweeper, clock) = sweeping.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 3));
        assert_eq!(fired, [7], "lost: due {:?}", sweeper.next_deadline());
    });
}

#[test]
fn a_reset_during_a_leap() {
    model(1, || {
        let World { wheel, mut sweeper, clock } = World::shaped(HIGH, 0);
        let start = clock.start();
        let id = wheel.insert(v(7), TICK * 2 * LEAP).unwrap();
        let resetter = beside(&wheel, move |wheel| wheel.reset_at(id, start + TICK * 3).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, LEAP);
        assert!(resetter.join().unwrap());
        fired.extend(sweep(&mut sweeper));
        assert_eq!(fired, [7], "lost: due {:?}", sweeper.next_deadline());
    });
}

/// The timer is overdue already when it is armed, during a catch-up whose steps are short.
#[test]
fn an_overdue_insert_during_a_catch_up() {
    model(1, || {
        let World { wheel, mut sweeper, clock } = World::shaped(HIGH, 0);
        let start = clock.start();
        for tick in [30, 60, 90] {
            wheel.insert(v(tick), TICK * u32::try_from(tick).unwrap()).unwrap();
        }
        let inserter = beside(&wheel, move |wheel| wheel.insert_at(v(7), start + TICK).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, LEAP);
        inserter.join().unwrap();
        fired.extend(sweep(&mut sweeper));
        fired.sort_unstable();
        assert_eq!(fired, [7, 30, 60, 90], "lost: due {:?}", sweeper.next_deadline());
    });
}
