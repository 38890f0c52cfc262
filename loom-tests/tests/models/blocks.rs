//! Blocks of references that are given back and then reused by any thread that needs one.
#![cfg(not(crossbeam_loom))]

use loom_tests::{TICK, World, beside, model, sweep, sweep_after, sweep_with_upkeep, v};
use std::time::Duration;

/// A head that was read earlier refers to a block that has been given back and reused since, in the
/// same slot and with the same number of references.
#[test]
fn a_head_of_the_same_value() {
    model(2, || {
        let World { wheel, mut sweeper, .. } = World::recycling();
        wheel.insert(v(1), Duration::ZERO).unwrap();
        let other = beside(&wheel, |wheel| wheel.insert(v(2), Duration::ZERO).unwrap());
        let mut fired = sweep(&mut sweeper);
        wheel.insert(v(3), Duration::ZERO).unwrap();
        other.join().unwrap();
        fired.extend(sweep(&mut sweeper));
        fired.sort_unstable();
        assert_eq!(fired, [1, 2, 3]);
    });
}

/// The previous contents of a block are not mistaken for references that are still to be written
/// there.
#[test]
fn a_block_that_had_other_references() {
    model(2, || {
        let World { wheel, mut sweeper, .. } = World::recycling();
        let insert = |number| assert!(wheel.insert(v(number), Duration::ZERO).is_ok());
        (1..3).for_each(insert);
        assert_eq!(sweep(&mut sweeper).len(), 2);
        insert(3);
        // This thread must be the one that begins later, because loom does not reach it beside an
        // insert otherwise.
        let sweeping = beside(&wheel, move |wheel| {
            let fired = sweep(&mut sweeper);
            (5..7).for_each(|number| drop(wheel.insert(v(number), Duration::ZERO)));
            (sweeper, fired)
        });
        insert(4);
        let (mut sweeper, mut fired) = sweeping.join().unwrap();
        fired.extend(sweep(&mut sweeper));
        fired.sort_unstable();
        assert_eq!(fired, [3, 4, 5, 6]);
    });
}

/// A page that is made ends the hoarding. The next check does not end it again for a page of blocks
/// that was made at the same time. (It has one thread, which shuttle refuses.)
#[cfg(loom)]
#[test]
fn pages_that_are_made_end_the_hoarding_once() {
    model(1, || {
        let World { wheel, mut sweeper, clock } = World::recycling();
        let insert = |n: u32| wheel.insert(v(n.into()), TICK * n.min(3)).unwrap();
        // All blocks are in use, and half of the entries are vacant.
        let ids = [1, 2, 3, 4, 5, 6].map(insert);
        ids[3..].iter().for_each(|&id| assert!(wheel.cancel(id).is_some()));
        for _ in 0..2 {
            loom_tests::as_if_many_had_fired(&wheel);
            assert!(sweep(&mut sweeper).is_empty());
        }
        let before = wheel.metrics().bytes;
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [1]);
        wheel.insert(v(7), Duration::ZERO).unwrap();
        assert!(wheel.metrics().bytes > before, "the block was not hoarded");
        assert_eq!(sweep(&mut sweeper), [7]);
        assert_eq!(sweep_after(&mut sweeper, &clock, 2), [2, 3]);
    });
}

/// Two threads need a block for slots of their own while the sweeper gives one back.
#[test]
fn two_that_make_and_the_sweeper_that_gives_back() {
    model(1, || {
        let World { wheel, mut sweeper, clock } = World::recycling();
        wheel.insert(v(1), Duration::ZERO).unwrap();
        let others = [(2, TICK), (3, TICK * 2)].map(|(number, delay)| {
            beside(&wheel, move |wheel| wheel.insert(v(number), delay).unwrap())
        });
        assert_eq!(sweep(&mut sweeper), [1]);
        wheel.insert(v(4), TICK).unwrap();
        for other in others {
            other.join().unwrap();
        }
        let mut fired = sweep_after(&mut sweeper, &clock, 2);
        fired.sort_unstable();
        assert_eq!(fired, [2, 3, 4]);
    });
}

/// A thread whose exchange fails has made a block for nothing, and gives it back itself.
#[test]
fn a_block_that_was_made_for_nothing() {
    model(1, || {
        let World { wheel, mut sweeper, clock } = World::recycling();
        let other = beside(&wheel, |wheel| wheel.insert(v(1), TICK).unwrap());
        wheel.insert(v(2), TICK).unwrap();
        other.join().unwrap();
        wheel.insert(v(3), TICK).unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [1, 2, 3]);
        // Entries first, then blocks.
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        assert!(sweep(&mut sweeper).is_empty());
        assert_eq!(wheel.metrics().bytes, 0, "a block is missing");
    });
}

/// The sweeper gives pages of blocks back while another thread needs one. (Too large for loom.)
#[cfg(shuttle)]
#[test]
fn a_page_of_blocks_that_leaves() {
    model(1, || {
        let World { wheel, mut sweeper, clock } = World::recycling();
        wheel.insert(v(1), Duration::ZERO).unwrap();
        assert_eq!(sweep(&mut sweeper), [1]);
        let other = beside(&wheel, |wheel| wheel.insert(v(2), TICK).unwrap());
        // Entries first, then blocks.
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        assert!(sweep(&mut sweeper).is_empty());
        other.join().unwrap();
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [2]);
        wheel.insert(v(3), TICK).unwrap();
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [3]);
    });
}
