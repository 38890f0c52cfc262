//! The time to idle, touches and deadlines of entries.

use crate::common::Shape;
use crate::rig::{Rig, TICK, TTL};
use std::sync::mpsc;
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::{Builder, Clock, ManualClock, Refusal};
use tourbillon_cache::{Cache, CacheBuildError, CacheBuilder, CacheRefusal, Cause};

/// A wheel whose range covers the test without further timers.
fn wide() -> Shape {
    Shape { tick: TICK, shards: 2, geometry: Geometry::default(), first_tick: 0 }
}

#[test]
fn what_is_used_lives_on_until_its_time_to_live_has_passed() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    let start = rig.clock.now();
    for key in [1, 2] {
        rig.cache.insert(key, 10).unwrap();
        assert_eq!(rig.cache.deadline(&key), Some(start + TICK * 30));
    }
    for _ in 0..3 {
        rig.advance(TICK * 25);
        assert_eq!(rig.cache.get(&1), Some(10));
    }
    assert_eq!(rig.told(), [(2, 10, Cause::Expired)], "it was not used");
    assert_eq!(rig.cache.deadline(&1), Some(start + TTL), "and not at the 105th tick");
    assert_eq!(rig.wheel.len(), 1);
    rig.advance(TICK * 24);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.advance(TICK);
    assert_eq!(rig.cache.get(&1), None);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
    assert!(rig.wheel.is_empty());
}

#[test]
fn what_is_not_used_is_not_served_however_late_the_sweep() {
    let rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    rig.cache.insert(1, 10).unwrap();
    rig.clock.advance(TICK * 30 - TICK / 4);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.clock.advance(TICK * 30);
    assert_eq!((rig.cache.get(&1), rig.cache.len()), (None, 1));
}

#[test]
fn a_time_to_idle_beyond_all_time_keeps_nothing_past_its_time_to_live() {
    for idle in [Duration::MAX, Duration::from_secs(584 * 366 * 86_400)] {
        let rig = Rig::new(|builder| builder.time_to_idle(idle));
        rig.cache.insert(1, 10).unwrap();
        rig.clock.advance(TTL - TICK);
        assert_eq!(rig.cache.get(&1), Some(10));
        rig.clock.advance(TICK);
        assert_eq!((rig.cache.get(&1), rig.cache.contains(&1)), (None, false), "{idle:?}");
    }
}

#[test]
fn a_use_is_a_store_and_the_wheel_hears_of_it_when_the_timer_fires() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    rig.cache.insert(1, 10).unwrap();
    for _ in 0..90 {
        rig.advance(TICK);
        assert_eq!(rig.cache.get(&1), Some(10));
    }
    let counted = rig.wheel.metrics();
    assert_eq!((counted.inserted, counted.reset), (1 + 3, 0));
}

#[test]
fn a_look_is_no_use() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TICK * 29);
    assert!(rig.cache.contains(&1) && rig.cache.deadline(&1).is_some());
    assert_eq!(rig.cache.iter().count(), 1);
    rig.advance(TICK);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
}

#[test]
fn a_load_that_need_not_be_is_a_use() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TICK * 29);
    assert_eq!(rig.cache.get_or_load(&1, || Err::<u64, _>("not called")), Ok(10));
    rig.advance(TICK * 29);
    assert_eq!(rig.cache.get(&1), Some(10));
}

#[test]
fn a_touch_moves_the_end_to_later_and_to_earlier() {
    let mut rig = Rig::new(|builder| builder);
    let start = rig.clock.now();
    rig.cache.insert(1, 10).unwrap();
    rig.cache.insert(2, 20).unwrap();
    assert_eq!(rig.cache.touch(&1, TTL * 2), Ok(true));
    assert_eq!(rig.cache.touch(&2, TTL / 2), Ok(true));
    assert_eq!(rig.cache.touch(&3, TTL), Ok(false));
    assert_eq!(rig.cache.deadline(&1), Some(start + TTL * 2));
    rig.advance(TTL / 2);
    assert_eq!(rig.told(), [(2, 20, Cause::Expired)]);
    rig.advance(TTL);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.advance(TTL / 2);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
}

#[test]
fn a_touch_after_the_end_comes_too_late() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.clock.advance(TTL);
    assert_eq!(rig.cache.touch(&1, TTL), Ok(false));
    rig.sweep();
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
}

/// Its timer has fired for the deadline that it had at the last check.
#[test]
fn a_touch_while_the_timer_is_on_its_way_is_kept() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TICK * 20);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.clock.advance(TICK * 10);
    let on_its_way = rig.sweep_apart();
    assert_eq!((on_its_way.len(), rig.wheel.len()), (1, 0));
    assert_eq!(rig.cache.touch(&1, TICK * 25), Ok(true));
    on_its_way.into_iter().for_each(|timer| rig.cache.fire(timer));
    assert_eq!(rig.wheel.len(), 1);
    rig.advance(TICK * 24);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.advance(TICK);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
}

#[test]
fn a_touch_that_is_refused_leaves_the_time_as_it_was() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    assert_eq!(rig.cache.touch(&1, Duration::ZERO), Err(CacheRefusal::TimeToLive));
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.start() + TTL));
    rig.advance(TTL);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
}

/// After a shutdown, reads return the entries that have not expired.
#[test]
fn what_was_used_outlives_a_shutdown() {
    let clock = ManualClock::new();
    let driver = Builder::new().clock(clock.clone()).driver();
    let cache = Cache::builder(TTL).time_to_idle(TICK * 30).spawn(driver).unwrap();
    cache.insert(1, 10).unwrap();
    clock.advance(TICK * 29);
    assert_eq!(cache.get(&1), Some(10));
    cache.shutdown();
    clock.advance(TICK * 29);
    assert_eq!(cache.get(&1), Some(10));
    let closed = CacheRefusal::Wheel(Refusal::Closed);
    assert_eq!(cache.touch(&1, TTL), Err(closed));
    clock.advance(TICK * 30);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn a_timer_that_fires_into_a_closed_wheel_leaves_what_was_used() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TICK * 20);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.clock.advance(TICK * 10);
    let on_its_way = rig.sweep_apart();
    rig.wheel.close();
    on_its_way.into_iter().for_each(|timer| rig.cache.fire(timer));
    assert_eq!((rig.cache.get(&1), rig.told().len()), (Some(10), 0));
}

#[test]
fn the_listener_hears_of_the_deadline() {
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let (send, gone) = mpsc::channel();
    let cache = Cache::builder(TTL).listener(move |gone| send.send(gone).unwrap());
    let cache = cache.build(wheel).unwrap();
    cache.insert(1, "removed").unwrap();
    cache.insert(2, "expires").unwrap();
    cache.remove(&1);
    let removed = gone.recv().unwrap();
    assert_eq!((removed.value, removed.deadline), ("removed", clock.start() + TTL));
    clock.advance(TTL * 2);
    let _ = sweeper.sweep(|timer| cache.fire(timer));
    let expired = gone.recv().unwrap();
    assert_eq!((expired.value, expired.deadline), ("expires", clock.start() + TTL));
}

#[test]
fn bounds_are_checked() {
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let none = Cache::<u32, u64>::builder(TTL).time_to_idle(Duration::ZERO).build(wheel.clone());
    assert!(matches!(none, Err(CacheBuildError::TimeToIdle)));
    let heavy = Cache::<u32, u64>::builder(TTL).capacity((1 << 30) + 1);
    assert!(matches!(heavy.build(wheel), Err(CacheBuildError::Capacity { .. })));
}

/// Their timers lie within the wheel's range, and are armed again on the way.
#[test]
fn what_lives_for_ever_does() {
    for idle in [None, Some(Duration::MAX)] {
        let set = |builder: CacheBuilder<u32, u64>| match idle {
            Some(idle) => builder.time_to_idle(idle),
            None => builder,
        };
        let mut rig = Rig::of(wide(), Duration::MAX, set);
        let longest = rig.wheel.longest_delay();
        rig.cache.insert(1, 10).unwrap();
        rig.cache.insert_with_ttl(2, 20, longest * 2).unwrap();
        assert_eq!(rig.cache.get_or_load(&3, || Ok::<_, ()>(30)), Ok(30));
        rig.cache.insert_with_ttl(4, 40, TTL).unwrap();
        assert_eq!(rig.cache.touch(&4, Duration::MAX), Ok(true));
        assert!(rig.cache.deadline(&1) > Some(rig.clock.now() + longest * 3));
        for _ in 0..3 {
            rig.advance(longest - TTL);
        }
        assert_eq!(rig.told(), [(2, 20, Cause::Expired)], "{idle:?}");
        let kept = [1, 3, 4].map(|key| rig.cache.get(&key));
        assert_eq!((kept, rig.wheel.len()), ([Some(10), Some(30), Some(40)], 3), "{idle:?}");
        rig.cache.clear();
        assert!(rig.wheel.is_empty());
    }
}

#[test]
fn what_is_jittered_forever_and_not_used_for_a_while_ends() {
    let mut rig = Rig::of(wide(), Duration::MAX, |builder| builder.jitter(50).time_to_idle(TTL));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TTL - TICK);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.advance(TTL);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
}
