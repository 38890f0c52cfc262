//! Closing and draining against an insert. An accepted timer is drained, and a refused value is
//! returned.

use loom_tests::{
    Refusal, TICK, World, beside, drain, exhaust_blocks, model, sweep, sweep_after, v,
};
use std::time::Duration;

/// Runs an insert against the closing and draining of a wheel that has other timers of these
/// values.
fn drained_or_refused(World { wheel, sweeper: _sweeper, .. }: World, others: &[u64]) {
    let inserter = beside(&wheel, move |wheel| wheel.insert(v(7), TICK));
    wheel.close();
    let mut drained = drain(&wheel);
    drained.sort_unstable();
    match inserter.join().unwrap() {
        Ok(_) => assert_eq!(drained, [others, &[7]].concat()),
        Err(refused) => {
            assert_eq!((refused.reason, refused.value), (Refusal::Closed, v(7)));
            assert_eq!(drained, others);
        }
    }
    assert!(wheel.is_empty());
}

#[test]
fn an_insert_that_files_its_reference() {
    model(3, || drained_or_refused(World::new(), &[]));
}

/// The slot has a block with room, so the reference is filed in the usual way, with one fence.
#[test]
fn an_insert_into_an_occupied_slot() {
    model(3, || {
        let mut world = World::new();
        world.wheel.insert(v(1), TICK).unwrap();
        assert_eq!(world.sweeper.next_deadline(), Some(world.clock.start() + TICK));
        drained_or_refused(world, &[1]);
    });
}

/// This insert passes no fence.
#[test]
fn an_insert_that_relies_on_a_reference() {
    model(3, || {
        let world = World::new();
        let before = world.wheel.insert(v(1), TICK).unwrap();
        assert_eq!(world.wheel.cancel(before), Some(v(1)));
        drained_or_refused(world, &[]);
    });
}

/// The drain passes no fence. It observes the timer through the timer's state alone. The entry's
/// old reference is overdue, so the insert files its own. Otherwise the insert relies on that
/// reference.
#[test]
fn drain_of_an_open_wheel() {
    for before in [Duration::ZERO, TICK] {
        model(3, move || {
            let World { wheel, mut sweeper, clock } = World::new();
            // The page exists before, so that the drain reaches its entries.
            let warm = wheel.insert(v(1), before).unwrap();
            assert_eq!(wheel.cancel(warm), Some(v(1)));
            // The drain must be the thread that begins later, because loom does not reach it beside
            // an insert otherwise.
            let drainer = beside(&wheel, drain);
            assert!(wheel.insert(v(7), TICK).is_ok());
            let mut values = drainer.join().unwrap();
            clock.advance(TICK);
            values.extend(sweep(&mut sweeper));
            assert_eq!(values, [7]);
        });
    }
}

#[test]
fn drain_against_drain() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let id = wheel.insert(v(7), TICK * 3).unwrap();
        let other = beside(&wheel, move |wheel| {
            let _ = wheel.reset(id, TICK);
            wheel.drain().len()
        });
        let mine = wheel.drain().len();
        assert_eq!(mine + other.join().unwrap(), 1);
        assert!(wheel.is_empty());
    });
}

#[test]
fn drain_against_sweep() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        wheel.insert(v(7), TICK).unwrap();
        clock.advance(TICK);
        let drainer = beside(&wheel, move |wheel| wheel.drain().len());
        let fired = sweep(&mut sweeper).len();
        assert_eq!(fired + drainer.join().unwrap(), 1);
        assert!(wheel.is_empty());
    });
}

/// An insert for whose reference there is no memory takes its timer back, or the drain gets it.
#[test]
fn an_insert_without_memory_against_a_drain() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        exhaust_blocks(&wheel, true);
        let inserter = beside(&wheel, |wheel| match wheel.insert(v(7), TICK) {
            Ok(_) => false,
            Err(refused) => {
                assert_eq!((refused.reason, refused.value), (Refusal::OutOfMemory, v(7)));
                true
            }
        });
        let drained = drain(&wheel);
        let refused = inserter.join().unwrap();
        assert_eq!(drained.len(), usize::from(!refused));
        exhaust_blocks(&wheel, false);
        wheel.insert(v(8), TICK).unwrap();
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [8]);
        assert!(wheel.is_empty());
    });
}
