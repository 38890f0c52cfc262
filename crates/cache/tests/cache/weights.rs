//! The weights of entries, and their bounds.

use crate::rig::{Rig, TTL};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tourbillon::Builder;
use tourbillon_cache::{Cache, CacheBuilder, Cause};

/// A cache whose values are their weights.
fn weighed(capacity: usize) -> Rig {
    Rig::new(|builder: CacheBuilder<u32, u64>| {
        builder.weigher(|_, value| *value).capacity(capacity)
    })
}

#[test]
fn what_entries_weigh_is_bounded() {
    let rig = weighed(4000);
    for key in 0..1000 {
        rig.cache.insert(key, 10).unwrap();
    }
    assert!((200..=400).contains(&rig.cache.len()), "{}", rig.cache.len());
    assert_eq!(rig.cache.weight(), 10 * rig.cache.len() as u64);
    assert_eq!(rig.told().len(), 1000 - rig.cache.len());
    assert_eq!(rig.wheel.len(), rig.cache.len());
}

#[test]
fn what_weighs_nothing_is_bounded_too() {
    let rig = Rig::new(|builder| builder.weigher(|_, _| 0).capacity(64));
    for key in 0..1000 {
        rig.cache.insert(key, 0).unwrap();
    }
    assert!((32..=64).contains(&rig.cache.len()), "{}", rig.cache.len());
}

/// An image of 16 MiB in a cache of 64 MiB, on any number of cores.
#[test]
fn an_entry_of_a_quarter_of_the_capacity_is_kept() {
    let rig = weighed(64 << 20);
    for key in 0..100 {
        for _ in 0..5 {
            assert_eq!(rig.cache.get_or_load(&key, || Ok::<_, ()>(16 << 20)), Ok(16 << 20));
        }
    }
    assert_eq!(rig.cache.stats().loads, 100);
}

#[test]
fn an_entry_of_the_whole_capacity_of_a_small_cache_is_kept() {
    for capacity in [1_u32, 2, 10, 31, 100, 1000] {
        let weight = u64::from(capacity);
        let rig = weighed(capacity as usize);
        rig.cache.insert(1, weight).unwrap();
        assert_eq!((rig.cache.get(&1), rig.cache.weight()), (Some(weight), weight), "{capacity}");
        // It is evicted for the next one, whether it was used or not.
        rig.cache.insert(2, 1).unwrap();
        assert_eq!((rig.cache.get(&1), rig.cache.get(&2)), (None, Some(1)), "{capacity}");
        rig.cache.insert(2, weight).unwrap();
        assert_eq!(rig.cache.get(&2), Some(weight), "{capacity}");
        let expected = [(1, weight, Cause::Size), (2, 1, Cause::Replaced)];
        assert_eq!(rig.told(), expected, "{capacity}");
        rig.cache.insert(2, weight + 1).unwrap();
        assert!(rig.cache.is_empty());
        let expected = [(2, weight, Cause::Replaced), (2, weight + 1, Cause::Size)];
        assert_eq!(rig.told(), expected, "{capacity}");
        assert!(rig.wheel.is_empty());
    }
}

/// The values change behind the cache's back, as values in an `Arc` with a lock do.
#[test]
fn an_entry_keeps_the_weight_of_its_insert() {
    const CAPACITY: u64 = 1000;
    let sizes: Arc<[AtomicU64]> = (0..20).map(|_| AtomicU64::new(10)).collect();
    let weighs = Arc::clone(&sizes);
    let mut rig = Rig::new(|builder: CacheBuilder<u32, u64>| {
        builder.weigher(move |&key, _| weighs[key as usize].load(Relaxed)).capacity(1000)
    });
    let mut random = fastrand::Rng::with_seed(7);
    let mut weights = BTreeMap::new();
    for round in 0..20_000 {
        let key = random.u32(..20);
        match random.u32(..8) {
            // It grows or shrinks.
            0..3 => sizes[key as usize].store(random.u64(1..=CAPACITY / 20), Relaxed),
            3..6 => {
                rig.cache.insert(key, 1).unwrap();
                weights.insert(key, sizes[key as usize].load(Relaxed));
            }
            6 => {
                assert_eq!(rig.cache.remove(&key).is_some(), weights.remove(&key).is_some());
            }
            _ if round % 100 == 0 => {
                rig.advance(TTL * 2);
                weights.clear();
            }
            _ => _ = rig.cache.get(&key),
        }
        assert_eq!(rig.cache.weight(), weights.values().sum::<u64>(), "round {round}");
        assert_eq!(rig.cache.len(), weights.len());
    }
    rig.cache.clear();
    assert_eq!(rig.cache.weight(), 0);
}

/// Regardless of the other entries and their use.
#[test]
fn what_fits_is_there_after_its_insert() {
    const CAPACITY: u64 = 100;
    let rig = weighed(100);
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let weight = if random.bool() { random.u64(1..=CAPACITY) } else { random.u64(1..10) };
        let key = random.u32(..20);
        rig.cache.insert(key, weight).unwrap();
        assert!(rig.cache.contains(&key), "{weight}");
        assert!(rig.cache.weight() <= CAPACITY);
        assert_eq!(rig.wheel.len(), rig.cache.len());
        for _ in 0..random.u32(..3) {
            let _ = rig.cache.get(&random.u32(..20));
        }
        if random.u32(..8) == 0 {
            rig.cache.remove(&random.u32(..20));
        }
    }
}

/// Its shard is rebuilt after it has become small.
#[test]
fn a_heavy_entry_survives_the_shrinking_of_its_shard() {
    let rig = weighed(1000);
    for key in 0..200 {
        rig.cache.insert(key, 1).unwrap();
    }
    rig.cache.insert(1000, 1000).unwrap();
    rig.cache.insert(1001, 1001).unwrap();
    assert_eq!(rig.cache.remove(&1), None);
    assert_eq!((rig.cache.get(&1000), rig.cache.weight()), (Some(1000), 1000));
    assert_eq!(rig.wheel.len(), 1);
}

#[test]
fn a_weight_beyond_all_bounds_counts_as_much_as_can_be_counted() {
    let rig = Rig::new(|builder| builder.weigher(|_, _| u64::MAX));
    for key in 0..100 {
        rig.cache.insert(key, 7).unwrap();
    }
    assert_eq!((rig.cache.len(), rig.told().len()), (100, 0));
    assert!(rig.cache.weight() >= 100);
    rig.cache.clear();
    assert_eq!(rig.cache.weight(), 0);
}

/// With few expected entries there is one part, which may hold as much as the cache.
#[test]
fn the_entries_that_are_expected_say_how_heavy_one_may_be() {
    const CAPACITY: u64 = 1 << 20;
    for (expected, heaviest) in [(0, CAPACITY), (63, CAPACITY), (64, CAPACITY / 2)] {
        let set = |builder: CacheBuilder<u32, u64>| {
            let weighed = builder.weigher(|_, value| *value).capacity(1 << 20);
            weighed.expected_entries(expected)
        };
        let rig = Rig::new(set);
        rig.cache.insert(1, heaviest).unwrap();
        assert_eq!(rig.cache.get(&1), Some(heaviest), "{expected}");
        rig.cache.insert(1, heaviest + 1).unwrap();
        assert_eq!(rig.cache.get(&1), None, "{expected}");
    }
    // The expected number exceeds the capacity.
    for capacity in [1, 31, 64] {
        let rig = Rig::new(|builder| builder.capacity(capacity).expected_entries(1 << 20));
        rig.cache.insert(1, 10).unwrap();
        assert_eq!(rig.cache.get(&1), Some(10));
        let weighed = |builder: CacheBuilder<u32, u64>| builder.weigher(|_, _| 1);
        let rig = Rig::new(|builder| weighed(builder).capacity(capacity).expected_entries(1 << 20));
        rig.cache.insert(1, 10).unwrap();
        assert_eq!(rig.cache.get(&1), Some(10));
    }
}

#[test]
fn a_capacity_by_weight_is_checked() {
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let heavy = Cache::<u32, u64>::builder(TTL).weigher(|_, _| 1).capacity((1 << 30) + 1);
    assert_eq!(heavy.build(wheel).is_ok(), usize::BITS == 64);
}
