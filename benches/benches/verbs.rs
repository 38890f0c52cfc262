//! Every operation of one thread, plain and in pinned batches, on wheels with few, many and very
//! many armed timers.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;
use tourbillon::Builder;
use tourbillon_benches::{BATCH, Bench, Caller, Verb, now};

const ARMED: [u32; 3] = [10_000, 1_000_000, 10_000_000];

/// A batch of operations, plain or pinned.
type Batch = fn(&mut Caller, Verb);

fn verbs(criterion: &mut Criterion) {
    let modes: [(&str, Batch); 2] = [
        ("plain", |caller, verb| caller.plain(verb, BATCH)),
        ("pinned", |caller, verb| caller.pinned(verb, BATCH)),
    ];
    for armed in ARMED {
        let mut bench = Bench::new(armed, Builder::new());
        for verb in Verb::ALL {
            let mut group = criterion.benchmark_group(verb.to_string());
            group.throughput(Throughput::Elements(BATCH as u64));
            for (mode, batch) in modes {
                group.bench_function(BenchmarkId::new(mode, armed), |bencher| {
                    bencher.iter_custom(|batches| {
                        let mut spent = Duration::ZERO;
                        for _ in 0..batches {
                            let start = now();
                            batch(&mut bench.caller, verb);
                            spent += now() - start;
                            bench.tidy(BATCH);
                        }
                        spent
                    });
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, verbs);
criterion_main!(benches);
