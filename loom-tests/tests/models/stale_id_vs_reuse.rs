//! An id whose timer ends against the next timer in the same entry. The late operation does not
//! affect that timer.

use loom_tests::{TICK, TimerId, Value, Wheel, World, beside, model, sweep, sweep_after, v};

/// A timer due at 5 is cancelled and another one, due at 3, is armed in its entry, while `late`
/// uses the old id. The old value is returned once, and the new timer fires at its own deadline.
fn reused_while(
    preemptions: usize,
    late: impl Fn(&Wheel<Value>, TimerId) -> bool + Clone + Send + Sync + 'static,
) {
    model(preemptions, move || {
        let World { wheel, mut sweeper, clock } = World::new();
        let old = wheel.insert(v(7), TICK * 5).unwrap();
        let late = late.clone();
        let other = beside(&wheel, move |wheel| late(wheel, old));
        let cancelled = wheel.cancel(old).is_some();
        let new = wheel.insert(v(8), TICK * 3).unwrap();
        let ended_by_other = other.join().unwrap();
        assert_ne!(cancelled, ended_by_other, "the old timer ends once");
        assert!(!wheel.contains(old));
        assert_eq!(wheel.deadline(new), Some(clock.start() + TICK * 3));
        assert!(sweep_after(&mut sweeper, &clock, 2).is_empty());
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [8]);
        assert!(sweep_after(&mut sweeper, &clock, 6).is_empty());
    });
}

#[test]
fn a_late_cancel() {
    reused_while(3, |wheel, old| wheel.cancel(old).is_some());
}

#[test]
fn a_late_reset_to_later() {
    reused_while(3, |wheel, old| {
        let _ = wheel.reset(old, TICK * 6).unwrap();
        false
    });
}

/// This reset files a reference, writes `next_visit` and clears its flag after the entry has been
/// reused.
#[test]
fn a_late_reset_to_earlier() {
    reused_while(3, |wheel, old| {
        let _ = wheel.reset(old, TICK).unwrap();
        false
    });
}

/// The sweeper visits a reference whose entry has been reused by another timer.
#[test]
fn a_sweep() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let old = wheel.insert(v(7), TICK).unwrap();
        clock.advance(TICK);
        let other = beside(&wheel, move |wheel| {
            let cancelled = wheel.cancel(old).map(u64::from);
            (cancelled, wheel.insert(v(8), TICK).unwrap())
        });
        let mut ended = sweep(&mut sweeper);
        let (cancelled, new) = other.join().unwrap();
        ended.extend(cancelled);
        assert_eq!(ended, [7]);
        assert!(wheel.contains(new));
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [8]);
    });
}
