//! Durable timers against a model, with random operations and crashes in virtual time.
//!
//! A crash is a copy of the file that is taken while the store is open, as a kill would leave it.
//! The test continues with the copy. Numbers such as D7 are the transitions in `docs/DESIGN.md`.

use crate::common::bench::{Bench, MILLISECOND, OneFile, Running, SECOND, TempFile, start, wait};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{
    Backoff, Cancelled, DeadReason, DurableError, Existing, Inserted, Misfire, Options, Outcome,
    TimerState, Verdict, When,
};

#[derive(Clone, Debug)]
enum Op {
    Schedule { id: u8, delay: u16, existing: Existing, kind: Kind },
    Cancel { id: u8 },
    Reschedule { id: u8, delay: u16 },
    Run { id: u8 },
    Pause { id: u8, pauses: bool },
    PauseAll { pauses: bool },
    Advance { seconds: u16 },
    Reopen,
    Crash,
}

/// The options of a timer.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// The number of attempts of each delivery that fail.
    failures: u8,
    /// The interval in seconds, and the window.
    every: Option<(u8, Option<u8>)>,
    end: End,
}

/// What a handler does otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Succeeds,
    /// Fails for good after the other failures.
    Fails,
    /// Ends the repetition after the other failures.
    Stops,
    /// Asks to be delivered again, without a counted attempt, in the first seconds.
    Snoozes,
}

fn any_op() -> impl Strategy<Value = Op> {
    let existing = prop_oneof![
        Just(Existing::Keep),
        Just(Existing::Replace),
        Just(Existing::Refuse),
        Just(Existing::Update)
    ];
    let every = prop::option::of((1..40_u8, prop::option::of(0..60_u8)));
    let end = prop_oneof![
        5 => Just(End::Succeeds),
        1 => Just(End::Fails),
        1 => Just(End::Stops),
        2 => Just(End::Snoozes)
    ];
    let kind = (0..3_u8, every, end);
    let kind = kind.prop_map(|(failures, every, end)| Kind { failures, every, end });
    // Within the window, and beyond it.
    let delay = || prop_oneof![0..9_u16, 0..99_u16];
    prop_oneof![
        6 => (0..12_u8, delay(), existing, kind).prop_map(|(id, delay, existing, kind)| {
            Op::Schedule { id, delay, existing, kind }
        }),
        2 => (0..12_u8).prop_map(|id| Op::Cancel { id }),
        2 => (0..12_u8, delay()).prop_map(|(id, delay)| Op::Reschedule { id, delay }),
        2 => (0..12_u8).prop_map(|id| Op::Run { id }),
        2 => (0..12_u8, any::<bool>()).prop_map(|(id, pauses)| Op::Pause { id, pauses }),
        1 => any::<bool>().prop_map(|pauses| Op::PauseAll { pauses }),
        4 => delay().prop_map(|seconds| Op::Advance { seconds }),
        1 => Just(Op::Reopen),
        1 => Just(Op::Crash),
    ]
}

/// A timer in the model.
#[derive(Clone, Debug)]
struct Modelled {
    planned: SystemTime,
    due: SystemTime,
    attempt: u32,
    paused: bool,
    /// Set if the next attempt begins although the timer is paused.
    runs: bool,
    kind: Kind,
    /// The planned time before the delivery was ordered.
    plan: Option<SystemTime>,
}

impl Modelled {
    fn new(due: SystemTime, kind: Kind) -> Self {
        let (attempt, paused, runs, plan) = (0, false, false, None);
        Self { planned: due, due, attempt, paused, runs, kind, plan }
    }

    fn is_parked(&self) -> bool {
        self.paused && !self.runs
    }

    /// Makes the timer due now (D27).
    fn run(&mut self, now: SystemTime) {
        if !self.is_parked() && self.due <= now {
            return;
        }
        self.runs = self.paused;
        if self.attempt > 0 || self.due != self.planned {
            self.due = self.due.min(now);
            return;
        }
        self.plan = self.plan.or(Some(self.planned));
        (self.planned, self.due) = (now, now);
    }

    /// Pauses the timer (D10) or resumes it (D11).
    fn pause(&mut self, pauses: bool) {
        (self.paused, self.runs) = (pauses, false);
        if pauses
            && self.attempt == 0
            && let Some(plan) = self.plan.take()
        {
            (self.planned, self.due) = (plan, plan);
        }
    }

    /// Returns the plan that follows a delivery which was ordered in addition.
    fn plan(&self) -> Option<SystemTime> {
        self.plan.filter(|_| self.kind.every.is_some())
    }

    fn window(&self) -> Option<Duration> {
        let (_, window) = self.kind.every?;
        window.map(|seconds| SECOND * u32::from(seconds))
    }

    /// Returns the first occurrence after a time.
    fn next(&self, after: SystemTime) -> Option<SystemTime> {
        let (interval, _) = self.kind.every?;
        let mut next = self.planned;
        while next <= after {
            next += SECOND * u32::from(interval);
        }
        Some(next)
    }
}

struct Trial {
    bench: Bench<OneFile>,
    running: Option<Running>,
    model: BTreeMap<String, Modelled>,
    /// The number of dead letters.
    dead: u64,
    paused: bool,
}

/// How long after the planned time timers are snoozed, and the wait.
const SNOOZES: [Duration; 2] = [Duration::from_secs(7), Duration::from_secs(3)];

/// The wait after each failure.
const WAIT: Duration = SECOND;

impl Trial {
    fn new() -> Self {
        let bench = Bench::new(OneFile::new());
        let running = Some(work(&bench));
        Self { bench, running, model: BTreeMap::new(), dead: 0, paused: false }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Schedule { id, delay, existing, kind } => {
                self.insert(format!("{id}"), *delay, *existing, *kind);
            }
            // D7, because no attempt is running between two operations.
            Op::Cancel { id } => {
                let id = format!("{id}");
                let cancelled = wait(self.bench.timers().cancel(&id));
                let removed = self.model.remove(&id).is_some();
                let expected = if removed { Cancelled::Removed } else { Cancelled::NotFound };
                assert_eq!(cancelled, Ok(expected));
            }
            // D9.
            Op::Reschedule { id, delay } => {
                let id = format!("{id}");
                let at = self.bench.now() + SECOND * u32::from(*delay) + SECOND;
                let moved = wait(self.bench.timers().reset(&id, at));
                assert_eq!(moved, Ok(self.model.contains_key(&id)));
                if let Some(timer) = self.model.get_mut(&id) {
                    (timer.planned, timer.due, timer.attempt) = (at, at, 0);
                    (timer.runs, timer.plan) = (false, None);
                }
            }
            // D27.
            Op::Run { id } => {
                let (id, now) = (format!("{id}"), self.bench.now());
                let runs = wait(self.bench.timers().run_now(&id));
                assert_eq!(runs, Ok(self.model.contains_key(&id)));
                if let Some(timer) = self.model.get_mut(&id) {
                    timer.run(now);
                }
            }
            // D10 and D11.
            Op::Pause { id, pauses } => {
                let id = format!("{id}");
                let timers = self.bench.timers();
                let paused = match pauses {
                    true => wait(timers.pause_timer(&id)),
                    false => wait(timers.resume_timer(&id)),
                };
                assert_eq!(paused, Ok(self.model.contains_key(&id)));
                if let Some(timer) = self.model.get_mut(&id) {
                    timer.pause(*pauses);
                }
            }
            // D12.
            Op::PauseAll { pauses } => {
                let timers = self.bench.timers();
                let paused = if *pauses { wait(timers.pause()) } else { wait(timers.resume()) };
                assert_eq!(paused, Ok(()));
                self.paused = *pauses;
            }
            Op::Advance { seconds } => {
                self.bench.advance(SECOND * u32::from(*seconds));
            }
            Op::Reopen => {
                self.stop();
                self.bench.reopen();
                self.running = Some(work(&self.bench));
            }
            Op::Crash => self.crash(),
        }
        self.deliver();
        self.compare();
    }

    /// Inserts a timer (D1, D2, D4, D5, D6).
    fn insert(&mut self, id: String, delay: u16, existing: Existing, kind: Kind) {
        let mut options = Options::new().existing(existing).backoff(Backoff::new(WAIT, WAIT));
        if let Some((interval, window)) = kind.every {
            options = options.every(SECOND * u32::from(interval));
            if let Some(window) = window {
                options = options.misfire(Misfire::SkipAfter(SECOND * u32::from(window)));
            }
        }
        let now = self.bench.now();
        let found = self.model.get(&id);
        let same = found.map(|timer| timer.plan.unwrap_or(timer.planned));
        let same = same.filter(|_| delay % 2 == 1);
        let delay = SECOND * u32::from(delay) + SECOND;
        let when = same.map_or(When::After(delay), When::At);
        let due = same.unwrap_or(now + delay);
        let payload = vec![kind.failures, kind.end as u8];
        let scheduled = wait(self.bench.timers().insert(&id, payload, when, options));
        let expected = match (found.is_some(), existing) {
            (false, _) => Ok(Inserted::New),
            (true, Existing::Keep) => Ok(Inserted::Kept),
            (true, Existing::Replace) => Ok(Inserted::Replaced),
            (true, Existing::Update) => Ok(Inserted::Updated),
            (true, Existing::Refuse) => Err(DurableError::Exists),
        };
        let new = Modelled::new(due, kind);
        match (found.cloned(), expected.clone()) {
            (Some(timer), Ok(Inserted::Updated)) if same.is_some() => {
                self.model.insert(id, Modelled { kind, ..timer });
            }
            (Some(Modelled { paused, .. }), Ok(Inserted::Updated)) => {
                self.model.insert(id, Modelled { paused, ..new });
            }
            (_, Ok(Inserted::New | Inserted::Replaced)) => drop(self.model.insert(id, new)),
            _ => {}
        }
        assert_eq!(scheduled.map_err(|error| error.reason), expected);
    }

    fn is_due(&self, timer: &Modelled) -> bool {
        !self.paused && !timer.is_parked() && timer.due <= self.bench.now()
    }

    /// Delivers timers (D13) until none is due.
    fn deliver(&mut self) {
        while self.model.values().any(|timer| self.is_due(timer)) {
            let event = self.running.as_ref().unwrap().next();
            let timer = self.model.get(&event.id).expect("it was scheduled");
            assert!(self.is_due(timer), "{event:?} is early or paused");
            assert_eq!((event.planned, event.attempt), (timer.planned, timer.attempt + 1));
            let (outcome, after) = self.outcome(timer.clone());
            assert_eq!(event.outcome, outcome);
            self.dead += u64::from(matches!(outcome, Outcome::Dead { .. }));
            match after {
                Some(timer) => drop(self.model.insert(event.id, timer)),
                None => drop(self.model.remove(&event.id)),
            }
        }
    }

    /// Returns the outcome of the next attempt of a timer, and the timer after it (D16, D17, D18).
    fn outcome(&self, timer: Modelled) -> (Outcome, Option<Modelled>) {
        let (now, attempt) = (self.bench.now(), timer.attempt + 1);
        let continued = |next: Option<SystemTime>| {
            let (paused, kind) = (timer.paused, timer.kind);
            next.map(|next| Modelled { paused, ..Modelled::new(next, kind) })
        };
        let late = now.duration_since(timer.planned).expect("it is due");
        if let Some(window) = timer.window().filter(|window| attempt == 1 && late > *window) {
            let by_rule = timer.next((now - window - MILLISECOND).max(timer.planned));
            let next = timer.plan().or(by_rule);
            return (Outcome::Missed { late, next }, continued(next));
        }
        let [end, wait] = SNOOZES;
        if timer.kind.end == End::Snoozes && late < end {
            let outcome = Outcome::Again { wait, counted: false };
            return (outcome, Some(Modelled { due: now + wait, ..timer }));
        }
        if attempt > u32::from(timer.kind.failures) {
            let (reason, error) = (DeadReason::Failed, "over".to_owned());
            let outcome = match timer.kind.end {
                End::Fails | End::Stops => Outcome::Dead { reason, error },
                _ => Outcome::Acknowledged,
            };
            let stops = timer.kind.end == End::Stops;
            let next = timer.plan().or(timer.next(now)).filter(|_| !stops);
            return (outcome, continued(next));
        }
        let outcome = Outcome::Retry { wait: WAIT, error: "no".to_owned() };
        (outcome, Some(Modelled { due: now + WAIT, attempt, runs: false, ..timer }))
    }

    fn compare(&self) {
        let kept = wait(self.bench.timers().list(None, 99)).unwrap();
        let kept = kept.into_iter().map(|kept| {
            let paused = kept.state == TimerState::Paused;
            (kept.id, kept.planned, kept.due, kept.attempts, paused, kept.next)
        });
        let kept: Vec<_> = kept.collect();
        let model = self.model.iter().map(|(id, timer)| {
            let parked = timer.is_parked();
            (id.clone(), timer.planned, timer.due, timer.attempt, parked, timer.plan())
        });
        let model: Vec<_> = model.collect();
        assert_eq!(kept, model);
        assert_eq!(wait(self.bench.timers().len()), Ok(model.len() as u64));
        assert_eq!(wait(self.bench.timers().dead_len()), Ok(self.dead));
    }

    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            assert_eq!(running.stop(), [], "more was delivered than was due");
        }
    }

    fn crash(&mut self) {
        let file = TempFile::new();
        std::fs::copy(&self.bench.place.file.0, &file.0).unwrap();
        self.stop();
        let clock = self.bench.place.clock.clone();
        self.bench = Bench::new(OneFile { file, clock });
        self.running = Some(work(&self.bench));
    }
}

fn work(bench: &Bench<OneFile>) -> Running {
    let clock = bench.place.clock.clone();
    bench.work_by(4, move |delivery| {
        let late = clock.wall().duration_since(delivery.planned);
        async move {
            let end = delivery.payload[1];
            let [snoozes, after] = SNOOZES;
            if end == End::Snoozes as u8 && late.is_ok_and(|late| late < snoozes) {
                return Verdict::Again { after, counted: false };
            }
            match delivery.attempt <= u32::from(delivery.payload[0]) {
                true => Verdict::Retry("no".to_owned()),
                false if end == End::Fails as u8 => Verdict::Fail("over".to_owned()),
                false if end == End::Stops as u8 => Verdict::Stop("over".to_owned()),
                false => Verdict::Done,
            }
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn the_store_is_its_model(ops in prop::collection::vec(any_op(), 1..60)) {
        let mut trial = Trial::new();
        for op in &ops {
            trial.apply(op);
        }
        // All resting timers are delivered in the end, and repetitions go on until then.
        let ids: Vec<String> = trial.model.keys().cloned().collect();
        for id in ids {
            let repeats = trial.model[&id].kind.every.is_some();
            let id: u8 = id.parse().unwrap();
            let op = if repeats { Op::Cancel { id } } else { Op::Pause { id, pauses: false } };
            trial.apply(&op);
        }
        trial.apply(&Op::PauseAll { pauses: false });
        for _ in 0..5 {
            trial.apply(&Op::Advance { seconds: 100 });
        }
        assert!(trial.model.is_empty() && trial.bench.now() > start());
        trial.stop();
    }
}
