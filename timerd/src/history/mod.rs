//! The history of runs, bounded by number and age. It lies beside the store, in a file or on its
//! server, and is written in batches behind the calls, so a crash loses the last of it. The timers
//! themselves do not depend on it.

#![forbid(unsafe_code)]

mod file;
mod link;
mod postgres;
mod redis;
mod run;

use super::config::HistoryBounds;
use file::FileHistory;
use link::Link;
use postgres::PostgresHistory;
use redis::RedisHistory;
pub(crate) use run::{History, HistoryError, Run};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use timers::{Address, StoreArguments};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The runs that wait to be written. Beyond that they are left out.
const WAITING: usize = 10_000;

/// The number of runs that are written together.
const BATCH: usize = 1000;

/// The interval at which runs are written.
const INTERVAL: Duration = Duration::from_millis(500);

/// Opens the history beside a store.
pub(crate) async fn open(
    store: &StoreArguments,
    address: &Address,
    bounds: HistoryBounds,
) -> Result<Arc<dyn History>, HistoryError> {
    let certificates = || store.certificates().map_err(HistoryError::of);
    Ok(match address {
        Address::File(path) => {
            let mut file = path.clone().into_os_string();
            file.push(".history");
            Arc::new(FileHistory::open(PathBuf::from(file), bounds)?)
        }
        Address::Redis { servers, name, .. } => {
            let link = Link::connect(servers, certificates()?).await?;
            Arc::new(RedisHistory::new(link, name, bounds))
        }
        Address::Postgres { url, name } => {
            Arc::new(PostgresHistory::connect(url, name, certificates()?, bounds).await?)
        }
    })
}

/// The end at which runs are recorded.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Sender<Run>);

impl Recorder {
    /// Records a run, without waiting. It is left out if too many wait.
    pub(crate) fn record(&self, run: Run) {
        if self.0.try_send(run).is_err() {
            metrics::counter!("timerd_runs_not_recorded_total").increment(1);
        }
    }
}

/// Returns a recorder, and the future that writes what it records.
pub(crate) fn recorder(history: Arc<dyn History>) -> (Recorder, impl Future<Output = ()>) {
    let (send, runs) = channel(WAITING);
    (Recorder(send), write(history, runs))
}

async fn write(history: Arc<dyn History>, mut runs: Receiver<Run>) {
    loop {
        let mut batch = Vec::new();
        if runs.recv_many(&mut batch, BATCH).await == 0 {
            return;
        }
        let count = batch.len() as u64;
        if let Err(error) = history.add(batch).await {
            metrics::counter!("timerd_runs_not_recorded_total").increment(count);
            tracing::warn!(%error, "runs were not recorded");
        }
        // More come together meanwhile, unless the service has ended.
        if !runs.is_closed() {
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
