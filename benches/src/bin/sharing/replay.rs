//! Threads that take turns at a system, and the counts of their accesses.

use super::systems::System;
use fastrand::Rng;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tourbillon::__internals::traced::{AccessCounts, forget_lines, set_processor, take_counts};
use tourbillon_benches::delay;

/// The number of timers of each caller.
const TIMERS: usize = 500;
/// The number of operations of each caller that are counted, and of those before them.
const ROUNDS: usize = 500;

/// The operation of the callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Insert,
    CancelInsert,
    ResetLater,
    Fire,
}

impl Workload {
    pub(crate) const ALL: [Self; 4] =
        [Self::Insert, Self::CancelInsert, Self::ResetLater, Self::Fire];

    /// Its name in `ci/measure peers`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::CancelInsert => "cancel_insert",
            Self::ResetLater => "reset_later",
            Self::Fire => "fire",
        }
    }
}

/// The owner of the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Own,
    /// A random other caller.
    Others,
}

/// The counts over a number of operations.
#[derive(Clone, Debug)]
pub(crate) struct Traced {
    pub(crate) counted: AccessCounts,
    pub(crate) operations: u64,
}

impl Traced {
    pub(crate) fn each(&self, count: u64) -> f64 {
        count as f64 / self.operations as f64
    }
}

type Job<S> = Box<dyn FnOnce(&S) -> u64 + Send>;

/// A thread that does one thing at a time.
struct Worker<S> {
    jobs: Option<Sender<Job<S>>>,
    done: Receiver<u64>,
    thread: Option<JoinHandle<()>>,
}

impl<S> Drop for Worker<S> {
    /// Waits for the thread, so that it does not run beside the next measurement.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl<S: System> Worker<S> {
    #[allow(clippy::disallowed_methods, reason = "callers are threads")]
    fn start(system: Arc<S>, number: usize) -> Self {
        let ((jobs, todo), (say, done)) = (channel::<Job<S>>(), channel());
        let thread = std::thread::spawn(move || {
            set_processor(u32::try_from(number).expect("few threads"));
            for job in todo {
                say.send(job(&system)).expect("somebody waits");
            }
        });
        Self { jobs: Some(jobs), done, thread: Some(thread) }
    }

    fn call(&self, job: impl FnOnce(&S) -> u64 + Send + 'static) -> u64 {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(Box::new(job)));
        sent.and_then(Result::ok).expect("no caller panicked");
        self.done.recv().expect("no caller panicked")
    }
}

/// A system with its callers, and the timers they have armed.
struct World<S> {
    callers: Vec<Worker<S>>,
    timers: Vec<Vec<u64>>,
    random: Rng,
    steps: u32,
}

impl<S: System> World<S> {
    fn new(system: &Arc<S>, threads: usize) -> Self {
        let callers = (0..threads).map(|number| Worker::start(Arc::clone(system), number));
        let (callers, timers) = (callers.collect(), vec![Vec::new(); threads]);
        Self { callers, timers, random: Rng::with_seed(7), steps: 0 }
    }

    /// The next delay. All differ and are long.
    fn delay(&mut self) -> Duration {
        self.steps += 1;
        delay(self.steps)
    }

    fn insert(&mut self, caller: usize) {
        let delay = self.delay();
        let id = self.callers[caller].call(move |system| system.insert(delay));
        self.timers[caller].push(id);
    }

    /// Makes one operation of that caller.
    fn step(&mut self, workload: Workload, whose: Whose, caller: usize) {
        if workload == Workload::Insert {
            return self.insert(caller);
        }
        let delay = self.delay();
        let owner = match whose {
            Whose::Own => caller,
            Whose::Others => {
                let threads = self.callers.len();
                (caller + self.random.usize(1..threads)) % threads
            }
        };
        let place = self.random.usize(..self.timers[owner].len());
        let id = self.timers[owner][place];
        let caller = &self.callers[caller];
        if workload == Workload::CancelInsert {
            self.timers[owner][place] = caller.call(move |system| {
                system.cancel(id);
                system.insert(delay)
            });
        } else {
            let _ = caller.call(move |system| {
                system.reset(id, delay + Duration::from_secs(60));
                0
            });
        }
    }
}

/// Counts a workload with this number of callers.
pub(crate) fn trace<S: System>(
    system: impl FnOnce() -> S,
    workload: Workload,
    whose: Whose,
    threads: usize,
) -> Traced {
    // Earlier records are of another system.
    forget_lines();
    let system = Arc::new(system());
    let mut world = World::new(&system, threads);
    for _ in 0..TIMERS {
        (0..threads).for_each(|caller| world.insert(caller));
    }
    if workload == Workload::Fire {
        // The sweeper is one more thread.
        let sweeper = Worker::start(system, threads);
        let _prepared = take_counts();
        let operations = sweeper.call(|system| system.fire(Duration::from_secs(100)));
        return Traced { counted: take_counts(), operations };
    }
    let mut counted = AccessCounts::default();
    for _warm_up_then_counted in 0..2 {
        let _before = take_counts();
        for _ in 0..ROUNDS {
            (0..threads).for_each(|caller| world.step(workload, whose, caller));
        }
        counted = take_counts();
    }
    Traced { counted, operations: (ROUNDS * threads) as u64 }
}
