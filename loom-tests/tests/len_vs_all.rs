//! The count of armed timers against the verbs: never more ended than begun, exact when quiet.

#![allow(clippy::unwrap_used, reason = "a model fails by panicking")]

use loom::thread;
use loom_tests::{TICK, World, model, sweep};

#[test]
fn against_insert_and_cancel() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let other = {
            let wheel = wheel.clone();
            thread::spawn(move || {
                let id = wheel.insert(1, TICK).unwrap();
                wheel.cancel(id)
            })
        };
        assert!(wheel.len() <= 1);
        other.join().unwrap();
        assert_eq!(wheel.len(), 0);
    });
}

#[test]
fn against_insert_and_sweep() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        wheel.insert(1, TICK).unwrap();
        clock.advance(TICK);
        let other = {
            let wheel = wheel.clone();
            thread::spawn(move || {
                let during = wheel.len();
                wheel.insert(2, TICK).unwrap();
                during
            })
        };
        assert_eq!(sweep(&mut sweeper), [1]);
        assert!(other.join().unwrap() <= 1);
        assert_eq!(wheel.len(), 1);
    });
}
