//! The sequential specification of the keyed timers, a map from key to value and deadline. It is
//! driven side by side with them by operations of simulated callers and handlers. The property test
//! and the fuzz target share it.
//!
//! Delays and steps are whole ticks, because the rounding of deadlines belongs to the wheel.

#[path = "setup.rs"]
pub(crate) mod setup;

use setup::Setup;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon::keyed::{KeyedTimer, KeyedTimers, UnfiredKey};
use tourbillon::{BeyondRange, Clock, InsertError, ManualClock, Refusal, Sweeper};

/// An operation, by a caller or in a handler. Deadlines are in ticks around now.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Operation {
    Insert { key: u8, delay: u16 },
    InsertAt { key: u8, offset: i16 },
    InsertBeyond { key: u8 },
    Reset { key: u8, delay: u16 },
    ResetAt { key: u8, offset: i16 },
    ResetBeyond { key: u8 },
    Cancel { key: u8 },
    Look { key: u8 },
    Drain,
}

/// One step of a run.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Op {
    Call(Operation),
    /// Advances the time. The handler of the first key that fires calls these.
    Sweep {
        step: u16,
        inside: Vec<Operation>,
    },
    SweepSome {
        step: u16,
        limit: u8,
    },
    Shutdown,
}

/// Few keys, so that operations collide.
const KEYS: u8 = 12;

/// The state of a key in the model, with its value and the tick (since the start) when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    value: u64,
    due: u64,
}

/// Keyed timers and their model.
pub(crate) struct Model {
    caller: Caller,
    sweeper: Sweeper<KeyedTimer<u8>>,
}

/// The part of the model that handlers use too.
#[derive(Clone)]
struct Caller {
    timers: KeyedTimers<u8, u64>,
    clock: ManualClock,
    tick: Duration,
    capacity: u64,
    known: Rc<RefCell<BTreeMap<u8, Known>>>,
    next_value: Rc<Cell<u64>>,
    /// Values that a drain has taken and that its function has still to receive.
    draining: Rc<RefCell<BTreeSet<(u8, u64)>>>,
    drained: Arc<Mutex<Vec<(u8, u64)>>>,
    stopped: Rc<Cell<bool>>,
    /// Keys that were armed or moved since the last sweep began, and `KEYS` for a drain.
    touched: Rc<RefCell<BTreeSet<u8>>>,
    /// Set while a sweep is in progress. A timer is ended, with its firing in flight, only during a
    /// sweep.
    sweeping: Rc<Cell<bool>>,
}

impl Model {
    /// Runs all operations, and the checks at the end.
    pub(crate) fn run<'a>(setup: &Setup, ops: impl IntoIterator<Item = &'a Op>) {
        let mut model = Self::new(setup);
        for op in ops {
            model.apply(op);
        }
        model.finish();
    }

    fn new(setup: &Setup) -> Self {
        let (wheel, sweeper, clock) = setup.build();
        let caller = Caller {
            timers: KeyedTimers::new(wheel),
            clock,
            tick: setup.tick,
            capacity: setup.capacity.unwrap_or(u64::MAX),
            known: Rc::default(),
            next_value: Rc::default(),
            draining: Rc::default(),
            drained: Arc::default(),
            stopped: Rc::default(),
            touched: Rc::default(),
            sweeping: Rc::default(),
        };
        Self { caller, sweeper }
    }

    /// Applies one operation to both and compares the answers.
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Call(operation) => self.caller.call(operation),
            Op::Sweep { step, inside } => self.sweep(*step, None, inside),
            Op::SweepSome { step, limit } => self.sweep(*step, Some((*limit).into()), &[]),
            Op::Shutdown => self.caller.shutdown(),
        }
        self.caller.compare();
    }

    /// Advances the time past all deadlines, and checks that nothing is left.
    fn finish(mut self) {
        self.sweep(0, None, &[]);
        while !self.caller.known.borrow().is_empty() {
            self.sweep(1_000, None, &[]);
        }
        self.caller.compare();
        assert!(self.caller.timers.is_empty() && self.caller.timers.wheel().is_empty());
        assert!(self.caller.draining.borrow().is_empty(), "drained and never handed over");
    }

    fn sweep(&mut self, step: u16, limit: Option<usize>, inside: &[Operation]) {
        let Self { caller, sweeper } = self;
        caller.clock.advance(caller.tick * u32::from(step % 1_024));
        caller.touched.borrow_mut().clear();
        let now = caller.now();
        let mut inside = Some(inside);
        caller.sweeping.set(true);
        let sweep = sweeper.sweep_some(limit.unwrap_or(usize::MAX), |expired| {
            let Some((key, value)) = caller.timers.fire(expired) else { return };
            let known = caller.known.borrow_mut().remove(&key).expect("only armed keys fire, once");
            assert_eq!(known.value, value);
            assert!(known.due <= now, "early");
            inside.take().into_iter().flatten().for_each(|operation| caller.call(operation));
        });
        caller.sweeping.set(false);
        caller.collect_drained();
        if sweep.finished {
            let (known, touched) = (caller.known.borrow(), caller.touched.borrow());
            let late = known.iter().find(|(key, known)| known.due <= now && !touched.contains(key));
            assert_eq!(late, None, "due and not fired");
            let left = caller.draining.borrow().len();
            assert!(left == 0 || touched.contains(&KEYS), "{left} drained and not handed over");
        }
    }
}

impl Caller {
    fn call(&self, operation: &Operation) {
        match *operation {
            Operation::Insert { key, delay } => {
                let delay = u64::from(delay % 1_024);
                self.insert(key, self.now() + delay, |key, value| {
                    self.timers.insert(key, value, self.span(delay))
                });
            }
            Operation::InsertAt { key, offset } => {
                let due = self.around(offset);
                let at = self.instant(due);
                self.insert(key, due, |key, value| self.timers.insert_at(key, value, at));
            }
            Operation::InsertBeyond { key } => {
                let refused = self.timers.insert(key % KEYS, 7, Duration::MAX).expect_err("beyond");
                assert_eq!(refused.value, 7);
            }
            Operation::Reset { key, delay } => {
                let delay = u64::from(delay % 1_024);
                let moved = |key: &u8| self.timers.reset(key, self.span(delay));
                self.moved(key, self.now() + delay, moved);
            }
            Operation::ResetAt { key, offset } => {
                let due = self.around(offset);
                self.moved(key, due, |key| self.timers.reset_at(key, self.instant(due)));
            }
            Operation::ResetBeyond { key } => {
                let refused = self.timers.reset(&(key % KEYS), Duration::MAX);
                assert!(refused.is_err() || refused == Ok(false));
            }
            Operation::Cancel { key } => {
                let key = key % KEYS;
                let known = self.known.borrow_mut().remove(&key);
                assert_eq!(self.timers.cancel(&key), known.map(|known| known.value));
            }
            Operation::Look { key } => self.look(key % KEYS),
            Operation::Drain => self.drain(),
        }
    }

    fn now(&self) -> u64 {
        let ticks = self.clock.elapsed().as_nanos() / self.tick.as_nanos();
        u64::try_from(ticks).expect("virtual time is short")
    }

    fn span(&self, ticks: u64) -> Duration {
        self.tick * u32::try_from(ticks).expect("virtual time is short")
    }

    fn instant(&self, tick: u64) -> Instant {
        self.clock.start() + self.span(tick)
    }

    fn around(&self, offset: i16) -> u64 {
        self.now().saturating_add_signed((offset % 1_024).into())
    }

    fn insert(
        &self,
        key: u8,
        due: u64,
        set: impl FnOnce(u8, u64) -> Result<Option<u64>, InsertError<u64>>,
    ) {
        let (key, value) = (key % KEYS, self.next_value.get());
        self.next_value.set(value + 1);
        let before = self.known.borrow().get(&key).copied();
        match set(key, value) {
            Ok(old) => {
                assert_eq!(old, before.map(|known| known.value));
                assert!(before.is_some() || !self.stopped.get());
                self.known.borrow_mut().insert(key, Known { value, due });
                self.touched.borrow_mut().insert(key);
            }
            Err(refused) => {
                assert_eq!(refused.value, value);
                assert!(before.is_none() || self.sweeping.get(), "it has a place already");
                self.assert_refusal(refused.reason);
            }
        }
    }

    /// Checks that the wheel was right to refuse.
    fn assert_refusal(&self, reason: Refusal) {
        match reason {
            Refusal::Closed => assert!(self.stopped.get()),
            Refusal::AtCapacity { capacity } => {
                assert_eq!(capacity, self.capacity);
                assert_eq!(self.timers.wheel().len() as u64, capacity);
            }
            other => panic!("{other}"),
        }
    }

    fn moved(&self, key: u8, due: u64, moved: impl FnOnce(&u8) -> Result<bool, BeyondRange>) {
        let key = key % KEYS;
        let moved = moved(&key).expect("in range");
        if let Some(known) = self.known.borrow_mut().get_mut(&key).filter(|_| moved) {
            known.due = due;
            self.touched.borrow_mut().insert(key);
            return;
        }
        // A key in flight to its handler may find no room for a new timer.
        let full = self.timers.wheel().len() as u64 == self.capacity;
        let stays = self.sweeping.get() && (full || self.stopped.get());
        assert!(!moved && (stays || !self.known.borrow().contains_key(&key)));
    }

    fn look(&self, key: u8) {
        let known = self.known.borrow().get(&key).copied();
        assert_eq!(self.timers.contains(&key), known.is_some());
        assert_eq!(self.timers.get(&key), known.map(|known| known.value));
        let deadline = self.timers.deadline(&key);
        match known {
            None => assert_eq!(deadline, None),
            Some(known) if known.due > self.now() => {
                assert_eq!(deadline, Some(self.instant(known.due)));
            }
            // The timer is due. It is in flight, or still in the wheel, if its deadline is long
            // past and was rounded.
            Some(_) => assert!(deadline <= Some(self.clock.now())),
        }
    }

    fn drain(&self) {
        let known = std::mem::take(&mut *self.known.borrow_mut());
        let taken = known.into_iter().map(|(key, known)| (key, known.value));
        self.draining.borrow_mut().extend(taken);
        let drained = Arc::clone(&self.drained);
        // The drain continues by itself with the sweeps.
        drop(self.timers.drain(move |key, value| {
            drained.lock().expect("nothing panics").push((key, value));
        }));
        self.touched.borrow_mut().insert(KEYS);
        self.collect_drained();
    }

    fn collect_drained(&self) {
        for pair in self.drained.lock().expect("nothing panics").drain(..) {
            assert!(self.draining.borrow_mut().remove(&pair), "{pair:?} was not being drained");
        }
    }

    fn shutdown(&self) {
        let mut stopped = self.timers.shutdown();
        self.stopped.set(true);
        stopped.sort_unstable_by_key(|unfired| unfired.key);
        let known = std::mem::take(&mut *self.known.borrow_mut());
        assert_eq!(stopped.len(), known.len());
        for (UnfiredKey { key, value, deadline }, (known_key, known)) in
            stopped.into_iter().zip(known)
        {
            assert_eq!((key, value), (known_key, known.value));
            assert!(deadline == self.instant(known.due) || known.due <= self.now());
        }
        self.collect_drained();
        assert!(self.draining.borrow().is_empty(), "what drains had to do, a stop does");
    }

    fn compare(&self) {
        let known = self.known.borrow();
        assert_eq!(self.timers.len(), known.len());
        assert_eq!(self.timers.is_empty(), known.is_empty());
        if self.draining.borrow().is_empty() {
            assert_eq!(self.timers.wheel().len(), known.len(), "a timer for each key");
        }
    }
}
