//! Instructions of each verb, counted by callgrind: the same on a busy machine as on a quiet one.
//!
//! `ci/instructions` compares them with those of the committed baseline. The clock is the precise
//! one: leases end with time, of which counting takes much.

#![allow(missing_docs, missing_debug_implementations, reason = "the macros make what they make")]

use gungraun::{library_benchmark, library_benchmark_group, main};
use tourbillon::MonotonicClock;
use tourbillon_benches::{BATCH, Bench, Verb};

/// How many batches a count is taken over.
const BATCHES: usize = 64;

/// A wheel that has seen the verb before.
fn bench(verb: Verb) -> (Bench, Verb) {
    let mut bench = Bench::new(20_000, MonotonicClock);
    (0..BATCHES).for_each(|_| bench.caller.pinned(verb, BATCH));
    (bench, verb)
}

#[library_benchmark(setup = bench)]
#[bench::insert(Verb::Insert)]
#[bench::cancel_insert(Verb::CancelInsert)]
#[bench::reset_later(Verb::ResetLater)]
#[bench::reset_earlier(Verb::ResetEarlier)]
#[bench::deadline(Verb::Deadline)]
fn plain((mut bench, verb): (Bench, Verb)) -> Bench {
    bench.caller.plain(verb, BATCHES * BATCH);
    bench
}

#[library_benchmark(setup = bench)]
#[bench::insert(Verb::Insert)]
#[bench::cancel_insert(Verb::CancelInsert)]
#[bench::reset_later(Verb::ResetLater)]
#[bench::reset_earlier(Verb::ResetEarlier)]
#[bench::deadline(Verb::Deadline)]
fn pinned((mut bench, verb): (Bench, Verb)) -> Bench {
    (0..BATCHES).for_each(|_| bench.caller.pinned(verb, BATCH));
    bench
}

library_benchmark_group!(name = verbs, benchmarks = [plain, pinned]);
main!(library_benchmark_groups = verbs);
