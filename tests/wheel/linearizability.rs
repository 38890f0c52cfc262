//! Checks that histories of single ids are linearizable. If threads operate on one timer
//! concurrently, each result is one that some order of the operations gives.
//!
//! In each round a timer is armed, and callers reset, cancel and read it while the sweeper moves
//! the clock and sweeps. Every call and every return is stamped from one counter. The history of
//! the round is compared with the sequential specification by the algorithm of Wing and Gong
//! (*Testing and verifying concurrent objects*, 1993; Lowe, 2017) of `todc-utils`. A sweep counts
//! as an operation on the timer even if it does not hand it over. It then asserts that the timer
//! was not due.
//!
//! A reset is two steps here, as documented. It sets the deadline, which `deadline` returns from
//! then on. Then it files it, and from then on no sweep may pass it. Both steps lie between its
//! call and its return.

use crate::common::{Bench, SMALL, Shape, TINY, operations};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;
use tourbillon::__internals::Geometry;
use tourbillon::{Clock, ManualClock, Sweeper, TimerId, Wheel};

const TICK: Duration = Duration::from_millis(1);
const CALLERS: usize = 3;
/// The offset that is added to a caller's number for the second steps of its resets.
const FILERS: usize = CALLERS + 1;

/// The sequential specification of a timer. Instants are the wheel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Timer {
    Absent,
    Armed {
        deadline: Instant,
        /// No sweep passes this instant without firing the timer. It is the deadline of the last
        /// reset that has been filed, or a later one that has been set since.
        by: Instant,
        /// The resets of this round that have set their deadlines, as bits.
        set: u32,
    },
    Ended,
}

/// An operation with its answer.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Insert {
        deadline: Instant,
    },
    Reset {
        deadline: Instant,
        armed: bool,
        /// The number of the reset in this round, below 32.
        number: u32,
    },
    /// The second step of a reset.
    File {
        deadline: Instant,
        number: u32,
    },
    Cancel {
        ended: bool,
    },
    Look {
        deadline: Option<Instant>,
    },
    /// A sweep up to `now`, with the deadline if it handed the timer over.
    Sweep {
        now: Instant,
        fired: Option<Instant>,
    },
}

impl Specification for Timer {
    type State = Timer;
    type Operation = Operation;

    fn init() -> Timer {
        Timer::Absent
    }

    fn apply(operation: &Operation, state: &Timer) -> (bool, Timer) {
        match (*operation, *state) {
            (Operation::Insert { deadline }, Timer::Absent) => {
                (true, Timer::Armed { deadline, by: deadline, set: 0 })
            }
            (Operation::Reset { deadline, armed: true, number }, Timer::Armed { by, set, .. }) => {
                let set = set | 1 << number;
                (true, Timer::Armed { deadline, by: by.max(deadline), set })
            }
            (Operation::File { deadline: own, number }, Timer::Armed { deadline, by, set }) => {
                let by = by.min(own.max(deadline));
                (set & 1 << number != 0, Timer::Armed { deadline, by, set })
            }
            (Operation::Cancel { ended: true }, Timer::Armed { .. }) => (true, Timer::Ended),
            (Operation::Look { deadline: Some(seen) }, Timer::Armed { deadline, .. }) => {
                (seen == deadline, *state)
            }
            (Operation::Sweep { now, fired: Some(fired) }, Timer::Armed { deadline, .. }) => {
                (fired == deadline && deadline <= now, Timer::Ended)
            }
            (Operation::Sweep { now, fired: None }, Timer::Armed { by, .. }) => (by > now, *state),
            (
                Operation::Reset { armed: false, .. }
                | Operation::File { .. }
                | Operation::Cancel { ended: false }
                | Operation::Look { deadline: None }
                | Operation::Sweep { fired: None, .. },
                Timer::Ended,
            ) => (true, *state),
            _ => (false, *state),
        }
    }
}

/// The payload of the first panic of a thread. Panics are propagated at the end, because the other
/// threads would wait at the barrier for a thread that has panicked.
#[derive(Default)]
struct Panics(Mutex<Option<Box<dyn Any + Send>>>);

impl Panics {
    fn catch(&self, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            self.0.lock().unwrap().get_or_insert(panic);
        }
    }

    fn tell(self) {
        if let Some(panic) = self.0.into_inner().unwrap() {
            resume_unwind(panic);
        }
    }
}

type Stamped = (usize, (usize, Action<Operation>));

/// Records the calls and returns of one round, by all threads.
#[derive(Default)]
struct Recorder {
    stamp: AtomicUsize,
    actions: Mutex<Vec<Stamped>>,
}

impl Recorder {
    /// Runs an operation of a process and records the stamps of its call and its return.
    fn run(&self, process: usize, operation: impl FnOnce() -> Operation) {
        // SeqCst: the stamps must be in the order of real time, and their cost does not matter.
        let called = self.stamp.fetch_add(1, SeqCst);
        let operation = operation();
        // SeqCst: as above.
        let answered = self.stamp.fetch_add(1, SeqCst);
        let mut actions = self.actions.lock().unwrap();
        let mut note = |process, operation| {
            actions.push((called, (process, Action::Call(operation))));
            actions.push((answered, (process, Action::Response(operation))));
        };
        note(process, operation);
        if let Operation::Reset { deadline, armed: true, number } = operation {
            note(process + FILERS, Operation::File { deadline, number });
        }
    }

    /// Returns the history so far, and begins the next one.
    fn take(&self) -> Vec<(usize, Action<Operation>)> {
        let mut stamped = std::mem::take(&mut *self.actions.lock().unwrap());
        stamped.sort_by_key(|&(stamp, _)| stamp);
        stamped.into_iter().map(|(_, action)| action).collect()
    }
}

fn is_linearizable(actions: Vec<(usize, Action<Operation>)>) -> bool {
    WGLChecker::<Timer>::is_linearizable(History::from_actions(actions))
}

/// The state that the threads of all rounds share.
struct Rounds {
    wheel: Wheel<usize>,
    clock: ManualClock,
    recorder: Recorder,
    timer: Mutex<Option<TimerId>>,
    begin: Barrier,
    end: Barrier,
    panics: Panics,
}

impl Rounds {
    /// Runs one caller's part of a round, which is a few random operations on its timer.
    fn call(&self, process: usize, round: usize, random: &mut fastrand::Rng) {
        let id = self.timer.lock().unwrap().unwrap();
        for turn in 0..random.usize(1..4) {
            let number = (process * 4 + turn).try_into().unwrap();
            let deadline = self.clock.now() + TICK * random.u32(..7);
            self.recorder.run(process, || match random.u32(..6) {
                0 => {
                    let value = self.wheel.cancel(id);
                    assert!(value.is_none_or(|value| value == round));
                    Operation::Cancel { ended: value.is_some() }
                }
                1 => Operation::Look { deadline: self.wheel.deadline(id) },
                _ => {
                    let armed = self.wheel.reset_at(id, deadline).unwrap();
                    Operation::Reset { deadline, armed, number }
                }
            });
        }
    }

    fn insert(&self, round: usize, ticks: u32) {
        let deadline = self.clock.now() + TICK * ticks;
        self.recorder.run(CALLERS, || {
            *self.timer.lock().unwrap() = Some(self.wheel.insert_at(round, deadline).unwrap());
            Operation::Insert { deadline }
        });
    }

    fn sweep(&self, sweeper: &mut Sweeper<usize>, round: usize, ticks: u32) {
        self.clock.advance(TICK * ticks);
        let now = self.clock.now();
        self.recorder.run(CALLERS, || {
            let mut fired = None;
            let _ = sweeper.sweep_at(now, |expired| {
                assert_eq!((expired.value, fired.replace(expired.deadline)), (round, None));
            });
            Operation::Sweep { now, fired }
        });
    }
}

/// Runs `count` rounds, each with a timer of its own, on one wheel.
#[allow(clippy::disallowed_methods, reason = "the test is about threads")]
fn rounds(geometry: Geometry, count: usize) {
    let shape = Shape { tick: TICK, shards: 1, geometry, first_tick: (1 << 38) - 500 };
    let Bench { wheel, mut sweeper, clock, .. } = Bench::<usize>::new(shape);
    let rounds = Rounds {
        wheel,
        clock,
        recorder: Recorder::default(),
        timer: Mutex::new(None),
        begin: Barrier::new(CALLERS + 1),
        end: Barrier::new(CALLERS + 1),
        panics: Panics::default(),
    };
    thread::scope(|scope| {
        for process in 0..CALLERS {
            let rounds = &rounds;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(process as u64);
                for round in 0..count {
                    rounds.begin.wait();
                    rounds.panics.catch(|| rounds.call(process, round, &mut random));
                    rounds.end.wait();
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(99);
        for round in 0..count {
            rounds.panics.catch(|| rounds.insert(round, random.u32(..7)));
            rounds.begin.wait();
            rounds.panics.catch(|| {
                (0..3).for_each(|_| rounds.sweep(&mut sweeper, round, random.u32(..4)));
            });
            rounds.end.wait();
            rounds.panics.catch(|| {
                rounds.sweep(&mut sweeper, round, 20);
                let history = rounds.recorder.take();
                assert!(is_linearizable(history.clone()), "round {round}: {history:#?}");
                assert!(rounds.wheel.drain().is_empty());
            });
        }
    });
    rounds.panics.tell();
}

#[test]
fn on_a_tiny_wheel() {
    rounds(TINY, operations() / 10);
}

#[test]
fn on_a_small_wheel() {
    rounds(SMALL, operations() / 10);
}

/// Shows that the check can fail, because each of these results is wrong in every order.
#[test]
fn wrong_histories_are_refused() {
    let start = ManualClock::new().start();
    let (soon, late) = (start + TICK, start + TICK * 5);
    let insert = |deadline| Operation::Insert { deadline };
    let fire = |at| Operation::Sweep { now: soon, fired: Some(at) };
    let pass = Operation::Sweep { now: soon, fired: None };
    let reset = |deadline| Operation::Reset { deadline, armed: true, number: 0 };
    let wrong: [&[Operation]; 8] = [
        // In order, these are a timer that ends twice, fires early, is lost, or fires at an old
        // deadline, a reset and a cancel with a false result, a timer that is observed after its
        // end, and a reset that was lost.
        &[insert(soon), fire(soon), Operation::Cancel { ended: true }],
        &[insert(late), fire(late)],
        &[insert(soon), pass],
        &[insert(soon), reset(late), fire(soon)],
        &[insert(soon), fire(soon), reset(late)],
        &[insert(soon), Operation::Cancel { ended: false }],
        &[insert(soon), fire(soon), Operation::Look { deadline: Some(soon) }],
        &[insert(late), reset(soon), pass],
    ];
    for operations in wrong {
        let recorder = Recorder::default();
        operations.iter().for_each(|&operation| recorder.run(0, || operation));
        assert!(!is_linearizable(recorder.take()), "{operations:?}");
    }
    // The fourth is right if the reset was called before the sweep answered.
    let overlapping = vec![
        (0, Action::Call(insert(soon))),
        (0, Action::Response(insert(soon))),
        (1, Action::Call(fire(soon))),
        (0, Action::Call(reset(late))),
        (0, Action::Response(Operation::Reset { deadline: late, armed: false, number: 0 })),
        (1, Action::Response(fire(soon))),
    ];
    assert!(is_linearizable(overlapping));
}

/// A sweep may pass a deadline that was observed as long as the reset that has set it has not
/// returned, and no longer.
#[test]
fn a_reset_files_before_it_returns() {
    let start = ManualClock::new().start();
    let (soon, late) = (start + TICK, start + TICK * 5);
    let look = |seen| Operation::Look { deadline: Some(seen) };
    let pass = Operation::Sweep { now: soon, fired: None };
    // A thread of its own resets from `late` to `soon`, while the given operations run around it.
    let history = |before: &[Operation], during: &[Operation], after: &[Operation]| {
        let recorder = Recorder::default();
        let run = |operations: &[Operation]| {
            operations.iter().for_each(|&operation| recorder.run(1, || operation));
        };
        recorder.run(1, || Operation::Insert { deadline: late });
        run(before);
        recorder.run(0, || {
            run(during);
            Operation::Reset { deadline: soon, armed: true, number: 0 }
        });
        run(after);
        is_linearizable(recorder.take())
    };
    assert!(history(&[], &[look(soon), pass, look(soon)], &[]));
    assert!(history(&[], &[pass, look(late)], &[look(soon)]));
    assert!(!history(&[], &[look(soon), pass], &[pass]));
    assert!(!history(&[], &[look(soon), look(late)], &[]));
    assert!(!history(&[look(soon)], &[pass], &[]));
    // The deadline that another reset has filed before stays in force, whether or not this one has
    // been set.
    let other = Operation::Reset { deadline: soon, armed: true, number: 1 };
    assert!(!history(&[other], &[pass], &[]));
    assert!(!history(&[other], &[look(soon), pass], &[]));
    assert!(!history(&[], &[other, pass], &[]));
}
