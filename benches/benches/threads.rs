//! Throughput by the number of threads. Every operation runs on one wheel, each caller with timers
//! that it armed itself, or with half of them in another caller's shard.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::thread;
use tourbillon::{Builder, Expired};
use tourbillon_benches::{BATCH, Caller, Crew, Verb};

const ARMED: u32 = 1_000_000;
const BATCHES: usize = 256;

fn threads(criterion: &mut Criterion) {
    let most = thread::available_parallelism().map_or(1, usize::from);
    let counts = (0..).map(|power| 1 << power).take_while(|&threads| threads <= most);
    for threads in counts {
        for mingled in [false, true].into_iter().filter(|&mingled| threads > 1 || !mingled) {
            let driver = Builder::new().driver().spawn(|_: Expired<u64>| ());
            let driver = driver.expect("the defaults are in range");
            let armed = ARMED / u32::try_from(threads).expect("few");
            let mut crew = Crew::new(threads, || Caller::new(driver.wheel().clone(), armed));
            if mingled {
                let mut callers = crew.callers();
                while let (Some(one), Some(other)) = (callers.next(), callers.next()) {
                    one.mingle(other);
                }
            }
            let own = if mingled { "half in another shard" } else { "in its own shard" };
            for verb in [Verb::CancelInsert, Verb::ResetLater, Verb::ResetEarlier] {
                let mut group = criterion.benchmark_group(format!("{verb}, {own}"));
                group.throughput(Throughput::Elements((threads * BATCHES * BATCH) as u64));
                group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
                    bencher.iter_custom(|rounds| {
                        let batches = rounds * BATCHES as u64;
                        crew.run(|caller| (0..batches).for_each(|_| caller.pinned(verb, BATCH)))
                    });
                });
                group.finish();
            }
        }
    }
}

criterion_group!(benches, threads);
criterion_main!(benches);
