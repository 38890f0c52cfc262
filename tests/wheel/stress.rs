//! Real threads on one wheel, many more than cores, and an audit of every value.
//!
//! Each value names a ledger entry that counts how the timer ended, so the value that an id returns
//! tells if it was that id's own. Callers use every operation, on their own ids, on each other's
//! ids, and on ids kept from long ago. Some panic in the middle of a pinned batch. Either a sweeper
//! moves the clock, sweeps in bounded and whole sweeps, and pauses, or a driver runs handlers, some
//! of them panicking, and is shut down while callers still work. `TOURBILLON_STRESS_OPS` sets the
//! length of a run, as the number of operations of all callers.

use crate::common::{SMALL, TINY, operations};
use std::panic::resume_unwind;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::{Builder, Clock, Expired, ManualClock, Refusal, TimerId, Wheel};

const TICK: Duration = Duration::from_millis(1);

/// The ends of the timers, and the ids that were returned, for all threads.
struct Ledger {
    ended: Vec<AtomicU32>,
    next: AtomicUsize,
    refused: AtomicUsize,
    /// The newest ids. There are few in a short run, so that callers use each other's in that, too.
    shared: Vec<AtomicU64>,
    /// Ids with their timers, kept forever.
    kept: Mutex<Vec<(TimerId, usize)>>,
}

/// The panic payload of a caller that ends in the middle of its batch, without a message on the
/// screen.
struct Died;

impl Ledger {
    fn new(timers: usize) -> Self {
        Self {
            ended: (0..timers).map(|_| AtomicU32::new(0)).collect(),
            next: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            shared: (0..(timers / 2000).clamp(4, 64)).map(|_| AtomicU64::new(0)).collect(),
            kept: Mutex::default(),
        }
    }

    fn end(&self, timer: usize) {
        assert_eq!(self.ended[timer].fetch_add(1, Relaxed), 0, "timer {timer} ended twice");
    }

    /// Checks that each armed timer has ended exactly once by now, and returns the number of
    /// timers.
    fn audit(&self) -> usize {
        let begun = self.next.load(Relaxed);
        let ended = self.ended.iter().filter(|count| count.load(Relaxed) == 1).count();
        assert_eq!(ended, begun, "lost");
        begun - self.refused.load(Relaxed)
    }
}

/// A caller that runs random operations.
struct Work<'a> {
    wheel: &'a Wheel<usize>,
    ledger: &'a Ledger,
    random: fastrand::Rng,
}

impl Work<'_> {
    #[allow(clippy::disallowed_methods, reason = "the test is about threads")]
    fn run(&mut self, operations: usize) {
        let mut left = operations;
        while left > 0 {
            let batch = self.random.usize(1..=32).min(left);
            left -= batch;
            if self.random.u32(..100) > 0 {
                self.batch(batch, None);
                continue;
            }
            let outcome =
                thread::scope(|scope| scope.spawn(|| self.batch(batch, Some(batch / 2))).join());
            assert!(outcome.is_err_and(|panic| panic.is::<Died>()), "an operation panicked");
        }
    }

    /// Runs a batch of operations, half of them pinned. A caller that panics leaves the pin to the
    /// unwinding.
    fn batch(&mut self, operations: usize, dies_at: Option<usize>) {
        let wheel = self.wheel;
        let pinned = wheel.pin();
        for operation in 0..operations {
            if dies_at == Some(operation) {
                resume_unwind(Box::new(Died));
            }
            let delay = TICK / 4 * self.random.u32(..[4, 40, 400][operation % 3]);
            match self.random.u32(..16) {
                0..6 if self.random.bool() => self.insert(|timer| pinned.insert(timer, delay)),
                0..6 => self.insert(|timer| wheel.insert_at(timer, pinned.now() + delay)),
                6..11 => {
                    let Some(id) = self.newest() else { continue };
                    let _ = if self.random.bool() {
                        pinned.reset(id, delay).unwrap()
                    } else {
                        wheel.reset(id, delay).unwrap()
                    };
                }
                11..13 => {
                    let Some(id) = self.newest() else { continue };
                    if let Some(timer) = pinned.cancel(id) {
                        self.ledger.end(timer);
                    }
                }
                13..15 => self.replay(),
                _ => {
                    let Some(id) = self.newest() else { continue };
                    let _ = (wheel.deadline(id), wheel.contains(id), wheel.len());
                }
            }
        }
    }

    fn newest(&mut self) -> Option<TimerId> {
        let shared = &self.ledger.shared;
        let place = &shared[self.random.usize(..shared.len())];
        TimerId::from_bits(place.load(Relaxed))
    }

    fn insert(
        &mut self,
        insert: impl FnOnce(usize) -> Result<TimerId, tourbillon::InsertError<usize>>,
    ) {
        let ledger = self.ledger;
        let timer = ledger.next.fetch_add(1, Relaxed);
        match insert(timer) {
            Ok(id) => {
                ledger.shared[self.random.usize(..ledger.shared.len())]
                    .store(id.to_bits(), Relaxed);
                if self.random.u8(..8) == 0 {
                    ledger.kept.lock().unwrap().push((id, timer));
                }
            }
            Err(refused) => {
                assert_eq!((refused.reason, refused.value), (Refusal::Closed, timer));
                ledger.refused.fetch_add(1, Relaxed);
                ledger.end(timer);
            }
        }
    }

    /// Uses an id of any age, which refers to its own timer or to none.
    fn replay(&mut self) {
        let kept = self.ledger.kept.lock().unwrap();
        let Some(&(id, timer)) = self.random.choice(kept.iter()) else { return };
        drop(kept);
        if self.random.bool() {
            let _ = self.wheel.reset(id, TICK * 3).unwrap();
        } else if let Some(ended) = self.wheel.cancel(id) {
            assert_eq!(ended, timer, "an id named another timer");
            self.ledger.end(ended);
        }
    }
}

/// A guard that exists while a caller works. A caller that panics has stopped too.
struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Runs four times as many callers as cores, each with its share of `operations`.
#[allow(clippy::disallowed_methods, reason = "the test is about threads")]
fn callers(
    wheel: &Wheel<usize>,
    ledger: &Ledger,
    operations: usize,
    meanwhile: impl FnOnce(&AtomicUsize),
) {
    let threads = 4 * thread::available_parallelism().map_or(2, usize::from);
    let working = AtomicUsize::new(threads);
    thread::scope(|scope| {
        for seed in 0..threads as u64 {
            let working = &working;
            scope.spawn(move || {
                let _working = Working(working);
                let random = fastrand::Rng::with_seed(seed);
                Work { wheel, ledger, random }.run(operations / threads);
            });
        }
        meanwhile(&working);
    });
}

/// Runs all callers at once, with a sweeper in virtual time. Then all values are accounted for.
fn stress(geometry: Geometry, shards: usize) {
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new()
        .clock(clock.clone())
        .shards(shards)
        .__shape(geometry, (1 << 38) - 500)
        .build::<usize>()
        .unwrap();
    let operations = operations() * 4;
    let ledger = Ledger::new(operations);
    callers(&wheel, &ledger, operations, |working| {
        let mut random = fastrand::Rng::with_seed(99);
        while working.load(Relaxed) > 0 {
            // Occasionally the sweeper pauses, and then the time leaps.
            let paused = random.u32(..50) == 0;
            if paused {
                (0..random.u32(..100)).for_each(|_| thread::yield_now());
            }
            clock.advance(TICK / 4 * random.u32(..if paused { 900 } else { 9 }));
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
    let inserted = ledger.audit();
    let metrics = wheel.metrics();
    assert_eq!(metrics.inserted, inserted as u64);
    assert_eq!(metrics.fired + metrics.cancelled, inserted as u64);
    assert!(inserted > operations / 8, "too little happened");
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

/// Runs the real driver on the real clock, with its default executor, handlers that panic, and a
/// shutdown in the middle.
#[test]
fn every_timer_ends_once_under_a_driver() {
    let operations = operations() * 4;
    let ledger = Arc::new(Ledger::new(operations));
    let noted = Arc::clone(&ledger);
    let driver = Builder::new()
        .driver()
        .max_in_flight(2_000)
        .spawn(move |timer: Expired<usize>| {
            noted.end(timer.value);
            if timer.value % 50 == 0 {
                resume_unwind(Box::new(Died));
            }
        })
        .unwrap();
    callers(driver.wheel(), &ledger, operations, |working| {
        let almost_all = operations / 4;
        while ledger.next.load(Relaxed) < almost_all && working.load(Relaxed) > 0 {
            thread::yield_now();
        }
        driver.shutdown().into_iter().for_each(|timer| ledger.end(timer.value));
    });
    driver.wait().unwrap();
    let inserted = ledger.audit() as u64;
    let metrics = driver.metrics();
    assert_eq!(metrics.inserted, metrics.fired + metrics.cancelled + metrics.returned);
    assert!(metrics.inserted >= inserted, "{metrics:?}");
    assert_eq!((metrics.armed, metrics.timers_in_flight), (0, 0));
}
