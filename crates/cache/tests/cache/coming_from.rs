//! A test for each row of `COMING-FROM.md`, with the name that the row gives.

use crate::common::{Bench, SMALL, Shape};
use crate::rig::{Rig, TICK, TTL};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tourbillon::Builder;
use tourbillon_cache::{
    Cache, CacheBuilder, CacheRefusal, CacheTimer, Cause, Computed, LoadError, Loaded,
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn every_row_of_the_table_has_its_test_and_every_test_its_row() {
    let (table, source) = (include_str!("../../COMING-FROM.md"), include_str!("coming_from.rs"));
    let of_row = |line: &str| Some(line.strip_prefix("| ")?.rsplit('`').nth(1)?.to_owned());
    let mut rows: Vec<String> = table.lines().filter_map(of_row).collect();
    let tests = source.lines().filter_map(|line| line.strip_prefix("fn ")?.strip_suffix("() {"));
    let mut tests: Vec<String> =
        tests.filter(|name| !name.starts_with("every_row")).map(str::to_owned).collect();
    rows.sort_unstable();
    tests.sort_unstable();
    assert_eq!(rows, tests);
}

// go-zero's Cache

/// A cache in virtual time.
struct Cached {
    cache: Cache<&'static str, u32>,
    bench: Bench<CacheTimer<&'static str>>,
}

impl Cached {
    fn new(
        set: impl FnOnce(CacheBuilder<&'static str, u32>) -> CacheBuilder<&'static str, u32>,
    ) -> Self {
        let bench = Bench::new(Shape { tick: MS, shards: 1, geometry: SMALL, first_tick: 0 });
        let cache = set(Cache::builder(SECOND * 2)).build(bench.wheel.clone()).unwrap();
        Self { cache, bench }
    }

    fn advance(&mut self, step: Duration) {
        self.bench.clock.advance(step);
        let _ = self.bench.sweeper.sweep(|timer| self.cache.fire(timer));
    }
}

#[test]
fn go_zero_new_cache() {
    let mut cached = Cached::new(|builder| builder);
    cached.cache.insert("key", 1).unwrap();
    cached.advance(SECOND * 2 - MS);
    assert_eq!(cached.cache.get("key"), Some(1), "it lives its whole time");
    cached.advance(MS);
    assert_eq!((cached.cache.get("key"), cached.cache.len()), (None, 0));
    let refused =
        Cache::<u32, u32>::builder(Duration::ZERO).build(Builder::new().build().unwrap().0);
    assert!(refused.is_err(), "no time to live is no eternity");
}

#[test]
fn go_zero_with_limit() {
    let cached = Cached::new(|builder| builder.capacity(2));
    for (value, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        cached.cache.insert(key, u32::try_from(value).unwrap()).unwrap();
        assert!(cached.cache.len() <= 2);
    }
}

#[test]
fn go_zero_cache_set() {
    let mut cached = Cached::new(|builder| builder.jitter(5).seed(7));
    cached.cache.insert("key", 1).unwrap();
    cached.advance(MS * 1900);
    assert_eq!(cached.cache.get("key"), Some(1));
    cached.advance(MS * 200);
    assert_eq!(cached.cache.get("key"), None, "within five in a hundred, because asked for");
}

#[test]
fn go_zero_set_with_expire() {
    let mut cached = Cached::new(|builder| builder);
    cached.cache.insert_with_ttl("key", 1, MS * 7).unwrap();
    cached.advance(MS * 6);
    assert_eq!(cached.cache.get("key"), Some(1));
    cached.advance(MS);
    assert_eq!(cached.cache.get("key"), None);
    assert_eq!(cached.cache.insert_with_ttl("key", 2, Duration::ZERO).unwrap_err().value, 2);
}

#[test]
fn go_zero_cache_get() {
    let cached = Cached::new(|builder| builder);
    assert_eq!(cached.cache.get("key"), None);
    cached.cache.insert("key", 1).unwrap();
    assert_eq!(cached.cache.get("key"), Some(1));
    let stats = cached.cache.stats();
    assert_eq!((stats.hits, stats.misses), (1, 1));
}

#[test]
fn go_zero_cache_del() {
    let mut cached = Cached::new(|builder| builder);
    cached.cache.insert("key", 1).unwrap();
    assert_eq!(cached.cache.remove("key"), Some(1));
    cached.cache.insert_with_ttl("key", 2, SECOND * 9).unwrap();
    cached.advance(SECOND * 8);
    assert_eq!(cached.cache.get("key"), Some(2), "its own timer is untouched");
}

#[test]
fn go_zero_take() {
    let cached = Cached::new(|builder| builder);
    let failed = cached.cache.get_or_load(&"key", || Err::<u32, _>("no database"));
    assert!(failed.is_err());
    assert_eq!(cached.cache.get_or_load(&"key", || Ok::<_, &str>(1)).unwrap(), 1);
    let unneeded = || -> Result<u32, &str> { panic!("it is there") };
    assert_eq!(cached.cache.get_or_load(&"key", unneeded).unwrap(), 1);
}

// moka's Cache

#[test]
fn moka_time_to_live() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TTL);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)], "nobody has called");
}

#[test]
fn moka_time_to_idle() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TICK * 29);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.advance(TICK * 29);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.advance(TICK * 30);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
}

#[test]
fn moka_expire_after() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert_with_ttl(1, 10, TTL * 2).unwrap();
    let start = rig.clock.start();
    assert_eq!(rig.cache.deadline(&1), Some(start + TTL * 2));
    assert_eq!(rig.cache.touch(&1, TTL * 3), Ok(true));
    assert_eq!(rig.cache.deadline(&1), Some(start + TTL * 3));
}

#[test]
fn moka_max_capacity() {
    let rig = Rig::new(|builder| builder.capacity(1000).weigher(|_, value| *value));
    for key in 0..1000 {
        rig.cache.insert(key, 5).unwrap();
        assert!(rig.cache.len() * 5 <= 1000);
    }
}

#[test]
fn moka_get_with() {
    let rig = Rig::new(|builder| builder);
    assert_eq!(rig.cache.get_or_insert_with(&1, || 10), 10);
    assert_eq!(rig.cache.get_or_insert_with(&1, || panic!("it has one")), 10);
    let overtaken = rig.cache.get_or_insert_with(&2, || {
        rig.cache.insert(2, 21).unwrap();
        20
    });
    assert_eq!((overtaken, rig.cache.get(&2)), (20, Some(21)));
}

#[test]
fn moka_try_get_with() {
    let rig = Rig::new(|builder| builder);
    let down = rig.cache.get_or_load(&1, || Err::<u64, _>("down"));
    assert_eq!(down, Err(LoadError::Failed(Arc::new("down"))));
    let loaded = rig.cache.get_or_load(&1, || {
        rig.cache.insert(1, 11).unwrap();
        Ok::<_, ()>(10)
    });
    assert_eq!((loaded, rig.cache.get(&1)), (Ok(10), Some(11)));
}

#[test]
fn moka_future_try_get_with() {
    let rig = Rig::new(|builder| builder);
    let load = async { Ok::<_, ()>((10, TTL * 2)) };
    assert_eq!(pollster::block_on(rig.cache.get_or_load_async(&1, load)), Ok(10));
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.start() + TTL * 2));
}

#[test]
fn moka_get_with_in_a_task() {
    let rig = Rig::new(|builder| builder);
    let load = || {
        let mut polled = false;
        poll_fn(move |context| {
            context.waker().wake_by_ref();
            let ready = std::mem::replace(&mut polled, true);
            if ready { Poll::Ready(Ok::<_, ()>(10)) } else { Poll::Pending }
        })
    };
    let mut gives_up = Box::pin(rig.cache.get_or_load_shared(&1, load()));
    assert!(gives_up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(gives_up);
    let goes_on = rig.cache.get_or_load_shared(&1, load());
    assert_eq!(pollster::block_on(goes_on), Ok(10));
    assert_eq!((rig.cache.get(&1), rig.cache.stats().loads), (Some(10), 1));
}

#[test]
fn moka_entry_or_insert() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert_if_absent(1, 10).unwrap();
    let refused = rig.cache.insert_if_absent(1, 11).unwrap_err();
    assert_eq!((refused.reason, refused.value), (CacheRefusal::Present, 11));
    assert_eq!(rig.cache.get(&1), Some(10));
}

#[test]
fn moka_compute() {
    let rig = Rig::new(|builder| builder);
    let add = |value: Option<&u64>| Computed::Insert(value.map_or(1, |value| value + 1));
    rig.cache.compute(&1, add).unwrap();
    rig.cache.compute(&1, add).unwrap();
    assert_eq!(rig.cache.get(&1), Some(2));
    rig.cache.compute(&1, |_| Computed::Remove).unwrap();
    assert_eq!(rig.cache.get(&1), None);
}

#[test]
fn moka_replace() {
    let rig = Rig::new(|builder| builder);
    let refused = rig.cache.replace_if_present(1, 11).unwrap_err();
    assert_eq!((refused.reason, refused.value), (CacheRefusal::Absent, 11));
    rig.cache.insert(1, 10).unwrap();
    rig.cache.replace_if_present(1, 11).unwrap();
    assert_eq!(rig.cache.get(&1), Some(11));
}

#[test]
fn moka_remove_if() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    assert_eq!(rig.cache.remove_if(&1, |value| *value > 10), None);
    assert_eq!(rig.cache.remove_if(&1, |value| *value == 10), Some(10));
}

#[test]
fn moka_invalidate() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    assert_eq!(rig.cache.remove(&1), Some(10));
}

#[test]
fn moka_invalidate_all() {
    let rig = Rig::new(|builder| builder);
    (0..9).for_each(|key| rig.cache.insert(key, 0).unwrap());
    rig.cache.clear();
    assert!(rig.cache.is_empty());
}

#[test]
fn moka_invalidate_entries_if() {
    let rig = Rig::new(|builder| builder);
    (0..9).for_each(|key| rig.cache.insert(key, 0).unwrap());
    rig.cache.retain(|key, _| *key < 3);
    assert_eq!((rig.cache.len(), rig.told().len()), (3, 6));
}

#[test]
fn moka_iter() {
    let rig = Rig::new(|builder| builder);
    (0..9).for_each(|key| rig.cache.insert(key, u64::from(key)).unwrap());
    assert_eq!(rig.cache.iter().map(|(_, value)| value).sum::<u64>(), 36);
    assert_eq!((&rig.cache).into_iter().count(), 9);
}

#[test]
fn caffeine_refresh_after_write() {
    let mut rig = Rig::new(|builder| builder.refresh_ahead(TTL / 2));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TTL / 2);
    assert_eq!(rig.cache.get_or_load(&1, || Err::<u64, _>("down")), Ok(10));
    assert_eq!(rig.cache.get_or_load(&1, || -> Result<u64, &str> { panic!("a pause") }), Ok(10));
    rig.advance(TICK * 5);
    assert_eq!(rig.cache.get_or_load(&1, || Ok::<_, &str>(11)), Ok(11));
    rig.advance(TTL / 2);
    let refresh = rig.cache.try_refresh(&1).unwrap();
    assert_eq!(refresh.load(|| Ok::<_, &str>((12, TTL))), Ok(12));
}

#[test]
fn caffeine_reload_unchanged() {
    let mut rig = Rig::new(|builder| builder.refresh_ahead(TTL / 2));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TTL / 2);
    assert_eq!(rig.cache.get_or_load(&1, || Ok::<_, &str>(Loaded::unchanged())), Ok(10));
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.start() + TTL / 2 + TTL));
    assert!(rig.told().is_empty());
}

#[test]
fn moka_run_pending_tasks() {
    let rig = Rig::new(|builder| builder.capacity(64));
    for key in 0..1000 {
        rig.cache.insert(key, 0).unwrap();
        assert_eq!(rig.cache.len(), rig.cache.iter().count());
    }
}
