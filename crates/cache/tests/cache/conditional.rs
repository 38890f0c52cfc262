//! Writes that depend on the value that the key has.

use crate::common::operations;
use crate::rig::{Rig, TTL};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::thread;
use tourbillon::Refusal;
use tourbillon_cache::{CacheRefusal, Cause};

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

/// Of all callers that found a value invalid, one removes it, and none removes the next one.
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
