//! The sources of tourbillon, compiled with loom's atomics, and what the models share.
//!
//! Each file under `tests` is one racing pair. The models drive the public verbs on a wheel of
//! two levels of two slots, with blocks of two names and pages of two entries, so that each
//! boundary is near. Time is virtual and moves before the threads start, or by the sweeper.

#![allow(
    clippy::missing_panics_doc,
    dead_code,
    missing_docs,
    unnameable_types,
    unreachable_pub,
    reason = "the library says what it exports; the models' helpers are for the models"
)]

#[path = "../../src/alarm.rs"]
mod alarm;
#[path = "../../src/bell.rs"]
mod bell;
#[path = "../../src/bits.rs"]
mod bits;
#[path = "../../src/builder.rs"]
mod builder;
#[path = "../../src/caller.rs"]
mod caller;
#[path = "../../src/clock.rs"]
mod clock;
#[path = "../../src/core.rs"]
mod core;
#[path = "../../src/driver.rs"]
mod driver;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/executor.rs"]
mod executor;
#[path = "../../src/hierarchy/mod.rs"]
mod hierarchy;
#[path = "../../src/id.rs"]
mod id;
#[path = "../../src/metrics.rs"]
mod metrics;
#[path = "../../src/pinned.rs"]
mod pinned;
#[path = "../../src/reclaim.rs"]
mod reclaim;
#[path = "../../src/shard.rs"]
mod shard;
#[path = "../../src/slab/mod.rs"]
mod slab;
#[path = "../../src/sweeper.rs"]
mod sweeper;
#[path = "../../src/swept.rs"]
mod swept;
#[path = "../../src/sync.rs"]
mod sync;
#[path = "../../src/tally.rs"]
mod tally;
#[path = "../../src/tick.rs"]
mod tick;
#[path = "../../src/upkeep.rs"]
mod upkeep;
#[path = "../../src/wheel.rs"]
mod wheel;

pub use builder::Builder;
pub use clock::{Clock, ManualClock};
pub use error::{BuildError, InsertError, Refusal};
pub use hierarchy::geometry::Geometry;
pub use id::TimerId;
pub use sweeper::{Expired, Sweep, Sweeper};
pub use wheel::{Armed, Wheel};

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Two levels of two slots, pages of two entries.
pub const TINY: Geometry = Geometry { root_bits: 1, level_bits: 1, levels: 2, page_bits: 1 };

/// The length of a tick in the models.
pub const TICK: Duration = Duration::from_millis(1);

/// A wheel of one shard, its sweeper and its clock.
#[derive(Debug)]
pub struct World {
    pub wheel: Wheel<u64>,
    pub sweeper: Sweeper<u64>,
    pub clock: ManualClock,
}

impl World {
    pub fn new() -> Self {
        Self::of(Builder::new())
    }

    pub fn of(builder: Builder) -> Self {
        let clock = ManualClock::new();
        let built = builder.resolution(TICK).shards(1).clock(clock.clone()).__shape(TINY, 0);
        let (wheel, sweeper) = built.build().expect("the shape is in range");
        Self { wheel, sweeper, clock }
    }
}

/// Sweeps with upkeep, as if a caller had asked for it; the values that expired.
pub fn sweep_with_upkeep(wheel: &Wheel<u64>, sweeper: &mut Sweeper<u64>) -> Vec<u64> {
    let core = &wheel.inner.core;
    core.upkeep.look(core);
    sweep(sweeper)
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// Moves the clock on and sweeps; the values that expired.
pub fn sweep_after(sweeper: &mut Sweeper<u64>, clock: &ManualClock, ticks: u32) -> Vec<u64> {
    clock.advance(TICK * ticks);
    sweep(sweeper)
}

/// Sweeps; the values that expired.
pub fn sweep(sweeper: &mut Sweeper<u64>) -> Vec<u64> {
    let mut fired = Vec::new();
    let _ = sweeper.sweep(|timer| fired.push(timer.value));
    fired
}

/// Runs a model with at most `preemptions` preemptions, and says how many executions that took.
///
/// Neither of loom's silent limits (duration, permutations) is set: a model that returns has
/// been explored whole, within its bound.
#[allow(clippy::print_stdout, reason = "the number of executions belongs to the evidence")]
pub fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.max_duration = None;
    builder.max_permutations = None;
    let before = EXECUTIONS.load(Relaxed);
    builder.check(move || {
        EXECUTIONS.fetch_add(1, Relaxed);
        run();
    });
    println!("executions: {}", EXECUTIONS.load(Relaxed) - before);
}
