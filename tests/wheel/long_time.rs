//! Years of virtual time, with every boundary of the arithmetic, stalls, herds, and full levels.

use crate::common::leased::Leased;
use crate::common::{Bench, SMALL, Shape};
use std::collections::BTreeMap;
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::{Builder, Clock, ManualClock, Refusal, TimerId};

const TICK: Duration = Duration::from_millis(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Creates a default wheel whose first tick is `first_tick`.
fn from_tick(first_tick: u64) -> Bench<u64> {
    Bench::new(Shape { tick: TICK, shards: 2, geometry: Geometry::default(), first_tick })
}

/// Advances the time from deadline to deadline. Returns the values in the order of their firing.
fn run_out(bench: &mut Bench<u64>) -> Vec<u64> {
    let mut fired = Vec::new();
    while !bench.wheel.is_empty() {
        let next = bench.sweeper.next_deadline().unwrap();
        fired.extend(bench.advance(next.saturating_duration_since(bench.clock.now())));
    }
    fired
}

#[test]
fn over_every_boundary_with_timers_on_both_sides() {
    let bits = [8, 12, 20, 28, 30, 32, 36, 37, 38, 39, 44, 52];
    for boundary in bits.map(|bit| 1_u64 << bit) {
        for before in [1, 2, 5, 300, 4096, 5000] {
            let Some(first) = boundary.checked_sub(before) else {
                continue;
            };
            let mut bench = from_tick(first);
            let delays = [1, 2, 3, 4, 5, 6, 299, 300, 301, 4095, 4096, 4097, 5001, 1 << 20];
            for delay in delays {
                bench.wheel.insert(delay, TICK * u32::try_from(delay).unwrap()).unwrap();
            }
            assert_eq!(run_out(&mut bench), delays, "2^{}", boundary.ilog2());
        }
    }
}

#[test]
fn the_longest_delay_fires_at_its_time_and_a_longer_one_is_refused() {
    for first_tick in [0, (1 << 38) - 7] {
        let mut bench = from_tick(first_tick);
        let longest = TICK * u32::MAX * 32 - TICK + TICK * 32;
        assert_eq!(longest.as_millis(), (1 << 37) - 1);
        bench.wheel.insert(1, longest).unwrap();
        let refused = bench.wheel.insert(2, longest + TICK).unwrap_err();
        let Refusal::BeyondRange(beyond) = refused.reason else { panic!("{refused}") };
        // A delay that the error reports as allowed is allowed at any phase of the clock.
        assert_eq!(beyond.longest, longest - TICK);
        bench.clock.advance(TICK / 3);
        let id = bench.wheel.insert(3, beyond.longest).unwrap();
        assert_eq!(bench.wheel.cancel(id), Some(3));
        let longest = longest - TICK / 3;
        assert!(bench.advance(longest - TICK).is_empty());
        assert_eq!(bench.advance(TICK), [1]);
    }
}

/// The wheel also refuses by cached readings of the clock, which are not checked again.
#[test]
fn a_wheel_that_is_not_swept_refuses_each_time() {
    let (clock, tick) = (ManualClock::new(), Duration::from_micros(1));
    let builder = Builder::new().resolution(tick).clock(Leased(clock.clone()));
    let (wheel, mut sweeper) = builder.__term(u64::MAX / 2).build().unwrap();
    clock.advance(Duration::from_micros(1 << 37));
    for _ in 0..3 {
        let refused = wheel.insert(1, Duration::from_micros((1 << 37) - 2_000_000)).unwrap_err();
        assert!(matches!(refused.reason, Refusal::BeyondRange(beyond) if beyond.unswept));
        let id = wheel.insert(2, tick).unwrap();
        assert!(wheel.reset(id, Duration::from_micros((1 << 37) - 2_000_000)).unwrap_err().unswept);
        assert_eq!(wheel.cancel(id), Some(2));
    }
    assert!(sweeper.sweep(|_| ()).finished);
    wheel.insert(1, Duration::from_micros((1 << 37) - 2_000_000)).unwrap();
}

#[test]
fn years_of_uptime_with_a_timer_that_is_pushed_back_each_day() {
    let mut bench = from_tick(0);
    let day = Duration::from_secs(86_400);
    let idle = bench.wheel.insert(1, day * 2).unwrap();
    for _ in 0..365 * 20 {
        assert!(bench.advance(day).is_empty());
        assert_eq!(bench.wheel.reset(idle, day * 2), Ok(true));
    }
    assert_eq!(bench.advance(day * 2), [1]);
    // Idle for as long as a resting sweeper may be, and then for some more years with sweeps in
    // between.
    for _ in 0..10 {
        assert!(bench.advance(YEAR * 2).is_empty());
        bench.wheel.insert(2, YEAR * 4).unwrap();
        assert_eq!(bench.advance(YEAR * 4), [2]);
    }
}

#[test]
fn stalls_are_caught_up_in_order() {
    let stalls = [1, 3600, 30 * 86_400, 400 * 86_400].map(Duration::from_secs);
    for stall in stalls {
        let mut bench = from_tick((1 << 32) - 100);
        let mut expected = BTreeMap::new();
        for n in 0..3000_u64 {
            // Spread over the stall, and as much again after it.
            let delay = stall * 2 / 3000 * u32::try_from((n * 1_237) % 3000).unwrap();
            bench.wheel.insert(n, delay).unwrap();
            expected.insert((delay, n), delay <= stall);
        }
        let mut deadlines = Vec::new();
        bench.clock.advance(stall);
        let _ = bench.sweeper.sweep(|timer| deadlines.push(timer.deadline));
        assert!(deadlines.is_sorted());
        assert_eq!(deadlines.len(), expected.values().filter(|&&due| due).count());
    }
}

#[test]
fn a_herd_in_one_tick() {
    let mut bench = from_tick(0);
    for n in 0..1_000_000 {
        bench.wheel.insert(n, Duration::from_secs(30)).unwrap();
    }
    assert!(bench.advance(Duration::from_secs(30) - TICK).is_empty());
    let mut fired = bench.advance(TICK);
    fired.sort_unstable();
    assert!(fired.into_iter().eq(0..1_000_000));
}

#[test]
fn a_timer_in_each_slot_of_each_level() {
    for geometry in [SMALL, Geometry::default()] {
        let shape = Shape { tick: TICK, shards: 1, geometry, first_tick: 3 };
        let mut bench = Bench::new(shape);
        let mut delays = Vec::new();
        for level in 0..geometry.levels.min(4) {
            let (bits, shift) = match level {
                0 => (geometry.root_bits, 0),
                _ => (geometry.level_bits, geometry.root_bits + (level - 1) * geometry.level_bits),
            };
            delays.extend((1..1_u64 << bits).map(|slot| slot << shift));
        }
        delays.sort_unstable();
        delays.dedup();
        for &delay in &delays {
            bench.wheel.insert(delay, Duration::from_millis(delay)).unwrap();
        }
        assert_eq!(run_out(&mut bench), delays);
    }
}

/// Every generation of an entry is used up. Then the entry is not used again, and when the last one
/// of its page is exhausted, the page is gone for good.
#[test]
#[ignore = "tens of millions of timers: ci/test long"]
fn ids_do_not_recur_when_generations_are_used_up() {
    let shape = Shape { tick: TICK, shards: 1, geometry: SMALL, first_tick: 0 };
    let mut bench = Bench::<u64>::new(shape);
    // The generation is in the low bits, and the index of the entry is above it.
    let index = |id: TimerId| id.to_bits() >> 26;
    let mut newest = BTreeMap::<u64, TimerId>::new();
    let mut uses = BTreeMap::<u64, u64>::new();
    let mut firsts = Vec::new();
    while newest.len() < 3 {
        let id = bench.wheel.insert(1, TICK * 9).unwrap();
        assert!(newest.insert(index(id), id).is_none_or(|before| before < id), "{id:?} recurs");
        let count = uses.entry(index(id)).or_default();
        *count += 1;
        if *count == 1 {
            firsts.push(id);
        }
        assert_eq!(bench.wheel.cancel(id), Some(1));
        if *count % (1 << 14) == 0 {
            assert!(bench.advance(Duration::ZERO).is_empty());
        }
    }
    // Trimming occasionally advances the generation by itself.
    assert!(uses[&0] > (1 << 24) - (1 << 12) && uses[&0] <= 1 << 24, "{uses:?}");
    for id in firsts {
        assert_eq!(bench.wheel.cancel(id), None);
    }
}
