//! The vacant entries in a caller's magazines, when it ends, against the next thread that has its
//! id: another thread, or the sweeper that trims.

use loom_tests::{
    TICK, USES, World, beside, empty_idle, entries, in_a_seat, model, seated, sweep_after,
    sweep_with_upkeep, v,
};

/// Its page goes, at the latest with the round of trimming that begins after its end. (Here, and
/// below, the sweeper only takes what is orphaned while the thread may be there: a whole sweep
/// beside it is too much for loom.)
#[test]
fn the_entries_of_a_thread_that_ends() {
    model(2, || {
        let World { wheel, mut sweeper, .. } = World::new();
        let gone = seated(&wheel, |wheel| {
            let id = wheel.insert(v(1), TICK * 2).unwrap();
            assert_eq!(wheel.cancel(id), Some(v(1)));
        });
        empty_idle(&wheel);
        gone.join().unwrap();
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        assert_eq!(entries(&wheel), 0, "a page is kept");
    });
}

/// Two that may have the same number, one after the other.
#[test]
fn a_thread_and_the_next() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let first = seated(&wheel, |wheel| {
            let id = wheel.insert(v(1), TICK).unwrap();
            assert_eq!(wheel.cancel(id), Some(v(1)));
        });
        let second = seated(&wheel, |wheel| [2, 3].map(|n| wheel.insert(v(n), TICK).unwrap()));
        first.join().unwrap();
        let [a, b] = second.join().unwrap();
        let c = wheel.insert(v(4), TICK).unwrap();
        assert!(a != b && b != c && c != a);
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [2, 3, 4]);
    });
}

/// By a caller whose magazines have room, while another is filing an earlier reference to the
/// entry: the flag is that one's to clear, whatever lives in the entry by then.
#[test]
fn a_cancel_into_a_magazine_while_another_refiles() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let id = wheel.insert(v(1), TICK * 3).unwrap();
        let by_magazine = seated(&wheel, move |wheel| {
            let cancelled = wheel.cancel(id).is_some();
            wheel.insert(v(2), TICK).unwrap();
            cancelled
        });
        let moved = wheel.reset(id, TICK).unwrap();
        let cancelled = by_magazine.join().unwrap();
        assert!(cancelled, "moved or not: {moved}");
        assert_eq!(sweep_after(&mut sweeper, &clock, 3), [2]);
    });
}

/// One with entries in its magazines that come from the stack, and one without.
#[test]
fn a_magazine_and_the_stack() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let stacked = [1, 2].map(|n| wheel.insert(v(n), TICK * 2).unwrap());
        for id in stacked {
            assert!(wheel.cancel(id).is_some());
        }
        let by_magazine = seated(&wheel, |wheel| {
            let id = wheel.insert(v(3), TICK).unwrap();
            assert_eq!(wheel.cancel(id), Some(v(3)));
            wheel.insert(v(4), TICK).unwrap();
        });
        wheel.insert(v(5), TICK).unwrap();
        by_magazine.join().unwrap();
        wheel.insert(v(6), TICK).unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [4, 5, 6]);
    });
}

/// One with both magazines full, of which one goes to the stack, and one that takes from there.
/// (Loom reaches few of its interleavings; shuttle has the others.)
#[test]
fn a_full_magazine_and_the_stack() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let armed = in_a_seat(&wheel, |wheel| {
            [1, 2, 3, 4, 5].map(|n| (wheel.insert(v(n), TICK * 2).unwrap(), n))
        });
        let by_magazine = seated(&wheel, move |wheel| {
            for (id, n) in armed {
                assert_eq!(wheel.cancel(id), Some(v(n)));
            }
        });
        let other = beside(&wheel, |wheel| {
            for n in [6, 7] {
                wheel.insert(v(n), TICK).unwrap();
            }
        });
        by_magazine.join().unwrap();
        other.join().unwrap();
        wheel.insert(v(8), TICK).unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [6, 7, 8]);
    });
}

/// While the sweeper takes what it can get, the owner arms a timer, keeps the other entry of the
/// page in its magazines, and ends.
#[test]
fn a_magazine_against_the_sweeper() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let owner = seated(&wheel, |wheel| wheel.insert(v(1), TICK).unwrap());
        empty_idle(&wheel);
        wheel.insert(v(2), TICK).unwrap();
        owner.join().unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [1, 2]);
    });
}

/// One that was taken into a magazines and not used, while another thread is about to pop it: what
/// was below it then is in use when it comes back (ABA).
#[test]
fn an_entry_that_comes_back_unused() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let [a, b, c] = [1, 2, 3].map(|n| wheel.insert(v(n), TICK * 2).unwrap());
        assert_eq!((wheel.cancel(c), wheel.cancel(b)), (Some(v(3)), Some(v(2))));
        let other = beside(&wheel, |wheel| wheel.insert(v(4), TICK).unwrap());
        assert_eq!(wheel.cancel(a), Some(v(1)));
        in_a_seat(&wheel, |wheel| {
            let id = wheel.insert(v(5), TICK * 2).unwrap();
            assert_eq!(wheel.cancel(id), Some(v(5)));
        });
        wheel.insert(v(6), TICK).unwrap();
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        other.join().unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [4, 6]);
    });
}

/// One that is exhausted leaves the magazines for good, and the next one takes its place, while
/// another thread takes from the stack.
#[test]
fn an_exhausted_entry() {
    model(1, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let other = beside(&wheel, |wheel| wheel.insert(v(98), TICK).unwrap());
        in_a_seat(&wheel, |wheel| {
            for number in 0..3 * USES {
                let id = wheel.insert(v(number), TICK).unwrap();
                assert_eq!(wheel.cancel(id), Some(v(number)));
            }
            wheel.insert(v(99), TICK).unwrap();
        });
        other.join().unwrap();
        let mut fired = sweep_after(&mut sweeper, &clock, 1);
        fired.sort_unstable();
        assert_eq!(fired, [98, 99]);
    });
}
