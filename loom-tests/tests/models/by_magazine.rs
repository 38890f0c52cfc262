//! Inserts by a thread with a vacant entry in its magazines, into a block that has room. Only a
//! pinned insert is the usual case from the start here, because the models' clock has no readings
//! that an insert can reuse.

#[cfg(shuttle)]
use loom_tests::explorer::thread;
use loom_tests::{
    InsertError, Refusal, Sweeper, TICK, TimerId, Value, Wheel, World, beside, drain, in_a_seat,
    model, seated, sweep, sweep_after, v,
};
use std::time::Instant;

/// Orphans a vacant entry for the next thread with an id of its own. Its reference waits for longer
/// than the models' timers may.
fn leave_an_entry(wheel: &Wheel<Value>) {
    in_a_seat(wheel, |wheel| {
        let id = wheel.insert(v(9), TICK * 4).unwrap();
        assert_eq!(wheel.cancel(id), Some(v(9)));
    });
}

/// Also files the reference to a timer, in a block that has room, one tick ahead. The sweeper
/// expects references of that tick from now on. Returns the timer's id.
fn prepare(wheel: &Wheel<Value>, sweeper: &mut Sweeper<Value>) -> TimerId {
    leave_an_entry(wheel);
    let id = wheel.insert(v(1), TICK).unwrap();
    assert_eq!(sweep(sweeper), []);
    id
}

/// Both timers fire exactly once.
fn against_a_sweep(ticks: u32) {
    model(2, move || {
        let World { wheel, mut sweeper, clock } = World::new();
        prepare(&wheel, &mut sweeper);
        let deadline = clock.start() + TICK;
        let inserter = seated(&wheel, move |wheel| wheel.insert_at(v(7), deadline).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, ticks);
        inserter.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 1));
        fired.sort_unstable();
        assert_eq!(fired, [1, 7]);
        assert!(wheel.is_empty());
    });
}

#[test]
fn a_sweep_of_the_slot() {
    against_a_sweep(1);
}

#[test]
fn a_sweep_that_passes_the_slot_by() {
    against_a_sweep(3);
}

/// The thread that made the block may not have marked its slot yet when the sweep passes it. (Too
/// large for loom.)
#[cfg(shuttle)]
#[test]
fn a_slot_that_is_not_marked_yet() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        leave_an_entry(&wheel);
        let deadline = clock.start() + TICK;
        let maker = beside(&wheel, move |wheel| wheel.insert_at(v(1), deadline).unwrap());
        let sweeping = {
            let clock = clock.clone();
            thread::spawn(move || {
                let fired = sweep_after(&mut sweeper, &clock, 1);
                (sweeper, fired)
            })
        };
        in_a_seat(&wheel, |wheel| wheel.insert_at(v(7), deadline).unwrap());
        let (mut sweeper, mut fired) = sweeping.join().unwrap();
        fired.extend(sweep(&mut sweeper));
        assert!(fired.contains(&7), "late");
        maker.join().unwrap();
        fired.extend(sweep(&mut sweeper));
        fired.sort_unstable();
        assert_eq!(fired, [1, 7]);
    });
}

/// The block has one position left. The slower inserter makes another block.
#[test]
fn two_and_one_place() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        prepare(&wheel, &mut sweeper);
        // This thread must be the one that begins later, because loom does not reach it beside the
        // other one.
        let deadline = clock.start() + TICK;
        let other = beside(&wheel, move |wheel| wheel.insert_at(v(8), deadline).unwrap());
        in_a_seat(&wheel, |wheel| wheel.insert_at(v(7), deadline).unwrap());
        other.join().unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [1, 7, 8]);
    });
}

/// Runs an insert against the closing and draining of the wheel.
fn against_the_closing(insert: fn(&Wheel<Value>, Instant) -> Result<TimerId, InsertError<Value>>) {
    model(2, move || {
        let World { wheel, mut sweeper, clock } = World::new();
        prepare(&wheel, &mut sweeper);
        // This thread must be the one that begins later, for loom's sake.
        let closer = beside(&wheel, |wheel| {
            wheel.close();
            drain(wheel)
        });
        let deadline = clock.start() + TICK;
        let inserted = in_a_seat(&wheel, |wheel| insert(wheel, deadline));
        let mut drained = closer.join().unwrap();
        drained.sort_unstable();
        match inserted {
            Ok(_) => assert_eq!(drained, [1, 7]),
            Err(refused) => {
                assert_eq!((refused.reason, refused.value), (Refusal::Closed, v(7)));
                assert_eq!(drained, [1]);
            }
        }
        assert!(wheel.is_empty());
    });
}

#[test]
fn the_closing_and_draining() {
    against_the_closing(|wheel, deadline| wheel.insert_at(v(7), deadline));
}

/// The usual case of an insert: the entry comes from the magazine before anything else is tried.
#[test]
fn the_closing_against_a_pinned_insert() {
    against_the_closing(|wheel, deadline| wheel.pin().insert_at(v(7), deadline));
}

/// The entry may be drained, and armed by another thread, before the inserter has filed its
/// reference. (The existing reference is stale. If its timer were drained as well, its entry would
/// be the one to be armed.)
#[test]
fn a_drain_and_the_next_timer_of_the_entry() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let there = prepare(&wheel, &mut sweeper);
        assert_eq!(wheel.cancel(there), Some(v(1)));
        let drainer = beside(&wheel, |wheel| {
            let drained = drain(wheel);
            wheel.insert(v(8), TICK).unwrap();
            drained
        });
        let deadline = clock.start() + TICK;
        in_a_seat(&wheel, |wheel| wheel.insert_at(v(7), deadline).unwrap());
        let mut values = drainer.join().unwrap();
        clock.advance(TICK);
        values.extend(sweep(&mut sweeper));
        values.sort_unstable();
        assert_eq!(values, [7, 8]);
    });
}
