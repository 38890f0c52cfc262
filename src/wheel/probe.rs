//! What the models of `loom-tests` see of the inside of a wheel: how far its words reach, and how
//! much it holds. Compiled for them alone.

#![forbid(unsafe_code)]

use crate::wheel::counters::{SweepCount, ThreadCount};
use crate::wheel::id::Generation;
use crate::wheel::memory::pin;
use crate::wheel::thread_id::ThreadId;
use crate::wheel::tick::Tick;
use crate::wheel::wheel::Wheel;

/// How many ticks the packed words tell apart.
pub const WINDOW: u64 = 1 << Tick::LOW_BITS;

/// How far behind the sweep a tick may lie and still be told, in ticks.
pub const PAST: u32 = 1 << (Tick::LOW_BITS - 3);

/// How often an entry is used before it is exhausted.
pub const USES: u64 = (Generation::EXHAUSTED.0 - Generation::drawn().0) as u64 / 2;

/// Has the next sweep look after the memory, as if a caller had asked for it.
pub fn want_upkeep<T>(wheel: &Wheel<T>) {
    let engine = &wheel.inner.engine;
    engine.upkeep.check(engine.usage());
}

/// Counts so many timers that came and fired.
pub fn count_fired<T>(wheel: &Wheel<T>, many: u64) {
    let engine = &wheel.inner.engine;
    let counters = &engine.threads.current().counters;
    counters.add(ThreadCount::Inserted, many);
    counters.add(ThreadCount::Filed, many);
    engine.progress.counters().add(SweepCount::Ended, many);
}

/// How many entries there are, vacant or not.
pub fn entries<T>(wheel: &Wheel<T>) -> u64 {
    wheel.inner.engine.entries()
}

/// From now on the wheel's blocks of references are used again.
#[cfg(not(crossbeam_loom))]
pub fn recycle_blocks<T>(wheel: &Wheel<T>) {
    wheel.inner.engine.shards.iter().for_each(|shard| shard.hierarchy.blocks().recycle());
}

/// From now on no block of references can be had, or can again.
pub fn exhaust_blocks<T>(wheel: &Wheel<T>, exhausted: bool) {
    wheel.inner.engine.shards.iter().for_each(|shard| shard.hierarchy.blocks().exhaust(exhausted));
}

/// From now on the calling thread has an id of its own, and vacant entries in its magazines, until
/// it [gets up](release_thread_id).
pub fn acquire_thread_id<T>(wheel: &Wheel<T>) {
    ThreadId::acquire_from(wheel.inner.engine.threads.thread_ids());
}

/// The calling thread releases its id, and orphans what it had in its magazines.
pub fn release_thread_id<T>(wheel: &Wheel<T>) {
    ThreadId::release_to(wheel.inner.engine.threads.thread_ids());
}

/// Takes what threads that have exited left behind, as the sweeper does before it trims.
pub fn empty_idle<T>(wheel: &Wheel<T>) {
    wheel.inner.engine.empty_idle(&pin());
}
