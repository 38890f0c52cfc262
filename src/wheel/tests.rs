//! Tests of a wheel for which the system has no more memory.

#![cfg(all(test, not(modelled)))]
#![forbid(unsafe_code)]

use crate::clock::ManualClock;
use crate::error::Refusal;
use crate::wheel::{Builder, Geometry, Sweeper, TimerId, Wheel, memory};
use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

/// A wheel that tests can deprive of memory for blocks and slots.
struct Bench {
    wheel: Wheel<u64>,
    sweeper: Sweeper<u64>,
    clock: ManualClock,
}

impl Bench {
    fn new(geometry: Geometry, builder: Builder) -> Self {
        let clock = ManualClock::new();
        let builder = builder.clock(clock.clone()).shards(1).__shape(geometry, 0);
        let (wheel, sweeper) = builder.build().expect("the shape is in range");
        Self { wheel, sweeper, clock }
    }

    /// Takes away memory for slots and blocks.
    fn exhaust(&self, exhausted: bool) {
        memory::exhaust(exhausted);
        self.exhaust_blocks(exhausted);
    }

    /// Takes away the vacant blocks as well, for good.
    fn exhaust_blocks(&self, exhausted: bool) {
        let blocks = self.wheel.shared.engine.shard(0).hierarchy.blocks();
        blocks.exhaust(exhausted);
        while exhausted && blocks.claim().is_some() {}
    }

    /// Advances the clock and sweeps. Returns the values that fired, sorted.
    fn advance(&mut self, ticks: u32) -> Vec<u64> {
        self.clock.advance(TICK * ticks);
        let mut fired = Vec::new();
        let _ = self.sweeper.sweep(|timer| fired.push(timer.value));
        fired.sort_unstable();
        fired
    }

    /// Fires a timer, whose block becomes the spare one.
    fn leave_spare(&mut self) {
        self.wheel.insert(0, TICK).expect("there is memory");
        assert_eq!(self.advance(1), [0]);
    }
}

fn tiny() -> Geometry {
    Geometry { root_bits: 2, level_bits: 1, levels: 3, page_bits: 2 }
}

#[test]
fn an_insert_without_memory_for_its_reference_gives_the_value_back() {
    for builder in [Builder::new(), Builder::new().capacity(1)] {
        let mut bench = Bench::new(tiny(), builder);
        bench.leave_spare();
        bench.exhaust(true);
        for delay in [0, 1, 3, 100] {
            let refused = bench.wheel.insert(7, TICK * delay).unwrap_err();
            assert_eq!((refused.reason, refused.value), (Refusal::OutOfMemory, 7));
            assert_eq!(refused.to_string(), "out of memory for another timer");
        }
        assert_eq!(bench.sweeper.next_deadline(), None);
        bench.exhaust(false);
        let id = bench.wheel.insert(8, TICK * 3).unwrap();
        assert!(bench.advance(2).is_empty() && bench.wheel.contains(id));
        assert_eq!(bench.advance(1), [8]);
    }
}

/// There is memory for another block, but not for the slots of another row.
#[test]
fn an_insert_without_memory_for_its_slot_gives_the_value_back() {
    let mut bench = Bench::new(Geometry::default(), Builder::new());
    bench.wheel.insert(1, TICK * 10).unwrap();
    memory::exhaust(true);
    for delay in [70, 5000] {
        let refused = bench.wheel.insert(7, TICK * delay).unwrap_err();
        assert_eq!((refused.reason, refused.value), (Refusal::OutOfMemory, 7));
    }
    bench.wheel.insert(2, TICK * 11).unwrap();
    memory::exhaust(false);
    bench.wheel.insert(3, TICK * 70).unwrap();
    assert_eq!((bench.advance(11), bench.advance(59)), (vec![1, 2], vec![3]));
}

/// A reset to earlier, and the next visit of a timer that was reset to later, need a block each.
#[test]
fn the_spare_block_is_used_once_memory_is_exhausted() {
    let mut bench = Bench::new(Geometry::default(), Builder::new());
    let [near, far] = [TICK * 10, TICK * 40].map(|at| bench.wheel.insert(1, at).unwrap());
    bench.leave_spare();
    bench.exhaust(true);
    assert_eq!(bench.wheel.reset(far, TICK * 20), Ok(true));
    // Its block is released by the visit that needs another one.
    assert_eq!(bench.wheel.reset(near, TICK * 30), Ok(true));
    let fired: Vec<_> = (0..45).flat_map(|_| bench.advance(1)).collect();
    assert_eq!(fired, [1, 1]);
    assert!(bench.wheel.is_empty());
}

/// Set in the child process of the test below.
const CHILD: &str = "TOURBILLON_TEST_WITHOUT_MEMORY";

#[test]
fn the_process_ends_once_the_spare_block_is_used_up() {
    if std::env::var_os(CHILD).is_some() {
        let mut bench = Bench::new(Geometry::default(), Builder::new());
        let ids = [60, 80].map(|ticks| bench.wheel.insert(1, TICK * ticks).unwrap());
        bench.leave_spare();
        bench.exhaust(true);
        assert_eq!(bench.wheel.reset(ids[0], TICK * 20), Ok(true));
        println!("the spare block is used");
        let _ = bench.wheel.reset(ids[1], TICK * 40);
        println!("there was another");
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("wheel::tests::the_process_ends_once_the_spare_block_is_used_up")
        .env(CHILD, "1")
        .output()
        .unwrap();
    let [out, err] = [&child.stdout, &child.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(out.contains("is used") && !out.contains("another"), "{child:?}");
    assert!(!child.status.success() && err.contains("memory allocation of 64 bytes"), "{child:?}");
}

/// References are visited early, when stale ones outnumber the armed timers, and go back into the
/// blocks that they came from.
#[test]
fn upkeep_needs_no_memory() {
    let mut bench = Bench::new(Geometry::default(), Builder::new());
    let armed: Vec<_> =
        (0..9).zip(5000..).map(|(n, at)| bench.wheel.insert(n, TICK * at).unwrap()).collect();
    let stale: Vec<_> = (0..40_000).map(|n| bench.wheel.insert(n, DAY).unwrap()).collect();
    bench.exhaust_blocks(true);
    assert!(stale.into_iter().all(|id| bench.wheel.cancel(id).is_some()));
    for _ in 0..100 {
        assert!(bench.advance(1).is_empty());
    }
    assert!(bench.wheel.metrics().stale_references < 100, "{:?}", bench.wheel.metrics());
    for (id, n) in armed.into_iter().zip(0..) {
        assert_eq!(bench.wheel.reset(id, TICK * (6000 + n)), Ok(true));
    }
    assert!(bench.advance(5999).is_empty());
    for n in 0..9 {
        assert_eq!(bench.advance(1), [n]);
    }
}

/// Removes the timers that are due. Returns their values, sorted.
fn take_due(armed: &mut HashMap<TimerId, (u64, u32)>, now: u32) -> Vec<u64> {
    let mut due: Vec<u64> = armed.values().filter(|&&(_, at)| at <= now).map(|&(n, _)| n).collect();
    armed.retain(|_, &mut (_, at)| at > now);
    due.sort_unstable();
    due
}

/// While memory comes and goes, each timer is refused, or fires in the first sweep that reaches its
/// deadline, and the counts add up.
#[test]
fn everything_that_was_accepted_fires_in_time_while_memory_comes_and_goes() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::new(tiny(), Builder::new());
        let (mut now, mut refused) = (0, 0);
        let mut armed = HashMap::<TimerId, (u64, u32)>::new();
        for n in 0..1500_u64 {
            let delay = if random.bool() { random.u32(0..8) } else { random.u32(0..90) };
            let any = armed.keys().nth(random.usize(0..armed.len().max(1))).copied();
            match (random.u32(0..12), any) {
                (0..7, _) => {
                    bench.exhaust(random.u32(0..4) == 0);
                    match bench.wheel.insert(n, TICK * delay) {
                        Ok(id) => drop(armed.insert(id, (n, now + delay))),
                        Err(error) => {
                            assert_eq!((error.reason, error.value), (Refusal::OutOfMemory, n));
                            refused += 1;
                        }
                    }
                    bench.exhaust(false);
                }
                (7, Some(id)) => {
                    assert_eq!(bench.wheel.reset(id, TICK * delay), Ok(true));
                    armed.entry(id).and_modify(|(_, at)| *at = now + delay);
                }
                (8, Some(id)) => {
                    assert_eq!(bench.wheel.cancel(id), armed.remove(&id).map(|(n, _)| n));
                }
                _ => {
                    let ticks = if random.u32(0..9) == 0 { random.u32(0..40) } else { 1 };
                    now += ticks;
                    assert_eq!(bench.advance(ticks), take_due(&mut armed, now), "seed {seed}");
                }
            }
            assert_eq!(bench.wheel.len(), armed.len());
        }
        assert!(refused > 0);
        let left = bench.advance(100).len();
        assert_eq!((left, bench.wheel.metrics().armed), (armed.len(), 0));
        let _ = bench.advance(1000);
        assert_eq!(bench.wheel.metrics().stale_references, 0, "seed {seed}");
    }
}

#[test]
fn the_usual_case_of_an_insert_without_memory_is_refused() {
    for builder in [Builder::new(), Builder::new().capacity(1)] {
        let mut bench = Bench::new(tiny(), builder);
        bench.leave_spare();
        bench.exhaust(true);
        for delay in [1, 3, 100] {
            let refused = bench.wheel.pin().insert(7, TICK * delay).unwrap_err();
            assert_eq!((refused.reason, refused.value), (Refusal::OutOfMemory, 7));
            assert!(bench.wheel.is_empty());
        }
        bench.exhaust(false);
        let id = bench.wheel.pin().insert(8, TICK * 3).unwrap();
        assert!(bench.advance(2).is_empty() && bench.wheel.contains(id));
        assert_eq!(bench.advance(1), [8]);
    }
}
