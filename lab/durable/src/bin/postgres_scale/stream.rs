//! [`Work`], a worker that measures how late it is, and [`Stream`], timers at a constant rate.

use hdrhistogram::Histogram;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;
use tokio::time::{interval, sleep};
use tourbillon_durable::{DurableTimers, Options};
use tourbillon_durable_measure::subject::PAYLOAD;

/// The prefix of the ids of timers whose lateness does not count.
pub(crate) const ASIDE: &str = "aside ";

/// The time from the insert of a timer until it is due.
const AHEAD: Duration = Duration::from_secs(2);

/// The lateness of timers in microseconds.
type Late = Arc<Mutex<Histogram<u64>>>;

/// A worker and its deliveries.
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
            if !delivery.id.starts_with(ASIDE) {
                seen.lock().unwrap().saturating_record(u64::try_from(begun.as_micros()).unwrap());
            }
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

/// Timers at a constant rate, each inserted shortly before it is due.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    /// The number of timers per second.
    pub(crate) rate: usize,
    pub(crate) seconds: u64,
}

impl Stream {
    pub(crate) fn count(&self) -> usize {
        self.rate * usize::try_from(self.seconds).unwrap()
    }

    /// Runs the stream, and returns the lateness of all timers but the first ones in microseconds.
    pub(crate) async fn run(
        &self,
        timers: &DurableTimers,
        work: &Work,
        first: usize,
        name: &str,
    ) -> Histogram<u64> {
        let count = self.count();
        let mut ticks = interval(Duration::from_secs(1) / u32::try_from(self.rate).unwrap());
        let mut inserts = tokio::task::JoinSet::new();
        let (before, mut left_out) = (work.late.lock().unwrap().len(), 0);
        for number in 0..count {
            ticks.tick().await;
            let (timers, id) = (timers.clone(), format!("{name} {number}"));
            inserts.spawn(async move {
                timers.insert(&id, PAYLOAD, AHEAD, Options::new()).await.unwrap();
            });
            while inserts.try_join_next().is_some() {}
            if number == first {
                let mut late = work.late.lock().unwrap();
                left_out = late.len() - before;
                late.reset();
            }
        }
        while let Some(inserted) = inserts.join_next().await {
            inserted.unwrap();
        }
        work.until(count - usize::try_from(left_out).unwrap()).await;
        work.late.lock().unwrap().clone()
    }
}
