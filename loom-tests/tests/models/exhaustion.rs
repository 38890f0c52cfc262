//! Exhausted entries. The last use of an entry, and of a page, runs against callers and the sweep.
//! No id is given out twice, and none refers to a timer of another page.

use loom_tests::{
    TICK, TimerId, USES, Value, Wheel, World, beside, entries, model, sweep, sweep_after,
    sweep_with_upkeep, v,
};

/// Uses both entries of the first page `times` times, and ends their timers.
fn use_both(wheel: &Wheel<Value>, times: u64) -> Vec<TimerId> {
    let mut ids = Vec::new();
    for _ in 0..times {
        let both = [1, 2].map(|n| wheel.insert(v(n), TICK * 9).unwrap());
        for id in both {
            assert!(wheel.cancel(id).is_some());
        }
        ids.extend(both);
    }
    ids
}

/// Runs one timer from its insert to its cancel.
fn one_use(wheel: &Wheel<Value>) -> TimerId {
    let id = wheel.insert(v(7), TICK * 9).unwrap();
    assert!(wheel.cancel(id).is_some());
    id
}

fn assert_distinct(mut ids: Vec<TimerId>) {
    let given = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), given, "an id was given out twice");
}

/// The last uses of a page's two entries end at once, and the page is given back.
#[test]
fn the_last_uses_of_a_page() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let mut ids = use_both(&wheel, USES - 1);
        let other = beside(&wheel, one_use);
        ids.push(one_use(&wheel));
        ids.push(other.join().unwrap());
        assert_eq!(entries(&wheel), 0, "an exhausted page is kept");
        ids.push(one_use(&wheel));
        assert_distinct(ids);
    });
}

/// The same, while a third thread looks up timers that have ended there.
#[test]
fn stale_ids_on_a_page_that_wears_out() {
    model(1, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let ids = use_both(&wheel, USES - 1);
        let stale = ids[0..2].to_vec();
        let late = beside(&wheel, move |wheel| {
            for id in stale {
                assert_eq!(wheel.cancel(id), None);
                assert_eq!(wheel.reset(id, TICK), Ok(false));
            }
        });
        let other = beside(&wheel, one_use);
        one_use(&wheel);
        other.join().unwrap();
        late.join().unwrap();
        assert_eq!(entries(&wheel), 0);
    });
}

/// The last timer of an entry is ended by the sweep or by a cancel, or a reset arrives in time.
#[test]
fn the_last_timer_of_an_entry_fires() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let mut ids = use_both(&wheel, USES - 1);
        let last = wheel.insert(v(7), TICK).unwrap();
        clock.advance(TICK);
        let other = beside(&wheel, move |wheel| {
            let reset = wheel.reset(last, TICK).unwrap();
            let cancelled = wheel.cancel(last).map(u64::from);
            (reset, cancelled, wheel.insert(v(8), TICK).unwrap())
        });
        let mut ended = sweep(&mut sweeper);
        let (reset, cancelled, next) = other.join().unwrap();
        assert!(cancelled.is_none() || reset, "a timer that could not be reset was cancelled");
        ended.extend(cancelled);
        assert_eq!(ended, [7]);
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [8]);
        ids.extend([last, next]);
        assert_distinct(ids);
    });
}

/// A page with one use left in each entry has been given back. While one thread is reinstalling it,
/// another thread may do so first and exhaust it.
#[test]
fn a_page_wears_out_while_it_is_put_in_again() {
    model(2, || {
        let World { wheel, mut sweeper, .. } = World::new();
        let mut ids = use_both(&wheel, USES - 2);
        sweep_with_upkeep(&wheel, &mut sweeper);
        assert_eq!(entries(&wheel), 0, "the page has not gone");
        let other = beside(&wheel, |wheel| use_both(wheel, 1));
        ids.push(one_use(&wheel));
        ids.extend(other.join().unwrap());
        ids.push(one_use(&wheel));
        assert_distinct(ids);
    });
}
