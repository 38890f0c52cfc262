//! The vacant entries in the magazines of a thread that ends, against the next thread that acquires
//! its id, which is another thread or the sweeper that trims.

use loom_tests::{
    TICK, USES, World, beside, empty_idle, entries, has_thread_id, in_a_seat, model, seated,
    sweep_after, sweep_with_upkeep, v,
};

/// The page of the thread's entries is given back, at the latest by the round of trimming that
/// begins after the thread's end. (Here, and below, the sweeper only takes orphaned entries while
/// the thread may be running, because a whole sweep beside it is too much for loom.)
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

/// The sweeper borrows the id of a thread that has ended, and gives it back. As many threads as
/// there are ids find one afterwards.
#[test]
fn an_id_that_the_sweeper_has_borrowed() {
    model(2, || {
        let World { wheel, sweeper: _open, .. } = World::new();
        let gone = seated(&wheel, |wheel| {
            let id = wheel.insert(v(1), TICK * 2).unwrap();
            assert_eq!(wheel.cancel(id), Some(v(1)));
        });
        empty_idle(&wheel);
        gone.join().unwrap();
        empty_idle(&wheel);
        in_a_seat(&wheel, |wheel| {
            assert!(has_thread_id());
            assert!(seated(wheel, |_| has_thread_id()).join().unwrap());
        });
    });
}

/// Two threads that may have the same thread id, one after the other.
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

/// The cancel is by a caller whose magazines have room, while another thread is filing an earlier
/// reference to the entry. Only that thread clears the flag, even if another timer uses the entry
/// by then.
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

/// One thread has entries in its magazines that come from the stack, and the other has none.
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

/// One thread has two full magazines. One of them moves to the stack, and another thread takes from
/// there. (Loom reaches few of its interleavings, and shuttle reaches the others.)
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

/// While the sweeper takes all the entries it can, the owner arms a timer, keeps the other entry of
/// the page in its magazines, and ends.
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

/// An entry was taken into the magazines and not used, while another thread is about to pop it. The
/// entry that was below it then is in use when it returns to the stack (ABA).
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

/// An exhausted entry leaves the magazines for good, and the next one replaces it, while another
/// thread takes from the stack.
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
