//! The sources of tourbillon, compiled with loom's or shuttle's atomics, and the helpers that the
//! models share.
//!
//! Each file under `tests/models` covers one race between a pair of operations. The models call the
//! public methods on a wheel of two levels with two slots each. Blocks have two references, pages
//! have two entries, and the packed words have nine bits of a tick and four of a generation, so
//! that each boundary is near. Time is virtual. It moves before the threads start, or by the
//! sweeper.
//!
//! Loom explores each model completely within a bound on preemptions, and models weak memory. With
//! the feature `shuttle` the same models, and larger ones that loom cannot explore, run on random
//! schedules.

#![allow(
    clippy::drop_non_drop,
    clippy::missing_panics_doc,
    dead_code,
    missing_docs,
    unnameable_types,
    unreachable_pub,
    reason = "the library says what it exports; the models' helpers are for the models"
)]

#[path = "../../src/clock/mod.rs"]
mod clock;
#[path = "../../src/counter.rs"]
mod counter;
#[path = "../../src/discard.rs"]
mod discard;
#[path = "../../src/driver/mod.rs"]
mod driver;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/future/mod.rs"]
pub mod future;
#[path = "../../src/handles/mod.rs"]
mod handles;
#[path = "../../src/jitter.rs"]
mod jitter;
#[path = "../../src/keyed/mod.rs"]
pub mod keyed;
#[path = "../../src/panics.rs"]
mod panics;
#[path = "../../crates/durable/src/store/remote/queue.rs"]
mod queue;
#[path = "../../src/scheduler/mod.rs"]
pub mod scheduler;
#[path = "../../src/sync/mod.rs"]
mod sync;
#[path = "../../src/wheel/mod.rs"]
mod wheel;

#[cfg(shuttle)]
mod any;

#[cfg(shuttle)]
pub use any::any_operations;
pub use clock::{Clock, ManualClock};
pub use driver::{Driver, DriverBuilder, Executor, ExecutorJob, Inline, WaitError};
pub use error::{ArmError, BeyondRange, BuildError, InsertError, Refusal, Refused};
pub use handles::{OwnedTimer, Series};
pub use jitter::Jitter;
#[cfg(loom)]
pub use wheel::probe::LazyNumber;
pub use wheel::probe::{
    PAST, USES, WINDOW, empty_idle, entries, exhaust_blocks, has_thread_id, want_upkeep,
};
pub use wheel::{
    Builder, Expired, Geometry, Lateness, Metrics, Pinned, Snapshot, SweepReport, Sweeper, TimerId,
    Unfired, Wheel, WheelInstant,
};

// Anything that the threads of a model share besides the wheel must use the explorer's types too,
// because the explorer treats the order of all other accesses as irrelevant.
#[cfg(loom)]
pub use loom as explorer;
#[cfg(shuttle)]
pub use shuttle as explorer;

use explorer::thread;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Two levels of two slots, pages of two entries.
pub const TINY: Geometry = Geometry { root_bits: 1, level_bits: 1, levels: 2, page_bits: 1 };

/// As [`TINY`], but with 16 slots in the upper level, so that far timers rarely cascade.
pub const HIGH: Geometry = Geometry { level_bits: 4, ..TINY };

/// The length of a tick in the models.
pub const TICK: Duration = Duration::from_millis(1);

/// The queue of a store's requests, which are numbers here.
#[allow(missing_debug_implementations, reason = "only models use it")]
pub struct Requests(queue::Queue<u64>);

impl Default for Requests {
    fn default() -> Self {
        Self(queue::Queue::new(0))
    }
}

impl Requests {
    /// Adds a request. Returns `true` if the caller has to send what waits.
    pub fn push(&self, request: u64) -> bool {
        self.0.push(request)
    }

    /// Takes the next batch of one request with its number.
    pub fn take(&self) -> Option<(u64, u64)> {
        let (number, batch) = self.0.take((1, 1), |_| Some(1))?;
        Some((number, batch.into_iter().flatten().sum()))
    }
}

/// A number that must be dropped exactly once. Loom reports a leak, and a sanitizer reports a
/// second drop.
#[derive(Debug)]
pub struct Value {
    number: Box<u64>,
    #[cfg(loom)]
    _tracked: loom::alloc::Track<()>,
}

/// Returns the value of a number.
pub fn v(number: u64) -> Value {
    Value {
        number: Box::new(number),
        #[cfg(loom)]
        _tracked: loom::alloc::Track::new(()),
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl From<Value> for u64 {
    fn from(value: Value) -> u64 {
        *value.number
    }
}

/// A task that counts how often it was woken. A wake-up happens before the poll that follows it.
/// The counter provides this order, as executors do.
#[derive(Debug, Default)]
pub struct Task(explorer::sync::atomic::AtomicU32);

impl Task {
    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    pub fn woken(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A wheel of one shard, its sweeper and its clock.
#[derive(Debug)]
pub struct World {
    pub wheel: Wheel<Value>,
    pub sweeper: Sweeper<Value>,
    pub clock: ManualClock,
}

impl World {
    pub fn new() -> Self {
        Self::of(Builder::new())
    }

    pub fn of(builder: Builder) -> Self {
        let clock = ManualClock::new();
        let (wheel, sweeper) = tiny(builder, &clock).build().expect("the shape is in range");
        Self { wheel, sweeper, clock }
    }

    /// Creates a wheel whose blocks of references are reused, as they are outside the models.
    #[cfg(not(crossbeam_loom))]
    pub fn recycling() -> Self {
        let world = Self::new();
        wheel::probe::recycle_blocks(&world.wheel);
        world
    }

    /// Creates a wheel that makes its slots and the states of its threads when they are first
    /// needed, as wheels do outside the models.
    pub fn lazy() -> Self {
        wheel::probe::explore_lazy(true);
        let world = Self::new();
        wheel::probe::explore_lazy(false);
        world
    }

    /// Creates a wheel of another shape, whose first tick is `first`.
    pub fn shaped(geometry: Geometry, first: u64) -> Self {
        let clock = ManualClock::new();
        let builder = tiny(Builder::new(), &clock).__shape(geometry, first);
        let (wheel, sweeper) = builder.build().expect("the shape is in range");
        Self { wheel, sweeper, clock }
    }

    /// Creates a wheel of two shards. The calling thread inserts into the first one, and another
    /// thread that is [`seated`] into the second.
    pub fn of_two_shards() -> Self {
        let clock = ManualClock::new();
        let builder = tiny(Builder::new(), &clock).shards(2).__shape(HIGH, 0);
        let (wheel, sweeper) = builder.build().expect("the shape is in range");
        wheel::probe::acquire_thread_id(&wheel);
        Self { wheel, sweeper, clock }
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// Sets one shard of the tiny shape, on a clock.
pub fn tiny(builder: Builder, clock: &ManualClock) -> Builder {
    builder.resolution(TICK).shards(1).clock(clock.clone()).__shape(TINY, 0)
}

/// Runs `run` on another thread of the model, with a handle of the wheel.
pub fn beside<R: Send + 'static>(
    wheel: &Wheel<Value>,
    run: impl FnOnce(&Wheel<Value>) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let wheel = wheel.clone();
    thread::spawn(move || run(&wheel))
}

/// Inserts a timer on another thread of the model, and cancels it.
pub fn comes_and_goes(wheel: &Wheel<Value>) -> thread::JoinHandle<()> {
    beside(wheel, |wheel| {
        let id = wheel.insert(v(2), TICK).expect("the wheel is open");
        assert_eq!(wheel.cancel(id), Some(v(2)));
    })
}

/// As [`beside`], on a thread that has a thread id of its own and therefore vacant entries in its
/// magazines. It orphans them when it ends.
pub fn seated<R: Send + 'static>(
    wheel: &Wheel<Value>,
    run: impl FnOnce(&Wheel<Value>) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    beside(wheel, |wheel| in_a_seat(wheel, run))
}

/// Runs `run` as a thread that acquires a thread id of its own and then ends.
pub fn in_a_seat<R>(wheel: &Wheel<Value>, run: impl FnOnce(&Wheel<Value>) -> R) -> R {
    wheel::probe::acquire_thread_id(wheel);
    let result = run(wheel);
    wheel::probe::release_thread_id(wheel);
    result
}

/// Moves the clock on and sweeps. Returns the values that expired.
pub fn sweep_after(sweeper: &mut Sweeper<Value>, clock: &ManualClock, ticks: u32) -> Vec<u64> {
    clock.advance(TICK * ticks);
    sweep(sweeper)
}

/// Sweeps and returns the values that expired.
pub fn sweep(sweeper: &mut Sweeper<Value>) -> Vec<u64> {
    sweep_with_deadlines(sweeper).into_iter().map(|(value, _)| value).collect()
}

/// Sweeps and returns the values that expired, with their deadlines.
pub fn sweep_with_deadlines(sweeper: &mut Sweeper<Value>) -> Vec<(u64, Instant)> {
    let mut fired = Vec::new();
    let _ = sweeper.sweep(|timer| fired.push((timer.value.into(), timer.deadline)));
    fired
}

/// As [`sweep_after`], but with upkeep in slices of one reference or slot.
pub fn sweep_in_slices(sweeper: &mut Sweeper<Value>, clock: &ManualClock, ticks: u32) -> Vec<u64> {
    clock.advance(TICK * ticks);
    let mut fired = Vec::new();
    let swept = sweeper.sweep_some(usize::MAX - 1, |timer| fired.push(timer.value.into()));
    assert!(swept.finished);
    fired
}

/// Sweeps with upkeep, as if a caller had asked for it, and returns the values that expired.
pub fn sweep_with_upkeep(wheel: &Wheel<Value>, sweeper: &mut Sweeper<Value>) -> Vec<u64> {
    want_upkeep(wheel);
    sweep(sweeper)
}

/// Pretends that so many timers were inserted and fired that the sweeper checks its memory. After
/// the next sweep it hoards the entries that it vacates, if it finds enough vacant ones.
pub fn as_if_many_had_fired(wheel: &Wheel<Value>) {
    wheel::probe::count_fired(wheel, 1 << 10);
}

/// Drains the wheel and returns the values handed back.
pub fn drain(wheel: &Wheel<Value>) -> Vec<u64> {
    wheel.drain().into_iter().map(|timer| timer.value.into()).collect()
}

/// Runs a model with at most `preemptions` preemptions and prints the number of executions.
///
/// Neither of loom's silent limits (duration, permutations) is set. Still, a bound on preemptions
/// and loom's pruning of schedules together miss some schedules within the bound, so the models run
/// under shuttle too. `TOURBILLON_MODEL_SHIFT` moves all bounds, but none below one.
#[cfg(loom)]
#[allow(clippy::print_stdout, reason = "the number of executions belongs to the evidence")]
pub fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    let shift = std::env::var("TOURBILLON_MODEL_SHIFT");
    let shift = shift.map_or(0, |shift| shift.parse().expect("a number"));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions.saturating_add_signed(shift).max(1));
    builder.max_branches = 20_000;
    builder.max_duration = None;
    builder.max_permutations = None;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        run();
    });
    println!("executions: {}", executions.load(Relaxed));
}

/// Runs a model on random schedules.
#[cfg(shuttle)]
pub fn model(_preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    random(40_000, run);
}

/// The percentage of the schedules to run, from `TOURBILLON_MODEL_PERCENT`. It may exceed 100.
#[cfg(shuttle)]
pub fn percent() -> usize {
    let percent = std::env::var("TOURBILLON_MODEL_PERCENT");
    percent.map_or(100, |percent| percent.parse().expect("a number"))
}

/// Returns the settings of shuttle's runs. Its usual stacks of 60 KiB are too small to build a
/// wheel, and for functions that hold the bodies of many seeded faults.
#[cfg(shuttle)]
pub fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.silence_warnings = true;
    config.stack_size = 256 << 10;
    config
}

/// Runs a model on `schedules` random schedules, or on `TOURBILLON_MODEL_PERCENT` of them.
///
/// Half of them choose a random thread at each step. The other half give the threads priorities and
/// change these a few times (Burckhardt et al., *A randomized scheduler with probabilistic
/// guarantees of finding bugs*, 2010).
#[cfg(shuttle)]
pub fn random(schedules: usize, run: impl Fn() + Sync + Send + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};

    let half = (schedules * percent()).div_ceil(200);
    let config = config();
    let run = std::sync::Arc::new(run);
    let again = std::sync::Arc::clone(&run);
    shuttle::Runner::new(RandomScheduler::new(half), config.clone()).run(move || again());
    shuttle::Runner::new(PctScheduler::new(4, half), config).run(move || run());
}
