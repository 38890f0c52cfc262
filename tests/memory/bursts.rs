//! Tests that a wheel gives its memory back.

use crate::common::{Bench, Shape};
use crate::{alone, delay, held};
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::Clock;

/// Ends every timer of the wheel, by time or by cancelling it.
type End = fn(&mut Bench<u64>, Vec<tourbillon::TimerId>);

/// The most that the pages of one shard take that are smaller than the others, and stay.
const SMALL_PAGES: u64 = 32 << 10;

/// A burst of timers is armed and ends, and the wheel goes to rest. Its memory is then the same as
/// before, but for small pages. The pages are freed although no thread calls the wheel any more.
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
        let mut ids = Vec::new();
        let most = held(|| {
            ids.extend((0..300_000).map(|n| bench.wheel.insert(u64::from(n), delay(n)).unwrap()));
        });
        let ended = held(|| {
            end(&mut bench, ids);
            while bench.sweeper.next_deadline().is_some() {
                assert!(bench.advance(Duration::ZERO).is_empty());
            }
        });
        let left = most + ended;
        let small = 3 * SMALL_PAGES;
        assert!(left < most / 50 + small as i64, "{left} of {most} bytes are left");
        assert!(bench.wheel.metrics().bytes < small);
    }
}

/// Timers that were pulled forward leave references behind, which are tidied while all timers are
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
