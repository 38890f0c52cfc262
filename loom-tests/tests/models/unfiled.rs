//! There is no memory for another block of references. A timer without a reference is found all the
//! same.

use loom_tests::{
    HIGH, Refusal, TICK, TimerId, World, beside, drain, exhaust_blocks, model, sweep, sweep_after,
    sweep_with_upkeep, v,
};

/// Inserts a far timer (7) and a near one (1), whose block has room for the far one's reference.
/// There is no memory for another block, and enough references are stale for the next upkeep to
/// tidy them.
fn exhausted() -> (World, TimerId) {
    let world = World::shaped(HIGH, 0);
    let (wheel, start) = (&world.wheel, world.clock.start());
    let far = wheel.insert_at(v(7), start + TICK * 9).unwrap();
    wheel.insert_at(v(1), start + TICK * 2).unwrap();
    let stale = [3, 4, 5].map(|n| wheel.insert_at(v(n), start + TICK * 12).unwrap());
    stale.into_iter().for_each(|id| drop(wheel.cancel(id)));
    exhaust_blocks(wheel, true);
    (world, far)
}

/// A resetter has filed its reference in a block that has room, and has not published it. The
/// sweeper takes the reference before its expiry, and cannot file it again. The next reset relies
/// on no reference that is missing.
#[test]
fn a_reference_that_cannot_be_filed_again() {
    model(2, || {
        let (World { wheel, mut sweeper, clock }, far) = exhausted();
        let start = clock.start();
        let resetter = beside(&wheel, move |wheel| {
            for ticks in [2, 3] {
                assert_eq!(wheel.reset_at(far, start + TICK * ticks), Ok(true));
            }
        });
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        resetter.join().unwrap();
        assert_eq!(sweep_after(&mut sweeper, &clock, 2), [1]);
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [7]);
        assert!(wheel.is_empty());
    });
}

/// The same, and the timer ends meanwhile. The next timer of the entry relies on no missing
/// reference either.
#[test]
fn the_next_timer_of_the_entry() {
    model(2, || {
        let (World { wheel, mut sweeper, clock }, far) = exhausted();
        let start = clock.start();
        let resetter = beside(&wheel, move |wheel| {
            let _may_have_ended = wheel.reset_at(far, start + TICK * 2).unwrap();
        });
        assert_eq!(wheel.cancel(far), Some(v(7)));
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        resetter.join().unwrap();
        exhaust_blocks(&wheel, false);
        wheel.insert_at(v(8), start + TICK * 3).unwrap();
        assert_eq!(sweep_after(&mut sweeper, &clock, 2), [1]);
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [8]);
    });
}

/// A timer that was moved and has no reference is visited by the sweep in progress, or the next.
#[test]
fn a_reset_without_a_reference() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::shaped(HIGH, 0);
        let start = clock.start();
        let late = wheel.insert_at(v(7), start + TICK * 9).unwrap();
        exhaust_blocks(&wheel, true);
        let resetter = beside(&wheel, move |wheel| {
            assert_eq!(wheel.reset_at(late, start + TICK), Ok(true));
        });
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        resetter.join().unwrap();
        assert!(sweeper.next_deadline() <= Some(start + TICK * 2) || fired == [7]);
        fired.extend(sweep(&mut sweeper));
        assert_eq!(fired, [7]);
    });
}

/// An insert takes its timer back, or the drain gets it.
#[test]
fn an_insert_against_a_drain() {
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

/// The sweeper finds no memory to refile a reference, while a reset relies on `next_visit` of the
/// entry.
#[test]
fn a_refiling_without_memory_against_a_reset() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::shaped(HIGH, 0);
        let start = clock.start();
        let late = wheel.insert_at(v(7), start + TICK * 9).unwrap();
        exhaust_blocks(&wheel, true);
        let resetter = beside(&wheel, move |wheel| {
            for ticks in [12, 11] {
                assert_eq!(wheel.reset_at(late, start + TICK * ticks), Ok(true));
            }
        });
        assert!(sweep_after(&mut sweeper, &clock, 8).is_empty());
        resetter.join().unwrap();
        assert!(sweep_after(&mut sweeper, &clock, 2).is_empty());
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [7]);
        assert!(wheel.is_empty() && sweep_after(&mut sweeper, &clock, 1).is_empty());
    });
}

/// The sweeper fires a timer in the middle of a reset, while there is no memory for another block.
/// The next timer of the entry fires once, at its own deadline.
#[test]
fn a_reset_without_memory_against_an_expiry() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::shaped(HIGH, 0);
        let start = clock.start();
        let late = wheel.insert_at(v(7), start + TICK * 9).unwrap();
        wheel.insert_at(v(1), start + TICK * 2).unwrap();
        exhaust_blocks(&wheel, true);
        let resetter = beside(&wheel, move |wheel| {
            let _may_have_fired = wheel.reset_at(late, start + TICK * 2).unwrap();
            exhaust_blocks(wheel, false);
            wheel.insert_at(v(8), start + TICK * 9).unwrap();
        });
        let mut fired = sweep_after(&mut sweeper, &clock, 2);
        resetter.join().unwrap();
        fired.extend(sweep(&mut sweeper));
        fired.extend(sweep_after(&mut sweeper, &clock, 1));
        fired.sort_unstable();
        assert_eq!(fired, [1, 7]);
        assert!(sweep_after(&mut sweeper, &clock, 5).is_empty());
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [8]);
        assert!(wheel.is_empty());
    });
}

/// Two resets of a timer compete with each other and with the sweeper's upkeep, without memory for
/// a reference. The timer fires at the deadline of the later reset.
#[test]
fn two_resets_without_memory_against_upkeep() {
    model(2, || {
        let (World { wheel, mut sweeper, clock }, far) = exhausted();
        let start = clock.start();
        let resetters = [2, 3].map(|ticks| {
            beside(&wheel, move |wheel| {
                assert_eq!(wheel.reset_at(far, start + TICK * ticks), Ok(true));
            })
        });
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        resetters.into_iter().for_each(|resetter| resetter.join().unwrap());
        let is_early = wheel.deadline(far).unwrap() == start + TICK * 2;
        let mut fired = sweep_after(&mut sweeper, &clock, 2);
        fired.sort_unstable();
        assert_eq!(fired, if is_early { vec![1, 7] } else { vec![1] });
        let rest = sweep_after(&mut sweeper, &clock, 1);
        assert_eq!(rest, if is_early { vec![] } else { vec![7] });
    });
}
