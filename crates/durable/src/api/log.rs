//! [`AttemptLog`], the log of the attempts of a store.

#![forbid(unsafe_code)]

use crate::api::timers::DurableTimers;
use crate::api::worker::Worker;
use crate::delivery::log::LogQueue;
use crate::error::DurableError;
use crate::model::log::{LogBounds, LoggedAttempt};
use crate::store::Store;
use std::sync::Arc;

/// The log of attempts that have ended, beside the timers of a store. Workers [write](Worker::log)
/// it, and all processes that use the store share it. Created by [`DurableTimers::attempt_log`].
///
/// A file has its log in another file with the same name and `.history` after it, Redis in a
/// stream, and PostgreSQL in a table.
///
/// **A log never stops a timer.** It is written after the attempts have ended, in batches of up to
/// 1000, at most every half second. A killed process loses the attempts of the last half second.
/// Attempts that end faster than they can be written, and attempts of a batch that fails, are lost
/// and [reported](crate::Event::LogFailed). A damaged file is
/// [set aside](crate::Event::LogSetAside). You can also delete or rename the log alone.
///
/// Clones share the log, and keep the store open.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, LogBounds, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-log-{}", std::process::id()));
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// let timers = DurableTimers::open(&file)?;
/// let log = timers.attempt_log(LogBounds::new());
/// let worker = timers.worker().log(&log).until(end); // `end` is ready when the program is to end
/// # let worker = worker.observe(move |_| drop(done.unbounded_send(())));
/// pollster::block_on(timers.insert("order 7", "unpaid", Duration::ZERO, Options::new()))?;
/// pollster::block_on(worker.run(|delivery| async move {
///     delivery.note_status(204);
///     Ok::<(), String>(())
/// }))?;
///
/// let latest = pollster::block_on(log.latest(Some("order 7"), 10))?;
/// assert_eq!(latest[0].outcome, "acknowledged");
/// assert_eq!(latest[0].status, Some(204));
/// # drop((timers, log));
/// # std::fs::remove_file(&file)?;
/// # std::fs::remove_file(format!("{}.history", file.display()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AttemptLog {
    store: Arc<dyn Store>,
    queue: Arc<LogQueue>,
}

impl AttemptLog {
    /// Returns up to `limit` attempts, of one timer or of all, latest first.
    ///
    /// In Redis, only the latest 10,000 attempts of all timers are searched for the attempts of one
    /// timer.
    ///
    /// # Errors
    ///
    /// Fails if the log cannot be read, or with [`Option`](DurableError::Option) if no timer of the
    /// store can have this id.
    pub async fn latest(
        &self,
        id: Option<&str>,
        limit: usize,
    ) -> Result<Vec<LoggedAttempt>, DurableError> {
        self.store.log_latest(id.map(str::to_owned), limit).await
    }
}

impl DurableTimers {
    /// Returns the log of the attempts of this store, which is created when it is first used. Each
    /// process applies its own bounds.
    #[cfg_attr(docsrs, doc(cfg(feature = "log")))]
    #[must_use]
    pub fn attempt_log(&self, bounds: LogBounds) -> AttemptLog {
        let (store, queue) = (Arc::clone(&self.store), Arc::new(LogQueue::new(bounds)));
        AttemptLog { store, queue }
    }
}

impl Worker {
    /// Writes each attempt of this worker that has ended to a log. Attempts that were
    /// [given back](crate::Outcome::GivenBack) are left out.
    ///
    /// The log has to belong to the same store. If the run fails, another worker with the same log
    /// writes what was left. A worker that [ends](Self::until) waits for its log for up to a
    /// second.
    #[cfg_attr(docsrs, doc(cfg(feature = "log")))]
    pub fn log(mut self, log: &AttemptLog) -> Self {
        self.reporter.log = Some(Arc::clone(&log.queue));
        self
    }
}
