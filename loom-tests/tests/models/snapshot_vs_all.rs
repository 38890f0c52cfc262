//! A look at all timers against the verbs: each is shown as it was at some moment meanwhile.

use loom_tests::{TICK, World, beside, model, sweep, v};

/// One is armed all the while, and is shown, whatever comes and goes.
#[test]
fn against_insert_and_cancel() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let stays = wheel.insert(v(1), TICK * 3).unwrap();
        let other = beside(&wheel, move |wheel| {
            let id = wheel.insert(v(2), TICK).unwrap();
            assert_eq!(wheel.cancel(id), Some(v(2)));
            id
        });
        let snapshot = wheel.snapshot();
        let comes = other.join().unwrap();
        let ticks = snapshot.next.map(|(id, at)| (id, at - snapshot.taken));
        match snapshot.armed {
            1 => assert_eq!(ticks, Some((stays, TICK * 3))),
            armed => assert_eq!((armed, ticks), (2, Some((comes, TICK)))),
        }
    });
}

#[test]
fn against_a_reset() {
    model(3, || {
        let World { wheel, sweeper: _sweeper, .. } = World::new();
        let id = wheel.insert(v(1), TICK * 3).unwrap();
        let other = beside(&wheel, move |wheel| wheel.reset(id, TICK * 2).unwrap());
        let snapshot = wheel.snapshot();
        let (shown, at) = snapshot.next.unwrap();
        assert!(shown == id && [TICK * 2, TICK * 3].contains(&(at - snapshot.taken)));
        assert!(other.join().unwrap());
        assert_eq!(wheel.snapshot().next, Some((id, snapshot.taken + TICK * 2)));
    });
}

#[test]
fn against_a_sweep() {
    model(3, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let due = wheel.insert(v(1), TICK).unwrap();
        clock.advance(TICK);
        let other = beside(&wheel, move |wheel| wheel.snapshot().next.map(|(id, _)| id));
        assert_eq!(sweep(&mut sweeper), [1]);
        assert!(other.join().unwrap().is_none_or(|id| id == due));
        assert_eq!((wheel.snapshot().next, wheel.snapshot().armed), (None, 0));
    });
}
