//! Tests that a wheel gives its memory back.

use crate::common::{Bench, Shape};
use crate::{alone, delay, held};
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::Clock;

/// Ends every timer of the wheel, by time or by cancelling it.
type End = fn(&mut Bench<u64>, Vec<tourbillon::TimerId>);

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(any(miri, portable))))]
mod kept {
    use super::Geometry;

    /// The bytes of an entry with a value of eight bytes, and of a block of references.
    const ITEMS: [u64; 2] = [24, 64];

    /// Returns the number of bytes in the pages of one shard that are smaller than the others, and
    /// stay because they come from the allocator. The first has two items, and each has twice as
    /// many as the one before it. A page of the full size has at least as many as the geometry asks
    /// for, and is a whole number of the system's pages.
    pub(super) fn small_pages() -> u64 {
        let system_page = rustix::param::page_size() as u64;
        let asked_for = Geometry::default().page_bits;
        let is_small = |item: u64, bits| bits < asked_for || (item << bits) % system_page != 0;
        let of = |item| -> u64 {
            let bits = (1..).take_while(|&bits| is_small(item, bits));
            bits.map(|bits| item << bits).sum()
        };
        ITEMS.map(of).iter().sum()
    }

    /// A page that was given back is no garbage.
    pub(super) const GARBAGE: i64 = 0;
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(any(miri, portable)))))]
mod kept {
    /// Returns zero, because the allocator gets pages of any size back.
    pub(super) fn small_pages() -> u64 {
        0
    }

    /// The most that the epoch keeps, in one list of garbage of 2 KiB for a thread. A page is
    /// larger.
    pub(super) const GARBAGE: i64 = 4 << 10;
}

/// A burst of timers is armed and ends, and the wheel goes to rest. Only small pages are left, and
/// the slots and tables that the wheel keeps. A second burst leaves nothing more. The pages are
/// freed although no thread calls the wheel any more.
#[test]
fn a_burst_leaves_nothing_behind() {
    let _alone = alone();
    let ends: [End; 2] = [
        |bench, _| assert_eq!(bench.advance(Duration::from_secs(61)).len(), 300_000),
        |bench, ids| ids.into_iter().for_each(|id| assert!(bench.wheel.cancel(id).is_some())),
    ];
    for end in ends {
        let tick = Duration::from_millis(1);
        let shape = Shape { tick, shards: 3, geometry: Geometry::default(), first_tick: 0 };
        let mut bench = Bench::<u64>::new(shape);
        let mut burst = || {
            let mut ids = Vec::new();
            let most = held(|| {
                let insert = |n: u32| bench.wheel.insert(u64::from(n), delay(n)).unwrap();
                ids.extend((0..300_000).map(insert));
            });
            let pages = bench.wheel.metrics().bytes;
            let ended = held(|| {
                end(&mut bench, ids);
                while bench.sweeper.next_deadline().is_some() {
                    assert!(bench.advance(Duration::ZERO).is_empty());
                }
            });
            // The thread uses one of the shards.
            assert_eq!(bench.wheel.metrics().bytes, kept::small_pages());
            (most + ended, pages as i64)
        };
        let (left, pages) = burst();
        assert!(left < pages / 50, "{left} of {pages} bytes are left");
        let (left, _) = burst();
        assert!(left <= kept::GARBAGE, "{left} bytes more are left");
    }
}

/// Timers that are overdue when they are armed, as after a downtime, are handed over together.
#[test]
fn a_burst_of_overdue_timers_leaves_nothing_behind() {
    const BURST: u32 = 100_000;
    let _alone = alone();
    let tick = Duration::from_millis(1);
    let shape = Shape { tick, shards: 1, geometry: Geometry::default(), first_tick: 0 };
    let mut bench = Bench::<u64>::new(shape);
    let past = bench.clock.now();
    assert!(bench.advance(tick * 2).is_empty());
    let mut burst = || {
        held(|| {
            for number in 0..BURST {
                bench.wheel.insert_at(u64::from(number), past).unwrap();
            }
            let mut fired = 0;
            let _ = bench.sweeper.sweep(|_| fired += 1);
            assert_eq!(fired, BURST);
            while bench.sweeper.next_deadline().is_some() {
                assert!(bench.advance(Duration::ZERO).is_empty());
            }
        })
    };
    // A byte for each is less than any trace of it.
    let left = burst();
    assert!(left < i64::from(BURST), "{left} bytes are left");
    let left = burst();
    assert!(left <= kept::GARBAGE, "{left} bytes more are left");
}

/// Timers that were pulled forward leave references behind, which are pruned while all timers are
/// armed. Their blocks are given back.
#[test]
fn blocks_of_names_go_back_though_all_timers_are_armed() {
    let _alone = alone();
    let tick = Duration::from_millis(1);
    let shape = Shape { tick, shards: 3, geometry: Geometry::default(), first_tick: 0 };
    let mut bench = Bench::<u64>::new(shape);
    let bytes = |bench: &Bench<u64>| bench.wheel.metrics().bytes;
    let arm = |n: u32| bench.wheel.insert(u64::from(n), delay(n) + Duration::from_secs(3600));
    let ids: Vec<_> = (0..100_000).map(|n| arm(n).unwrap()).collect();
    let before = bytes(&bench);
    for seconds in [2000, 900, 400, 150] {
        for &id in &ids {
            assert!(bench.wheel.reset(id, Duration::from_secs(seconds)).unwrap());
        }
    }
    let most = bytes(&bench);
    let now = |bench: &Bench<u64>| bench.clock.now();
    assert!(bench.advance(Duration::ZERO).is_empty());
    while bench.sweeper.next_deadline().is_some_and(|next| next <= now(&bench)) {
        assert!(bench.advance(Duration::ZERO).is_empty());
    }
    let after = bytes(&bench);
    assert!(before * 5 / 4 < most && after < before * 9 / 8, "{before}, {most}, {after}");
}

/// Some timers fire in a burst, and the others keep all pages. The entries and blocks that were
/// hoarded are then used again.
#[test]
fn what_a_burst_leaves_is_used_again() {
    let _alone = alone();
    let tick = Duration::from_millis(1);
    let shape = Shape { tick, shards: 1, geometry: Geometry::default(), first_tick: 0 };
    let mut bench = Bench::<u64>::new(shape);
    let arm = |bench: &Bench<u64>, seconds| bench.wheel.insert(0, Duration::from_secs(seconds));
    for n in 0..240_000 {
        arm(&bench, if n % 4 == 0 { 10 } else { 3600 }).unwrap();
    }
    let before = bench.wheel.metrics().bytes;
    for _ in 0..2 {
        assert_eq!(bench.advance(Duration::from_secs(10)).len(), 60_000);
        let now = |bench: &Bench<u64>| bench.clock.now();
        while bench.sweeper.next_deadline().is_some_and(|next| next <= now(&bench)) {
            assert!(bench.advance(Duration::ZERO).is_empty());
        }
        assert!((0..60_000).all(|_| arm(&bench, 10).is_ok()));
    }
    let after = bench.wheel.metrics().bytes;
    assert!(after < before * 101 / 100, "{before}, then {after}");
}
