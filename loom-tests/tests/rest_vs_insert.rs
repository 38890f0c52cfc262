//! A sweeper that goes to rest against an insert, or a reset to earlier: no wake-up is lost.

#![allow(clippy::unwrap_used, reason = "a model fails by panicking")]

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::{Builder, Clock, TICK, TimerId, Wheel, World, model, sweep};
use std::time::Duration;

fn rests(
    before: Option<u32>,
    earlier: impl Fn(&Wheel<u64>, Option<TimerId>) + Clone + Send + Sync + 'static,
) {
    model(2, move || {
        let rung = Arc::new(AtomicBool::new(false));
        let ring = Arc::clone(&rung);
        let builder = Builder::new().waker(move || ring.store(true, Relaxed));
        let World { wheel, mut sweeper, clock } = World::of(builder);
        let old = before.map(|ticks| wheel.insert(1, TICK * ticks).unwrap());
        let other = {
            let (wheel, earlier) = (wheel.clone(), earlier.clone());
            thread::spawn(move || earlier(&wheel, old))
        };
        let until = sweeper.next_deadline();
        other.join().unwrap();
        // Either the sweeper has seen the earlier timer, or it was rung.
        let in_time = until.is_some_and(|until| until <= clock.now() + TICK);
        assert!(in_time || rung.load(Relaxed), "rests until {until:?}");
    });
}

#[test]
fn from_nothing() {
    rests(None, |wheel, _| assert!(wheel.insert(2, TICK).is_ok()));
}

#[test]
fn before_a_later_timer() {
    rests(Some(4), |wheel, _| assert!(wheel.insert(2, TICK).is_ok()));
}

#[test]
fn a_reset_to_earlier() {
    rests(Some(4), |wheel, id| {
        assert_eq!(wheel.reset(id.unwrap(), TICK), Ok(true));
    });
}

/// The sweep takes the block while the inserter has reserved its place and not written it.
#[test]
fn after_a_sweep_that_took_an_unwritten_name() {
    model(3, || {
        let rung = Arc::new(AtomicBool::new(false));
        let ring = Arc::clone(&rung);
        let builder = Builder::new().waker(move || ring.store(true, Relaxed));
        let World { wheel, mut sweeper, clock } = World::of(builder);
        wheel.insert(1, Duration::ZERO).unwrap();
        let other = {
            let wheel = wheel.clone();
            thread::spawn(move || wheel.insert(2, Duration::ZERO).unwrap())
        };
        let mut fired = sweep(&mut sweeper);
        let until = sweeper.next_deadline();
        other.join().unwrap();
        let in_time = until.is_some_and(|until| until <= clock.now());
        assert!(fired.len() == 2 || in_time || rung.load(Relaxed), "rests until {until:?}");
        fired.extend(sweep(&mut sweeper));
        assert_eq!(fired.len(), 2);
    });
}
