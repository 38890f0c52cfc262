//! The count of armed timers against all operations. It never counts more ends than begins, and is
//! exact when no operation is in progress.

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

/// No fence lies between counting the end and counting the beginning, because a third thread ends
/// the timer.
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

/// One timer is armed throughout, and the count includes it during all other operations.
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
