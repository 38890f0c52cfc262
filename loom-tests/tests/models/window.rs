//! The window of ticks that the packed words tell apart. Timers are armed and reset while the sweep
//! crosses the tick where their low bits wrap, leaps within the window, or walks its whole range.

use loom_tests::{
    HIGH, PAST, TICK, TINY, Value, WINDOW, Wheel, World, beside, model, sweep, sweep_after, v,
};

/// While the sweep advances by two ticks, so that the low bits of its tick wrap, `other` arms or
/// moves a timer with the value 7. It returns the timer's deadline in ticks from the start, or
/// `None` if the timer had fired. The timer fires at that deadline.
fn across_the_wrap(
    first: u32,
    other: impl Fn(&Wheel<Value>, loom_tests::TimerId, std::time::Instant) -> Option<u32>
    + Copy
    + Send
    + Sync
    + 'static,
) {
    model(2, move || {
        let World { wheel, mut sweeper, clock } = World::shaped(TINY, WINDOW - 2);
        let start = clock.start();
        let id = wheel.insert(v(7), TICK * first).unwrap();
        clock.advance(TICK * 2);
        let other = beside(&wheel, move |wheel| other(wheel, id, start));
        let mut fired = sweep(&mut sweeper);
        let due = other.join().unwrap().unwrap_or(first);
        fired.extend(sweep(&mut sweeper));
        for now in 2..12 {
            assert_eq!(fired.len(), usize::from(due <= now), "due at {due}, now {now}");
            fired.extend(sweep_after(&mut sweeper, &clock, 1));
        }
    });
}

/// Resets a timer that is due at `first` to `new`.
fn a_reset_across_the_wrap(first: u32, new: u32) {
    across_the_wrap(first, move |wheel, id, start| {
        wheel.reset_at(id, start + TICK * new).unwrap().then_some(new)
    });
}

#[test]
fn a_reset_to_later_across_the_wrap() {
    a_reset_across_the_wrap(1, 3);
}

#[test]
fn a_reset_to_earlier_across_the_wrap() {
    a_reset_across_the_wrap(5, 3);
}

#[test]
fn a_reset_to_before_the_wrap() {
    a_reset_across_the_wrap(5, 1);
}

#[test]
fn an_insert_across_the_wrap() {
    across_the_wrap(1, |wheel, first, start| {
        // The timer replaces the first one, or is armed beside it.
        let cancelled = wheel.cancel(first).is_some();
        let second = wheel.insert_at(v(7), start + TICK * 3).unwrap();
        if cancelled {
            return Some(3);
        }
        assert!(wheel.cancel(second).is_some());
        None
    });
}

/// The sweep leaps nearly as far as the window reaches back, while the operation is in progress.
#[test]
fn an_insert_during_a_leap_within_the_window() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::shaped(TINY, WINDOW - 9);
        // The insert must be the first thread, because loom does not reach the whole sweep within
        // it otherwise.
        let sweeping = beside(&wheel, move |_| {
            let fired = sweep_after(&mut sweeper, &clock, PAST - 2);
            (fired, sweeper, clock)
        });
        wheel.insert(v(7), TICK * 3).unwrap();
        let (mut fired, mut sweeper, clock) = sweeping.join().unwrap();
        fired.extend(sweep_after(&mut sweeper, &clock, 3));
        assert_eq!(fired, [7]);
    });
}

#[test]
fn a_reset_during_a_leap_within_the_window() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::shaped(HIGH, WINDOW - 9);
        let start = clock.start();
        let id = wheel.insert(v(7), TICK * 2 * PAST).unwrap();
        let resetter = beside(&wheel, move |wheel| wheel.reset_at(id, start + TICK * 3).unwrap());
        let mut fired = sweep_after(&mut sweeper, &clock, PAST - 2);
        assert!(resetter.join().unwrap());
        fired.extend(sweep_after(&mut sweeper, &clock, 1));
        assert_eq!(fired, [7]);
    });
}

/// A timer at the longest possible delay is pulled forward while the sweep is in progress.
#[test]
fn a_reset_within_the_whole_range() {
    model(1, || {
        let farthest = u32::try_from(WINDOW / 2 - 2).unwrap();
        let World { wheel, mut sweeper, clock } = World::shaped(HIGH, WINDOW - 100);
        let start = clock.start();
        let id = wheel.insert(v(7), TICK * farthest).unwrap();
        let resetter = beside(&wheel, move |wheel| {
            assert_eq!(wheel.reset_at(id, start + TICK * 200), Ok(true));
        });
        assert!(sweep_after(&mut sweeper, &clock, 99).is_empty());
        resetter.join().unwrap();
        assert!(sweep_after(&mut sweeper, &clock, 100).is_empty());
        assert_eq!(sweep_after(&mut sweeper, &clock, 1), [7]);
    });
}
