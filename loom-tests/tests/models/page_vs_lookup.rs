//! A page that is given back against a look-up by an id whose timer ended long ago. The page is
//! freed only after the reader has unpinned.
//!
//! These models run the real epoch on loom's atomics (`ci/models loom` builds them with crossbeam's
//! own switch), and detect uses of freed memory when they run under AddressSanitizer (`ci/sanitize
//! asan`).

use loom_tests::{TICK, World, beside, model, sweep_after, sweep_with_upkeep, v};

#[test]
fn a_stale_id_on_a_page_that_is_freed() {
    model(2, || {
        let World { wheel, mut sweeper, .. } = World::new();
        let [old, kept] = [1, 2].map(|number| wheel.insert(v(number), TICK * 2).unwrap());
        assert_eq!((wheel.cancel(old), wheel.cancel(kept)), (Some(v(1)), Some(v(2))));
        let late = beside(&wheel, move |wheel| wheel.cancel(old));
        let before = wheel.metrics().bytes;
        sweep_with_upkeep(&wheel, &mut sweeper);
        assert!(wheel.metrics().bytes < before, "no page has gone");
        // The epoch advances as far as the reader allows. The page is freed after two steps.
        for _ in 0..3 {
            crossbeam_epoch::pin().flush();
        }
        assert_eq!(late.join().unwrap(), None);
    });
}

/// A new page replaces one that is being given back. The reader may find either.
#[test]
fn a_stale_id_on_a_page_that_comes_again() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let old = wheel.insert(v(1), TICK * 2).unwrap();
        assert_eq!(wheel.cancel(old), Some(v(1)));
        let late = beside(&wheel, move |wheel| wheel.reset(old, TICK * 9));
        sweep_with_upkeep(&wheel, &mut sweeper);
        let new = wheel.insert(v(2), TICK).unwrap();
        crossbeam_epoch::pin().flush();
        assert_eq!(late.join().unwrap(), Ok(false));
        assert_ne!(old, new);
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [2]);
    });
}

/// A snapshot of all timers reaches the page.
#[test]
fn a_snapshot_while_a_page_is_freed() {
    model(2, || {
        let World { wheel, mut sweeper, .. } = World::new();
        let ids = [1, 2].map(|number| wheel.insert(v(number), TICK * 2).unwrap());
        for id in ids {
            assert!(wheel.cancel(id).is_some());
        }
        let other = beside(&wheel, |wheel| wheel.snapshot().armed);
        sweep_with_upkeep(&wheel, &mut sweeper);
        for _ in 0..3 {
            crossbeam_epoch::pin().flush();
        }
        assert_eq!(other.join().unwrap(), 0);
    });
}
