//! `next_visit` against the sweeper's refiling. A reset relies on a reference, or on `next_visit`,
//! while the sweeper moves the reference to a nearer slot.

use loom_tests::{Geometry, HIGH, TICK, TINY, World, beside, model, sweep_after, v};

/// A timer due at `deadline` waits in the upper level. It is reset to each of `resets` in turn
/// while the sweep that refiles it is in progress, and fires at the last one.
fn reset_while_refiled(shape: Geometry, deadline: u32, sweep_at: u32, resets: &'static [u32]) {
    model(2, move || {
        let World { wheel, mut sweeper, clock } = World::shaped(shape, 0);
        let start = clock.start();
        let id = wheel.insert(v(7), TICK * deadline).unwrap();
        clock.advance(TICK * sweep_at);
        let resetter = beside(&wheel, move |wheel| {
            for &at in resets {
                assert_eq!(wheel.reset_at(id, start + TICK * at), Ok(true));
            }
        });
        assert!(sweep_after(&mut sweeper, &clock, 0).is_empty());
        resetter.join().unwrap();
        let due = *resets.last().unwrap();
        for _ in sweep_at + 1..due {
            assert!(sweep_after(&mut sweeper, &clock, 1).is_empty(), "early");
        }
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [7]);
        assert!(wheel.is_empty());
    });
}

#[test]
fn to_later() {
    reset_while_refiled(TINY, 3, 2, &[5]);
}

#[test]
fn to_the_tick_it_is_filed_for() {
    reset_while_refiled(TINY, 5, 4, &[7, 6]);
}

#[test]
fn to_earlier_than_it_is_filed_for() {
    reset_while_refiled(TINY, 7, 2, &[3]);
}

#[test]
fn to_later_and_to_earlier() {
    reset_while_refiled(TINY, 3, 2, &[9, 4]);
}

#[test]
fn to_earlier_and_by_the_reference_half_way() {
    reset_while_refiled(HIGH, 20, 4, &[9, 6]);
}
