//! Timers beside a transaction of another client that stays open, with a snapshot of the time
//! before them.
//!
//! The dead rows of all that happens meanwhile stay where they are. The throughput is the number of
//! timers per second that are inserted, leased and acknowledged, as fast as that goes.

use crate::Options;
use crate::postgres_server::PostgresServer;
use crate::report::{Held, Side};
use hdrhistogram::Histogram;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;
use tokio::time::{interval, sleep};
use tourbillon_durable::{DurableTimers, Options as TimerOptions};
use tourbillon_durable_measure::subject::{PAYLOAD, Subject};

/// The number of timers of a measurement of the throughput.
const BURST: usize = 20_000;

/// The time before it is due at which a timer is inserted.
const AHEAD: Duration = Duration::from_secs(2);

/// The lateness of timers in microseconds.
type Late = Arc<Mutex<Histogram<u64>>>;

/// A worker with what it has delivered.
pub(crate) struct Work {
    late: Late,
    end: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<(), tourbillon_durable::DurableError>>,
}

impl Work {
    pub(crate) fn start(timers: &DurableTimers, concurrency: usize) -> Self {
        let late: Late = Arc::new(Mutex::new(Histogram::new_with_max(600_000_000, 3).unwrap()));
        let (seen, (end, ends)) = (Arc::clone(&late), oneshot::channel::<()>());
        let worker = timers.worker().concurrency(concurrency).until(async move {
            let _ = ends.await;
        });
        let run = worker.run(move |delivery| {
            let begun = SystemTime::now().duration_since(delivery.planned).expect("never early");
            seen.lock().unwrap().saturating_record(u64::try_from(begun.as_micros()).unwrap());
            std::future::ready(Ok::<(), String>(()))
        });
        Self { late, end, task: tokio::spawn(run) }
    }

    /// Waits until so many timers have been delivered.
    pub(crate) async fn until(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.late.lock().unwrap().len() < count as u64 {
            assert!(Instant::now() < deadline, "a timer is never delivered");
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn end(self) {
        drop(self.end);
        self.task.await.unwrap().unwrap();
    }
}

/// Returns the throughput with timers that are due at once.
async fn throughput(subject: &Subject<PostgresServer>, options: &Options, name: &str) -> f64 {
    let work = Work::start(&subject.timers, options.concurrency);
    sleep(Duration::from_secs(1)).await;
    let (begun, timers, name) = (Instant::now(), subject.timers.clone(), name.to_owned());
    let callers = options.callers.first().copied().unwrap_or(256);
    tourbillon_durable_measure::each(callers, BURST, move |number| {
        let (timers, id) = (timers.clone(), format!("{name} {number}"));
        async move {
            let options = TimerOptions::new();
            timers.insert(&id, PAYLOAD, Duration::ZERO, options).await.unwrap();
        }
    })
    .await;
    work.until(BURST).await;
    let throughput = BURST as f64 / begun.elapsed().as_secs_f64();
    work.end().await;
    throughput
}

/// Inserts timers at a constant rate, each shortly before it is due, and measures the lateness of
/// those that were due in the last third of the time.
async fn stream(
    subject: &Subject<PostgresServer>,
    options: &Options,
    seconds: u64,
    name: &str,
) -> Side {
    let work = Work::start(&subject.timers, options.concurrency);
    let count = options.held_rate * usize::try_from(seconds).unwrap();
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(options.held_rate).unwrap());
    let mut inserts = tokio::task::JoinSet::new();
    let mut before = 0;
    for number in 0..count {
        ticks.tick().await;
        let (timers, id) = (subject.timers.clone(), format!("{name} {number}"));
        inserts.spawn(async move {
            timers.insert(&id, PAYLOAD, AHEAD, TimerOptions::new()).await.unwrap();
        });
        while inserts.try_join_next().is_some() {}
        if number == count * 2 / 3 {
            let mut late = work.late.lock().unwrap();
            before = late.len();
            late.reset();
        }
    }
    while let Some(inserted) = inserts.join_next().await {
        inserted.unwrap();
    }
    work.until(count - usize::try_from(before).unwrap()).await;
    let late = work.late.lock().unwrap().clone();
    work.end().await;
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|q| late.value_at_quantile(q) as f64 / 1000.0);
    Side {
        p50,
        p99,
        most,
        throughput: throughput(subject, options, &format!("{name} burst")).await,
    }
}

pub(crate) async fn measure(subject: &Subject<PostgresServer>, options: &Options) -> Held {
    let server = &subject.server;
    let free = stream(subject, options, options.held.min(60), "free").await;
    let holder = server.hold_snapshot();
    let held = stream(subject, options, options.held, "held").await;
    assert!(server.holds_snapshot(), "it was open all the time");
    let dead = server.order("select sum(n_dead_tup) from pg_stat_user_tables").parse().unwrap();
    server.release_snapshot(holder);
    Held { seconds: options.held, rate: options.held_rate, free, held, dead }
}
