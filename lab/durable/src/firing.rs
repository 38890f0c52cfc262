//! Timers at rest, and timers that fire among them, with their costs and lateness.

#![allow(clippy::disallowed_methods, reason = "real time is measured here")]
#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a measurement panics if it fails"
)]

use crate::subject::{Figures, Subject, after, due, own_cpu};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tourbillon_durable::{DurableError, DurableTimers};

/// The number of callers that insert the resting timers.
const CALLERS: usize = 1024;

/// Timers at rest.
#[derive(Debug, Serialize)]
pub struct Resting {
    /// The number of resting timers.
    pub count: usize,
    /// The number of timers that were inserted per second.
    pub scheduled: f64,
    /// Bytes of the server's memory per timer.
    pub bytes: f64,
    /// Commands per second with a worker, including commands in scripts.
    pub commands: f64,
}

/// Timers that fired.
#[derive(Debug, Serialize)]
pub struct Firing {
    /// The number of timers that were due per second.
    pub rate: usize,
    /// The number of timers that were delivered per second, until the last of them.
    pub a_second: f64,
    /// Commands per second, including commands in scripts.
    pub commands: f64,
    /// Processors that the server used.
    pub server: f64,
    /// Processors that this process used.
    pub client: f64,
    /// Milliseconds from the planned time to the beginning of the handler, the median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub most: f64,
}

/// Timers that were overdue.
#[derive(Debug, Serialize)]
pub struct CatchUp {
    /// Their number.
    pub count: usize,
    /// The number of timers that were delivered per second, until the last of them.
    pub a_second: f64,
    /// Microseconds of processor time of the server per timer.
    pub server: f64,
    /// Microseconds of processor time of this process per timer.
    pub client: f64,
}

impl fmt::Display for Resting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, scheduled, bytes, commands } = self;
        writeln!(f, "| resting | scheduled a second | bytes a timer | commands a second |")?;
        writeln!(f, "|---:|---:|---:|---:|")?;
        write!(f, "| {count} | {scheduled:.0} | {bytes:.0} | {commands:.1} |")
    }
}

impl fmt::Display for Firing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, a_second, commands, server, client, p50, p99, most } = self;
        writeln!(
            f,
            "| due a second | delivered | commands a second | server, processors \
             | client, processors | late p50, ms | p99 | most |"
        )?;
        writeln!(f, "|---:|---:|---:|---:|---:|---:|---:|---:|")?;
        write!(
            f,
            "| {rate} | {a_second:.0} | {commands:.0} | {server:.2} | {client:.2} \
             | {p50:.2} | {p99:.2} | {most:.2} |"
        )
    }
}

impl fmt::Display for CatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, a_second, server, client } = self;
        writeln!(
            f,
            "| overdue after an hour | delivered a second | server, µs a timer | client, µs |"
        )?;
        writeln!(f, "|---:|---:|---:|---:|")?;
        write!(f, "| {count} | {a_second:.0} | {server:.1} | {client:.1} |")
    }
}

/// The lateness of timers in microseconds, and their number.
type Latenesses = Arc<Mutex<Histogram<u64>>>;

/// A worker that is running.
struct Work {
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<(), DurableError>>,
}

impl Work {
    fn start(timers: &DurableTimers, concurrency: usize, late: Latenesses) -> Self {
        let (end, ends) = oneshot::channel::<()>();
        let worker = timers.worker().concurrency(concurrency).until(async move {
            let _ = ends.await;
        });
        let run = worker.run(move |delivery| {
            let begun = SystemTime::now().duration_since(delivery.planned).expect("never early");
            late.lock().unwrap().saturating_record(u64::try_from(begun.as_micros()).unwrap());
            std::future::ready(Ok::<(), String>(()))
        });
        Self { end, task: tokio::spawn(run) }
    }

    async fn stop(self) {
        drop(self.end);
        self.task.await.unwrap().unwrap();
    }
}

impl<S: Figures> Subject<S> {
    /// Inserts resting timers, and measures the requests of a worker.
    pub async fn rest(&self, count: usize, seconds: u64) -> Resting {
        let start = SystemTime::now();
        let insert = self.schedule_from(0, CALLERS, count, move |number| after(start, due(number)));
        self.rest_after(insert, count, seconds).await
    }

    /// Like [`rest`](Self::rest), with timers that are inserted in another way.
    pub async fn rest_after(
        &self,
        insert: impl Future<Output = ()>,
        count: usize,
        seconds: u64,
    ) -> Resting {
        let (before, begun) = (self.server.bytes(), Instant::now());
        insert.await;
        let scheduled = count as f64 / begun.elapsed().as_secs_f64();
        let bytes = (self.server.bytes() - before) / count as f64;
        let work = Work::start(&self.timers, 1, histogram());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let commands = self.server.commands();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        // One of the commands read this figure.
        let commands = (self.server.commands() - commands - 1.0) / seconds as f64;
        work.stop().await;
        Resting { count, scheduled, bytes, commands }
    }

    /// Fires timers at a constant rate per second, with ids from `first` on.
    pub async fn fire(
        &self,
        first: usize,
        rate: usize,
        seconds: u64,
        concurrency: usize,
    ) -> Firing {
        let count = rate * usize::try_from(seconds).unwrap();
        // Enough time to insert them all.
        let start = SystemTime::now() + Duration::from_secs(2 + count as u64 / 5_000);
        let step = Duration::from_secs(seconds) / u32::try_from(count).unwrap();
        let due = move |number| start + step * u32::try_from(number).unwrap();
        self.schedule_from(first, CALLERS, count, due).await;
        let early = start.duration_since(SystemTime::now()).expect("all are scheduled in time");
        let late = histogram();
        let work = Work::start(&self.timers, concurrency, Arc::clone(&late));
        tokio::time::sleep(early).await;
        let (commands, server, client) = (self.server.commands(), self.server.cpu(), own_cpu());
        let begun = Instant::now();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let elapsed = begun.elapsed().as_secs_f64();
        let commands = (self.server.commands() - commands - 1.0) / elapsed;
        let (server, client) = (self.server.cpu() - server, own_cpu() - client);
        all_are_recorded(&late, count).await;
        let took = begun.elapsed().as_secs_f64();
        work.stop().await;
        let late = late.lock().unwrap();
        assert_eq!(late.len(), count as u64, "each is delivered once");
        let millis = |quantile| late.value_at_quantile(quantile) as f64 / 1000.0;
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(millis);
        let (server, client) = (server / elapsed, client / elapsed);
        Firing { rate, a_second: count as f64 / took, commands, server, client, p50, p99, most }
    }

    /// Delivers timers that were due in the last hour, while no worker ran.
    pub async fn catch_up(&self, first: usize, count: usize, concurrency: usize) -> CatchUp {
        let (hour, number) = (Duration::from_secs(3600), u32::try_from(count).unwrap());
        let (start, step) = (SystemTime::now() - hour, hour / number);
        let due = move |number| start + step * u32::try_from(number).unwrap();
        self.schedule_from(first, CALLERS, count, due).await;
        let (server, client) = (self.server.cpu(), own_cpu());
        let (late, begun) = (histogram(), Instant::now());
        let work = Work::start(&self.timers, concurrency, Arc::clone(&late));
        all_are_recorded(&late, count).await;
        let took = begun.elapsed().as_secs_f64();
        work.stop().await;
        let a_timer = |seconds: f64| seconds * 1e6 / count as f64;
        let (server, client) = (self.server.cpu() - server, own_cpu() - client);
        assert_eq!(late.lock().unwrap().len(), count as u64, "each is delivered once");
        let (server, client) = (a_timer(server), a_timer(client));
        CatchUp { count, a_second: count as f64 / took, server, client }
    }
}

/// Waits until so many deliveries have begun, for a minute at most.
async fn all_are_recorded(late: &Latenesses, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while late.lock().unwrap().len() < count as u64 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn histogram() -> Latenesses {
    Arc::new(Mutex::new(Histogram::new_with_max(60_000_000, 3).unwrap()))
}
