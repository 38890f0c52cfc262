//! Every verb of one thread on a wheel with many armed timers, plain and pinned in batches of 64.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use tourbillon::{Pinned, TimerId, Wheel};
use tourbillon_benches::{delay, wheel_of};

const BATCH: usize = 64;
const ARMED: [u32; 2] = [10_000, 1_000_000];

/// One operation on a timer; the id of the timer that is there afterwards.
type Verb = fn(&Pinned<'_, u64>, TimerId, Duration) -> TimerId;
type PlainVerb = fn(&Wheel<u64>, TimerId, Duration) -> TimerId;

fn verbs(criterion: &mut Criterion) {
    for armed in ARMED {
        let mut group = criterion.benchmark_group(format!("verbs/{armed}"));
        group.throughput(Throughput::Elements(BATCH as u64));
        let (wheel, _sweeper, mut ids) = wheel_of(armed);
        let mut random = fastrand::Rng::with_seed(7);
        let pinned: [(&str, Verb); 2] = [
            ("reset later", |pinned, id, delay| {
                black_box(pinned.reset(id, Duration::from_secs(60) + delay)).ok();
                id
            }),
            ("cancel and insert", |pinned, id, delay| {
                let value = pinned.cancel(id).unwrap_or_default();
                pinned.insert(value, delay).expect("the wheel is open")
            }),
        ];
        for (name, verb) in pinned {
            group.bench_function(format!("{name}/pinned"), |bencher| {
                bencher.iter(|| {
                    let pinned = wheel.pin();
                    for _ in 0..BATCH {
                        let which = random.usize(..ids.len());
                        ids[which] = verb(&pinned, ids[which], delay(random.u32(..)));
                    }
                });
            });
        }
        let plain: [(&str, PlainVerb); 2] = [
            ("reset later", |wheel, id, delay| {
                black_box(wheel.reset(id, Duration::from_secs(60) + delay)).ok();
                id
            }),
            ("cancel and insert", |wheel, id, delay| {
                let value = wheel.cancel(id).unwrap_or_default();
                wheel.insert(value, delay).expect("the wheel is open")
            }),
        ];
        for (name, verb) in plain {
            group.bench_function(format!("{name}/plain"), |bencher| {
                bencher.iter(|| {
                    for _ in 0..BATCH {
                        let which = random.usize(..ids.len());
                        ids[which] = verb(&wheel, ids[which], delay(random.u32(..)));
                    }
                });
            });
        }
        group.finish();
    }
}

fn bulk(criterion: &mut Criterion) {
    const TIMERS: u32 = 1_000_000;
    let mut group = criterion.benchmark_group("bulk");
    group.throughput(Throughput::Elements(u64::from(TIMERS))).sample_size(10);
    group.bench_function("insert/pinned", |bencher| {
        bencher.iter_batched(|| (), |()| wheel_of(TIMERS), BatchSize::PerIteration);
    });
    group.bench_function("fire", |bencher| {
        bencher.iter_batched(
            || wheel_of(TIMERS),
            |(wheel, mut sweeper, ids)| {
                let later = wheel.pin().now() + Duration::from_secs(62);
                let sweep =
                    sweeper.sweep_at(later, |timer| assert_ne!(black_box(timer).value, u64::MAX));
                assert_eq!(sweep.expired, TIMERS as usize);
                (wheel, sweeper, ids)
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, verbs, bulk);
criterion_main!(benches);
