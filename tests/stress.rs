//! Real threads on one wheel, a sweeper among them, and an audit of every value.
//!
//! Each value names a ledger entry that counts how the timer ended. Threads insert, reset and
//! cancel timers of their own and of each other; one sweeps, in bounded and whole sweeps, while
//! it moves the clock. At the end the wheel is drained. How long a run is comes from
//! `TOURBILLON_STRESS_OPS` (operations a thread).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{SMALL, TINY};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::thread;
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::{Builder, Clock, ManualClock, TimerId, Wheel};

const TICK: Duration = Duration::from_millis(1);
const THREADS: usize = 4;

/// What became of the timers, and the last ids given out, for all to use.
struct Ledger {
    ended: Vec<AtomicU32>,
    next: AtomicUsize,
    shared: Vec<AtomicU64>,
}

impl Ledger {
    fn new(timers: usize) -> Self {
        Self {
            ended: (0..timers).map(|_| AtomicU32::new(0)).collect(),
            next: AtomicUsize::new(0),
            shared: (0..64).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn end(&self, timer: usize) {
        assert_eq!(self.ended[timer].fetch_add(1, Relaxed), 0, "timer {timer} ended twice");
    }
}

fn operations() -> usize {
    std::env::var("TOURBILLON_STRESS_OPS").map_or(30_000, |ops| ops.parse().unwrap())
}

/// One thread's operations.
fn work(wheel: &Wheel<usize>, ledger: &Ledger, ops: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..ops {
        let place = &ledger.shared[random.usize(..64)];
        let longest = [4, 40, 400][random.usize(..3)];
        let delay = TICK / 4 * random.u32(..longest);
        let id = TimerId::from_bits(place.load(Relaxed));
        match (random.u32(..10), id) {
            (0..4, _) | (_, None) => {
                let timer = ledger.next.fetch_add(1, Relaxed);
                let pinned = wheel.pin();
                let id = pinned.insert(timer, delay).expect("the wheel is open");
                place.store(id.to_bits(), Relaxed);
            }
            (4..8, Some(id)) => {
                wheel.reset(id, delay).unwrap();
            }
            (_, Some(id)) => {
                if let Some(timer) = wheel.cancel(id) {
                    ledger.end(timer);
                }
            }
        }
    }
}

/// All threads at once; then all is accounted for.
#[allow(clippy::disallowed_methods, reason = "the test is about threads")]
fn stress(geometry: Geometry, shards: usize) {
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new()
        .clock(clock.clone())
        .shards(shards)
        .__shape(geometry, (1 << 38) - 500)
        .build::<usize>()
        .unwrap();
    let ops = operations();
    let ledger = Ledger::new(ops * THREADS);
    let working = AtomicUsize::new(THREADS);
    thread::scope(|scope| {
        for seed in 0..THREADS as u64 {
            let (wheel, ledger, working) = (&wheel, &ledger, &working);
            scope.spawn(move || {
                work(wheel, ledger, ops, seed);
                working.fetch_sub(1, Relaxed);
            });
        }
        let mut random = fastrand::Rng::with_seed(99);
        while working.load(Relaxed) > 0 {
            clock.advance(TICK / 4 * random.u32(..9));
            let now = clock.now();
            let limit = [3, usize::MAX][random.usize(..2)];
            let _ = sweeper.sweep_some(limit, |timer| {
                assert!(timer.deadline <= now);
                ledger.end(timer.value);
            });
        }
    });
    clock.advance(TICK * 500);
    let _ = sweeper.sweep(|timer| ledger.end(timer.value));
    assert!(wheel.is_empty(), "due and not handed over");
    let inserted = ledger.next.load(Relaxed);
    let ended = ledger.ended.iter().filter(|count| count.load(Relaxed) == 1).count();
    assert_eq!(ended, inserted);
    let metrics = wheel.metrics();
    assert_eq!(metrics.inserted, inserted as u64);
    assert_eq!(metrics.fired + metrics.cancelled, inserted as u64);
    assert!(inserted > ops / 2, "too little happened");
}

#[test]
fn every_timer_ends_once_on_a_tiny_wheel() {
    stress(TINY, 1);
}

#[test]
fn every_timer_ends_once_on_a_small_wheel_of_many_shards() {
    stress(SMALL, 5);
}

#[test]
fn every_timer_ends_once_on_a_default_wheel() {
    stress(Geometry::default(), 2);
}
