//! Durable timers against a model, with random operations and crashes in virtual time.
//!
//! A crash is a copy of the file that is taken while the store is open, as a kill would leave it.
//! The test continues with the copy.

use crate::common::bench::{Bench, OneFile, Running, SECOND, TempFile, start, wait};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{Backoff, DurableError, Existing, Inserted, Options, Outcome};

#[derive(Clone, Debug)]
enum Op {
    Schedule { id: u8, delay: u16, existing: Existing, failures: u8 },
    Cancel { id: u8 },
    Reschedule { id: u8, delay: u16 },
    Advance { seconds: u16 },
    Reopen,
    Crash,
}

fn any_op() -> impl Strategy<Value = Op> {
    let existing =
        prop_oneof![Just(Existing::Keep), Just(Existing::Replace), Just(Existing::Refuse)];
    // Within the window, and beyond it.
    let delay = || prop_oneof![0..9_u16, 0..99_u16];
    prop_oneof![
        6 => (0..12_u8, delay(), existing, 0..3_u8).prop_map(|(id, delay, existing, failures)| {
            Op::Schedule { id, delay, existing, failures }
        }),
        2 => (0..12_u8).prop_map(|id| Op::Cancel { id }),
        2 => (0..12_u8, delay()).prop_map(|(id, delay)| Op::Reschedule { id, delay }),
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
    failures: u8,
}

struct Trial {
    bench: Bench<OneFile>,
    running: Option<Running>,
    model: BTreeMap<String, Modelled>,
}

/// The wait after each failure.
const WAIT: Duration = SECOND;

impl Trial {
    fn new() -> Self {
        let bench = Bench::new(OneFile::new());
        let running = Some(work(&bench));
        Self { bench, running, model: BTreeMap::new() }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Schedule { id, delay, existing, failures } => {
                self.insert(format!("{id}"), *delay, *existing, *failures);
            }
            Op::Cancel { id } => {
                let id = format!("{id}");
                let cancelled = wait(self.bench.timers().cancel(&id));
                assert_eq!(cancelled, Ok(self.model.remove(&id).is_some()));
            }
            Op::Reschedule { id, delay } => {
                let id = format!("{id}");
                let at = self.bench.now() + SECOND * u32::from(*delay) + SECOND;
                let moved = wait(self.bench.timers().reset(&id, at));
                assert_eq!(moved, Ok(self.model.contains_key(&id)));
                if let Some(timer) = self.model.get_mut(&id) {
                    (timer.planned, timer.due, timer.attempt) = (at, at, 0);
                }
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

    fn insert(&mut self, id: String, delay: u16, existing: Existing, failures: u8) {
        let options = Options::new().existing(existing).backoff(Backoff::new(WAIT, WAIT));
        let delay = SECOND * u32::from(delay) + SECOND;
        let due = self.bench.now() + delay;
        let scheduled = wait(self.bench.timers().insert(&id, vec![failures], delay, options));
        let expected = match (self.model.contains_key(&id), existing) {
            (false, _) => Ok(Inserted::New),
            (true, Existing::Keep) => Ok(Inserted::Kept),
            (true, Existing::Replace) => Ok(Inserted::Replaced),
            (true, Existing::Refuse) => Err(DurableError::Exists),
        };
        if matches!(expected, Ok(Inserted::New | Inserted::Replaced)) {
            self.model.insert(id, Modelled { planned: due, due, attempt: 0, failures });
        }
        assert_eq!(scheduled.map_err(|error| error.reason), expected);
    }

    /// Delivers timers until none is due.
    fn deliver(&mut self) {
        let now = self.bench.now();
        let mut due: usize = self.model.values().filter(|timer| timer.due <= now).count();
        while due > 0 {
            let event = self.running.as_ref().unwrap().next();
            let timer = self.model.get_mut(&event.id).expect("it was scheduled");
            assert!(timer.due <= now, "{event:?} is early");
            timer.attempt += 1;
            assert_eq!((event.planned, event.attempt), (timer.planned, timer.attempt));
            if timer.attempt > u32::from(timer.failures) {
                assert_eq!(event.outcome, Outcome::Acknowledged);
                self.model.remove(&event.id);
            } else {
                let outcome = Outcome::Retry { wait: WAIT, error: "no".to_owned() };
                assert_eq!(event.outcome, outcome);
                timer.due = now + WAIT;
            }
            due -= 1;
        }
    }

    fn compare(&self) {
        let kept = wait(self.bench.timers().list(None, 99)).unwrap();
        let kept: Vec<_> =
            kept.into_iter().map(|kept| (kept.id, kept.planned, kept.due, kept.attempts)).collect();
        let model = self.model.iter();
        let model: Vec<_> = model
            .map(|(id, timer)| (id.clone(), timer.planned, timer.due, timer.attempt))
            .collect();
        assert_eq!(kept, model);
        assert_eq!(wait(self.bench.timers().len()), Ok(model.len() as u64));
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
    bench.work(4, |delivery| async move {
        let fails = delivery.attempt <= u32::from(delivery.payload[0]);
        if fails { Err("no") } else { Ok(()) }
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
        // All resting timers are delivered in the end.
        for _ in 0..5 {
            trial.apply(&Op::Advance { seconds: 100 });
        }
        assert!(trial.model.is_empty() && trial.bench.now() > start());
        trial.stop();
    }
}
