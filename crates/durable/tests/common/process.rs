//! The store handle and the workers of one process on a server, in real time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use super::bench::{SECOND, wait};
use futures_channel::oneshot;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{
    AnyStore, Backoff, Delivery, DurableError, DurableTimers, Event, Options, Outcome,
};

/// How long calls are retried in tests, even on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a runtime for the connections of a store.
pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("threads start")
}

pub(crate) fn quick() -> Options {
    Options::new().backoff(Backoff::new(SECOND / 10, SECOND)).attempts(5)
}

/// The store handle of one process in real time.
pub(crate) struct Process {
    pub(crate) timers: DurableTimers,
    // Dropped after the timers, because their connections run in it.
    pub(crate) runtime: Runtime,
}

/// The failures of a handler or an observer. A panic would not do, because a handler's panic is a
/// failed attempt, which is retried, and an observer's panic has no effect.
#[derive(Clone, Default)]
pub(crate) struct Wrong(Arc<Mutex<Vec<String>>>);

impl Wrong {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn has_not_happened(&self) {
        assert_eq!(*self.0.lock().unwrap(), [""; 0]);
    }
}

/// A worker and the ids that it has acknowledged.
pub(crate) struct Work {
    pub(crate) acknowledged: Receiver<String>,
    pub(crate) wrong: Wrong,
    pub(crate) end: oneshot::Sender<()>,
    pub(crate) thread: JoinHandle<Result<(), DurableError>>,
}

impl Process {
    pub(crate) fn of(store: impl Into<AnyStore>, runtime: Runtime) -> Self {
        let timer = Timer::spawn(Builder::new().driver()).unwrap();
        Self { timers: DurableTimers::new(store, &timer), runtime }
    }

    pub(crate) fn work(&self) -> Work {
        self.work_at(64)
    }

    /// Runs a worker with this concurrency.
    pub(crate) fn work_at(&self, places: usize) -> Work {
        let (send, acknowledged) = channel();
        let (end, ends) = oneshot::channel::<()>();
        let worker = self.timers.worker().concurrency(places).until(async move {
            let _ = ends.await;
        });
        let wrong = Wrong::default();
        let (dead, early) = (wrong.clone(), wrong.clone());
        let worker = worker.observe(move |event| {
            let Event::Attempt(event) = event else { return };
            if matches!(event.outcome, Outcome::Dead { .. }) {
                dead.note(format!("{event:?}"));
            }
            if event.outcome == Outcome::Acknowledged {
                send.send(event.id.clone()).unwrap();
            }
        });
        let run = worker.run(move |delivery| {
            if SystemTime::now() < delivery.planned {
                early.note(format!("{} is early", delivery.id));
            }
            async { Ok::<(), String>(()) }
        });
        Work { acknowledged, wrong, end, thread: std::thread::spawn(move || wait(run)) }
    }
}

impl Work {
    pub(crate) fn next(&self) -> String {
        self.acknowledged.recv_timeout(60 * SECOND).expect("an attempt ends")
    }

    pub(crate) fn stop(self) -> Vec<String> {
        drop(self.end);
        assert_eq!(self.thread.join().unwrap(), Ok(()));
        self.wrong.has_not_happened();
        self.acknowledged.iter().collect()
    }
}

/// A timer that a worker was given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) planned: SystemTime,
    /// The lateness of the delivery.
    pub(crate) late: Duration,
}

/// A worker that acknowledges everything, and records the times.
pub(crate) struct Watch {
    pub(crate) delivered: Receiver<Seen>,
    wrong: Wrong,
    end: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), DurableError>>,
}

impl Watch {
    pub(crate) fn over(process: &Process) -> Self {
        let (send, delivered) = channel();
        let (end, ends) = oneshot::channel::<()>();
        let worker = process.timers.worker().until(async move {
            let _ = ends.await;
        });
        let wrong = Wrong::default();
        let early = wrong.clone();
        let run = worker.run(move |Delivery { id, planned, .. }| {
            let late = SystemTime::now().duration_since(planned);
            if late.is_err() {
                early.note(format!("{id} is early"));
            }
            send.send(Seen { id, planned, late: late.unwrap_or_default() }).unwrap();
            async { Ok::<(), String>(()) }
        });
        Self { delivered, wrong, end, thread: std::thread::spawn(move || wait(run)) }
    }

    /// Ends the worker. Returns the deliveries that were not taken yet.
    pub(crate) fn stop(self) -> Vec<Seen> {
        drop(self.end);
        assert_eq!(self.thread.join().unwrap(), Ok(()));
        self.wrong.has_not_happened();
        self.delivered.iter().collect()
    }
}

/// Returns the number of deliveries planned from a time on, with the 99th percentile and the
/// maximum of their lateness.
pub(crate) fn lateness(seen: &[Seen], from: SystemTime) -> (usize, Duration, Duration) {
    let since = seen.iter().filter(|seen| seen.planned >= from);
    let mut late: Vec<Duration> = since.map(|seen| seen.late).collect();
    late.sort_unstable();
    let worst = late.last().expect("there are some");
    (late.len(), late[late.len() * 99 / 100], *worst)
}

/// Waits until no timer is left, and ends the workers.
pub(crate) fn all_are_acknowledged_once(timers: &DurableTimers, work: Vec<Work>, all: Vec<String>) {
    let begun = SystemTime::now();
    while wait(timers.len()) != Ok(0) {
        assert!(begun.elapsed().unwrap() < 60 * SECOND);
        std::thread::sleep(SECOND / 20);
    }
    let acknowledged: Vec<String> = work.into_iter().flat_map(Work::stop).collect();
    assert_eq!(acknowledged.len(), all.len(), "each once");
    assert_eq!(acknowledged.into_iter().collect::<BTreeSet<_>>(), all.into_iter().collect());
}

pub(crate) fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("timer {number:04}")).collect()
}
