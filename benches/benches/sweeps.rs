//! The sweeper. Measures the sweep of references that are due, stale or requeued, a mass expiry, a
//! driver from the sweep to the handler, and the wake-up of an idle driver.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::mpsc;
use std::time::Duration;
use tourbillon::{Builder, Expired, ManualClock, Sweeper, TimerId, Wheel};
use tourbillon_benches::delay;

const TIMERS: u32 = 1_000_000;

/// A wheel in virtual time with many armed timers.
struct World {
    clock: ManualClock,
    wheel: Wheel<u64>,
    sweeper: Sweeper<u64>,
    ids: Vec<TimerId>,
}

fn world(delay: fn(u32) -> Duration) -> World {
    let clock = ManualClock::new();
    let built = Builder::new().shards(1).clock(clock.clone()).build();
    let (wheel, sweeper) = built.expect("the defaults are in range");
    let insert = |n| wheel.insert(u64::from(n), delay(n)).expect("the wheel is open");
    let ids = (0..TIMERS).map(insert).collect();
    World { clock, wheel, sweeper, ids }
}

/// Sweeps tick by tick until this time has passed.
fn pass(world: &mut World, ticks: u32) -> usize {
    (0..ticks)
        .map(|_| {
            world.clock.advance(Duration::from_millis(1));
            world.sweeper.sweep(|timer| assert_ne!(black_box(timer).value, u64::MAX)).expired
        })
        .sum()
}

fn sweeps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sweep, a name");
    group.throughput(Throughput::Elements(u64::from(TIMERS))).sample_size(10);
    group.bench_function("due, over a second", |bencher| {
        bencher.iter_batched_ref(
            || world(|n| Duration::from_micros(u64::from(n))),
            |world| assert_eq!(pass(world, 1000), TIMERS as usize),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("due, a herd in one tick", |bencher| {
        bencher.iter_batched_ref(
            || world(|_| Duration::from_millis(1)),
            |world| assert_eq!(pass(world, 1), TIMERS as usize),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("stale, over a second", |bencher| {
        bencher.iter_batched_ref(
            || {
                let world = world(|n| Duration::from_micros(u64::from(n)));
                world.ids.iter().for_each(|&id| assert!(world.wheel.cancel(id).is_some()));
                world
            },
            |world| assert_eq!(pass(world, 1000), 0),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("filed again, over a second", |bencher| {
        bencher.iter_batched_ref(
            || {
                let world = world(|n| Duration::from_micros(u64::from(n)));
                for (&id, n) in world.ids.iter().zip(0..) {
                    assert_eq!(world.wheel.reset(id, delay(n)), Ok(true));
                }
                world
            },
            |world| assert_eq!(pass(world, 1000), 0),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn drivers(criterion: &mut Criterion) {
    let (send, fired) = mpsc::channel();
    let driver = Builder::new().driver().spawn(move |timer: Expired<u64>| {
        let _ = send.send(timer);
    });
    let driver = driver.expect("the defaults are in range");
    let mut group = criterion.benchmark_group("driver");
    for timers in [1, 10_000] {
        group.throughput(Throughput::Elements(timers));
        // For a single timer the tick thread and the worker are woken.
        group.bench_function(format!("from insert to handler, {timers} at once"), |bencher| {
            bencher.iter(|| {
                for n in 0..timers {
                    driver.wheel().insert(n, Duration::ZERO).expect("the wheel is open");
                }
                (0..timers).for_each(|_| assert!(fired.recv().is_ok()));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, sweeps, drivers);
criterion_main!(benches);
