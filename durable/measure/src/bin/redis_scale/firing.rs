//! Timers at rest, and timers that fire among them, with their costs and lateness.

use crate::report::{Firing, Resting};
use crate::subject::{Subject, after, due, own_cpu};
use hdrhistogram::Histogram;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tourbillon_durable::{DurableError, DurableTimers};

/// The number of callers that insert the resting timers.
const CALLERS: usize = 1024;

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

impl Subject {
    /// Inserts resting timers, and measures the requests of a worker.
    pub(crate) async fn rest(&self, count: usize, seconds: u64) -> Resting {
        let (before, begun, start) = (self.memory(), Instant::now(), SystemTime::now());
        self.insert(CALLERS, count, move |number| after(start, due(number))).await;
        let scheduled = count as f64 / begun.elapsed().as_secs_f64();
        let bytes = (self.memory() - before) / count as f64;
        let work = Work::start(&self.timers, 1, histogram());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let commands = self.commands();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        // One of the commands read this figure.
        let commands = (self.commands() - commands - 1.0) / seconds as f64;
        work.stop().await;
        Resting { count, scheduled, bytes, commands }
    }

    /// Fires timers at a constant rate per second, with ids from `first` on.
    pub(crate) async fn fire(
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
        let (commands, server, client) = (self.commands(), self.cpu(), own_cpu());
        let begun = Instant::now();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let elapsed = begun.elapsed().as_secs_f64();
        let commands = (self.commands() - commands - 1.0) / elapsed;
        let (server, client) = (self.cpu() - server, own_cpu() - client);
        let deadline = Instant::now() + Duration::from_secs(60);
        while late.lock().unwrap().len() < count as u64 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let took = begun.elapsed().as_secs_f64();
        work.stop().await;
        let late = late.lock().unwrap();
        assert_eq!(late.len(), count as u64, "each is delivered once");
        let millis = |quantile| late.value_at_quantile(quantile) as f64 / 1000.0;
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(millis);
        let (server, client) = (server / elapsed, client / elapsed);
        Firing { rate, a_second: count as f64 / took, commands, server, client, p50, p99, most }
    }
}

fn histogram() -> Latenesses {
    Arc::new(Mutex::new(Histogram::new_with_max(60_000_000, 3).unwrap()))
}
