//! A sweeper that goes to rest against an insert, or a reset to earlier. No wake-up is lost.

use loom_tests::explorer::sync::atomic::AtomicBool;
use loom_tests::{Builder, Clock, TICK, TimerId, Value, Wheel, World, beside, model, sweep, v};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

fn rests(
    before: Option<u32>,
    earlier: impl Fn(&Wheel<Value>, Option<TimerId>) + Clone + Send + Sync + 'static,
) {
    model(2, move || {
        let woken = Arc::new(AtomicBool::new(false));
        let wake = Arc::clone(&woken);
        let builder = Builder::new().waker(move || wake.store(true, Relaxed));
        let World { wheel, mut sweeper, clock } = World::of(builder);
        let old = before.map(|ticks| wheel.insert(v(1), TICK * ticks).unwrap());
        let earlier = earlier.clone();
        let other = beside(&wheel, move |wheel| earlier(wheel, old));
        let until = sweeper.next_deadline();
        other.join().unwrap();
        // Either the sweeper has seen the earlier timer, or it was woken.
        let in_time = until.is_some_and(|until| until <= clock.now() + TICK);
        assert!(in_time || woken.load(Relaxed), "rests until {until:?}");
        // One wake-up is enough. The progress that the sweeper reads when it wakes needs no other.
        let until = sweeper.next_deadline();
        assert!(until.is_some_and(|until| until <= clock.now() + TICK), "rests until {until:?}");
    });
}

#[test]
fn from_nothing() {
    rests(None, |wheel, _| assert!(wheel.insert(v(2), TICK).is_ok()));
}

#[test]
fn before_a_later_timer() {
    rests(Some(4), |wheel, _| assert!(wheel.insert(v(2), TICK).is_ok()));
}

#[test]
fn a_reset_to_earlier() {
    rests(Some(4), |wheel, id| {
        assert_eq!(wheel.reset(id.unwrap(), TICK), Ok(true));
    });
}

/// The sweep takes the block after the inserter has reserved its position and before it has written
/// it.
#[test]
fn after_a_sweep_that_took_an_unwritten_reference() {
    model(3, || {
        let woken = Arc::new(AtomicBool::new(false));
        let wake = Arc::clone(&woken);
        let builder = Builder::new().waker(move || wake.store(true, Relaxed));
        let World { wheel, mut sweeper, clock } = World::of(builder);
        wheel.insert(v(1), Duration::ZERO).unwrap();
        let other = beside(&wheel, move |wheel| wheel.insert(v(2), Duration::ZERO).unwrap());
        let mut fired = sweep(&mut sweeper);
        let until = sweeper.next_deadline();
        other.join().unwrap();
        let in_time = until.is_some_and(|until| until <= clock.now());
        assert!(fired.len() == 2 || in_time || woken.load(Relaxed), "rests until {until:?}");
        fired.extend(sweep(&mut sweeper));
        assert_eq!(fired.len(), 2);
    });
}
