//! Shared parts of the benchmarks: a wheel with many armed timers, operations on random timers, and
//! callers on threads of their own.

#![forbid(unsafe_code)]

pub mod go_zero;

use clap::ValueEnum;
use crossbeam_utils::CachePadded;
use fastrand::Rng;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::fmt;
use std::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Pinned, Sweeper, TimerId, Wheel};

/// The number of operations under one guard.
pub const BATCH: usize = 64;

/// The number of operations between two sweeps, which discard the references that they leave.
const SWEPT: usize = 1 << 14;

/// The `n`th delay, of 30 to 90 s, spread evenly.
#[must_use]
pub fn delay(n: u32) -> Duration {
    let spread = u64::from(n.wrapping_mul(2_654_435_769) % 60_000_000);
    Duration::from_secs(30) + Duration::from_micros(spread)
}

/// Returns the current time.
#[allow(clippy::disallowed_methods, reason = "a benchmark reads the time")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// An operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Verb {
    /// Arm one more timer.
    Insert,
    /// Cancel a random timer and arm another.
    CancelInsert,
    /// Push a random timer back.
    ResetLater,
    /// Pull a random timer forward.
    ResetEarlier,
    /// Read the deadline of a random timer.
    Deadline,
}

impl Verb {
    /// All operations.
    pub const ALL: [Verb; 5] =
        [Verb::Insert, Verb::CancelInsert, Verb::ResetLater, Verb::ResetEarlier, Verb::Deadline];
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Insert => "insert",
            Verb::CancelInsert => "cancel and insert",
            Verb::ResetLater => "reset to later",
            Verb::ResetEarlier => "reset to earlier",
            Verb::Deadline => "deadline",
        })
    }
}

/// The operations of a wheel and of its guard.
trait Verbs {
    fn arm(&self, value: u64, delay: Duration) -> TimerId;
    fn end(&self, id: TimerId) -> u64;
    fn set(&self, id: TimerId, delay: Duration);
    fn look(&self, id: TimerId) -> bool;
}

macro_rules! verbs {
    ($($kind:ty),*) => {$(
        impl Verbs for $kind {
            #[inline(always)]
            fn arm(&self, value: u64, delay: Duration) -> TimerId {
                self.insert(value, delay).expect("the wheel is open and the delay in its range")
            }

            #[inline(always)]
            fn end(&self, id: TimerId) -> u64 {
                self.cancel(id).expect("the timer is armed")
            }

            #[inline(always)]
            fn set(&self, id: TimerId, delay: Duration) {
                assert!(self.reset(id, delay).expect("the delay is in range"), "not armed");
            }

            #[inline(always)]
            fn look(&self, id: TimerId) -> bool {
                self.deadline(id).is_some()
            }
        }
    )*};
}

verbs!(Wheel<u64>, Pinned<'_, u64>);

/// Does nothing, to measure the loop around the operations.
struct Nothing {
    id: TimerId,
}

impl Verbs for Nothing {
    fn arm(&self, value: u64, delay: Duration) -> TimerId {
        black_box((value, delay));
        self.id
    }

    fn end(&self, id: TimerId) -> u64 {
        black_box(id).to_bits()
    }

    fn set(&self, id: TimerId, delay: Duration) {
        black_box((id, delay));
    }

    fn look(&self, id: TimerId) -> bool {
        black_box(id) == id
    }
}

/// A timer of the caller and its last delay.
#[derive(Clone, Copy, Debug)]
struct Timer {
    id: TimerId,
    delay: Duration,
}

/// The timers of one caller, on a wheel that may be shared.
#[derive(Debug)]
pub struct Caller {
    wheel: Wheel<u64>,
    timers: Vec<Timer>,
    random: Rng,
}

impl Caller {
    /// Creates a caller with `armed` timers.
    ///
    /// # Panics
    ///
    /// Panics if the wheel rejects a timer.
    #[must_use]
    pub fn new(wheel: Wheel<u64>, armed: u32) -> Self {
        let mut caller = Self { wheel, timers: Vec::new(), random: Rng::with_seed(7) };
        caller.timers.reserve(armed as usize);
        while caller.timers.len() < armed as usize {
            caller.pinned(Verb::Insert, BATCH);
        }
        caller
    }

    /// Exchanges half of the timers with another caller, which may have armed them in another
    /// shard.
    pub fn mingle(&mut self, other: &mut Caller) {
        for (mine, others) in self.timers.iter_mut().zip(&mut other.timers).step_by(2) {
            std::mem::swap(mine, others);
        }
    }

    /// Makes `operations` calls, each by itself.
    ///
    /// # Panics
    ///
    /// Panics if a timer is not armed.
    pub fn plain(&mut self, verb: Verb, operations: usize) {
        for _ in 0..operations {
            let place = self.place(verb);
            apply(verb, &self.wheel, &mut self.timers, place, &mut self.random);
        }
    }

    /// Runs the loop of [`plain`](Self::plain) without the operations.
    ///
    /// # Panics
    ///
    /// Panics if no timer is armed.
    pub fn bare(&mut self, verb: Verb, operations: usize) {
        let nothing = Nothing { id: self.timers[0].id };
        for _ in 0..operations {
            let place = self.place(verb);
            apply(verb, &nothing, &mut self.timers, place, &mut self.random);
        }
    }

    /// Makes at most [`BATCH`] operations under one guard, with their timers prefetched.
    ///
    /// # Panics
    ///
    /// Panics if a timer is not armed.
    pub fn pinned(&mut self, verb: Verb, operations: usize) {
        let mut places = [0; BATCH];
        let places = &mut places[..operations];
        places.iter_mut().for_each(|place| *place = self.place(verb));
        let pinned = self.wheel.pin();
        if verb != Verb::Insert {
            places.iter().for_each(|&place| pinned.prefetch(self.timers[place].id));
        }
        for &mut place in places {
            apply(verb, &pinned, &mut self.timers, place, &mut self.random);
        }
    }

    /// Cancels the newest timers until `armed` are left.
    ///
    /// # Panics
    ///
    /// Panics if a timer is not armed.
    pub fn shrink(&mut self, armed: u32) {
        for timer in self.timers.drain(armed as usize..) {
            self.wheel.end(timer.id);
        }
    }

    fn place(&mut self, verb: Verb) -> usize {
        if verb == Verb::Insert { 0 } else { self.random.usize(..self.timers.len()) }
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "so that all systems' loops are alike")]
fn apply(verb: Verb, on: &impl Verbs, timers: &mut Vec<Timer>, place: usize, random: &mut Rng) {
    match verb {
        Verb::Insert => {
            let delay = delay(random.u32(..));
            let id = on.arm(timers.len() as u64, delay);
            timers.push(Timer { id, delay });
        }
        Verb::CancelInsert => {
            let delay = delay(random.u32(..));
            let id = on.arm(on.end(timers[place].id), delay);
            timers[place] = Timer { id, delay };
        }
        Verb::ResetLater => {
            let timer = &mut timers[place];
            timer.delay += Duration::from_millis(100);
            on.set(timer.id, timer.delay);
        }
        Verb::ResetEarlier => {
            // Shorter by a sixteenth each time, from an hour to half a minute, and then an hour.
            let timer = &mut timers[place];
            let shorter = timer.delay * 15 / 16;
            let hour = Duration::from_secs(3600);
            timer.delay = if shorter.as_secs() < 30 { hour } else { shorter };
            on.set(timer.id, timer.delay);
        }
        Verb::Deadline => assert!(on.look(timers[place].id)),
    }
}

/// A wheel of one shard, with its sweeper and one caller.
#[derive(Debug)]
pub struct Bench {
    /// The caller.
    pub caller: Caller,
    sweeper: Sweeper<u64>,
    armed: u32,
    since: usize,
}

impl Bench {
    /// Arms `armed` timers on a wheel of one shard.
    ///
    /// # Panics
    ///
    /// Panics if the wheel rejects a timer.
    #[must_use]
    pub fn new(armed: u32, builder: Builder) -> Self {
        let built = builder.shards(1).build();
        let (wheel, sweeper) = built.expect("the defaults are in range");
        Self { caller: Caller::new(wheel, armed), sweeper, armed, since: 0 }
    }

    /// Lets the sweeper search for the next occupied slot, as a driver does when an earlier timer
    /// wakes it. Inserts then rely on what it has found.
    pub fn search(&mut self) {
        let _ = self.sweeper.next_deadline();
    }

    /// Sweeps between two measurements if enough operations have been made since the last sweep.
    ///
    /// # Panics
    ///
    /// Panics if a timer is due.
    pub fn tidy(&mut self, operations: usize) {
        self.since += operations;
        if self.since >= SWEPT {
            self.since = 0;
            self.caller.shrink(self.armed);
            let _ = self.sweeper.sweep(|timer| panic!("{timer:?} is due"));
        }
    }
}

/// Threads of their own for some callers. Each caller stays on its thread, and its timers remain in
/// that thread's shard from one measurement to the next.
#[derive(Debug)]
pub struct Crew<C> {
    threads: ThreadPool,
    /// Callers of different threads share no cache line.
    callers: Vec<CachePadded<Mutex<C>>>,
}

impl<C: Send> Crew<C> {
    /// Starts `count` threads and creates a caller on each.
    ///
    /// # Panics
    ///
    /// Panics if a thread cannot be started, or if `make` panics.
    #[must_use]
    pub fn new(count: usize, make: impl Fn() -> C + Sync) -> Self {
        let threads = ThreadPoolBuilder::new().num_threads(count).build().expect("threads");
        let callers = threads.broadcast(|_| CachePadded::new(Mutex::new(make())));
        Self { threads, callers }
    }

    /// Returns all callers.
    ///
    /// # Panics
    ///
    /// Panics if a caller has panicked.
    pub fn callers(&mut self) -> impl Iterator<Item = &mut C> {
        self.callers.iter_mut().map(|caller| caller.get_mut().expect("no caller has panicked"))
    }

    /// Runs all callers at the same time and returns the time from the start of the first to the
    /// end of the last.
    ///
    /// # Panics
    ///
    /// Panics if a caller panics.
    pub fn run(&mut self, run: impl Fn(&mut C) + Sync) -> Duration {
        let ready = Barrier::new(self.callers.len());
        let times = self.threads.broadcast(|thread| {
            let mut caller = self.callers[thread.index()].lock().expect("no caller has panicked");
            ready.wait();
            let start = now();
            run(&mut caller);
            (start, now())
        });
        let start = times.iter().map(|&(start, _)| start).min().expect("a crew has a caller");
        let end = times.iter().map(|&(_, end)| end).max().expect("a crew has a caller");
        end - start
    }
}
