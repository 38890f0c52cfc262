//! The program that `ci/measure instructions` runs under callgrind, whose counts are the same on a
//! busy machine as on a quiet one. It runs one operation on a wheel, plain or pinned, or on sleeps
//! of this crate or of tokio, or the empty loop around it.
//!
//! Only the code inside [`counted`] is counted, without the preparations. Cached clock readings
//! never expire here, because under callgrind they would expire within few operations.

use clap::{Parser, ValueEnum};
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::{EnterGuard, Runtime};
use tourbillon::future::{Sleep, SleepWaker, Timer};
use tourbillon::{Builder, Sweeper};
use tourbillon_benches::{BATCH, Bench, Verb, delay, now};

/// Runs one operation 4096 times, for `ci/measure instructions`.
#[derive(Debug, Parser)]
struct Args {
    /// The object of the operation
    on: On,
    /// The operation. Sleeps support the first three
    verb: Verb,
}

/// The object of an operation.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum On {
    /// A wheel, each operation by itself
    Plain,
    /// A wheel with a capacity, each operation by itself
    Bounded,
    /// A wheel that the caller has pinned
    Pinned,
    /// The loop around those
    Bare,
    /// Sleeps of this crate
    Sleep,
    /// Sleeps of tokio
    TokioSleep,
    /// The loop around those
    BareSleep,
}

/// The number of batches that are counted.
const BATCHES: usize = 64;

/// The number of operations in them.
const OPERATIONS: u32 = 64 * 64;
const _: () = assert!(OPERATIONS as usize == BATCHES * BATCH);

const ARMED: u32 = 20_000;

fn unbounded() -> Builder {
    Builder::new().__term(u64::MAX)
}

/// A wheel that has run the operation before.
fn bench(verb: Verb, builder: Builder) -> Bench {
    let mut bench = Bench::new(ARMED, builder);
    (0..BATCHES).for_each(|_| bench.caller.pinned(verb, BATCH));
    bench.search();
    bench
}

/// Sleeps of one kind, each pinned in its place.
trait Sleeps {
    type Sleep: Future;

    fn sleep(&self, delay: Duration) -> Self::Sleep;
    fn reset(sleep: Pin<&mut Self::Sleep>, deadline: Instant);

    /// Does what a driver does when an earlier sleep wakes it.
    fn search(&mut self) {}
}

/// Sleeps of this crate, on a wheel that is never swept.
struct Ours {
    timer: Timer,
    sweeper: Sweeper<SleepWaker>,
}

impl Sleeps for Ours {
    type Sleep = Sleep;

    #[inline]
    fn sleep(&self, delay: Duration) -> Sleep {
        self.timer.sleep(delay)
    }

    #[inline]
    fn reset(sleep: Pin<&mut Sleep>, deadline: Instant) {
        sleep.get_mut().reset(deadline);
    }

    fn search(&mut self) {
        let _ = self.sweeper.next_deadline();
    }
}

/// Sleeps of tokio, on a current-thread runtime.
struct Tokio {
    _inside: EnterGuard<'static>,
}

impl Tokio {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime: &'static Runtime = Box::leak(Box::new(runtime.expect("a runtime")));
        Self { _inside: runtime.enter() }
    }
}

impl Sleeps for Tokio {
    type Sleep = tokio::time::Sleep;

    #[inline]
    fn sleep(&self, delay: Duration) -> Self::Sleep {
        tokio::time::sleep(delay)
    }

    #[inline]
    fn reset(sleep: Pin<&mut Self::Sleep>, deadline: Instant) {
        sleep.reset(deadline.into());
    }
}

/// Sleeps that do nothing.
struct Nothing;

impl Sleeps for Nothing {
    type Sleep = Self;

    #[inline]
    fn sleep(&self, delay: Duration) -> Self {
        black_box(delay);
        Self
    }

    #[inline]
    fn reset(_: Pin<&mut Self>, deadline: Instant) {
        black_box(deadline);
    }
}

impl Future for Nothing {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        black_box(Poll::Pending)
    }
}

/// Many armed sleeps, and room for more.
struct Armed<S: Sleeps> {
    places: Vec<Pin<Box<Option<S::Sleep>>>>,
    timer: S,
    verb: Verb,
    start: Instant,
}

impl<S: Sleeps> Armed<S> {
    fn new(timer: S, verb: Verb) -> Self {
        let places = (0..ARMED + OPERATIONS).map(|_| Box::pin(None)).collect();
        let mut armed = Self { places, timer, verb, start: now() };
        (0..ARMED).for_each(|place| armed.arm(place));
        // References are filed once, and the operations that are counted rely on them.
        if verb == Verb::CancelInsert {
            (0..ARMED).for_each(|place| armed.arm(place));
        }
        armed.timer.search();
        armed
    }

    #[inline]
    fn arm(&mut self, place: u32) {
        let sleep = self.timer.sleep(delay(place));
        let place = &mut self.places[place as usize];
        place.set(Some(sleep));
        if let Some(sleep) = place.as_mut().as_pin_mut() {
            assert!(sleep.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    }

    #[inline]
    fn reset(&mut self, place: u32, by: Duration) {
        let deadline = self.start + delay(place) + by;
        if let Some(sleep) = self.places[place as usize].as_mut().as_pin_mut() {
            S::reset(sleep, deadline);
        }
    }

    fn run(&mut self) {
        for step in 0..OPERATIONS {
            // Close to random, and the same in each run.
            let place = step * 7919 % ARMED;
            match self.verb {
                Verb::Insert => self.arm(ARMED + step),
                Verb::CancelInsert => self.arm(place),
                _ => self.reset(place, Duration::from_secs(5)),
            }
        }
    }
}

fn ours() -> Ours {
    let built = Builder::new().shards(1).__term(u64::MAX).build();
    let (wheel, sweeper) = built.expect("the defaults are in range");
    Ours { timer: Timer::new(wheel), sweeper }
}

/// Runs the code that is counted. Callgrind finds this function by its name.
#[inline(never)]
fn counted(run: impl FnOnce()) {
    run();
}

fn on_wheel(verb: Verb, builder: Builder, run: impl Fn(&mut Bench)) {
    let mut bench = bench(verb, builder);
    counted(|| run(&mut bench));
}

fn on_sleeps<S: Sleeps>(verb: Verb, timer: S) {
    let mut armed = Armed::new(timer, verb);
    counted(|| armed.run());
}

fn main() {
    let Args { on, verb } = Args::parse();
    match on {
        On::Plain => on_wheel(verb, unbounded(), |bench| {
            bench.caller.plain(verb, BATCHES * BATCH);
        }),
        On::Bounded => on_wheel(verb, unbounded().capacity(1 << 20), |bench| {
            bench.caller.plain(verb, BATCHES * BATCH);
        }),
        On::Pinned => on_wheel(verb, unbounded(), |bench| {
            (0..BATCHES).for_each(|_| bench.caller.pinned(verb, BATCH));
        }),
        On::Bare => on_wheel(verb, unbounded(), |bench| {
            bench.caller.bare(verb, BATCHES * BATCH);
        }),
        On::Sleep => on_sleeps(verb, ours()),
        On::TokioSleep => on_sleeps(verb, Tokio::new()),
        On::BareSleep => on_sleeps(verb, Nothing),
    }
}
