//! Writes that depend on the value that the key has.

use crate::common::{Shape, operations};
use crate::rig::{Rig, TICK, TTL};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::Refusal;
use tourbillon_cache::{CacheRefusal, Cause, Computed};

#[test]
fn a_late_insert_brings_no_removed_entry_back() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TTL / 2);
    rig.cache.replace_if_present(1, 11).unwrap();
    assert_eq!(rig.told(), [(1, 10, Cause::Replaced)]);
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.start() + TTL / 2 + TTL));
    assert_eq!(rig.cache.remove(&1), Some(11));
    let refused = rig.cache.replace_if_present(1, 12).unwrap_err();
    assert_eq!((refused.reason, refused.value), (CacheRefusal::Absent, 12));
    assert!(rig.cache.is_empty() && rig.wheel.is_empty(), "nothing lingers");
}

#[test]
fn what_has_expired_is_not_replaced_swept_or_not() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.clock.advance(TTL);
    assert_eq!(rig.cache.replace_if_present(1, 11).unwrap_err().reason, CacheRefusal::Absent);
    assert!(rig.told().is_empty());
    rig.sweep();
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
    assert_eq!(rig.cache.replace_if_present(1, 12).unwrap_err().value, 12);
    assert!(rig.cache.is_empty() && rig.wheel.is_empty());
}

/// It was begun before the write, and may have read what the write has changed.
#[test]
fn a_load_that_a_replacement_overtook_is_not_kept() {
    let mut rig = Rig::new(|builder| builder.refresh_ahead(TTL / 2));
    let overtaken = rig.cache.get_or_load(&1, || {
        assert!(rig.cache.replace_if_present(1, 11).is_err());
        Ok::<_, ()>(10)
    });
    assert_eq!((overtaken, rig.cache.get(&1)), (Ok(10), None));
    rig.cache.insert(2, 20).unwrap();
    rig.advance(TTL / 2);
    let refresh = rig.cache.try_refresh(&2).unwrap();
    rig.cache.replace_if_present(2, 22).unwrap();
    assert_eq!(refresh.load(|| Ok::<_, ()>(21)), Ok(21));
    assert_eq!((rig.cache.get(&2), rig.wheel.len()), (Some(22), 1));
}

#[test]
fn a_replacement_is_refused_as_an_insert_is() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.wheel.close();
    let refused = rig.cache.replace_if_present(1, 11).unwrap_err();
    assert_eq!((refused.reason, refused.value), (CacheRefusal::Wheel(Refusal::Closed), 11));
    assert_eq!(rig.cache.get(&1), Some(10));
}

/// Its weight is new, too.
#[test]
fn a_replacement_is_weighed() {
    let rig = Rig::new(|builder| builder.capacity(100).weigher(|_, value| *value));
    rig.cache.insert(1, 10).unwrap();
    rig.cache.replace_if_present(1, 60).unwrap();
    assert_eq!((rig.cache.get(&1), rig.cache.weight()), (Some(60), 60));
    rig.cache.replace_if_present(1, 101).unwrap();
    let expected = [(1, 10, Cause::Replaced), (1, 60, Cause::Replaced), (1, 101, Cause::Size)];
    assert_eq!(rig.told(), expected);
    assert!(rig.cache.is_empty() && rig.wheel.is_empty());
}

#[test]
fn only_the_value_that_was_found_invalid_is_removed() {
    let mut rig = Rig::new(|builder| builder);
    assert_eq!(rig.cache.remove_if(&1, |_| panic!("there is none")), None);
    rig.cache.insert(1, 10).unwrap();
    rig.cache.insert(1, 11).unwrap();
    assert_eq!(rig.cache.remove_if(&1, |value| *value == 10), None);
    assert_eq!(rig.cache.get(&1), Some(11));
    assert_eq!(rig.cache.remove_if(&1, |value| *value == 11), Some(11));
    assert_eq!(rig.told(), [(1, 10, Cause::Replaced), (1, 11, Cause::Removed)]);
    assert!(rig.cache.is_empty() && rig.wheel.is_empty());
    rig.cache.insert(1, 12).unwrap();
    rig.clock.advance(TTL);
    assert_eq!(rig.cache.remove_if(&1, |_| panic!("it has expired")), None);
    rig.sweep();
    assert_eq!(rig.told(), [(1, 12, Cause::Expired)]);
}

#[test]
fn a_conditional_removal_overtakes_a_load_if_it_removes() {
    let mut rig = Rig::new(|builder| builder.refresh_ahead(TTL / 2));
    for (leaves, value) in [(true, None), (false, Some(11))] {
        rig.cache.insert(1, 10).unwrap();
        rig.advance(TTL / 2);
        let refresh = rig.cache.try_refresh(&1).unwrap();
        assert_eq!(rig.cache.remove_if(&1, |_| leaves).is_some(), leaves);
        assert_eq!(refresh.load(|| Ok::<_, ()>(11)), Ok(11));
        assert_eq!(rig.cache.get(&1), value);
    }
    // It loads the next value, which another caller must not remove before it is there.
    let loaded = rig.cache.get_or_load(&2, || {
        assert_eq!(rig.cache.remove_if(&2, |_| true), None);
        Ok::<_, ()>(20)
    });
    assert_eq!((loaded, rig.cache.get(&2)), (Ok(20), Some(20)));
}

#[test]
fn a_condition_that_panics_removes_nothing() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    let panics = |_: &u64| -> bool { resume_unwind(Box::new("a condition that panics")) };
    assert!(catch_unwind(AssertUnwindSafe(|| rig.cache.remove_if(&1, panics))).is_err());
    assert_eq!((rig.cache.get(&1), rig.wheel.len()), (Some(10), 1));
}

/// If many callers find a value invalid, one of them removes it, and no caller removes its
/// successor.
#[test]
fn concurrent_removals_of_an_invalid_value_leave_the_next_one() {
    const CALLERS: usize = 4;
    let rounds = u64::try_from(operations() / 10).unwrap();
    let (rig, there) = (Rig::new(|builder| builder), Barrier::new(CALLERS));
    rig.cache.insert(1, 0).unwrap();
    let call = || {
        let mut removed = 0;
        for round in 0..rounds {
            there.wait();
            if rig.cache.remove_if(&1, |value| *value == round).is_some() {
                removed += 1;
                rig.cache.insert(1, round + 1).unwrap();
            }
        }
        removed
    };
    let removed: u64 = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert_eq!((removed, rig.cache.get(&1)), (rounds, Some(rounds)));
    assert_eq!(rig.wheel.len(), 1);
}

/// Once the value is removed, no replacement that was on its way brings it back.
#[test]
fn concurrent_replacements_bring_nothing_back() {
    const CALLERS: usize = 3;
    let rounds = operations() / 10;
    let (rig, there) = (Rig::new(|builder| builder), Barrier::new(CALLERS + 1));
    let replace = || {
        for round in 0..rounds {
            there.wait();
            let replaced = rig.cache.replace_if_present(1, round as u64);
            assert!(replaced.is_ok() || !rig.cache.contains(&1));
            there.wait();
        }
    };
    thread::scope(|scope| {
        (0..CALLERS).for_each(|_| drop(scope.spawn(replace)));
        for _ in 0..rounds {
            rig.cache.insert(1, u64::MAX).unwrap();
            there.wait();
            assert!(rig.cache.remove(&1).is_some());
            there.wait();
            assert!(rig.cache.is_empty() && rig.wheel.is_empty());
        }
    });
}

#[test]
fn a_computed_value_lives_as_long_as_the_closure_says() {
    let mut rig = Rig::new(|builder| builder);
    let start = rig.clock.start();
    rig.cache.compute(&1, |value| Computed::Replace(value.map_or(10, |value| value + 1))).unwrap();
    assert_eq!(rig.cache.deadline(&1), Some(start + TTL), "there was none");
    rig.advance(TTL / 2);
    rig.cache.compute(&1, |value| Computed::Replace(value.map_or(10, |value| value + 1))).unwrap();
    assert_eq!((rig.cache.get(&1), rig.cache.deadline(&1)), (Some(11), Some(start + TTL)));
    assert_eq!(rig.told(), [(1, 10, Cause::Replaced)]);
    rig.advance(TTL / 4);
    rig.cache.compute(&1, |_| Computed::Keep).unwrap();
    assert_eq!(rig.cache.deadline(&1), Some(start + TTL));
    rig.cache.compute(&1, |_| Computed::Insert(12)).unwrap();
    assert_eq!(rig.cache.deadline(&1), Some(start + TTL * 7 / 4));
    rig.cache.compute(&1, |_| Computed::InsertWithTtl(13, TICK * 2)).unwrap();
    rig.advance(TICK);
    rig.cache.compute(&1, |_| Computed::Replace(14)).unwrap();
    assert_eq!((rig.cache.get(&1), rig.wheel.len()), (Some(14), 1));
    let replaced = [11, 12, 13].map(|value| (1, value, Cause::Replaced));
    assert_eq!(rig.told(), replaced);
    rig.advance(TICK);
    assert_eq!(rig.told(), [(1, 14, Cause::Expired)]);
    assert!(rig.wheel.is_empty());
    let stats = rig.cache.stats();
    assert_eq!((stats.hits, stats.misses), (2, 0), "a computation counts as neither");
}

#[test]
fn a_computation_removes_or_leaves_what_there_is() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.compute(&1, |_| Computed::Keep).unwrap();
    rig.cache.compute(&1, |_| Computed::Remove).unwrap();
    assert!(rig.cache.is_empty());
    rig.cache.insert(1, 10).unwrap();
    rig.cache.compute(&1, |_| Computed::Keep).unwrap();
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.cache.compute(&1, |_| Computed::Remove).unwrap();
    assert_eq!(rig.told(), [(1, 10, Cause::Removed)]);
    assert!(rig.cache.is_empty() && rig.wheel.is_empty());
    // An expired value counts as absent, even before it is swept.
    for key in 2..5 {
        rig.cache.insert(key, 20).unwrap();
    }
    rig.clock.advance(TTL);
    let computed = [Computed::Keep, Computed::Remove, Computed::Replace(21)];
    for (key, computed) in (2..5).zip(computed) {
        rig.cache.compute(&key, |value| value.map_or(computed, |_| panic!("expired"))).unwrap();
    }
    assert_eq!(rig.told(), [(3, 20, Cause::Expired), (4, 20, Cause::Expired)]);
    rig.sweep();
    assert_eq!(rig.told(), [(2, 20, Cause::Expired)]);
    assert_eq!(rig.cache.deadline(&4), Some(rig.clock.start() + TTL * 2));
    assert_eq!((rig.cache.len(), rig.wheel.len()), (1, 1));
}

#[test]
fn a_computation_overtakes_a_load_unless_it_keeps() {
    let overtaking = [Computed::Insert(12), Computed::Replace(12), Computed::Remove];
    for computed in overtaking {
        let rig = Rig::new(|builder| builder);
        let overtaken = rig.cache.get_or_load(&1, || {
            rig.cache.compute(&1, |_| computed).unwrap();
            Ok::<_, ()>(10)
        });
        let left = Some(12).filter(|_| computed != Computed::Remove);
        assert_eq!((overtaken, rig.cache.get(&1)), (Ok(10), left), "{computed:?}");
    }
    let rig = Rig::new(|builder| builder);
    let kept = rig.cache.get_or_load(&1, || {
        rig.cache.compute(&1, |_| Computed::Keep).unwrap();
        Ok::<_, ()>(10)
    });
    assert_eq!((kept, rig.cache.get(&1)), (Ok(10), Some(10)));
}

#[test]
fn a_computation_that_panics_or_is_refused_changes_nothing() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    let panics = |_: Option<&u64>| -> Computed<u64> { resume_unwind(Box::new("it panics")) };
    for key in [1, 2] {
        let computed = catch_unwind(AssertUnwindSafe(|| rig.cache.compute(&key, panics)));
        assert!(computed.is_err());
    }
    let zero = rig.cache.compute(&1, |_| Computed::InsertWithTtl(11, Duration::ZERO)).unwrap_err();
    assert_eq!((zero.reason, zero.value), (CacheRefusal::TimeToLive, 11));
    rig.wheel.close();
    for computed in [Computed::Insert(11), Computed::Replace(11)] {
        let closed = rig.cache.compute(&1, |_| computed).unwrap_err();
        assert_eq!((closed.reason, closed.value), (CacheRefusal::Wheel(Refusal::Closed), 11));
    }
    assert_eq!((rig.cache.get(&1), rig.cache.len()), (Some(10), 1));
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.start() + TTL));
    assert!(rig.told().is_empty());
    rig.cache.compute(&1, |_| Computed::Remove).unwrap();
    assert!(rig.cache.is_empty(), "a removal needs no timer");
}

#[test]
fn a_value_replaced_for_the_rest_of_its_time_is_used_and_not_prolonged() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    let start = rig.clock.start();
    rig.cache.insert(1, 10).unwrap();
    for (tick, until) in [(25, 55), (50, 80), (75, 100)] {
        rig.advance(TICK * 25);
        rig.cache.compute(&1, |_| Computed::Replace(tick)).unwrap();
        assert_eq!(rig.cache.deadline(&1), Some(start + TICK * until));
    }
    assert_eq!(rig.wheel.len(), 1);
    rig.told();
    rig.advance(TICK * 25);
    assert_eq!(rig.told(), [(1, 75, Cause::Expired)]);
}

/// The timer of the value before has fired for a deadline that a use has moved.
#[test]
fn a_timer_on_its_way_does_not_end_a_replaced_value() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TICK * 20);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.clock.advance(TICK * 10);
    let on_its_way = rig.sweep_apart();
    assert_eq!((on_its_way.len(), rig.wheel.len()), (1, 0));
    rig.cache.compute(&1, |_| Computed::Replace(11)).unwrap();
    on_its_way.into_iter().for_each(|timer| rig.cache.fire(timer));
    assert_eq!((rig.cache.contains(&1), rig.wheel.len()), (true, 1));
    rig.advance(TICK * 29);
    assert!(rig.cache.contains(&1));
    rig.advance(TICK);
    assert_eq!(rig.told(), [(1, 10, Cause::Replaced), (1, 11, Cause::Expired)]);
}

/// Its end is beyond the wheel's range, so its timer is armed again on the way.
#[test]
fn a_replaced_value_lives_forever_like_the_one_before() {
    let shape = Shape { tick: TICK, shards: 2, geometry: Geometry::default(), first_tick: 0 };
    let mut rig = Rig::of(shape, TTL, |builder| builder);
    rig.cache.insert_with_ttl(1, 10, Duration::MAX).unwrap();
    rig.cache.compute(&1, |_| Computed::Replace(11)).unwrap();
    rig.advance(rig.wheel.longest_delay());
    assert_eq!((rig.cache.get(&1), rig.wheel.len()), (Some(11), 1));
}

#[test]
fn a_computed_value_is_weighed() {
    let rig = Rig::new(|builder| builder.capacity(100).weigher(|_, value| *value));
    rig.cache.insert(1, 10).unwrap();
    rig.cache.insert(2, 20).unwrap();
    rig.cache.compute(&1, |value| Computed::Replace(value.map_or(0, |value| value + 50))).unwrap();
    assert_eq!((rig.cache.get(&1), rig.cache.weight()), (Some(60), 80));
    rig.cache.compute(&1, |_| Computed::Replace(90)).unwrap();
    let expected = [(1, 10, Cause::Replaced), (1, 60, Cause::Replaced), (2, 20, Cause::Size)];
    let mut told = rig.told();
    told.sort_unstable_by_key(|told| told.0);
    assert_eq!((told, rig.cache.weight()), (expected.to_vec(), 90));
    rig.cache.compute(&1, |_| Computed::Replace(101)).unwrap();
    assert!(rig.cache.is_empty() && rig.wheel.is_empty());
}

/// Each call replaces the timer, too.
#[test]
fn concurrent_computations_lose_no_change() {
    const CALLERS: u64 = 4;
    let rounds = u64::try_from(operations()).unwrap() / CALLERS;
    let rig = Rig::new(|builder| builder);
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                for round in 0..rounds {
                    let add = |value: Option<&u64>| {
                        let value = value.map_or(1, |value| value + 1);
                        if round % 2 == 0 {
                            Computed::Replace(value)
                        } else {
                            Computed::Insert(value)
                        }
                    };
                    rig.cache.compute(&1, add).unwrap();
                }
            });
        }
    });
    assert_eq!((rig.cache.get(&1), rig.wheel.len()), (Some(CALLERS * rounds), 1));
    assert_eq!(rig.told().len() as u64, CALLERS * rounds - 1);
}
