//! Keyed timers beside go-zero's design, and closures beside a thread pool over a heap. Each is
//! measured with its threads, so tourbillon runs with a driver.

use criterion::{Criterion, criterion_group, criterion_main};
use fastrand::Rng;
use scheduled_thread_pool::ScheduledThreadPool;
use std::hint::black_box;
use std::time::Duration;
use tourbillon::Builder;
use tourbillon::keyed::KeyedTimers;
use tourbillon::scheduler::Scheduler;
use tourbillon_benches::delay;
use tourbillon_benches::go_zero::GoZero;

const ARMED: u32 = 100_000;

/// The operations of both keyed wheels.
trait Keyed {
    fn set(&self, key: u64, delay: Duration);
    fn shift(&self, key: u64, delay: Duration);
    fn remove(&self, key: u64);
}

impl Keyed for KeyedTimers<u64, u64> {
    fn set(&self, key: u64, delay: Duration) {
        black_box(self.insert(key, key, delay).expect("the wheel is open"));
    }

    fn shift(&self, key: u64, delay: Duration) {
        black_box(self.reset(&key, delay).expect("the delay is in range"));
    }

    fn remove(&self, key: u64) {
        black_box(self.cancel(&key));
    }
}

impl Keyed for GoZero {
    fn set(&self, key: u64, delay: Duration) {
        self.set(key, key, delay);
    }

    fn shift(&self, key: u64, delay: Duration) {
        self.move_to(key, delay);
    }

    fn remove(&self, key: u64) {
        self.remove(key);
    }
}

fn keyed(criterion: &mut Criterion, name: &str, timers: &impl Keyed) {
    let mut random = Rng::with_seed(7);
    let mut key = move || (u64::from(random.u32(..ARMED)), delay(random.u32(..)));
    for n in 0..ARMED {
        timers.set(u64::from(n), delay(n));
    }
    let mut group = criterion.benchmark_group("a key");
    group.bench_function(format!("set again, {name}"), |bencher| {
        bencher.iter(|| {
            let (key, delay) = key();
            timers.set(key, delay);
        });
    });
    group.bench_function(format!("move, {name}"), |bencher| {
        bencher.iter(|| {
            let (key, delay) = key();
            timers.shift(key, delay);
        });
    });
    group.bench_function(format!("remove and set, {name}"), |bencher| {
        bencher.iter(|| {
            let (key, delay) = key();
            timers.remove(key);
            timers.set(key, delay);
        });
    });
}

fn keys(criterion: &mut Criterion) {
    let ours = KeyedTimers::spawn(Builder::new().driver(), |_: u64, _: u64| ());
    keyed(criterion, "tourbillon", &ours.expect("the defaults are in range"));
    keyed(criterion, "go-zero's design", &GoZero::new(Duration::from_secs(1), 300));
}

fn closures(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a closure, scheduled and cancelled");
    let scheduler = Scheduler::spawn(Builder::new().driver()).expect("the defaults are in range");
    let mut random = Rng::with_seed(7);
    let _armed: Vec<_> = (0..ARMED).map(|n| scheduler.after(delay(n), || ()).ok()).collect();
    group.bench_function("tourbillon", |bencher| {
        bencher.iter(|| {
            let after = scheduler.after(delay(random.u32(..)), || ()).expect("the wheel is open");
            let _ = black_box(after.cancel());
        });
    });
    let pool = ScheduledThreadPool::builder().num_threads(1).build();
    for n in 0..ARMED {
        pool.execute_after(delay(n), || ());
    }
    group.bench_function("scheduled-thread-pool", |bencher| {
        bencher.iter(|| pool.execute_after(delay(random.u32(..)), || ()).cancel());
    });
}

criterion_group!(benches, keys, closures);
criterion_main!(benches);
