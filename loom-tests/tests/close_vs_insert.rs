//! Closing and draining against an insert: an accepted timer is drained, a refused value returns.

#![allow(clippy::unwrap_used, reason = "a model fails by panicking")]

use loom::thread;
use loom_tests::{Refusal, TICK, World, model, sweep};

#[test]
fn drained_or_refused() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let inserter = {
            let wheel = wheel.clone();
            thread::spawn(move || wheel.insert(7, TICK))
        };
        wheel.close();
        let drained: Vec<u64> = wheel.drain().into_iter().map(|timer| timer.value).collect();
        match inserter.join().unwrap() {
            Ok(_) => assert_eq!(drained, [7]),
            Err(refused) => {
                assert_eq!((refused.reason, refused.value), (Refusal::Closed, 7));
                assert!(drained.is_empty());
            }
        }
        assert!(wheel.is_empty());
    });
}

/// No fence on the drain's side: what it sees of the timer comes with the timer's state alone.
#[test]
fn drain_of_an_open_wheel() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        // The page is there before, so that the drain comes by its entries.
        let warm = wheel.insert(1, TICK).unwrap();
        assert_eq!(wheel.cancel(warm), Some(1));
        let inserter = {
            let wheel = wheel.clone();
            thread::spawn(move || assert!(wheel.insert(7, TICK).is_ok()))
        };
        let mut values: Vec<u64> = wheel.drain().into_iter().map(|timer| timer.value).collect();
        inserter.join().unwrap();
        clock.advance(TICK);
        values.extend(sweep(&mut sweeper));
        assert_eq!(values, [7]);
    });
}

#[test]
fn drain_against_sweep() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        wheel.insert(7, TICK).unwrap();
        clock.advance(TICK);
        let drainer = {
            let wheel = wheel.clone();
            thread::spawn(move || wheel.drain().len())
        };
        let fired = sweep(&mut sweeper).len();
        assert_eq!(fired + drainer.join().unwrap(), 1);
        assert!(wheel.is_empty());
    });
}
