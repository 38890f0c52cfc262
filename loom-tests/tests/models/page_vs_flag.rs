//! A resetter that still holds the refiling flag of an entry whose timer has ended, against the
//! page of the entry, which is given back and reinstalled.

use loom_tests::explorer::thread::JoinHandle;
use loom_tests::{
    TICK, TimerId, Value, Wheel, World, beside, model, sweep_after, sweep_with_upkeep, v,
};

/// A timer is reset to earlier while it is cancelled, and its page is given back and reinstalled.
/// Then `reset` resets the entry's next timer to one tick, and that timer fires in time.
fn used_again_while_a_resetter_is_held_up(
    reset: impl Fn(&Wheel<Value>, TimerId) -> Option<JoinHandle<bool>> + Sync + Send + 'static,
) {
    model(2, move || {
        let World { wheel, mut sweeper, clock } = World::new();
        let old = wheel.insert(v(1), TICK * 5).unwrap();
        let late = beside(&wheel, move |wheel| wheel.reset(old, TICK).unwrap());
        assert_eq!(wheel.cancel(old), Some(v(1)));
        assert!(sweep_with_upkeep(&wheel, &mut sweeper).is_empty());
        let new = wheel.insert(v(2), TICK * 5).unwrap();
        let other = reset(&wheel, new);
        late.join().unwrap();
        assert!(other.is_none_or(|other| other.join().unwrap()));
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [2]);
        assert!(wheel.is_empty());
    });
}

/// The flag is cleared by the thread that set it, and the entry's next timer has its own flag.
#[test]
fn a_resetter_that_is_held_up_while_the_page_leaves_and_comes() {
    used_again_while_a_resetter_is_held_up(|wheel, new| {
        assert_eq!(wheel.reset(new, TICK), Ok(true));
        None
    });
}

/// The entry's next timer is reset by a third thread, which has a flag of its own.
#[test]
fn two_resetters_of_one_entry_and_two_of_its_timers() {
    used_again_while_a_resetter_is_held_up(|wheel, new| {
        Some(beside(wheel, move |wheel| wheel.reset(new, TICK).unwrap()))
    });
}
