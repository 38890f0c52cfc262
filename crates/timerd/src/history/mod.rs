//! The history of runs, bounded by number and age. It is stored beside the timers, in a file or on
//! the same server. Runs are written in batches after the calls, so a crash loses the last runs.
//! The timers do not depend on the history. A damaged history is set aside, and an unreachable
//! history is opened later.

#![forbid(unsafe_code)]

mod file;
mod link;
mod opened;
mod postgres;
mod redis;
mod run;

use super::config::HistoryBounds;
use file::FileHistory;
use link::Link;
use opened::Opened;
use postgres::PostgresHistory;
use redis::RedisHistory;
pub(crate) use run::{History, HistoryError, Run};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tourbillon_durable::text::{Address, StoreArguments};

/// The maximum number of runs that wait to be written. Further runs are left out.
const WAITING: usize = 10_000;

/// The maximum number of runs that are written together.
const BATCH: usize = 1000;

/// How often runs are written.
const INTERVAL: Duration = Duration::from_millis(500);

/// Returns the history beside a store, which is opened when it is first used.
pub(crate) fn open(
    store: &StoreArguments,
    address: &Address,
    bounds: HistoryBounds,
) -> Arc<dyn History> {
    let (store, address) = (store.clone(), address.clone());
    match address {
        Address::File(path) => {
            let mut file = path.into_os_string();
            file.push(".history");
            Arc::new(FileHistory::new(file.into(), bounds))
        }
        Address::Redis { servers, name, .. } => Arc::new(Opened::new(move || {
            let (store, servers, name) = (store.clone(), servers.clone(), name.clone());
            let bounds = bounds.clone();
            Box::pin(async move {
                let tls = store.tls().map_err(HistoryError::of)?;
                let link = Link::connect(&servers, tls).await?;
                Ok(Arc::new(RedisHistory::new(link, &name, bounds)) as Arc<dyn History>)
            })
        })),
        Address::Postgres { url, name } => Arc::new(Opened::new(move || {
            let (store, url, name) = (store.clone(), url.clone(), name.clone());
            let bounds = bounds.clone();
            Box::pin(async move {
                let tls = store.tls().map_err(HistoryError::of)?;
                let history = PostgresHistory::connect(&url, &name, tls, bounds).await?;
                Ok(Arc::new(history) as Arc<dyn History>)
            })
        })),
    }
}

/// The sending half of the queue of runs.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Sender<Run>);

impl Recorder {
    /// Records a run without waiting. If too many runs wait, the run is left out.
    pub(crate) fn record(&self, run: Run) {
        if self.0.try_send(run).is_err() {
            metrics::counter!("timerd_runs_not_recorded_total").increment(1);
        }
    }
}

/// Returns a recorder, and the queue of the runs that it records.
pub(crate) fn recorder(history: Arc<dyn History>) -> (Recorder, Queue) {
    let (send, runs) = channel(WAITING);
    (Recorder(send), Queue { history, runs: Arc::new(Mutex::new(runs)) })
}

/// The runs that wait to be written. They outlive a task that writes them.
#[derive(Clone)]
pub(crate) struct Queue {
    history: Arc<dyn History>,
    runs: Arc<Mutex<Receiver<Run>>>,
}

impl Queue {
    /// Writes the runs until the recorder is closed. A failure loses the runs of one batch.
    pub(crate) async fn write(self) -> Result<(), String> {
        let mut runs = self.runs.lock().await;
        // A history that cannot be opened is reported at the start of the service.
        succeeded(self.history.latest(None, 0).await, "no runs are recorded");
        loop {
            let mut batch = Vec::new();
            if runs.recv_many(&mut batch, BATCH).await == 0 {
                return Ok(());
            }
            let lost = Lost(batch.len() as u64);
            if succeeded(self.history.add(batch).await, "runs were not recorded") {
                lost.none();
            }
            // More runs collect meanwhile, unless the service has ended.
            if !runs.is_closed() {
                tokio::time::sleep(INTERVAL).await;
            }
        }
    }
}

/// Logs a failure. Returns `true` if there is no failure.
fn succeeded<T>(outcome: Result<T, HistoryError>, failure: &str) -> bool {
    if let Err(error) = &outcome {
        tracing::warn!(%error, "{failure}");
    }
    outcome.is_ok()
}

/// The runs of a batch, which are counted as lost unless they are written.
struct Lost(u64);

impl Lost {
    fn none(mut self) {
        self.0 = 0;
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        metrics::counter!("timerd_runs_not_recorded_total").increment(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::run::Reply;
    use super::*;
    use crate::tasks::keep;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
    use tokio::sync::watch;

    /// Panics at the first batch, fails at the second, and sends the others to the test.
    struct Failing {
        batches: AtomicUsize,
        added: UnboundedSender<Vec<Run>>,
    }

    impl History for Failing {
        fn add(&self, runs: Vec<Run>) -> Reply<()> {
            let batch = self.batches.fetch_add(1, Relaxed);
            let added = self.added.clone();
            Box::pin(async move {
                match batch {
                    0 => panic!("the first batch"),
                    1 => Err(HistoryError::of("the second batch")),
                    _ => added.send(runs).map_err(HistoryError::of),
                }
            })
        }

        fn latest(&self, _: Option<String>, _: usize) -> Reply<Vec<Run>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }

    #[tokio::test]
    async fn runs_are_recorded_after_a_failure_and_a_panic() {
        let (added, mut batches) = unbounded_channel();
        let failing = Arc::new(Failing { batches: AtomicUsize::new(0), added });
        let (recorder, queue) = recorder(Arc::clone(&failing) as Arc<dyn History>);
        let (stop, stops) = watch::channel(false);
        let recording = tokio::spawn(keep("test", stops, move || queue.clone().write()));
        for number in 0..3 {
            recorder.record(Run::example("a", number));
            // Each run is a batch of its own.
            while failing.batches.load(Relaxed) <= number.try_into().expect("a few") {
                tokio::task::yield_now().await;
            }
        }
        let batch = batches.recv().await.expect("the third batch");
        assert_eq!(batch, [Run::example("a", 2)]);
        stop.send_replace(true);
        drop(recorder);
        recording.await.expect("it ends with the service");
    }
}
