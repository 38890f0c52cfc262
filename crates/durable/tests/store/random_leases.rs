//! Leases that run out, against a model, with random operations in virtual time.
//!
//! Handlers hang. As soon as one does, the clock of its worker stops, as for a process that is
//! suspended, so the worker neither renews leases nor learns that they have run out. Another worker
//! takes over. The handlers of stopped workers end at random times, before their leases have run
//! out, after that, or after other workers have taken them over. Numbers such as D7 are the
//! transitions in `docs/DESIGN.md`.

#![allow(clippy::disallowed_methods, reason = "a worker has a thread of its own")]

use crate::common::bench::{OneFile, Place, SECOND, TempFile, clock, start, wait};
use futures_channel::oneshot;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tourbillon::future::Timer;
use tourbillon::{Builder, ManualClock};
use tourbillon_durable::{
    AnyStore, Attempt, Backoff, Cancelled, DeadReason, Delivery, DurableError, DurableTimers,
    Event, Existing, Inserted, Options, Outcome, TimerState, Verdict,
};

const LEASE: Duration = Duration::from_secs(15);

/// The wait after each failure.
const WAIT: Duration = SECOND;

/// The number of attempts of a delivery.
const ATTEMPTS: u32 = 4;

#[derive(Clone, Debug)]
enum Op {
    Insert {
        id: u8,
        delay: u8,
        existing: Existing,
        kind: Kind,
    },
    Cancel {
        id: u8,
    },
    Reset {
        id: u8,
        delay: u8,
    },
    Run {
        id: u8,
    },
    Advance {
        seconds: u8,
    },
    /// One of the handlers that hang returns, counted from the last one.
    Return {
        which: usize,
        how: How,
    },
}

/// The options of a timer.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// The number of attempts of each delivery that hang.
    hangs: u8,
    /// The interval in seconds.
    every: Option<u8>,
}

/// The result of a handler that hung.
#[derive(Clone, Copy, Debug)]
enum How {
    Done,
    Retry,
    Fail,
}

fn any_op() -> impl Strategy<Value = Op> {
    let existing = prop_oneof![Just(Existing::Keep), Just(Existing::Replace)];
    let kind = (0..4_u8, prop::option::of(1..40_u8));
    let kind = kind.prop_map(|(hangs, every)| Kind { hangs, every });
    let how = prop_oneof![2 => Just(How::Done), 1 => Just(How::Retry), 1 => Just(How::Fail)];
    // Often a handler whose lease has not run out yet.
    let which = prop_oneof![0..2_usize, any::<usize>()];
    prop_oneof![
        4 => (0..6_u8, 1..20_u8, existing, kind).prop_map(|(id, delay, existing, kind)| {
            Op::Insert { id, delay, existing, kind }
        }),
        2 => (0..6_u8).prop_map(|id| Op::Cancel { id }),
        1 => (0..6_u8, 1..20_u8).prop_map(|(id, delay)| Op::Reset { id, delay }),
        1 => (0..6_u8).prop_map(|id| Op::Run { id }),
        5 => (0..20_u8).prop_map(|seconds| Op::Advance { seconds }),
        4 => (which, how).prop_map(|(which, how)| Op::Return { which, how }),
    ]
}

/// A timer in the model.
#[derive(Clone, Debug)]
struct Modelled {
    planned: SystemTime,
    /// The time of the next attempt, or the end of the lease.
    due: SystemTime,
    attempt: u32,
    hangs: u8,
    every: Option<u8>,
    /// The number of the handler that holds the lease.
    held: Option<usize>,
    cancelled: bool,
    /// The delivery that was inserted while this one was running.
    next: Option<(SystemTime, Kind)>,
    /// The planned time before the delivery was ordered.
    plan: Option<SystemTime>,
}

impl Modelled {
    fn new(due: SystemTime, Kind { hangs, every }: Kind) -> Self {
        let (attempt, held, cancelled, next, plan) = (0, None, false, None, None);
        Self { planned: due, due, attempt, hangs, every, held, cancelled, next, plan }
    }

    /// Makes a timer that rests due now (D27).
    fn run(&mut self, now: SystemTime) {
        if self.due <= now {
            return;
        }
        if self.attempt == 0 {
            self.plan = self.plan.or(Some(self.planned));
            self.planned = now;
        }
        self.due = now;
    }

    /// Returns the plan that follows a delivery which was ordered in addition.
    fn plan(&self) -> Option<SystemTime> {
        self.plan.filter(|_| self.every.is_some())
    }

    /// Returns the timer after the end of its delivery (D16), if the attempt had begun at `began`.
    fn continued(self, began: SystemTime) -> Option<Self> {
        if let Some((due, kind)) = self.next {
            return Some(Self::new(due, kind));
        }
        let every = SECOND * u32::from(self.every?);
        let mut next = self.plan().unwrap_or(self.planned);
        while self.plan.is_none() && next <= began {
            next += every;
        }
        Some(Self::new(next, Kind { hangs: self.hangs, every: self.every }))
    }

    /// Returns the outcome of a failure, and the timer after it (D17, D18, D19).
    fn failed(self, error: &str, began: SystemTime, now: SystemTime) -> (Outcome, Option<Self>) {
        let error = error.to_owned();
        if self.cancelled {
            return (Outcome::Cancelled { error }, self.continued(began));
        }
        if self.attempt >= ATTEMPTS {
            let reason = DeadReason::Attempts;
            return (Outcome::Dead { reason, error }, self.continued(began));
        }
        let retried = Self { due: now + WAIT, held: None, ..self };
        (Outcome::Retry { wait: WAIT, error }, Some(retried))
    }
}

/// What a worker does.
#[derive(Debug)]
enum Seen {
    /// A handler hangs until it gets its result.
    Hangs(Delivery, oneshot::Sender<Verdict>),
    Ended(Attempt),
}

/// The reports of all workers, each with the number of its worker. The reports of one worker are in
/// order. A worker may report what follows an attempt before another worker reports the end of the
/// attempt.
struct Reports {
    seen: Receiver<(usize, Seen)>,
    /// The reports that arrived before the reports that they follow.
    early: Vec<(usize, Seen)>,
}

impl Reports {
    /// Returns the first report that is the next one by the model.
    fn next(&mut self, is_next: impl Fn(usize, &Seen) -> bool) -> (usize, Seen) {
        if let Some(place) = self.early.iter().position(|(worker, seen)| is_next(*worker, seen)) {
            return self.early.remove(place);
        }
        loop {
            let next = self.seen.recv_timeout(60 * SECOND);
            let (worker, seen) = next.unwrap_or_else(|_| panic!("none of {:?} is due", self.early));
            if is_next(worker, &seen) {
                return (worker, seen);
            }
            self.early.push((worker, seen));
        }
    }
}

/// A handler that hangs.
struct Hung {
    id: String,
    worker: usize,
    number: usize,
    began: SystemTime,
    result: oneshot::Sender<Verdict>,
}

/// A worker with its own clock.
struct Running {
    clock: ManualClock,
    end: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), DurableError>>,
}

impl Running {
    fn start(store: &AnyStore, number: usize, seen: &Sender<(usize, Seen)>) -> Self {
        let clock = clock();
        let timer = Timer::spawn(Builder::new().clock(clock.clone()).driver()).unwrap();
        let (end, ends) = oneshot::channel::<()>();
        let (ended, hangs) = (seen.clone(), seen.clone());
        let worker = DurableTimers::new(store.clone(), &timer).worker();
        let worker = worker
            .until(async move {
                let _ = ends.await;
            })
            .observe(move |event| {
                if let Event::Attempt(attempt) = event {
                    let _ = ended.send((number, Seen::Ended(attempt.clone())));
                }
            });
        let run = worker.run(move |delivery: Delivery| {
            let hangs = hangs.clone();
            async move {
                if delivery.attempt > u32::from(delivery.payload[0]) {
                    return Verdict::Done;
                }
                let (result, returned) = oneshot::channel();
                let _ = hangs.send((number, Seen::Hangs(delivery, result)));
                returned.await.unwrap_or(Verdict::Done)
            }
        });
        Self { clock, end, thread: std::thread::spawn(move || wait(run)) }
    }
}

struct Trial {
    place: OneFile,
    store: AnyStore,
    timers: DurableTimers,
    /// All workers. Only the clock of the last worker advances.
    workers: Vec<Running>,
    send: Sender<(usize, Seen)>,
    reports: Reports,
    hung: Vec<Hung>,
    /// The number of handlers that have hung.
    count: usize,
    model: BTreeMap<String, Modelled>,
    dead: u64,
}

impl Trial {
    fn new() -> Self {
        let place = OneFile { file: TempFile::new(), clock: clock() };
        let (store, timer) = (place.open(), place.timer());
        let timers = DurableTimers::new(store.clone(), &timer);
        let (send, seen) = channel();
        let reports = Reports { seen, early: Vec::new() };
        let workers = vec![Running::start(&store, 0, &send)];
        let (hung, count, model, dead) = (Vec::new(), 0, BTreeMap::new(), 0);
        Self { place, store, timers, workers, send, reports, hung, count, model, dead }
    }

    fn now(&self) -> SystemTime {
        self.place.now()
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Insert { id, delay, existing, kind } => self.insert(id, delay, existing, kind),
            // D7 and D8.
            Op::Cancel { id } => {
                let id = id.to_string();
                let expected = match self.model.get_mut(&id) {
                    None => Cancelled::NotFound,
                    Some(timer) if timer.held.is_some() => {
                        (timer.cancelled, timer.every) = (true, None);
                        (timer.next, timer.plan) = (None, None);
                        Cancelled::Running
                    }
                    Some(_) => {
                        self.model.remove(&id);
                        Cancelled::Removed
                    }
                };
                assert_eq!(wait(self.timers.cancel(&id)), Ok(expected));
            }
            // D9.
            Op::Reset { id, delay } => {
                let (id, at) = (id.to_string(), self.now() + SECOND * u32::from(delay));
                let expected = match self.model.get_mut(&id) {
                    None => Ok(false),
                    Some(timer) if timer.held.is_some() => Err(DurableError::Running),
                    Some(timer) => {
                        (timer.planned, timer.due, timer.attempt) = (at, at, 0);
                        timer.plan = None;
                        Ok(true)
                    }
                };
                assert_eq!(wait(self.timers.reset(&id, at)), expected);
            }
            // D27.
            Op::Run { id } => {
                let (id, now) = (id.to_string(), self.now());
                let expected = match self.model.get_mut(&id) {
                    None => Ok(false),
                    Some(timer) if timer.held.is_some() => Err(DurableError::Running),
                    Some(timer) => {
                        timer.run(now);
                        Ok(true)
                    }
                };
                assert_eq!(wait(self.timers.run_now(&id)), expected);
            }
            Op::Advance { seconds } => {
                let step = SECOND * u32::from(seconds);
                self.place.advance(step);
                self.workers.last().unwrap().clock.advance(step);
            }
            Op::Return { which, how } => {
                if !self.hung.is_empty() {
                    let place = self.hung.len() - 1 - which % self.hung.len();
                    let hung = self.hung.remove(place);
                    self.return_from(hung, how);
                }
            }
        }
        self.deliver();
        self.compare();
    }

    /// Inserts a timer (D1, D2, D3, D5).
    fn insert(&mut self, id: u8, delay: u8, existing: Existing, kind: Kind) {
        let (id, due) = (id.to_string(), self.now() + SECOND * u32::from(delay));
        let expected = match self.model.get_mut(&id) {
            Some(timer) if existing == Existing::Keep => {
                let is_same = timer.planned == due && !timer.cancelled;
                let is_kept = timer.held.is_none() || timer.every.is_some() || is_same;
                if is_kept || timer.next.is_some() {
                    Inserted::Kept
                } else {
                    (timer.next, timer.plan) = (Some((due, kind)), None);
                    Inserted::Next
                }
            }
            found => {
                let inserted = found.map_or(Inserted::New, |_| Inserted::Replaced);
                self.model.insert(id.clone(), Modelled::new(due, kind));
                inserted
            }
        };
        let options = Options::new().existing(existing).attempts(ATTEMPTS).lease(LEASE);
        let mut options = options.backoff(Backoff::new(WAIT, WAIT));
        if let Some(every) = kind.every {
            options = options.every(SECOND * u32::from(every));
        }
        let inserted = wait(self.timers.insert(&id, vec![kind.hangs], due, options));
        assert_eq!(inserted.map_err(|refused| refused.reason), Ok(expected));
    }

    /// Returns from a handler of a worker that has stopped.
    fn return_from(&mut self, hung: Hung, how: How) {
        let (id, now) = (hung.id, self.now());
        let verdict = match how {
            How::Done => Verdict::Done,
            How::Retry => Verdict::Retry("no".to_owned()),
            How::Fail => Verdict::Fail("over".to_owned()),
        };
        hung.result.send(verdict).unwrap();
        let is_its_end = |worker, seen: &Seen| {
            worker == hung.worker && matches!(seen, Seen::Ended(event) if event.id == id)
        };
        let (_, Seen::Ended(event)) = self.reports.next(is_its_end) else { unreachable!() };
        let held = self.model.get(&id).filter(|timer| timer.held == Some(hung.number)).cloned();
        let Some(timer) = held else {
            assert_eq!(event.outcome, Outcome::TooLate);
            return;
        };
        let (outcome, after) = match how {
            How::Done => (Outcome::Acknowledged, timer.continued(hung.began)),
            How::Retry => timer.failed("no", hung.began, now),
            How::Fail => {
                let last = Modelled { attempt: ATTEMPTS, ..timer };
                let (outcome, after) = last.failed("over", hung.began, now);
                (failed_for_good(outcome), after)
            }
        };
        self.end(event, outcome, after);
    }

    fn end(&mut self, event: Attempt, outcome: Outcome, after: Option<Modelled>) {
        assert_eq!(event.outcome, outcome);
        self.dead += u64::from(matches!(outcome, Outcome::Dead { .. }));
        match after {
            Some(timer) => drop(self.model.insert(event.id, timer)),
            None => drop(self.model.remove(&event.id)),
        }
    }

    /// Delivers timers (D13) and takes over leases (D14) until none is due. Stops the worker if a
    /// handler hangs.
    fn deliver(&mut self) {
        let (now, count) = (self.now(), self.count);
        while self.model.values().any(|timer| timer.due <= now) {
            let model = &self.model;
            let (worker, seen) = self.reports.next(|_, seen| is_next(model, seen));
            match seen {
                Seen::Hangs(Delivery { id, .. }, result) => {
                    let timer = self.model.get_mut(&id).expect("it exists");
                    assert!(timer.due <= now, "{id} is early");
                    let number = self.count;
                    (timer.due, timer.attempt) = (now + LEASE, timer.attempt + 1);
                    timer.held = Some(number);
                    assert!(timer.attempt <= u32::from(timer.hangs));
                    self.hung.push(Hung { id, worker, number, began: now, result });
                    self.count += 1;
                }
                Seen::Ended(event) => {
                    let timer = self.model.get(&event.id).expect("it exists").clone();
                    assert!(timer.due <= now, "{event:?} is early");
                    let (outcome, after) = match timer.held {
                        Some(_) => timer.failed("the lease ran out", now, now),
                        None => (Outcome::Acknowledged, timer.continued(now)),
                    };
                    self.end(event, outcome, after);
                }
            }
        }
        assert!(self.reports.early.is_empty(), "more was delivered than was due");
        if self.count > count {
            let number = self.workers.len();
            self.workers.push(Running::start(&self.store, number, &self.send));
        }
    }

    fn compare(&self) {
        let kept = wait(self.timers.list(None, 99)).unwrap();
        let kept = kept
            .into_iter()
            .map(|kept| (kept.id, kept.planned, kept.due, kept.attempts, kept.state, kept.next));
        let model = self.model.iter().map(|(id, timer)| {
            let state = match timer.held {
                Some(_) if timer.cancelled => TimerState::Cancelling,
                Some(_) => TimerState::Running,
                None if timer.attempt > 0 => TimerState::Retrying,
                None => TimerState::Resting,
            };
            let next = timer.next.map(|(planned, _)| planned).or(timer.plan());
            (id.clone(), timer.planned, timer.due, timer.attempt, state, next)
        });
        assert_eq!(kept.collect::<Vec<_>>(), model.collect::<Vec<_>>());
        assert_eq!(wait(self.timers.dead_len()), Ok(self.dead));
    }

    /// Returns from all handlers, and ends all workers.
    fn stop(mut self) {
        while let Some(hung) = self.hung.pop() {
            self.return_from(hung, How::Done);
            self.deliver();
        }
        self.compare();
        for Running { end, thread, .. } in self.workers {
            drop(end);
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
        drop(self.send);
        assert_eq!(self.reports.seen.iter().count(), 0, "more was delivered than was due");
    }
}

/// Returns `true` if a report is about the attempt that is the next one of its timer, or about the
/// end of a lease that has run out.
fn is_next(model: &BTreeMap<String, Modelled>, seen: &Seen) -> bool {
    let (id, planned, attempt, is_called) = match seen {
        Seen::Hangs(delivery, _) => (&delivery.id, delivery.planned, delivery.attempt, true),
        Seen::Ended(event) => (&event.id, event.planned, event.attempt, event.duration.is_some()),
    };
    model.get(id).is_some_and(|timer| {
        let next = timer.attempt + u32::from(is_called);
        timer.held.is_none() == is_called && (planned, attempt) == (timer.planned, next)
    })
}

fn failed_for_good(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Dead { error, .. } => Outcome::Dead { reason: DeadReason::Failed, error },
        outcome => outcome,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        // A report that does not come fails a run after a minute.
        max_shrink_time: 120_000,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn leases_that_run_out_follow_the_model(ops in prop::collection::vec(any_op(), 1..60)) {
        let mut trial = Trial::new();
        for op in &ops {
            trial.apply(op);
        }
        trial.apply(&Op::Advance { seconds: 100 });
        assert!(trial.now() > start());
        trial.stop();
    }
}
