//! Timers, keys and closures that are cancelled with their owners.

use crate::common::{Bench, SMALL, Shape};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tourbillon::keyed::KeyedTimers;
use tourbillon::scheduler::{Ending, Scheduler};
use tourbillon::{Builder, ManualClock, Refusal, TimerId};

const TICK: Duration = Duration::from_millis(1);

fn bench<T: Send>() -> Bench<T> {
    Bench::new(Shape { tick: TICK, shards: 1, geometry: SMALL, first_tick: 0 })
}

#[test]
fn a_timer_ends_with_its_owner_and_its_value_is_dropped() {
    let (bench, value) = (bench(), Arc::new(()));
    let owned = bench.wheel.insert_owned(Arc::clone(&value), TICK * 5).unwrap();
    assert!(bench.wheel.contains(owned.id()));
    assert_eq!(bench.wheel.reset(owned.id(), TICK * 9), Ok(true));
    drop(owned);
    assert_eq!((bench.wheel.len(), Arc::strong_count(&value)), (0, 1));
}

#[test]
fn a_panic_and_an_early_return_cancel_the_timer() {
    let bench = bench();
    let request = |fails: bool| {
        let _patience = bench.wheel.insert_owned(1, TICK).unwrap();
        assert!(!fails, "a request fails");
    };
    request(false);
    assert!(catch_unwind(AssertUnwindSafe(|| request(true))).is_err());
    assert_eq!(bench.wheel.len(), 0);
}

#[test]
fn a_released_or_cancelled_timer_has_no_owner() {
    let mut bench = bench();
    let id = bench.wheel.insert_owned(1, TICK).unwrap().into_id();
    assert_eq!(bench.wheel.insert_owned(2, TICK).unwrap().cancel(), Some(2));
    assert_eq!(bench.advance(TICK), [1]);
    assert!(!bench.wheel.contains(id));
}

#[test]
fn an_owner_of_a_fired_timer_does_not_cancel_the_next_of_its_entry() {
    let mut bench = bench();
    let first = bench.wheel.insert_owned(1, TICK).unwrap();
    assert_eq!(bench.advance(TICK), [1]);
    let next: Vec<TimerId> = (0..100).map(|n| bench.wheel.insert(n, TICK).unwrap()).collect();
    let place = |id: TimerId| id.to_bits() >> 26;
    assert!(next.iter().any(|&id| place(id) == place(first.id())));
    drop(first);
    assert!(next.iter().all(|&id| bench.wheel.contains(id)));
}

#[test]
fn a_refused_value_comes_back() {
    let bench = bench();
    let refused = bench.wheel.insert_owned(1, Duration::MAX).unwrap_err();
    assert!(matches!(refused.reason, Refusal::BeyondRange(_)));
    assert_eq!((refused.value, bench.wheel.len()), (1, 0));
}

#[test]
fn a_key_ends_with_its_owner_unless_another_insert_has_armed_it() {
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let timers = KeyedTimers::new(wheel);
    let (old, none) = timers.insert_owned(7, 1, TICK * 5).unwrap();
    assert_eq!(none, None);
    assert_eq!(timers.reset(&7, TICK * 9), Ok(true), "still owned by the old one");
    let (new, replaced) = timers.insert_owned(7, 2, TICK * 5).unwrap();
    assert_eq!(replaced, Some(1), "the previous value is returned");
    drop(old);
    assert_eq!(timers.get(&7), Some(2));
    assert_eq!(timers.insert(7, 3, TICK * 5).unwrap(), Some(2), "without an owner");
    assert_eq!(new.cancel(), None);
    assert_eq!(timers.get(&7), Some(3));
    drop(timers.insert_owned(7, 4, TICK * 5).unwrap());
    assert!(timers.is_empty() && timers.wheel().is_empty());
    assert_eq!(timers.insert_owned(8, 5, TICK * 5).unwrap().0.into_key(), 8);
    assert_eq!(timers.get(&8), Some(5));
}

#[test]
fn an_owned_key_does_not_keep_the_driver_running() {
    let timers = KeyedTimers::spawn(Builder::new().driver(), |_: u32, _: u32| ()).unwrap();
    let (owned, _) = timers.insert_owned(7, 1, TICK * 50_000).unwrap();
    let wheel = timers.wheel().clone();
    drop(timers);
    assert!(wheel.is_closed());
    assert_eq!(owned.cancel(), None);
}

#[test]
fn a_closure_ends_with_its_owner() {
    let (wheel, mut sweeper) = Builder::new().clock(ManualClock::new()).build().unwrap();
    let scheduler = Scheduler::new(wheel);
    let hourly = scheduler.every(TICK).run(|| ()).unwrap();
    let kept = hourly.clone().own().into_scheduled();
    assert_eq!(kept.ending(), None);
    drop(hourly.clone().own());
    assert_eq!((hourly.ending(), sweeper.sweep(|_| ()).expired), (Some(Ending::Cancelled), 0));
}
