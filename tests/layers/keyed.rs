//! Keyed timers in virtual time, some of them named after faults of go-zero's wheel with that
//! interface, and random operations beside a model.

#[path = "../common/keyed_model.rs"]
mod model;

use crate::common::{Bench, SMALL, Shape, TINY};
use model::setup::any_setup;
use model::{Model, Op, Operation};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::keyed::{KeyedTimer, KeyedTimers, UnfiredKey};
use tourbillon::{Builder, Clock, Refusal};

const TICK: Duration = Duration::from_millis(1);

/// Keyed timers and the sweeper that fires them.
struct Keyed<V> {
    timers: KeyedTimers<&'static str, V>,
    bench: Bench<KeyedTimer<&'static str>>,
}

impl<V: Send + Sync + 'static> Keyed<V> {
    fn new() -> Self {
        Self::of(SMALL, Builder::new())
    }

    fn of(geometry: Geometry, builder: Builder) -> Self {
        let shape = Shape { tick: TICK, shards: 1, geometry, first_tick: 0 };
        let bench = Bench::of(shape, builder);
        Self { timers: KeyedTimers::new(bench.wheel.clone()), bench }
    }

    /// Advances the clock by ticks and sweeps. Returns what fires, in order.
    fn advance(&mut self, ticks: u32) -> Vec<(&'static str, V)> {
        self.bench.clock.advance(TICK * ticks);
        let mut fired = Vec::new();
        let _ = self.bench.sweeper.sweep(|expired| fired.extend(self.timers.fire(expired)));
        fired
    }
}

/// All phases of the clock, and all old and new delays up to two revolutions of the lowest level.
/// The key is reset, or inserted again, one tick after its insert.
#[test]
fn a_move_fires_at_its_new_deadline_from_any_phase() {
    for root_bits in 1..=3 {
        let geometry = Geometry { root_bits, level_bits: 1, levels: 2, page_bits: 2 };
        let longest = 2 << root_bits;
        for (phase, old, new) in (0..longest)
            .flat_map(|phase| (2..=longest).map(move |old| (phase, old)))
            .flat_map(|(phase, old)| (0..=longest).map(move |new| (phase, old, new)))
        {
            for by_move in [true, false] {
                let mut keyed = Keyed::of(geometry, Builder::new());
                assert!(keyed.advance(phase).is_empty());
                keyed.timers.insert("key", 1, TICK * old).unwrap();
                assert!(keyed.advance(1).is_empty());
                let value = if by_move {
                    assert_eq!(keyed.timers.reset("key", TICK * new), Ok(true));
                    1
                } else {
                    assert_eq!(keyed.timers.insert("key", 2, TICK * new), Ok(Some(1)));
                    2
                };
                let fired = (0..=4 * longest).find(|&waited| {
                    let fired = keyed.advance(u32::from(waited > 0));
                    assert!(fired.is_empty() || fired == [("key", value)]);
                    !fired.is_empty()
                });
                assert_eq!(fired, Some(new), "phase {phase}, {old} ticks moved to {new}");
                assert!(keyed.advance(4 * longest).is_empty(), "once");
            }
        }
    }
}

#[test]
fn a_move_to_less_than_a_tick_fires_once() {
    for delay in [Duration::ZERO, TICK / 4] {
        let mut keyed = Keyed::new();
        keyed.timers.insert("key", 1, TICK * 9).unwrap();
        assert_eq!(keyed.timers.reset("key", delay), Ok(true));
        assert_eq!(keyed.advance(1), [("key", 1)]);
        assert!(keyed.advance(100).is_empty());
        assert_eq!(keyed.timers.reset("key", delay), Ok(false));
    }
}

#[test]
fn missed_ticks_are_made_up() {
    let mut keyed = Keyed::new();
    for (key, delay) in [("third", 50), ("first", 3), ("second", 20)] {
        keyed.timers.insert(key, delay, TICK * delay).unwrap();
    }
    assert_eq!(keyed.advance(1_000), [("first", 3), ("second", 20), ("third", 50)]);
    // A key that is inserted after the stall counts from then.
    keyed.timers.insert("fourth", 4, TICK * 4).unwrap();
    assert!(keyed.advance(3).is_empty());
    assert_eq!(keyed.advance(1), [("fourth", 4)]);
}

#[test]
fn an_insert_replaces_value_and_deadline() {
    let mut keyed = Keyed::new();
    assert_eq!(keyed.timers.insert("key", 1, TICK * 2), Ok(None));
    assert_eq!(keyed.timers.insert("key", 2, TICK * 5), Ok(Some(1)));
    assert_eq!((keyed.timers.len(), keyed.timers.wheel().len()), (1, 1));
    let start = keyed.bench.clock.start();
    assert_eq!(keyed.timers.insert_at("key", 3, start + TICK * 3), Ok(Some(2)));
    assert_eq!(keyed.timers.deadline("key"), Some(start + TICK * 3));
    assert_eq!(keyed.timers.get("key"), Some(3));
    assert!(keyed.advance(2).is_empty());
    assert_eq!(keyed.advance(1), [("key", 3)]);
    assert_eq!((keyed.timers.get("key"), keyed.timers.deadline("key")), (None, None));
    assert!(keyed.advance(9).is_empty() && keyed.timers.is_empty());
}

/// go-zero keeps a removed value until the wheel's next revolution.
#[test]
fn a_value_that_is_taken_out_is_dropped_at_once() {
    let keyed = Keyed::new();
    let value = Arc::new(());
    let held = || Arc::strong_count(&value) - 1;
    for _ in 0..2 {
        let _ = keyed.timers.insert("key", Arc::clone(&value), TICK * 9).unwrap();
    }
    assert_eq!(held(), 1, "the replaced value was dropped");
    assert!(keyed.timers.cancel("key").is_some());
    assert_eq!((held(), keyed.timers.wheel().len()), (0, 0));
    assert_eq!(keyed.timers.cancel("key"), None);
    keyed.timers.insert("key", Arc::clone(&value), TICK).unwrap();
    assert_eq!(keyed.timers.drain(|_, _| ()).wait().keys, 1);
    assert_eq!(held(), 0);
    keyed.timers.insert("key", Arc::clone(&value), TICK).unwrap();
    drop(keyed);
    assert_eq!(held(), 0);
}

#[test]
fn a_key_inserted_again_after_a_drain_fires() {
    let mut keyed = Keyed::new();
    for delay in 1..=40 {
        keyed.timers.insert("key", delay, TICK * delay).unwrap();
        let drained = keyed.timers.drain(|_, _| ());
        keyed.timers.insert("key", 100 + delay, TICK * 7).unwrap();
        assert_eq!(drained.wait().keys, 1);
        assert!(keyed.advance(6).is_empty());
        assert_eq!(keyed.advance(1), [("key", 100 + delay)], "{delay}");
    }
}

/// go-zero deadlocks here, in its own shutdown.
#[test]
fn a_drain_function_may_use_the_timers() {
    let mut keyed = Keyed::new();
    for key in ["a", "b", "c"] {
        keyed.timers.insert(key, 1, TICK * 50).unwrap();
    }
    let timers = keyed.timers.clone();
    let ended = keyed.timers.drain(move |key, value| {
        assert!(timers.insert(key, value + 1, TICK * 2).unwrap().is_none());
        assert!(timers.contains(key) && timers.reset(key, TICK * 3).unwrap());
        if key == "b" {
            assert_eq!((timers.cancel(key), timers.get(key)), (Some(2), None));
        }
        let again = timers.clone();
        drop(timers.drain(move |key, value| {
            again.insert(key, value, TICK * 4).unwrap();
        }));
    });
    assert!(keyed.timers.is_empty());
    assert!(keyed.advance(0).is_empty());
    assert_eq!(ended.wait().keys, 3);
    assert!(keyed.advance(0).is_empty() && keyed.advance(3).is_empty());
    let mut fired = keyed.advance(1);
    fired.sort_unstable();
    assert_eq!(fired, [("a", 2), ("c", 2)]);
}

#[test]
fn a_drain_goes_in_parts_through_the_sweeper() {
    let mut bench = Bench::new(Shape { tick: TICK, shards: 1, geometry: SMALL, first_tick: 0 });
    let timers = KeyedTimers::new(bench.wheel.clone());
    for key in 0..1_000 {
        timers.insert(key, key, TICK * 9).unwrap();
    }
    let drained = Arc::new(Mutex::new(BTreeSet::new()));
    let (sum, woken) = (Arc::clone(&drained), Arc::new(Woken::default()));
    let mut ended = timers.drain(move |key, value: i32| {
        assert_eq!(key, value);
        assert!(sum.lock().unwrap().insert(key));
    });
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut poll = || Future::poll(std::pin::Pin::new(&mut ended), &mut context);
    let (mut sweeps, mut before) = (0, 0);
    while poll().is_pending() {
        assert_eq!(woken.0.load(Relaxed), 0, "before its end");
        // One part a sweep.
        assert!(timers.is_empty());
        let sweep = bench.sweeper.sweep_some(1, |timer| assert_eq!(timers.fire(timer), None));
        assert_eq!(sweep.expired, 1);
        let now = drained.lock().unwrap().len();
        assert!((1..=256).contains(&(now - before)));
        (sweeps, before) = (sweeps + 1, now);
    }
    let Poll::Ready(figures) = poll() else { panic!("it has ended") };
    assert_eq!((figures.keys, figures.panics, sweeps), (1_000, 0, 4));
    assert_eq!((drained.lock().unwrap().len(), woken.0.load(Relaxed)), (1_000, 1));
    assert_eq!(timers.drain(|_, _| ()).wait().keys, 0);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_drain_function_that_panics_loses_no_other_key() {
    let mut bench = Bench::new(Shape { tick: TICK, shards: 1, geometry: SMALL, first_tick: 0 });
    let timers = KeyedTimers::new(bench.wheel.clone());
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let drain = || {
        for key in 0..600 {
            timers.insert(key, (), TICK).unwrap();
        }
        let seen = Arc::clone(&seen);
        timers.drain(move |key, ()| {
            seen.lock().unwrap().insert(key);
            if key % 100 == 0 {
                resume_unwind(Box::new(key));
            }
        })
    };
    let ended = drain();
    let mut panics = 0;
    let mut sweep = || bench.sweeper.sweep(|timer| assert_eq!(timers.fire(timer), None)).expired;
    while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut sweep)) {
        assert!(panic.is::<i32>());
        panics += 1;
    }
    let ended = ended.wait();
    assert_eq!((ended.keys, ended.panics), (600, 6));
    assert!((1..=3).contains(&panics), "one for each part that had some: {panics}");
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()).len(), 600);
    // A wait returns the counts.
    let ended = drain().wait();
    assert_eq!((ended.keys, ended.panics, seen.lock().unwrap().len()), (600, 6, 600));
}

#[test]
fn parts_that_no_handler_can_run_are_run_or_dropped() {
    let count = Arc::new(AtomicUsize::new(0));
    let counting = || {
        let count = Arc::clone(&count);
        move |_, ()| {
            count.fetch_add(1, Relaxed);
            resume_unwind(Box::new("a panic of the function"));
        }
    };
    // If the wheel refuses a part, the drain itself runs it.
    let keyed = Keyed::new();
    keyed.timers.insert("key", (), TICK).unwrap();
    keyed.timers.wheel().close();
    let drain = keyed.timers.drain(counting());
    assert_eq!(count.load(Relaxed), 1);
    assert_eq!(drain.wait().panics, 1);
    // A part that is still in the wheel at a shutdown is run by the shutdown.
    let keyed = Keyed::new();
    keyed.timers.insert("key", (), TICK).unwrap();
    let drain = keyed.timers.drain(counting());
    assert!(keyed.timers.shutdown().is_empty());
    assert_eq!((count.load(Relaxed), drain.wait().panics), (2, 1));
    // A part that is dropped with the wheel ends the drain without it.
    let keyed = Keyed::new();
    keyed.timers.insert("key", (), TICK).unwrap();
    let drain = keyed.timers.drain(counting());
    drop(keyed);
    let ended = drain.wait();
    assert_eq!((ended.keys, ended.panics, count.load(Relaxed)), (0, 0, 2));
}

#[test]
fn a_refused_value_comes_back_and_the_key_stays() {
    let mut keyed = Keyed::of(TINY, Builder::new().capacity(1));
    keyed.timers.insert("key", 1, TICK * 2).unwrap();
    let beyond = keyed.timers.insert("key", 2, Duration::MAX).unwrap_err();
    let full = keyed.timers.insert("other", 3, TICK).unwrap_err();
    assert!(matches!(beyond.reason, Refusal::BeyondRange(_)));
    assert_eq!(full.reason, Refusal::AtCapacity { capacity: 1 });
    assert!(keyed.timers.reset("key", Duration::MAX).is_err());
    assert_eq!(keyed.timers.reset("other", Duration::MAX), Ok(false));
    keyed.timers.wheel().close();
    let closed = keyed.timers.insert("other", 4, TICK).unwrap_err();
    assert_eq!(
        (closed.reason, [beyond.value, full.value, closed.value]),
        (Refusal::Closed, [2, 3, 4])
    );
    assert!(keyed.timers.get("key") == Some(1) && !keyed.timers.contains("other"));
    assert_eq!(keyed.advance(2), [("key", 1)]);
}

/// In the middle of a sweep the timers of later keys have already ended.
#[test]
fn a_key_can_be_moved_until_its_handler_has_it() {
    let mut keyed = Keyed::new();
    keyed.timers.insert("first", 1, TICK).unwrap();
    let later = ["moved", "set", "removed", "beyond", "stays"];
    for key in later {
        keyed.timers.insert(key, 1, TICK * 2).unwrap();
    }
    keyed.bench.clock.advance(TICK * 2);
    let (mut fired, timers) = (Vec::new(), &keyed.timers);
    let _ = keyed.bench.sweeper.sweep(|expired| {
        let Some((key, value)) = timers.fire(expired) else { return };
        fired.push((key, value));
        if key == "first" {
            assert_eq!(timers.reset("first", TICK), Ok(false), "its handler has it");
            for key in later {
                assert!(timers.contains(key) && timers.deadline(key).is_none());
            }
            assert_eq!(timers.wheel().len(), 0, "all have ended");
            assert_eq!(timers.reset("moved", TICK * 2), Ok(true));
            assert_eq!(timers.insert("set", 2, TICK * 3), Ok(Some(1)));
            assert_eq!(timers.cancel("removed"), Some(1));
            assert!(timers.reset("beyond", Duration::MAX).is_err());
        }
    });
    fired.sort_unstable();
    assert_eq!(fired, [("beyond", 1), ("first", 1), ("stays", 1)]);
    assert_eq!(keyed.advance(2), [("moved", 1)]);
    assert_eq!(keyed.advance(1), [("set", 2)]);
    assert!(keyed.advance(99).is_empty() && keyed.bench.wheel.is_empty());
}

/// It can also be drained, and returned by a shutdown. A closed wheel moves it no more.
#[test]
fn a_key_on_its_way_can_be_taken_by_a_drain_or_a_shutdown() {
    for stops in [false, true] {
        let mut keyed = Keyed::new();
        keyed.timers.insert("first", 1, TICK).unwrap();
        keyed.timers.insert("second", 2, TICK * 2).unwrap();
        keyed.bench.clock.advance(TICK * 3);
        let now = keyed.bench.clock.now();
        let (mut fired, timers) = (Vec::new(), &keyed.timers);
        let _ = keyed.bench.sweeper.sweep(|expired| {
            let Some(pair) = timers.fire(expired) else { return };
            fired.push(pair);
            if stops {
                timers.wheel().close();
                assert_eq!(timers.reset("second", TICK), Ok(false));
                assert_eq!(timers.insert("second", 3, TICK).unwrap_err().value, 3);
                let second = UnfiredKey { key: "second", value: 2, deadline: now };
                assert_eq!(timers.shutdown(), [second]);
            } else {
                assert_eq!(
                    timers.drain(|key, value| assert_eq!((key, value), ("second", 2))).wait().keys,
                    1
                );
            }
        });
        assert_eq!(fired, [("first", 1)]);
    }
}

#[test]
fn a_shutdown_returns_everything_and_refuses_inserts() {
    let mut keyed = Keyed::new();
    let start = keyed.bench.clock.start();
    keyed.timers.insert("fired", 0, TICK).unwrap();
    keyed.timers.insert("soon", 1, TICK * 2).unwrap();
    keyed.timers.insert("late", 2, TICK * 90).unwrap();
    assert_eq!(keyed.advance(1), [("fired", 0)]);
    let mut stopped = keyed.timers.shutdown();
    stopped.sort_unstable_by_key(|unfired| unfired.key);
    let late = UnfiredKey { key: "late", value: 2, deadline: start + TICK * 90 };
    let soon = UnfiredKey { key: "soon", value: 1, deadline: start + TICK * 2 };
    assert_eq!(stopped, [late, soon]);
    assert!(keyed.timers.shutdown().is_empty() && keyed.timers.is_empty());
    let refused = keyed.timers.insert("late", 3, TICK).unwrap_err();
    assert_eq!((refused.reason, refused.value), (Refusal::Closed, 3));
    assert_eq!(keyed.timers.reset("late", TICK), Ok(false));
    assert_eq!(keyed.timers.cancel("late"), None);
    assert!(keyed.advance(100).is_empty() && keyed.timers.driver().is_none());
}

#[test]
fn keys_can_be_borrowed() {
    let (wheel, _sweeper) = Builder::new().shards(1).build().unwrap();
    let timers = KeyedTimers::new(wheel);
    timers.insert(String::from("key"), 1, TICK).unwrap();
    let at = timers.deadline("key").unwrap() + TICK * 5;
    assert_eq!(timers.reset_at("key", at), Ok(true));
    assert!(timers.deadline("key") >= Some(at) && timers.contains("key"));
    assert_eq!((timers.get("key"), timers.cancel("key")), (Some(1), Some(1)));
}

#[test]
fn everything_can_be_formatted() {
    let mut keyed = Keyed::new();
    keyed.timers.insert("key", 1, TICK).unwrap();
    assert_eq!(format!("{:?}", keyed.timers), "KeyedTimers { wheel: Wheel { armed: 1, .. }, .. }");
    assert_eq!(format!("{:?}", keyed.timers.drain(|_, _| ())), "Drain { .. }");
    let _ = keyed.bench.sweeper.sweep(|timer| {
        assert_eq!(format!("{:?}", timer.value), "KeyedTimer { .. }");
    });
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = 0..12_u8;
    let delay = || prop_oneof![4 => 0..9_u16, 2 => 0..70_u16, 1 => 0..1_024_u16];
    let offset = || prop_oneof![4 => -4..9_i16, 1 => -70..1_024_i16];
    (key, delay(), offset()).prop_flat_map(|(key, delay, offset)| {
        prop_oneof![
            5 => Just(Operation::Insert { key, delay }),
            1 => Just(Operation::InsertAt { key, offset }),
            1 => Just(Operation::InsertBeyond { key }),
            5 => Just(Operation::Reset { key, delay }),
            1 => Just(Operation::ResetAt { key, offset }),
            1 => Just(Operation::ResetBeyond { key }),
            2 => Just(Operation::Cancel { key }),
            1 => Just(Operation::Look { key }),
            1 => Just(Operation::Drain),
        ]
    })
}

fn op() -> impl Strategy<Value = Op> {
    let step = || prop_oneof![4 => 0..6_u16, 2 => 0..70_u16, 1 => 0..1_024_u16];
    let inside = prop::collection::vec(operation(), 0..4);
    prop_oneof![
        40 => operation().prop_map(Op::Call),
        14 => (step(), inside).prop_map(|(step, inside)| Op::Sweep { step, inside }),
        6 => (step(), 0..4_u8).prop_map(|(step, limit)| Op::SweepSome { step, limit }),
        1 => Just(Op::Shutdown),
    ]
}

proptest! {
    #[test]
    fn the_timers_match_the_model(
        setup in any_setup(),
        ops in prop::collection::vec(op(), 0..120),
    ) {
        Model::run(&setup, &ops);
    }
}
