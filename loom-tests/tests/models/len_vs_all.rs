//! The count of armed timers against the verbs: never more ended than begun, exact when quiet.

use loom_tests::{TICK, World, beside, comes_and_goes, model, sweep, v};

#[test]
fn against_insert_and_cancel() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let other = beside(&wheel, move |wheel| {
            let id = wheel.insert(v(1), TICK).unwrap();
            wheel.cancel(id)
        });
        assert!(wheel.len() <= 1);
        other.join().unwrap();
        assert_eq!(wheel.len(), 0);
    });
}

/// No fence lies between the end's count and the beginning's: a third thread ends the timer.
#[test]
fn against_a_cancel_by_another_thread() {
    model(2, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let inserter = beside(&wheel, move |wheel| {
            let id = wheel.insert(v(1), TICK).unwrap();
            beside(wheel, move |wheel| assert_eq!(wheel.cancel(id), Some(v(1))))
        });
        let ended = wheel.metrics().cancelled;
        assert!(ended <= wheel.metrics().inserted, "ended and not begun");
        inserter.join().unwrap().join().unwrap();
        assert_eq!(wheel.len(), 0);
    });
}

/// One is armed all the while: whatever comes and goes, the count says so.
#[test]
fn against_verbs_on_another_timer() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        wheel.insert(v(1), TICK * 3).unwrap();
        let other = comes_and_goes(&wheel);
        assert!((1..=2).contains(&wheel.len()));
        other.join().unwrap();
        assert_eq!(wheel.len(), 1);
    });
}

#[test]
fn against_insert_and_sweep() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        wheel.insert(v(1), TICK).unwrap();
        clock.advance(TICK);
        let other = beside(&wheel, move |wheel| {
            let during = wheel.len();
            wheel.insert(v(2), TICK).unwrap();
            during
        });
        assert_eq!(sweep(&mut sweeper), [1]);
        assert!(other.join().unwrap() <= 1);
        assert_eq!(wheel.len(), 1);
    });
}

#[test]
fn against_drain_and_reset() {
    model(2, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let id = wheel.insert(v(1), TICK * 3).unwrap();
        let other = beside(&wheel, move |wheel| {
            let _ = wheel.reset(id, TICK).unwrap();
            wheel.drain().len()
        });
        assert!(wheel.len() <= 1);
        assert_eq!(other.join().unwrap(), 1);
        assert_eq!(wheel.len(), 0);
    });
}
