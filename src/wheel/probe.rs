//! The internals of a wheel that the models of `loom-tests` access: the limits of its words, and
//! the size of its memory. Compiled only for them.

#![forbid(unsafe_code)]

#[cfg(loom)]
use crate::sync::{AtomicU64, Relaxed};
use crate::wheel::counters::{SweepCount, ThreadCount};
use crate::wheel::id::Generation;
use crate::wheel::memory;
#[cfg(loom)]
use crate::wheel::memory::Lazy;
use crate::wheel::thread_id::ThreadId;
use crate::wheel::tick::Tick;
use crate::wheel::wheel::Wheel;

/// The number of ticks that the packed words distinguish.
pub const WINDOW: u64 = 1 << Tick::LOW_BITS;

/// The distance in ticks by which a tick may lie behind the sweep and still be restored.
pub const PAST: u32 = 1 << (Tick::LOW_BITS - 3);

/// The number of uses of an entry before it is exhausted.
pub const USES: u64 = (Generation::EXHAUSTED.0 - Generation::drawn().0) as u64 / 2;

/// Requests upkeep in the next sweep, as a caller would.
pub fn want_upkeep<T>(wheel: &Wheel<T>) {
    let engine = &wheel.shared.engine;
    engine.upkeep.check(engine.usage());
}

/// Counts `many` timers that were armed and fired.
pub fn count_fired<T>(wheel: &Wheel<T>, many: u64) {
    let engine = &wheel.shared.engine;
    let counters = &engine.threads.current().counters;
    counters.add(ThreadCount::Inserted, many);
    counters.add(ThreadCount::Filed, many);
    engine.progress.counters().add(SweepCount::Ended, many);
}

/// Returns the number of entries, vacant or not.
pub fn entries<T>(wheel: &Wheel<T>) -> u64 {
    wheel.shared.engine.entries()
}

/// Has the wheels that are built from now on make their slots and the states of their threads when
/// they are first needed, or at once.
pub fn explore_lazy(explored: bool) {
    memory::explore(explored);
}

/// A number in memory of its own, which the threads of a model make.
#[cfg(loom)]
#[derive(Debug)]
pub struct LazyNumber(Lazy<AtomicU64>);

#[cfg(loom)]
impl LazyNumber {
    /// Creates a number that no thread has made.
    #[allow(clippy::new_without_default, reason = "it is for models")]
    pub fn new() -> Self {
        memory::explore(true);
        let lazy = Lazy::new(|| AtomicU64::new(0));
        memory::explore(false);
        Self(lazy)
    }

    /// Returns the number, if a thread has made it.
    pub fn get(&self) -> Option<u64> {
        self.0.get().map(|number| number.load(Relaxed))
    }

    /// Returns the number, after making it if necessary.
    pub fn get_or_make(&self, made: u64) -> Option<u64> {
        let make = || {
            let mut number = AtomicU64::new(0);
            // Unlike the first value, loom tracks this write.
            number.with_mut(|number| *number = made);
            number
        };
        self.0.get_or_make(make).map(|number| number.load(Relaxed))
    }
}

/// Makes the wheel reuse its blocks of references from now on.
#[cfg(not(crossbeam_loom))]
pub fn recycle_blocks<T>(wheel: &Wheel<T>) {
    wheel.shared.engine.shards.iter().for_each(|shard| shard.hierarchy.blocks().recycle());
}

/// Makes every further claim of a block fail, or succeed again.
pub fn exhaust_blocks<T>(wheel: &Wheel<T>, exhausted: bool) {
    wheel.shared.engine.shards.iter().for_each(|shard| shard.hierarchy.blocks().exhaust(exhausted));
}

/// Gives the calling thread an id of its own, and vacant entries in its magazines, until it
/// [releases](release_thread_id) the id.
pub fn acquire_thread_id<T>(wheel: &Wheel<T>) {
    ThreadId::acquire_from(wheel.shared.engine.threads.thread_ids());
}

/// Returns `true` if the calling thread has an id of its own.
pub fn has_thread_id() -> bool {
    ThreadId::current().index < ThreadId::OWN
}

/// Releases the id of the calling thread, and orphans the content of its magazines.
pub fn release_thread_id<T>(wheel: &Wheel<T>) {
    ThreadId::release_to(wheel.shared.engine.threads.thread_ids());
}

/// Takes the state orphaned by exited threads, as the sweeper does before it trims.
pub fn empty_idle<T>(wheel: &Wheel<T>) {
    wheel.shared.engine.empty_idle();
}
