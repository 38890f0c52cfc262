//! Deadlines, calls of the listener, and the races of values with old timers.
//!
//! Time is virtual. Threads run only in tests of races, and in a cache with its own driver.

use crate::common::{Bench, SMALL, Shape, operations, receive, shapes};
use crate::rig::{CacheModel, CacheOp, Key, Rig, TICK, TTL};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::HashSet;
use std::error::Error;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{BuildError, Builder, DriverBuilder, ExecutorJob, Inline, ManualClock, Refusal};
use tourbillon_cache::{
    Cache, CacheBuildError, CacheBuilder, CacheRefusal, Cause, Computed, Evicted, LoadError,
    WeakCache,
};

/// go-zero's cache, on ticks of a second, may drop an entry of 2 s after 11 ms.
#[test]
fn an_entry_of_two_seconds_lives_two_seconds_at_every_phase_of_the_tick() {
    let second = Duration::from_secs(1);
    let mut shapes = shapes();
    shapes.push(Shape { tick: second, shards: 1, geometry: SMALL, first_tick: 0 });
    for shape in shapes {
        let ttl = if shape.tick == second { 2 * second } else { shape.tick * 8 };
        let mut rig = Rig::of(shape, ttl, |builder| builder);
        for phase in 0..8 {
            rig.advance(shape.tick / 8 * phase);
            rig.cache.insert(phase, 1).unwrap();
            let nearly = ttl - Duration::from_nanos(1);
            rig.advance(nearly);
            assert_eq!(rig.cache.get(&phase), Some(1), "{shape:?}, phase {phase}");
            assert!(rig.told().is_empty());
            rig.advance(shape.tick + Duration::from_nanos(1));
            assert_eq!(rig.cache.get(&phase), None);
            assert_eq!(rig.told(), [(phase, 1, Cause::Expired)]);
            assert!(rig.cache.is_empty() && rig.wheel.is_empty());
        }
    }
}

#[test]
fn a_late_sweeper_does_not_serve_what_has_expired() {
    let mut rig = Rig::new(|builder| builder);
    for key in 0..5 {
        rig.cache.insert(key, 7).unwrap();
    }
    rig.clock.advance(TTL);
    assert_eq!(rig.cache.get(&0), None);
    assert!(!rig.cache.contains(&0));
    assert_eq!(rig.cache.remove(&1), None);
    assert_eq!(rig.cache.get_or_load(&2, || Ok::<_, ()>(8)), Ok(8));
    rig.cache.insert(3, 9).unwrap();
    // They had expired, whatever removed them. The others are still to be swept.
    let expired = |key| (key, 7, Cause::Expired);
    assert_eq!(rig.told(), [expired(1), expired(2), expired(3)]);
    assert_eq!((rig.cache.len(), rig.wheel.len()), (4, 4));
    rig.sweep();
    let told: HashSet<_> = rig.told().into_iter().collect();
    assert_eq!(told, HashSet::from([expired(0), expired(4)]));
    assert_eq!((rig.cache.get(&2), rig.cache.get(&3)), (Some(8), Some(9)));
}

#[test]
fn a_value_written_while_the_old_one_expires_stays() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.cache.insert(2, 20).unwrap();
    rig.clock.advance(TTL);
    let on_their_way = rig.sweep_apart();
    assert_eq!(on_their_way.len(), 2);
    rig.cache.insert(1, 11).unwrap();
    assert_eq!(rig.cache.get_or_load(&2, || Ok::<_, ()>(21)), Ok(21));
    on_their_way.into_iter().for_each(|timer| rig.cache.fire(timer));
    assert_eq!((rig.cache.get(&1), rig.cache.get(&2)), (Some(11), Some(21)));
    assert_eq!(rig.told(), [(1, 10, Cause::Expired), (2, 20, Cause::Expired)]);
    // They have times to live of their own.
    rig.advance(TTL - TICK);
    assert!(rig.told().is_empty());
    rig.advance(TICK);
    assert_eq!(rig.told().len(), 2);
}

#[test]
fn a_value_that_was_replaced_takes_its_timer_along() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TTL / 2);
    rig.cache.insert(1, 11).unwrap();
    assert_eq!(rig.wheel.len(), 1, "nothing lingers");
    assert_eq!(rig.told(), [(1, 10, Cause::Replaced)]);
    rig.advance(TTL - TICK);
    assert_eq!(rig.cache.get(&1), Some(11));
    rig.advance(TICK);
    assert_eq!(rig.told(), [(1, 11, Cause::Expired)]);
}

#[test]
fn a_value_inserted_after_a_removal_has_a_timer_of_its_own() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.cache.insert(2, 20).unwrap();
    assert_eq!(rig.cache.remove(&2), Some(20));
    assert_eq!(rig.wheel.len(), 1, "nothing lingers");
    rig.cache.insert(2, 21).unwrap();
    rig.clock.advance(TTL);
    let on_their_way = rig.sweep_apart();
    assert_eq!(rig.cache.remove(&1), None, "it had expired");
    rig.cache.insert(1, 11).unwrap();
    on_their_way.into_iter().for_each(|timer| rig.cache.fire(timer));
    assert_eq!((rig.cache.get(&1), rig.cache.get(&2)), (Some(11), None));
    let expected = [(2, 20, Cause::Removed), (1, 10, Cause::Expired), (2, 21, Cause::Expired)];
    assert_eq!(rig.told(), expected);
    rig.advance(TTL);
    assert_eq!(rig.told(), [(1, 11, Cause::Expired)]);
}

thread_local! {
    /// The next hash of a [`Hooked`] key runs this first.
    static HOOK: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A key that can run code between the arming of its timer and its insertion into the map.
#[derive(Clone, PartialEq, Eq)]
struct Hooked(u32);

impl Hash for Hooked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let hook = HOOK.with(|hook| hook.borrow_mut().take());
        if let Some(hook) = hook {
            hook();
        }
        self.0.hash(state);
    }
}

#[test]
fn a_timer_that_fires_before_its_value_is_there_leaves_none() {
    let clock = ManualClock::new();
    let (wheel, sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let cache = Cache::builder(TTL)
        .listener(move |gone| tell.lock().unwrap().push((gone.value, gone.cause)))
        .build(wheel.clone())
        .unwrap();
    // Shared, because a wheel without a sweeper is closed.
    let sweeper = Rc::new(RefCell::new(sweeper));
    let (inside, sweeping) = (cache.clone(), Rc::clone(&sweeper));
    let hook = move || {
        clock.advance(TTL);
        assert_eq!(sweeping.borrow_mut().sweep(|timer| inside.fire(timer)).expired, 1);
    };
    HOOK.set(Some(Box::new(hook)));
    cache.insert(Hooked(1), 10).unwrap();
    assert!(cache.is_empty() && wheel.is_empty());
    assert_eq!(*told.lock().unwrap(), [(10, Cause::Expired)]);
}

#[test]
fn a_jitter_keeps_its_bounds_and_fills_them() {
    let lives = |seed| {
        let ttl = TICK * 1000;
        let mut rig = Rig::new(|builder| builder.jitter(5).seed(seed));
        for key in 0..1000 {
            rig.cache.insert_with_ttl(key, 0, ttl).unwrap();
        }
        let mut lives = Vec::new();
        for tick in 1..=1050_u32 {
            rig.advance(TICK);
            lives.extend(rig.told().into_iter().map(|(key, ..)| (tick, key)));
        }
        assert_eq!(lives.len(), 1000, "none lives longer");
        lives.sort_unstable();
        lives
    };
    let drawn = lives(1);
    assert!(drawn[0].0 >= 950, "none lives shorter");
    assert!(drawn[0].0 < 960 && drawn[999].0 > 1040, "spread to both sides");
    let ticks: HashSet<u32> = drawn.iter().map(|life| life.0).collect();
    assert!(ticks.len() > 90, "spread to {} ticks of 101", ticks.len());
    assert_eq!(drawn, lives(1), "the same for the same seed");
    assert_ne!(drawn, lives(2));
}

type Taken = Result<u64, LoadError<&'static str>>;

/// Callers load one key at the same time. Returns their results and the number of loads. The first
/// load ends when all callers have arrived.
fn take_at_once(
    cache: &Cache<Key, u64>,
    callers: usize,
    load: impl Fn(usize) -> Result<u64, &'static str> + Sync,
) -> (Vec<thread::Result<Taken>>, usize) {
    let (loads, there) = (AtomicUsize::new(0), Barrier::new(callers));
    let all = thread::scope(|scope| {
        let call = || {
            there.wait();
            cache.get_or_load(&1, || {
                let before = loads.fetch_add(1, SeqCst);
                // Long enough for the others to arrive and wait.
                (0..1000).for_each(|_| thread::yield_now());
                load(before)
            })
        };
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(call)).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    (all, loads.into_inner())
}

#[test]
fn concurrent_misses_of_one_key_have_one_load() {
    for _ in 0..20 {
        let rig = Rig::new(|builder| builder);
        let (taken, loads) = take_at_once(&rig.cache, 8, |_| Ok(42));
        assert_eq!(loads, 1);
        assert!(taken.into_iter().all(|taken| taken.unwrap() == Ok(42)));
        let stats = rig.cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.loads, stats.loaded), (7, 1, 1, 1));
    }
}

/// go-zero's `Take` puts back a value that it read before a newer one was set.
#[test]
fn a_load_that_was_overtaken_is_not_kept() {
    let rig = Rig::new(|builder| builder);
    let overtaken = rig.cache.get_or_load(&1, || {
        rig.cache.insert(1, 11).unwrap();
        Ok::<_, ()>(10)
    });
    assert_eq!((overtaken, rig.cache.get(&1)), (Ok(10), Some(11)));
    let overtaken = rig.cache.get_or_load(&2, || {
        assert_eq!(rig.cache.remove(&2), None);
        Ok::<_, ()>(20)
    });
    assert_eq!((overtaken, rig.cache.get(&2)), (Ok(20), None));
    assert_eq!(rig.wheel.len(), 1, "nothing lingers");
    assert!(rig.told().is_empty(), "they were never in the cache");
}

/// A value read before the invalidation is not kept, whether the predicate would keep it or not,
/// because the value is known only afterwards.
#[test]
fn a_load_that_a_retain_overtook_is_not_kept() {
    for all_stay in [true, false] {
        let rig = Rig::new(|builder| builder);
        rig.cache.insert(0, 1).unwrap();
        let overtaken = rig.cache.get_or_load(&1, || {
            rig.cache.retain(|_, _| all_stay);
            Ok::<_, ()>(10)
        });
        assert_eq!((overtaken, rig.cache.get(&1)), (Ok(10), None), "{all_stay}");
        assert_eq!(rig.cache.get(&0), Some(1).filter(|_| all_stay));
        assert_eq!(rig.cache.get_or_load(&1, || Ok::<_, ()>(11)), Ok(11));
        assert_eq!(rig.cache.get(&1), Some(11));
        assert_eq!(rig.wheel.len(), 1 + usize::from(all_stay), "nothing lingers");
    }
}

#[test]
fn the_bound_evicts_and_tells_the_listener() {
    for capacity in [1, 2, 31, 33, 100, 5003] {
        let mut rig = Rig::new(|builder| builder.capacity(capacity));
        for key in 0..10_000 {
            rig.cache.insert(key, u64::from(key)).unwrap();
            assert!(rig.cache.len() <= capacity);
            assert_eq!(rig.cache.get_or_load(&(key + 1), || Ok::<_, ()>(1)), Ok(1));
        }
        let left = rig.cache.len();
        assert!(left > capacity / 2 && left <= capacity, "{left} of {capacity}");
        assert_eq!(rig.wheel.len(), left, "nothing lingers");
        let told = rig.told();
        let evicted = told.iter().filter(|told| told.2 == Cause::Size).count();
        assert_eq!(rig.cache.stats().evicted, evicted as u64);
        assert_eq!(told.len() + left, 20_000);
        rig.advance(TTL);
        assert_eq!(rig.told().len(), left);
    }
}

#[test]
fn what_is_used_again_survives_a_scan() {
    let rig = Rig::new(|builder| builder.capacity(64));
    for key in 0..1000 {
        rig.cache.insert(key, 0).unwrap();
        if key >= 100 {
            assert_eq!(rig.cache.get(&100), Some(0));
        }
    }
    assert_eq!(rig.cache.get(&101), None, "it was not used again");
}

/// Makes one of the changes of a computation. Returns `true` if that is an insert.
fn computes(cache: &Cache<Key, u64>, key: Key, value: u64) -> bool {
    let computed = match value % 4 {
        0 => Computed::Keep,
        1 => Computed::InsertWithTtl(value, TICK),
        2 => Computed::Replace(value),
        _ => Computed::Remove,
    };
    cache.compute(&key, |_| computed).unwrap();
    matches!(value % 4, 1 | 2)
}

/// Callers of all operations, a sweeper, and unique values. The listener is called once for each
/// value.
fn audit(set: impl FnOnce(CacheBuilder<Key, u64>) -> CacheBuilder<Key, u64>) {
    const CALLERS: u64 = 4;
    let rounds = u64::try_from(operations()).unwrap() / CALLERS;
    let shape = Shape { tick: TICK, shards: 2, geometry: SMALL, first_tick: 0 };
    let mut rig = Rig::of(shape, TICK * 2, set);
    let (cache, done) = (rig.cache.clone(), AtomicBool::new(false));
    let call = |caller: u64| {
        let mut random = fastrand::Rng::with_seed(caller);
        let mut inserted = Vec::new();
        for value in caller * rounds..(caller + 1) * rounds {
            let key = random.u32(..12);
            match random.u32(..10) {
                0 => drop(cache.remove(&key)),
                8 => drop(cache.touch(&key, TICK * random.u32(1..4)).unwrap()),
                9 if value % 64 == 0 => cache.retain(|key, _| key % 2 == 0),
                1 => drop(cache.get(&key)),
                2 => inserted.extend(computes(&cache, key, value).then_some(value)),
                3 => drop(cache.get_or_load(&key, || Ok::<_, ()>(value))),
                4 if value % 512 == 0 => cache.clear(),
                5 => {
                    _ = cache.remove_if(&key, |value| value % 3 == 0);
                    inserted.extend(cache.replace_if_present(key, value).is_ok().then_some(value));
                }
                _ => {
                    cache.insert_with_ttl(key, value, TICK * random.u32(1..4)).unwrap();
                    inserted.push(value);
                }
            }
        }
        inserted
    };
    let inserted: Vec<u64> = thread::scope(|scope| {
        let call = &call;
        let callers: Vec<_> =
            (0..CALLERS).map(|caller| scope.spawn(move || call(caller))).collect();
        let sweeping = scope.spawn(|| {
            while !done.load(SeqCst) {
                rig.advance(TICK);
            }
        });
        let inserted = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
        done.store(true, SeqCst);
        sweeping.join().unwrap();
        inserted
    });
    assert_eq!(rig.wheel.len(), cache.len(), "a value has a timer, and only a value");
    cache.clear();
    assert!(cache.is_empty() && rig.wheel.is_empty());
    let all: Vec<u64> = rig.told().into_iter().map(|told| told.1).collect();
    let told: HashSet<u64> = all.iter().copied().collect();
    assert_eq!(told.len(), all.len(), "told more than once");
    let untold = inserted.iter().filter(|value| !told.contains(value)).count();
    assert_eq!(untold, 0, "of {}", inserted.len());
}

#[test]
fn each_value_is_told_exactly_once() {
    audit(|builder| builder);
    audit(|builder| builder.capacity(6));
    audit(|builder| builder.time_to_idle(TICK));
}

#[test]
fn hits_misses_and_ends_are_counted() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    assert!(rig.cache.contains(&1) && !rig.cache.contains(&2));
    let _ = (rig.cache.get(&1), rig.cache.get(&1), rig.cache.get(&2));
    let _ = rig.cache.get_or_load(&1, || Err::<u64, _>("not called"));
    let _ = rig.cache.get_or_load(&3, || Err::<u64, _>("down"));
    let _ = rig.cache.get_or_load(&4, || Ok::<_, ()>(40));
    rig.cache.remove(&4);
    rig.advance(TTL);
    let stats = rig.cache.stats();
    assert_eq!((stats.hits, stats.misses), (3, 3), "contains counts as neither");
    assert_eq!((stats.loads, stats.loaded), (2, 1));
    assert_eq!((stats.expired, stats.evicted), (1, 0));
}

#[test]
fn bad_input_is_refused_and_comes_back() {
    let build = |ttl, set: fn(CacheBuilder<Key, u64>) -> CacheBuilder<Key, u64>| {
        let (wheel, _sweeper) = Builder::new().build().unwrap();
        set(Cache::builder(ttl)).build(wheel).map(drop).unwrap_err().to_string()
    };
    assert!(build(Duration::ZERO, |builder| builder).contains("must not be zero"));
    assert!(
        build(TTL, |builder| builder.capacity(0))
            .contains("invalid capacity 0: must be between 1 and ")
    );
    assert!(
        build(TTL, |builder| builder.capacity(usize::MAX)).contains("between 1 and 1073741824")
    );
    assert!(build(TTL, |builder| builder.jitter(51)).contains("51 %: must be between 0 and 50"));
    let driver = Builder::new().shards(0).driver();
    let refused = Cache::<Key, u64>::builder(TTL).spawn(driver).map(drop).unwrap_err();
    assert!(matches!(refused, CacheBuildError::Driver(BuildError::Shards(0))));
    assert!(refused.source().unwrap().to_string().contains("between 1 and 256"));

    let rig = Rig::new(|builder| builder.jitter(50));
    rig.cache.insert(1, 10).unwrap();
    let none = rig.cache.insert_with_ttl(1, 11, Duration::ZERO).unwrap_err();
    assert_eq!((none.reason, none.value), (CacheRefusal::TimeToLive, 11));
    assert_eq!(rig.cache.get(&1), Some(10), "the old value stays");
    for key in 2..50 {
        rig.cache.insert_with_ttl(key, 0, rig.wheel.longest_delay()).unwrap();
    }
}

#[test]
fn what_is_loaded_after_a_shutdown_is_returned_and_not_kept() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.cache.shutdown();
    let refused = rig.cache.insert(2, 20).unwrap_err();
    assert_eq!((refused.reason, refused.value), (CacheRefusal::Wheel(Refusal::Closed), 20));
    for _ in 0..2 {
        assert_eq!(rig.cache.get_or_load(&2, || Ok::<_, ()>(20)), Ok(20));
    }
    assert_eq!((rig.cache.get(&2), rig.cache.get(&1)), (None, Some(10)));
    assert_eq!((rig.cache.stats().loads, rig.cache.stats().loaded), (2, 2));
    rig.clock.advance(TTL);
    assert_eq!(rig.cache.get(&1), None);
}

#[test]
fn a_listener_may_use_the_cache_and_may_panic() {
    let Bench { wheel, mut sweeper, clock, .. } =
        Bench::new(Shape { tick: TICK, shards: 1, geometry: SMALL, first_tick: 0 });
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let cache = Cache::<Key, u64>::builder(TTL)
        .listener_with(|cache| {
            move |gone| {
                let cache = cache.upgrade().unwrap();
                assert_eq!(cache.get(&gone.key), None);
                if count.fetch_add(1, SeqCst) == 0 {
                    cache.insert(gone.key + 100, 1).unwrap();
                }
                resume_unwind(Box::new("a listener that panics"));
            }
        })
        .build(wheel.clone())
        .unwrap();
    for key in 0..4 {
        cache.insert(key, 0).unwrap();
    }
    // The listener is called for all, and the panic propagates in the end.
    assert!(catch_unwind(AssertUnwindSafe(|| cache.clear())).is_err());
    assert!(told.load(SeqCst) >= 4);
    cache.insert(7, 0).unwrap();
    clock.advance(TTL * 2);
    // Each panic ends a sweep, and the next one continues.
    let mut swept = || sweeper.sweep(|timer| cache.fire(timer));
    while catch_unwind(AssertUnwindSafe(&mut swept)).is_err() {}
    assert!(cache.is_empty() && wheel.is_empty());
    drop(cache);
    assert_eq!(Arc::strong_count(&told), 1, "the listener's handle does not keep the cache");
}

/// On a thread that has called listeners and loaded values, after its record of them has gone.
#[test]
#[allow(clippy::disallowed_methods, reason = "a thread-local of the thread itself is dropped")]
fn a_cache_can_be_used_in_the_destructor_of_a_thread_local() {
    struct Last(Cache<Key, u64>);

    impl Drop for Last {
        fn drop(&mut self) {
            assert_eq!(self.0.remove(&1), Some(10));
            assert_eq!(self.0.get_or_load(&2, || Ok::<_, ()>(20)), Ok(20));
        }
    }

    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });

    let Bench { wheel, sweeper, .. } =
        Bench::new(Shape { tick: TICK, shards: 1, geometry: SMALL, first_tick: 0 });
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let builder = Cache::builder(TTL);
    let cache = builder.listener(move |gone| tell.lock().unwrap().push(gone.value)).build(wheel);
    let cache = cache.unwrap();
    let last = Last(cache.clone());
    let thread = thread::spawn(move || {
        // Created before the record, and so destroyed after it.
        LAST.with(|place| *place.borrow_mut() = Some(last));
        LAST.with_borrow(|last| {
            let cache = &last.as_ref().unwrap().0;
            cache.insert(0, 0).unwrap();
            cache.remove(&0);
            cache.insert(1, 10).unwrap();
        });
    });
    thread.join().unwrap();
    assert_eq!((cache.get(&1), cache.get(&2)), (None, Some(20)));
    assert_eq!(*told.lock().unwrap(), [0, 10]);
    drop(sweeper);
}

/// A listener that puts back the value that has left, or another one, any number of times.
#[test]
fn a_listener_that_inserts_is_not_called_within_its_own_call() {
    const TIMES: u32 = 100_000;
    let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build().unwrap();
    let (depth, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (depths, tell) = (Arc::clone(&depth), Arc::clone(&told));
    let listener = move |cache: WeakCache<Key, Key>| {
        move |gone: Evicted<Key, Key>| {
            assert_eq!(depths.fetch_add(1, SeqCst), 0, "one at a time");
            tell.lock().unwrap().push(gone.value);
            if gone.value < TIMES {
                let cache = cache.upgrade().unwrap();
                cache.insert(gone.value + 1, gone.value + 1).unwrap();
                assert!(cache.contains(&(gone.value + 1)));
            }
            depths.fetch_sub(1, SeqCst);
        }
    };
    let cache = Cache::builder(TTL).capacity(1).listener_with(listener).build(wheel).unwrap();
    cache.insert(0, 0).unwrap();
    cache.insert(1, 1).unwrap();
    let told = std::mem::take(&mut *told.lock().unwrap());
    // Each is replaced by itself once, and then evicted for the next one.
    assert!(told.is_sorted() && told.len() == 2 * TIMES as usize, "{}", told.len());
}

/// A value whose drop panics once. It counts the dropped values.
struct Panics(Option<Arc<AtomicUsize>>);

impl Drop for Panics {
    fn drop(&mut self) {
        if let Some(dropped) = self.0.take() {
            dropped.fetch_add(1, SeqCst);
            resume_unwind(Box::new("a drop that panics"));
        }
    }
}

impl Clone for Panics {
    fn clone(&self) -> Self {
        Panics(None)
    }
}

#[test]
fn a_value_whose_drop_panics_harms_no_other() {
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    let cache = Cache::builder(TTL).build(wheel.clone()).unwrap();
    let fill = || (0..9).for_each(|key| cache.insert(key, Panics(Some(dropped.clone()))).unwrap());
    fill();
    assert!(catch_unwind(AssertUnwindSafe(|| cache.clear())).is_err(), "the first panic comes out");
    assert_eq!((dropped.load(SeqCst), cache.len(), wheel.len()), (9, 0, 0));
    fill();
    drop(cache);
    assert_eq!((dropped.load(SeqCst), wheel.len()), (18, 0), "the last handle has nobody to tell");
}

#[test]
fn a_cache_with_a_driver_of_its_own_sweeps_itself() {
    let clock = ManualClock::new();
    let (send, told) = mpsc::channel();
    let cache = Cache::builder(TTL)
        .listener(move |gone| send.send((gone.key, gone.value, gone.cause)).unwrap())
        .spawn(Builder::new().clock(clock.clone()).driver())
        .unwrap();
    for key in 0..100_u32 {
        cache.insert_with_ttl(key, u64::from(key), TTL * (1 + key % 2)).unwrap();
    }
    clock.advance(TTL);
    let expired = receive(&told, 50);
    assert!(expired.iter().all(|told| told.0 % 2 == 0 && told.2 == Cause::Expired));
    assert_eq!((cache.len(), cache.get(&0), cache.get(&1)), (50, None, Some(1)));
    cache.shutdown();
    cache.shutdown();
    assert_eq!(cache.insert(7, 70).unwrap_err().value, 70);
    assert_eq!(cache.get(&1), Some(1), "reads answer what is still valid");
    clock.advance(TTL);
    assert_eq!(cache.get(&1), None);
    assert!(told.try_recv().is_err(), "nothing is swept any more");
}

/// A driver whose executor drops batches and reports it. Their timers are left to the driver, which
/// hands them back.
fn dropping(clock: &ManualClock) -> (DriverBuilder, mpsc::Receiver<()>) {
    let (say, dropped) = mpsc::channel();
    let driver = Builder::new().clock(clock.clone()).driver().executor(move |job| {
        drop(job);
        say.send(()).unwrap();
    });
    (driver, dropped)
}

#[test]
fn stop_tells_what_has_expired_by_then() {
    let clock = ManualClock::new();
    let ((driver, dropped), told) = (dropping(&clock), mpsc::channel());
    let cache = Cache::builder(TTL)
        .listener(move |gone| told.0.send((gone.key, gone.cause)).unwrap())
        .spawn(driver)
        .unwrap();
    cache.insert(1, 10).unwrap();
    cache.insert_with_ttl(2, 20, TTL * 2).unwrap();
    clock.advance(TTL);
    receive(&dropped, 1);
    assert_eq!((cache.get(&1), cache.len()), (None, 2));
    cache.shutdown();
    assert_eq!(told.1.try_recv().unwrap(), (1, Cause::Expired));
    assert!(told.1.try_recv().is_err());
    assert_eq!((cache.get(&2), cache.len()), (Some(20), 1));
}

/// The same with a listener that panics at each call.
#[test]
fn stop_tells_of_all_that_has_expired_though_the_listener_panics() {
    let clock = ManualClock::new();
    let ((driver, dropped), told) = (dropping(&clock), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&told);
    let listener = move |_| {
        count.fetch_add(1, SeqCst);
        panic!("on purpose");
    };
    let cache = Cache::builder(TTL).listener(listener).spawn(driver).unwrap();
    (0..3_u32).for_each(|key| cache.insert(key, 1_u64).unwrap());
    clock.advance(TTL);
    receive(&dropped, 1);
    assert!(
        catch_unwind(AssertUnwindSafe(|| cache.shutdown())).is_err(),
        "it goes on to the caller"
    );
    assert_eq!((told.load(SeqCst), cache.len()), (3, 0));
}

/// The tick thread waits for the worker, which drops the last handle.
#[test]
#[allow(clippy::disallowed_methods, reason = "a drop that does not end is to be seen")]
fn the_last_handle_of_a_cache_waits_for_nobody() {
    let clock = ManualClock::new();
    let (give, jobs) = mpsc::sync_channel::<ExecutorJob>(0);
    let driver = Builder::new().clock(clock.clone()).driver().batch(1);
    let driver = driver.executor(move |job| drop(give.send(job)));
    let last = Arc::new(Mutex::new(None));
    let held = Arc::clone(&last);
    let listener = move |_| drop(held.lock().unwrap().take());
    let cache = Cache::builder(TTL).listener(listener).spawn(driver).unwrap();
    (0..2_u32).for_each(|key| cache.insert(key, 1_u64).unwrap());
    *last.lock().unwrap() = Some(cache);
    clock.advance(TTL);
    let (end, ended) = mpsc::channel();
    let worker = thread::spawn(move || {
        jobs.recv().unwrap()();
        end.send(()).unwrap();
    });
    receive(&ended, 1);
    worker.join().unwrap();
}

/// A clone that panics does not keep the entry in the cache, and the listener is called.
#[test]
fn a_value_that_cannot_be_cloned_is_removed_and_told() {
    struct Unique;
    impl Clone for Unique {
        fn clone(&self) -> Self {
            panic!("on purpose")
        }
    }
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let listener = move |_| {
        count.fetch_add(1, SeqCst);
    };
    let cache = Cache::builder(TTL).listener(listener).build(wheel.clone()).unwrap();
    cache.insert(1, Unique).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| cache.remove(&1))).is_err());
    assert_eq!((told.load(SeqCst), cache.len(), wheel.len()), (1, 0, 0));
}

#[test]
fn the_last_handle_ends_the_driver_and_the_timers() {
    let alive = Arc::new(());
    let inside = Arc::clone(&alive);
    let cache = Cache::<Key, Arc<()>>::builder(TTL)
        .listener(move |_| drop(Arc::clone(&inside)))
        .spawn(Builder::new().driver().executor(Inline))
        .unwrap();
    cache.insert(1, Arc::clone(&alive)).unwrap();
    let other = cache.clone();
    drop(cache);
    assert_eq!(Arc::strong_count(&alive), 3);
    drop(other);
    assert_eq!(Arc::strong_count(&alive), 1, "the driver and the cache do not keep each other");

    let rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    drop(rig.cache);
    assert!(rig.wheel.is_empty() && !rig.wheel.is_closed(), "a wheel that lives on keeps no key");
}

#[test]
fn everything_has_a_text_for_people() {
    let rig = Rig::new(|builder| builder);
    assert!(format!("{:?}", rig.cache).starts_with("Cache { stats: CacheStats { hits: 0"));
    let builder = Cache::<Key, u64>::builder(TTL);
    assert!(format!("{builder:?}").starts_with("CacheBuilder { ttl: 100ms, capacity: None"));
    rig.cache.insert(1, 10).unwrap();
    assert_eq!(format!("{:?}", rig.wheel.drain()[0].value), "CacheTimer { .. }");
    let failed = rig.cache.get_or_load(&2, || Err::<u64, _>(BuildError::Batch)).unwrap_err();
    assert!(failed.to_string().starts_with("the load failed: invalid batch size"));
    assert!(failed.source().is_none(), "its message says all");
    rig.cache.shutdown();
    let refused = rig.cache.insert(2, 20).unwrap_err();
    assert_eq!(format!("{refused:?}"), "Refused { reason: Wheel(Closed), .. }");
}

fn op() -> impl Strategy<Value = CacheOp> {
    let key = || 0..6_u32;
    let span = || prop_oneof![4 => 1..24_u32, 1 => 1..4000_u32];
    prop_oneof![
        6 => (key(), span()).prop_map(|(key, ttl)| CacheOp::Insert { key, ttl }),
        4 => key().prop_map(|key| CacheOp::Get { key }),
        1 => key().prop_map(|key| CacheOp::Contains { key }),
        2 => key().prop_map(|key| CacheOp::Remove { key }),
        3 => (key(), any::<bool>()).prop_map(|(key, succeeds)| CacheOp::Take { key, succeeds }),
        3 => (key(), span()).prop_map(|(key, ttl)| CacheOp::Touch { key, ttl }),
        2 => key().prop_map(|key| CacheOp::InsertIfAbsent { key }),
        4 => (key(), 0..5_u32, span())
            .prop_map(|(key, step, ttl)| CacheOp::Compute { key, step, ttl }),
        2 => key().prop_map(|key| CacheOp::ReplaceIfPresent { key }),
        2 => (key(), 1..4_u64).prop_map(|(key, divisor)| CacheOp::RemoveIf { key, divisor }),
        1 => (2..4_u32).prop_map(|divisor| CacheOp::Retain { divisor }),
        1 => Just(CacheOp::Clear),
        4 => span().prop_map(|step| CacheOp::Advance { step }),
        3 => Just(CacheOp::Sweep),
    ]
}

proptest! {
    #[test]
    fn the_cache_does_what_the_model_does(
        shape in prop::sample::select(shapes()),
        idle in prop::option::of(1..24_u32),
        ops in prop::collection::vec(op(), 0..120),
    ) {
        let mut model = CacheModel::new(shape, idle);
        for op in &ops {
            model.apply(op);
        }
        model.finish();
    }
}

/// A caller waits for a load that fails. Meanwhile the key gets a value.
#[test]
fn who_waited_for_a_load_that_failed_takes_the_value_that_came_meanwhile() {
    for _ in 0..50 {
        let rig = Rig::new(|builder| builder);
        let (begin, begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let cache = &rig.cache;
            scope.spawn(move || {
                begun.recv().unwrap();
                let taken = cache.get_or_load(&7, || Err::<u64, &str>("unneeded"));
                assert_eq!(taken, Ok(1));
            });
            let failed = cache.get_or_load(&7, || {
                begin.send(()).unwrap();
                (0..100).for_each(|_| std::thread::yield_now());
                cache.insert(7, 1).unwrap();
                Err::<u64, _>("down")
            });
            assert_eq!(failed, Err(LoadError::Failed(Arc::new("down"))));
        });
    }
}
