//! The default executor. Batches are handed over while its workers run handlers, wait for a batch,
//! or go to wait.
//!
//! As in `shutdown_vs_handler`, shuttle reports a deadlock if all threads wait. Its waits never
//! time out, so no worker ends before the executor is dropped.

use loom_tests::explorer::sync::Barrier;
use loom_tests::explorer::thread;
use loom_tests::{Builder, Driver, Expired, ManualClock, TICK, Value, random, tiny, v};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The number of random schedules of each model.
const SCHEDULES: usize = 10_000;

fn driver(
    clock: &ManualClock,
    handler: impl Fn(Expired<Value>) + Send + Sync + 'static,
) -> Driver<Value> {
    tiny(Builder::new(), clock).driver().batch(1).spawn(handler).unwrap()
}

/// No handler ends before all have begun, so each batch needs a worker of its own. Some find one
/// that waits, and others have one started.
#[test]
fn each_batch_has_a_worker() {
    random(SCHEDULES, || {
        let clock = ManualClock::new();
        let all = Arc::new(Barrier::new(4));
        let begun = Arc::clone(&all);
        let driver = driver(&clock, move |_| {
            let _ = begun.wait();
        });
        driver.wheel().insert(v(1), Duration::ZERO).unwrap();
        driver.wheel().insert(v(2), TICK).unwrap();
        driver.wheel().insert(v(3), TICK).unwrap();
        let mover = thread::spawn(move || clock.advance(TICK));
        all.wait();
        mover.join().unwrap();
        driver.wait().unwrap();
        assert!(driver.shutdown().is_empty());
    });
}

/// There are more batches than workers, and the executor is dropped before they have run.
#[test]
fn a_worker_takes_one_batch_after_the_other() {
    random(SCHEDULES, || {
        let clock = ManualClock::new();
        let ran = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&ran);
        let driver = driver(&clock, move |timer| {
            thread::yield_now();
            sum.fetch_add(u64::from(timer.value), SeqCst);
        });
        let numbers = 1..=8;
        for number in numbers.clone() {
            driver.wheel().insert(v(number), Duration::ZERO).unwrap();
        }
        let returned = driver.shutdown().into_iter().map(|timer| u64::from(timer.value));
        let returned: u64 = returned.sum();
        driver.wait().unwrap();
        assert_eq!(ran.load(SeqCst) + returned, numbers.sum());
    });
}
