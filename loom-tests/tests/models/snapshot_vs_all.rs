//! A snapshot of all timers against the other operations. Each timer is shown as it was at some
//! instant during the snapshot.

use loom_tests::{TICK, World, beside, comes_and_goes, model, sweep, v};

/// One timer is armed throughout and is always shown, even if others are inserted and cancelled.
#[test]
fn against_insert_and_cancel() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        wheel.insert(v(1), TICK * 3).unwrap();
        let other = comes_and_goes(&wheel);
        let snapshot = wheel.snapshot();
        other.join().unwrap();
        let next = snapshot.next.map(|at| at - snapshot.taken);
        assert!([(1, Some(TICK * 3)), (2, Some(TICK))].contains(&(snapshot.armed, next)));
    });
}

#[test]
fn against_a_reset() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let id = wheel.insert(v(1), TICK * 3).unwrap();
        let other = beside(&wheel, move |wheel| wheel.reset(id, TICK * 2).unwrap());
        let snapshot = wheel.snapshot();
        let ahead = snapshot.next.unwrap() - snapshot.taken;
        assert!([TICK * 2, TICK * 3].contains(&ahead));
        assert!(other.join().unwrap());
        assert_eq!(wheel.snapshot().next, Some(snapshot.taken + TICK * 2));
    });
}

#[test]
fn against_a_sweep() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        wheel.insert(v(1), TICK).unwrap();
        clock.advance(TICK);
        let due = wheel.snapshot().taken;
        let other = beside(&wheel, move |wheel| wheel.snapshot().next);
        assert_eq!(sweep(&mut sweeper), [1]);
        assert!(other.join().unwrap().is_none_or(|at| at == due));
        assert_eq!((wheel.snapshot().next, wheel.snapshot().armed), (None, 0));
    });
}
