//! A reset, to later, to earlier or both at once, against the sweep that visits the timer's
//! reference.

use loom_tests::{
    TICK, TimerId, Value, Wheel, World, beside, in_a_seat, model, seated, sweep_after,
    sweep_with_deadlines, v,
};
use std::time::Instant;

/// The case of a reset.
#[derive(Clone, Copy)]
enum Case {
    /// The wheel knows the thread, and a pin has read the clock.
    Usual,
    General,
}

impl Case {
    /// Returns `true` if the timer was armed.
    fn reset(self, wheel: &Wheel<Value>, id: TimerId, deadline: Instant) -> bool {
        match self {
            Self::Usual => wheel.pin().reset_at(id, deadline),
            Self::General => wheel.reset_at(id, deadline),
        }
        .expect("the deadline is in range")
    }
}

/// A timer is due at `old`. While the sweep advances by `step` ticks, other threads reset it
/// repeatedly, each to a number of ticks from its clock. Then time passes, tick by tick.
fn resets_while_sweeping(
    case: Case,
    preemptions: usize,
    old: u32,
    step: u32,
    resets: &'static [&'static [u32]],
) {
    model(preemptions, move || {
        let World { wheel, mut sweeper, clock } = World::new();
        let start = clock.start();
        // The next thread with a seat takes over this one, so the wheel knows it.
        let id = in_a_seat(&wheel, |wheel| wheel.insert(v(7), TICK * old).unwrap());
        clock.advance(TICK * step);
        let resetters: Vec<_> = resets
            .iter()
            .map(|&deadlines| {
                let reset = move |wheel: &Wheel<Value>| {
                    deadlines.iter().fold(None, |set, &at| {
                        let effective = case.reset(wheel, id, start + TICK * at);
                        if effective { Some(at) } else { set }
                    })
                };
                match case {
                    Case::Usual => seated(&wheel, reset),
                    Case::General => beside(&wheel, reset),
                }
            })
            .collect();
        let mut fired = sweep_with_deadlines(&mut sweeper);
        let set: Vec<u32> =
            resetters.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
        // Every reset that reports success takes effect. The last one of one of the threads is the
        // deadline.
        let possible: Vec<u32> = if set.is_empty() { vec![old] } else { set };
        let mut now = step;
        loop {
            let due = possible.iter().filter(|&&at| at <= now).count();
            assert!(fired.is_empty() || due > 0, "early at {now}");
            if let [(value, deadline)] = fired[..] {
                let at = (1..=now).find(|&at| start + TICK * at == deadline);
                assert!(value == 7 && possible.contains(&at.unwrap()), "by {at:?}");
                break;
            }
            assert!(fired.is_empty(), "twice");
            // The sweep that raced with the resets may have come before them.
            fired = sweep_with_deadlines(&mut sweeper);
            assert!(!fired.is_empty() || due < possible.len(), "late at {now}");
            if fired.is_empty() {
                clock.advance(TICK);
                now += 1;
                fired = sweep_with_deadlines(&mut sweeper);
            }
            assert!(now < 20, "lost");
        }
        assert!(!wheel.contains(id));
        assert!(sweep_after(&mut sweeper, &clock, 9).is_empty());
    });
}

#[test]
fn to_later() {
    resets_while_sweeping(Case::General, 3, 1, 1, &[&[3]]);
}

#[test]
fn to_later_while_it_cascades() {
    resets_while_sweeping(Case::General, 3, 3, 2, &[&[5]]);
}

#[test]
fn to_earlier_while_it_cascades() {
    resets_while_sweeping(Case::General, 2, 5, 2, &[&[3]]);
}

#[test]
fn to_earlier_while_it_cascades_in_the_usual_case() {
    resets_while_sweeping(Case::Usual, 2, 5, 2, &[&[3]]);
}

#[test]
fn to_earlier_than_the_sweep() {
    resets_while_sweeping(Case::General, 2, 5, 2, &[&[1]]);
}

/// The new slot expires while the reference is being filed. The old reference waits beyond the
/// sweep.
#[test]
fn to_the_tick_that_is_being_swept() {
    resets_while_sweeping(Case::General, 2, 5, 1, &[&[1]]);
}

#[test]
fn to_earlier_and_later_again() {
    resets_while_sweeping(Case::General, 2, 5, 2, &[&[3, 6]]);
}

#[test]
fn to_later_and_earlier_again() {
    resets_while_sweeping(Case::General, 2, 1, 1, &[&[4, 2]]);
}

#[test]
fn to_earlier_against_to_later() {
    resets_while_sweeping(Case::General, 2, 3, 1, &[&[2], &[4]]);
}

#[test]
fn to_earlier_against_to_earlier() {
    resets_while_sweeping(Case::General, 1, 6, 2, &[&[3], &[4]]);
}

/// A reset to the deadline that another thread has just set does not rely on a step that this other
/// thread has yet to take.
#[test]
fn to_earlier_beside_the_same() {
    model(2, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let soon = clock.start() + TICK;
        let id = wheel.insert(v(7), TICK * 6).unwrap();
        let other = beside(&wheel, move |wheel| wheel.reset_at(id, soon));
        let armed = wheel.reset_at(id, soon);
        clock.advance(TICK);
        let fired = sweep_with_deadlines(&mut sweeper);
        assert_eq!((armed, fired), (Ok(true), vec![(7, soon)]));
        assert!(other.join().unwrap().is_ok());
    });
}
