//! A sweeper that scans a shard only when something may be due there, against threads that file.
//! They rely on its next scan, or report the shard.

use loom_tests::explorer::sync::atomic::AtomicBool;
use loom_tests::{
    Builder, Clock, HIGH, TICK, World, beside, model, seated, sweep_after, sweep_in_slices,
    sweep_with_upkeep, v, want_upkeep,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A wheel with a timer at `first`, which the sweeper has found. It scans the shard at that tick.
fn found_at(first: u32) -> World {
    let mut world = World::shaped(HIGH, 0);
    world.wheel.insert(v(1), TICK * first).unwrap();
    assert_eq!(world.sweeper.next_deadline(), Some(world.clock.start() + TICK * first));
    world
}

/// The sweep goes to `to`, while another thread files a reference to a timer at `at`.
fn against_a_sweep(first: u32, to: u32, at: u32) {
    model(2, move || {
        let World { wheel, mut sweeper, clock } = found_at(first);
        let deadline = clock.start() + TICK * at;
        let filer = beside(&wheel, move |wheel| wheel.insert_at(v(7), deadline).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, to);
        filer.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, at.saturating_sub(to)));
        fired.retain(|&value| value != 1);
        assert_eq!(fired, [7]);
    });
}

/// The filer may load the next scan just before the sweeper suspends the shard.
#[test]
fn the_tick_of_the_next_scan_is_passed() {
    against_a_sweep(2, 2, 3);
}

/// The sweeper would not scan the shard in this sweep.
#[test]
fn a_report_while_the_sweep_passes_the_slot() {
    against_a_sweep(6, 3, 2);
}

#[test]
fn a_report_while_the_sweep_comes_near() {
    against_a_sweep(6, 1, 2);
}

/// Both file in the same slot. One may find that the other has reported the shard.
#[test]
fn a_report_that_another_has_begun() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = found_at(6);
        let deadline = clock.start() + TICK * 2;
        let [one, other] = [7, 8]
            .map(|value| beside(&wheel, move |wheel| wheel.insert_at(v(value), deadline).unwrap()));
        let mut fired = sweep_after(&mut sweeper, &clock, 3);
        one.join().unwrap();
        other.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 0));
        fired.sort_unstable();
        assert_eq!(fired, [7, 8]);
    });
}

/// The sweeper finds the report before it rests, or the filer finds that it rests.
#[test]
fn a_report_and_a_rest() {
    model(3, || {
        let woken = Arc::new(AtomicBool::new(false));
        let wake = Arc::clone(&woken);
        let builder = Builder::new().waker(move || wake.store(true, Relaxed));
        let World { wheel, mut sweeper, clock } = World::of(builder);
        wheel.insert(v(1), TICK * 6).unwrap();
        assert!(sweeper.next_deadline().is_some());
        let filer = beside(&wheel, |wheel| wheel.insert(v(7), TICK).unwrap());
        let swept = sweeper.sweep(|_| ());
        let until = swept.next_deadline;
        assert_eq!(swept.expired, 0);
        filer.join().unwrap();
        let in_time = until <= Some(clock.now() + TICK);
        assert!(in_time || woken.load(Relaxed), "rests until {until:?}");
    });
}

/// A slot is taken early and is empty for a moment. The shard's next scan is then found anew.
#[test]
fn a_slot_is_pruned() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let stale = wheel.insert(v(1), TICK * 2).unwrap();
        assert!(sweeper.next_deadline().is_some());
        assert!(wheel.cancel(stale).is_some());
        let deadline = clock.start() + TICK * 3;
        let filer = beside(&wheel, move |wheel| {
            wheel.insert_at(v(7), deadline).unwrap();
            wheel.insert_at(v(8), deadline).unwrap();
        });
        let mut fired = sweep_with_upkeep(&wheel, &mut sweeper);
        filer.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 3));
        fired.sort_unstable();
        assert_eq!(fired, [7, 8]);
    });
}

/// A slot is being pruned in slices and is empty. The shard's next scan, which is reported for
/// another reason, is then too early.
#[test]
fn a_report_while_a_slot_is_pruned_in_slices() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::shaped(HIGH, 0);
        let stale = [1, 2].map(|value| wheel.insert(v(value), TICK * 4).unwrap());
        wheel.insert(v(3), TICK * 8).unwrap();
        assert!(sweeper.next_deadline().is_some());
        assert!(stale.into_iter().all(|id| wheel.cancel(id).is_some()));
        want_upkeep(&wheel);
        // Takes the slot, and then reads both references, but not that they were the last.
        for _ in 0..2 {
            assert!(sweep_in_slices(&mut sweeper, &clock, 0).is_empty());
        }
        wheel.insert_at(v(8), clock.start()).unwrap();
        let deadline = clock.start() + TICK * 4;
        let filer = beside(&wheel, move |wheel| wheel.insert_at(v(7), deadline).unwrap());
        let mut fired = sweep_in_slices(&mut sweeper, &clock, 4);
        filer.join().unwrap();
        fired.extend(sweep_in_slices(&mut sweeper, &clock, 0));
        fired.sort_unstable();
        assert_eq!(fired, [7, 8]);
    });
}

/// One step scans both shards. The filer may load the next scan just before the sweeper suspends
/// its shard.
#[test]
fn two_shards_are_due_at_once() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::of_two_shards();
        wheel.insert(v(1), TICK * 2).unwrap();
        seated(&wheel, |wheel| wheel.insert(v(2), TICK * 2).unwrap()).join().unwrap();
        assert_eq!(sweeper.next_deadline(), Some(clock.start() + TICK * 2));
        let deadline = clock.start() + TICK * 3;
        let filer = seated(&wheel, move |wheel| wheel.insert_at(v(7), deadline).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, 2);
        filer.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 1));
        fired.sort_unstable();
        assert_eq!(fired, [1, 2, 7]);
    });
}

/// Both shards are reported in one word, while the sweep passes the slots.
#[test]
fn reports_of_two_shards() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::of_two_shards();
        wheel.insert(v(1), TICK * 6).unwrap();
        assert!(sweeper.next_deadline().is_some());
        let deadline = clock.start() + TICK * 2;
        let filer = seated(&wheel, move |wheel| wheel.insert_at(v(7), deadline).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, 3);
        let late = wheel.insert_at(v(8), clock.start()).unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 0));
        assert!(!wheel.contains(late));
        filer.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 0));
        fired.sort_unstable();
        assert_eq!(fired, [7, 8]);
    });
}
