//! [`World`], virtual time with events.
//!
//! One thread runs everything. It polls the woken tasks of one process after another, in an order
//! that is drawn from the seed, until none is woken. Then time jumps to the next event. Nothing
//! else depends on the seed, so two runs with one seed are the same.

use super::process::Process;
use crate::panics::ignore_poison;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tourbillon::{Clock, MonotonicClock};

/// Nanoseconds since the start of virtual time.
pub(crate) type Nanos = u64;

pub(crate) const SECOND: Nanos = 1_000_000_000;
pub(crate) const MILLISECOND: Nanos = 1_000_000;

type Action = Box<dyn FnOnce() + Send>;

/// Virtual time. Clones share it.
#[derive(Clone)]
pub(crate) struct World(Arc<Shared>);

struct Shared {
    /// The instant at the start of virtual time.
    start: Instant,
    now: AtomicU64,
    state: Mutex<State>,
    random: Mutex<fastrand::Rng>,
    trace: Mutex<DefaultHasher>,
    /// A text. What contains it is printed.
    log: Option<String>,
}

/// An action at a time.
struct Event {
    time: Nanos,
    number: u64,
    action: Action,
}

impl Ord for Event {
    /// The first event is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.number).cmp(&(self.time, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Event {}

#[derive(Default)]
struct State {
    events: BinaryHeap<Event>,
    last: u64,
    /// The processes with woken tasks.
    runnable: Vec<Arc<Process>>,
    processes: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        // The numbers of workers are drawn from the generator of the thread.
        fastrand::seed(seed);
        Self(Arc::new(Shared {
            start: MonotonicClock.now(),
            now: AtomicU64::new(0),
            state: Mutex::default(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            trace: Mutex::default(),
            log: std::env::var("SIMULATOR_LOG").ok(),
        }))
    }

    pub(crate) fn now(&self) -> Nanos {
        self.0.now.load(Relaxed)
    }

    /// Draws from the seed.
    pub(crate) fn draw<R>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> R) -> R {
        let mut random = ignore_poison(self.0.random.lock());
        draw(&mut random)
    }

    /// Returns the instant at the start of virtual time.
    pub(crate) fn start(&self) -> Instant {
        self.0.start
    }

    /// Returns the number of a new process.
    pub(crate) fn number_process(&self) -> u64 {
        let mut state = self.lock();
        state.processes += 1;
        state.processes
    }

    /// Adds a process with woken tasks.
    pub(crate) fn add_runnable(&self, process: Arc<Process>) {
        self.lock().runnable.push(process);
    }

    /// Adds something that has happened to the trace.
    #[allow(clippy::print_stderr, reason = "the log was asked for")]
    pub(crate) fn note(&self, what: impl Hash + fmt::Debug) {
        if let Some(log) = &self.0.log {
            let line = format!("{what:?}");
            if line.contains(log) {
                eprintln!("{:.6} {line}", self.now() as f64 / SECOND as f64);
            }
        }
        let mut trace = ignore_poison(self.0.trace.lock());
        self.now().hash(&mut *trace);
        what.hash(&mut *trace);
    }

    /// Returns a number that two runs have in common only if they are the same.
    pub(crate) fn trace(&self) -> u64 {
        ignore_poison(self.0.trace.lock()).finish()
    }

    /// Calls `action` at a time.
    pub(crate) fn at(&self, time: Nanos, action: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        state.last += 1;
        let (time, number) = (time.max(self.now()), state.last);
        state.events.push(Event { time, number, action: Box::new(action) });
    }

    /// Calls `action` after a while.
    pub(crate) fn after(&self, delay: Nanos, action: impl FnOnce() + Send + 'static) {
        self.at(self.now() + delay, action);
    }

    /// Runs until a time.
    pub(crate) fn run_until(&self, end: Nanos) {
        loop {
            self.run_processes();
            let mut state = self.lock();
            let Some(event) = state.events.peek_mut() else { break };
            if event.time > end {
                break;
            }
            let Event { time, action, .. } = PeekMut::pop(event);
            drop(state);
            self.0.now.store(time, Relaxed);
            action();
        }
        self.0.now.store(end, Relaxed);
    }

    fn run_processes(&self) {
        loop {
            let mut state = self.lock();
            let count = state.runnable.len();
            if count == 0 {
                return;
            }
            let place = if count == 1 { 0 } else { self.draw(|random| random.usize(..count)) };
            let process = state.runnable.swap_remove(place);
            drop(state);
            process.run();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        ignore_poison(self.0.state.lock())
    }
}

/// Returns a time by a clock that is faster by a number of parts per million.
pub(crate) fn drifted(time: Nanos, drift: i64) -> Nanos {
    let whole = i64::try_from(time).unwrap_or(i64::MAX);
    let parts = whole / 1_000_000 * drift + whole % 1_000_000 * drift / 1_000_000;
    time.saturating_add_signed(parts)
}
