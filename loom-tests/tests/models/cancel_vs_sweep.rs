//! A cancel against the sweep of the slot that holds the reference, against the sweep of a slot
//! that cascades, and against another cancel. Exactly one of them gets the value.

use loom_tests::{Builder, TICK, World, beside, model, sweep, sweep_after, v};

fn cancel_while_sweeping(delay: u32, step: u32) {
    model(3, move || {
        let World { wheel, mut sweeper, clock } = World::new();
        let id = wheel.insert(v(7), TICK * delay).unwrap();
        clock.advance(TICK * step);
        let canceller = beside(&wheel, move |wheel| wheel.cancel(id));
        let fired = sweep(&mut sweeper);
        let cancelled = canceller.join().unwrap();
        match cancelled {
            Some(value) => assert!(value == v(7) && fired.is_empty()),
            None => assert!(fired == [7] && delay <= step),
        }
        assert!(sweep_after(&mut sweeper, &clock, 9).is_empty());
        assert!(wheel.is_empty());
    });
}

#[test]
fn at_its_deadline() {
    cancel_while_sweeping(1, 1);
}

#[test]
fn while_it_cascades() {
    cancel_while_sweeping(3, 2);
}

#[test]
fn against_another_cancel() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let id = wheel.insert(v(7), TICK).unwrap();
        let other = beside(&wheel, move |wheel| wheel.cancel(id));
        let mine = wheel.cancel(id);
        assert_eq!(mine.or(other.join().unwrap()), Some(v(7)));
        assert_eq!(wheel.len(), 0);
        assert!(sweep_after(&mut sweeper, &clock, 2).is_empty());
    });
}

#[test]
fn and_a_new_timer_in_its_place() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let old = wheel.insert(v(7), TICK).unwrap();
        clock.advance(TICK);
        let other = beside(&wheel, move |wheel| {
            let cancelled = wheel.cancel(old);
            let new = wheel.insert(v(8), TICK).unwrap();
            assert_eq!(wheel.reset(old, TICK), Ok(false));
            (cancelled, new)
        });
        let mut fired = sweep(&mut sweeper);
        let (cancelled, new) = other.join().unwrap();
        assert_ne!(old, new);
        fired.extend(cancelled.map(u64::from));
        assert_eq!(fired, [7]);
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [8]);
    });
}

/// A bounded sweep has a due timer pending while the timer is cancelled or pushed back.
#[test]
fn what_a_bounded_sweep_has_pending() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let ids = [1, 2].map(|number| wheel.insert(v(number), TICK).unwrap());
        clock.advance(TICK);
        let canceller = beside(&wheel, move |wheel| {
            (wheel.cancel(ids[0]).map(u64::from), wheel.reset(ids[1], TICK).unwrap())
        });
        let mut fired = Vec::<u64>::new();
        while !sweeper.sweep_some(1, |timer| fired.push(timer.value.into())).finished {}
        let (cancelled, reset) = canceller.join().unwrap();
        assert_eq!(cancelled.is_some(), !fired.contains(&1));
        assert_eq!(reset, !fired.contains(&2));
        let later = sweep_after(&mut sweeper, &clock, 1);
        assert_eq!(later.len(), usize::from(reset));
        assert!(wheel.is_empty());
    });
}

/// The last place of a bounded wheel, freed by a cancel, is given out once.
#[test]
fn and_two_inserts_that_want_its_place() {
    model(2, || {
        let World { wheel, sweeper: _sweeper, .. } = World::of(Builder::new().capacity(1));
        let id = wheel.insert(v(1), TICK).unwrap();
        let other = beside(&wheel, move |wheel| wheel.insert(v(2), TICK).is_ok());
        assert_eq!(wheel.cancel(id), Some(v(1)));
        let mine = wheel.insert(v(3), TICK).is_ok();
        assert!(!(mine && other.join().unwrap()), "two in one place");
        assert!(wheel.len() <= 1);
    });
}
