//! Entries that are refreshed before they expire.

use crate::common::{SMALL, Shape, operations};
use crate::rig::{Rig, TICK, TTL};
use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;
use tourbillon::{Builder, Clock, ManualClock};
use tourbillon_cache::{
    Cache, CacheBuildError, CacheBuilder, Cause, Computed, LoadError, Loaded, WeakCache,
};

/// The part of an entry's life when it is refreshed.
const AHEAD: Duration = Duration::from_millis(40);

/// The pause after the first failed load, which is 1/32 of that.
const PAUSE: Duration = Duration::from_millis(2);

type Answer = Result<u64, LoadError<&'static str>>;

/// Creates a cache with an entry of this age.
fn aged(age: Duration) -> Rig {
    let mut rig = Rig::new(|builder| builder.refresh_ahead(AHEAD));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(age);
    rig
}

fn fails() -> Result<u64, &'static str> {
    Err("down")
}

#[test]
fn one_who_comes_near_the_end_loads_and_all_others_are_served() {
    let mut rig = aged(TTL - AHEAD - TICK);
    assert_eq!(rig.cache.get_or_load(&1, || -> Result<u64, ()> { panic!("too early") }), Ok(10));
    rig.advance(TICK);
    let start = rig.clock.now();
    let loaded = rig.cache.get_or_load(&1, || {
        assert_eq!(rig.cache.get(&1), Some(10));
        let other = rig.cache.get_or_load(&1, || -> Result<u64, ()> { panic!("one at a time") });
        assert_eq!(other, Ok(10));
        Ok::<_, ()>(11)
    });
    assert_eq!(loaded, Ok(11));
    assert_eq!(rig.told(), [(1, 10, Cause::Replaced)]);
    assert_eq!((rig.cache.get(&1), rig.cache.deadline(&1)), (Some(11), Some(start + TTL)));
    assert_eq!(rig.cache.get_or_load(&1, fails), Ok(11), "and it is fresh");
    let stats = rig.cache.stats();
    assert_eq!((stats.loads, stats.loaded, stats.hits, stats.misses), (1, 1, 5, 1));
    rig.advance(TTL);
    assert_eq!(rig.told(), [(1, 11, Cause::Expired)]);
    assert!(rig.wheel.is_empty());
}

#[test]
fn what_is_not_wanted_near_its_end_expires() {
    let rig = aged(TTL);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
    assert!(rig.cache.try_refresh(&1).is_none());
    rig.cache.insert(1, 12).unwrap();
    rig.clock.advance(TTL);
    assert!(rig.cache.try_refresh(&1).is_none(), "it is over, swept or not");
}

#[test]
fn a_load_ahead_that_is_of_no_use_leaves_what_there_is_until_its_end() {
    let mut rig = aged(TTL - AHEAD);
    assert_eq!(rig.cache.get_or_load(&1, fails), Ok(10));
    rig.advance(PAUSE);
    let no_time = || Ok::<_, &str>((11, Duration::ZERO));
    assert_eq!(rig.cache.get_or_load(&1, no_time), Ok(11));
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.advance(AHEAD - PAUSE - TICK);
    let slow = || {
        rig.clock.advance(TICK);
        fails()
    };
    assert_eq!(rig.cache.get_or_load(&1, slow), Err(LoadError::Failed("down".into())));
    rig.sweep();
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
    assert_eq!(rig.cache.stats().loads, 3);
}

/// Returns the number of loads in the refresh window if a reader calls at each tick and each load
/// ends in this way.
fn attempts(load: impl Fn(&Rig)) -> u64 {
    let mut rig = aged(TTL - AHEAD);
    for _ in 0..AHEAD.as_millis() {
        for _ in 0..10 {
            load(&rig);
            assert_eq!(rig.cache.get(&1), Some(10));
        }
        rig.advance(TICK);
    }
    rig.cache.stats().loads
}

/// A backend that is down is called after 0, 2, 5, 10 and 20 ticks and so on, and not once per
/// reader.
#[test]
fn a_load_ahead_that_failed_has_the_next_ones_wait() {
    let failed = attempts(|rig| assert_eq!(rig.cache.get_or_load(&1, fails), Ok(10)));
    assert_eq!(failed, 5);
    let refused = attempts(|rig| {
        let load = || Ok::<_, &str>((11, Duration::ZERO));
        assert!(rig.cache.get_or_load(&1, load).is_ok());
    });
    assert_eq!(refused, 5);
    let panicked = attempts(|rig| {
        let load = || -> Result<u64, &str> { resume_unwind(Box::new("a load that panics")) };
        let _ = catch_unwind(AssertUnwindSafe(|| rig.cache.get_or_load(&1, load)));
    });
    assert_eq!(panicked, 5);
    let dropped = attempts(|rig| {
        let load = pending::<Result<u64, &str>>();
        let asks = pin!(rig.cache.get_or_load_async(&1, load));
        let _ = asks.poll(&mut Context::from_waker(Waker::noop()));
    });
    assert_eq!(dropped, 5);
    let elsewhere = attempts(|rig| {
        let refresh = rig.cache.try_refresh(&1);
        assert!(refresh.is_none_or(|refresh| refresh.load(fails).is_err()));
    });
    assert_eq!(elsewhere, 5);
}

#[test]
fn pauses_after_loads_ahead_are_bounded() {
    const MINUTE: Duration = Duration::from_secs(60);
    let shape = Shape { tick: TICK, shards: 1, geometry: SMALL, first_tick: 0 };
    let mut rig = Rig::of(shape, MINUTE * 61, |builder| builder.refresh_ahead(MINUTE * 60));
    rig.cache.insert(1, 10).unwrap();
    rig.clock.advance(MINUTE);
    let mut attempts = Vec::new();
    for second in 0..3599 {
        let loads = rig.cache.stats().loads;
        assert_eq!(rig.cache.get_or_load(&1, fails), Ok(10));
        if rig.cache.stats().loads > loads {
            attempts.push(second);
        }
        rig.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(attempts[..8], [0, 1, 3, 7, 15, 31, 63, 123]);
    assert!(attempts[7..].windows(2).all(|pair| pair[1] == pair[0] + 60), "{attempts:?}");
    // After a touch or a new value there is no pause.
    rig.cache.touch(&1, MINUTE).unwrap();
    assert_eq!(rig.cache.get_or_load(&1, || Ok::<_, ()>(11)), Ok(11));
    rig.advance(MINUTE);
    assert_eq!(rig.cache.get_or_load(&1, || Ok::<_, ()>(12)), Ok(12));
}

#[test]
fn who_misses_what_has_ended_meanwhile_waits_for_the_load_ahead() {
    let mut rig = aged(TTL - AHEAD);
    let mut context = Context::from_waker(Waker::noop());
    let mut gone = Box::pin(rig.cache.get_or_load_async(&1, pending::<Result<u64, ()>>()));
    assert!(gone.as_mut().poll(&mut context).is_pending());
    let load = ready(Ok((12, TTL)));
    let mut other = pin!(rig.cache.get_or_load_async(&1, load));
    let served: Poll<Answer> = other.as_mut().poll(&mut context);
    assert_eq!(served, Poll::Ready(Ok(10)));
    let load = ready(Ok((13, TTL)));
    rig.clock.advance(AHEAD);
    let mut late = pin!(rig.cache.get_or_load_async(&1, load));
    let waits: Poll<Answer> = late.as_mut().poll(&mut context);
    assert!(waits.is_pending());
    drop(gone);
    assert_eq!(late.as_mut().poll(&mut context), Poll::Ready(Ok(13)));
    let _ = rig.sweeper.sweep(|timer| rig.cache.fire(timer));
    assert_eq!(rig.cache.get(&1), Some(13));
}

#[test]
fn the_right_to_refresh_is_given_to_one_at_a_time_near_the_end() {
    let mut rig = aged(TTL - AHEAD - TICK);
    assert!(rig.cache.try_refresh(&1).is_none() && rig.cache.try_refresh(&2).is_none());
    rig.advance(TICK);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    assert_eq!(refresh.key(), &1);
    assert!(rig.cache.try_refresh(&1).is_none());
    assert_eq!(rig.cache.get_or_load(&1, fails), Ok(10));
    drop(refresh);
    rig.advance(PAUSE);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    assert_eq!(refresh.load(|| Ok::<_, ()>((11, TTL))), Ok(11));
    assert!(rig.cache.try_refresh(&1).is_none());
    assert_eq!(rig.cache.get(&1), Some(11));
    assert_eq!(rig.cache.stats().loads, 2);
}

#[test]
fn a_refresh_by_a_task_ends_with_it() {
    let mut rig = aged(TTL - AHEAD);
    let mut context = Context::from_waker(Waker::noop());
    let refresh = rig.cache.try_refresh(&1).unwrap();
    let mut stopped = Box::pin(refresh.load_async(pending::<Result<u64, ()>>()));
    assert!(stopped.as_mut().poll(&mut context).is_pending());
    assert!(rig.cache.try_refresh(&1).is_none());
    drop(stopped);
    rig.advance(PAUSE);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    let failed = pin!(refresh.load_async(ready(Err::<u64, _>("down")))).poll(&mut context);
    assert_eq!(failed, Poll::Ready(Err(LoadError::Failed("down".into()))));
    rig.advance(PAUSE * 2);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    let load = ready(Ok::<_, ()>((11, TTL)));
    assert_eq!(pin!(refresh.load_async(load)).poll(&mut context), Poll::Ready(Ok(11)));
    assert_eq!(rig.cache.get(&1), Some(11));
}

#[test]
fn a_refresh_that_an_insert_or_a_removal_overtakes_changes_nothing() {
    let rig = aged(TTL - AHEAD);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    rig.cache.insert(1, 12).unwrap();
    assert_eq!(refresh.load(|| Ok::<_, ()>((11, TTL))), Ok(11));
    assert_eq!(rig.cache.get(&1), Some(12));
    rig.clock.advance(TTL - AHEAD);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    rig.cache.remove(&1);
    assert_eq!(refresh.load(|| Ok::<_, ()>((11, TTL))), Ok(11));
    assert_eq!((rig.cache.get(&1), rig.wheel.len()), (None, 0));
}

#[test]
fn a_refresh_keeps_the_cache() {
    let rig = aged(TTL - AHEAD);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    let (weak, wheel) = (rig.cache.downgrade(), rig.wheel.clone());
    drop(rig);
    assert_eq!((weak.upgrade().unwrap().len(), wheel.len()), (1, 1));
    drop(refresh);
    assert!(weak.upgrade().is_none() && wheel.is_empty());
}

#[test]
fn the_end_of_the_whole_time_to_live_counts() {
    let ticks = |rig: &mut Rig, ticks| {
        rig.advance(TICK * ticks);
        assert_eq!(rig.cache.get(&1), Some(10));
        rig.cache.try_refresh(&1).is_some()
    };
    let set =
        |builder: CacheBuilder<u32, u64>| builder.refresh_ahead(AHEAD).time_to_idle(TICK * 30);
    let mut rig = Rig::new(set);
    rig.cache.insert(1, 10).unwrap();
    assert!(!ticks(&mut rig, 20) && !ticks(&mut rig, 20) && !ticks(&mut rig, 19));
    assert!(ticks(&mut rig, 1));
    rig.cache.touch(&1, TTL).unwrap();
    assert!(!ticks(&mut rig, 0), "a touch makes it fresh");
}

#[test]
fn a_time_ahead_is_within_the_time_to_live() {
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    for ahead in [Duration::ZERO, TTL, TTL * 2] {
        let builder = Cache::<u32, u32>::builder(TTL).refresh_ahead(ahead);
        let refused = builder.build(wheel.clone()).unwrap_err();
        assert!(matches!(refused, CacheBuildError::RefreshAhead { below: TTL }), "{refused}");
    }
    assert!(Cache::<u32, u32>::builder(TTL).refresh_ahead(TTL - TICK).build(wheel).is_ok());
}

#[test]
fn a_time_ahead_is_within_the_shortest_life_that_the_jitter_allows() {
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let builder = || Cache::<u32, u32>::builder(TTL).jitter(50);
    assert!(builder().refresh_ahead(TTL / 2).build(wheel.clone()).is_err());
    assert!(builder().refresh_ahead(TTL / 2 - TICK).build(wheel).is_ok());
}

#[test]
fn an_unchanged_value_begins_its_time_to_live_anew() {
    let renewed = |rig: &Rig, ttl| {
        assert_eq!(rig.cache.deadline(&1), Some(rig.clock.now() + ttl));
        assert!(rig.cache.try_refresh(&1).is_none(), "it is fresh");
        assert_eq!((rig.told().len(), rig.wheel.len()), (0, 1), "it was not replaced");
    };
    let mut rig = aged(TTL - AHEAD);
    let unchanged = || Ok::<_, &str>(Loaded::unchanged());
    assert_eq!(rig.cache.get_or_load(&1, unchanged), Ok(10));
    renewed(&rig, TTL);
    rig.advance(TTL - AHEAD);
    let longer = || Ok::<_, &str>(Loaded::unchanged_with_ttl(TTL * 2));
    assert_eq!(rig.cache.try_refresh(&1).unwrap().load(longer), Ok(10));
    renewed(&rig, TTL * 2);
    rig.advance(TTL * 2 - AHEAD);
    let load = async move { unchanged() };
    assert_eq!(pollster::block_on(rig.cache.get_or_load_async(&1, load)), Ok(10));
    renewed(&rig, TTL);
    rig.advance(TTL - AHEAD);
    let load = async move { unchanged() };
    assert_eq!(pollster::block_on(rig.cache.get_or_load_shared(&1, load)), Ok(10));
    renewed(&rig, TTL);
    rig.advance(TTL - AHEAD);
    // A failure is forgotten, too.
    assert_eq!(rig.cache.get_or_load(&1, fails), Ok(10));
    rig.advance(PAUSE);
    assert_eq!(rig.cache.get_or_load(&1, unchanged), Ok(10));
    renewed(&rig, TTL);
    let stats = rig.cache.stats();
    assert_eq!((stats.loads, stats.loaded), (6, 5));
    rig.advance(TTL);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
    assert!(rig.wheel.is_empty());
}

#[test]
fn a_load_that_finds_nothing_unchanged_fails() {
    let unchanged = || Ok::<_, &str>(Loaded::unchanged());
    let rig = aged(TTL - AHEAD);
    assert_eq!(rig.cache.get_or_load(&2, unchanged), Err(LoadError::Unchanged));
    let shared = rig.cache.get_or_load_shared(&2, async { Ok::<_, &str>(Loaded::unchanged()) });
    assert_eq!(pollster::block_on(shared), Err(LoadError::Unchanged));
    let removed = rig.cache.try_refresh(&1).unwrap();
    rig.cache.remove(&1);
    assert_eq!(removed.load(unchanged), Err(LoadError::Unchanged));
    assert!(rig.cache.is_empty() && rig.wheel.is_empty());
    assert_eq!(rig.cache.stats().loaded, 0);
}

/// An expired value is not revived, whether it was swept or not.
#[test]
fn a_value_that_expired_before_it_was_found_unchanged_is_gone() {
    for is_swept in [true, false] {
        let mut rig = aged(TTL - AHEAD);
        let refresh = rig.cache.try_refresh(&1).unwrap();
        rig.clock.advance(AHEAD);
        if is_swept {
            rig.sweep();
        }
        // It waits for the refresh, and then loads by itself.
        let mut waits = pin!(rig.cache.get_or_load_async(&1, ready(Ok::<_, &str>(11))));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        let answer: Answer = refresh.load(|| Ok(Loaded::unchanged_with_ttl(Duration::ZERO)));
        assert_eq!(answer, Err(LoadError::Unchanged));
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Ready(Ok(11)));
        assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
        assert_eq!((rig.cache.get(&1), rig.wheel.len()), (Some(11), 1));
    }
    let rig = aged(TTL - AHEAD);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    rig.clock.advance(AHEAD);
    let answer: Answer = refresh.load(|| Ok(Loaded::unchanged()));
    assert_eq!((answer, rig.cache.get(&1)), (Err(LoadError::Unchanged), None));
    assert_eq!((rig.cache.len(), rig.wheel.len()), (1, 1), "it is not swept yet");
}

#[test]
fn a_value_inserted_before_the_old_one_was_found_unchanged_stays_as_it_is() {
    let rig = aged(TTL - AHEAD);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    rig.cache.insert_with_ttl(1, 11, TTL * 2).unwrap();
    assert_eq!(refresh.load(|| Ok::<_, ()>(Loaded::unchanged())), Ok(11));
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.now() + TTL * 2));
    let refresh = |rig: &Rig| rig.cache.try_refresh(&1).unwrap();
    rig.clock.advance(TTL * 2 - AHEAD);
    let computing = refresh(&rig);
    rig.cache.compute(&1, |_| Computed::Replace(12)).unwrap();
    assert_eq!(computing.load(|| Ok::<_, ()>(Loaded::unchanged())), Ok(12));
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.now() + AHEAD));
}

/// The value stays until its end, and the next refresh waits.
#[test]
fn an_unchanged_value_that_gets_no_time_keeps_its_own() {
    let mut rig = aged(TTL - AHEAD);
    let no_time = || Ok::<_, &str>(Loaded::unchanged_with_ttl(Duration::ZERO));
    assert_eq!(rig.cache.get_or_load(&1, no_time), Ok(10));
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.now() + AHEAD));
    assert!(rig.cache.try_refresh(&1).is_none(), "a pause");
    rig.advance(PAUSE);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    rig.wheel.close();
    assert_eq!(rig.wheel.drain().len(), 1);
    assert_eq!(refresh.load(|| Ok::<_, ()>(Loaded::unchanged())), Ok(10));
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.now() + AHEAD - PAUSE));
    assert!(rig.cache.try_refresh(&1).is_none(), "a longer pause");
}

/// Readers, a sweeper and writers beside a backend whose value changes at times. No reader sees an
/// older value after a newer one.
#[test]
fn concurrent_refreshes_that_find_nothing_new_bring_nothing_old_back() {
    let rig = Rig::new(|builder| builder.refresh_ahead(TTL - TICK));
    let (version, mut sweeper, clock) = (AtomicU64::new(1), rig.sweeper, rig.clock);
    let mut random = fastrand::Rng::with_seed(7);
    let cache = &rig.cache;
    let read = || {
        for _ in 0..operations() / 4 {
            let known = cache.get(&1);
            let loaded = cache.get_or_load(&1, || {
                let current = version.load(SeqCst);
                let is_unchanged = known == Some(current);
                Ok::<_, ()>(if is_unchanged { Loaded::unchanged() } else { current.into() })
            });
            match loaded {
                Ok(value) => assert!(known.is_none_or(|known| known <= value)),
                Err(error) => assert_eq!(error, LoadError::Unchanged),
            }
        }
    };
    thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        while !readers.iter().all(ScopedJoinHandle::is_finished) {
            clock.advance(TICK);
            let _ = sweeper.sweep(|timer| cache.fire(timer));
            if random.u32(..8) == 0 {
                let next = version.fetch_add(1, SeqCst) + 1;
                cache.insert(1, next).unwrap();
            }
        }
    });
    assert_eq!(rig.wheel.len(), cache.len());
}

/// A value whose drop uses the cache. Under a lock of the map it would deadlock.
struct Looks(WeakCache<u32, Looks>, Arc<AtomicU32>);

impl Clone for Looks {
    fn clone(&self) -> Self {
        Self(self.0.clone(), Arc::clone(&self.1))
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        if let Some(cache) = self.0.upgrade() {
            let _present = cache.contains(&1);
            self.1.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn no_value_is_dropped_under_a_lock() {
    let clock = ManualClock::new();
    let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let cache = Cache::builder(TTL).refresh_ahead(AHEAD).build(wheel).unwrap();
    let (weak, drops) = (cache.downgrade(), Arc::new(AtomicU32::new(0)));
    let value = || Looks(weak.clone(), Arc::clone(&drops));
    cache.insert(1, value()).unwrap();
    clock.advance(TTL - AHEAD);
    let overtaken = cache.get_or_load(&1, || {
        cache.insert(1, value()).unwrap();
        Ok::<_, ()>(value())
    });
    assert!(overtaken.is_ok());
    cache.compute(&1, |_| Computed::Replace(value())).unwrap();
    assert!(cache.compute(&1, |_| Computed::InsertWithTtl(value(), Duration::ZERO)).is_err());
    assert!(cache.remove_if(&1, |_| true).is_some());
    assert!(cache.replace_if_present(1, value()).is_err());
    assert!(drops.load(Relaxed) > 1);
}
