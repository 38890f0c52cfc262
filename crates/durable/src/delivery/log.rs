//! [`LogQueue`], the ended attempts that wait for the log, and [`LogWriter`], which writes them
//! while a worker runs.
//!
//! The log is not written in the transaction that ends an attempt, because a log that is full,
//! damaged or slow would then stop timers.

#![forbid(unsafe_code)]

use crate::model::event::{Attempt, Event, Outcome};
use crate::model::log::{LogBounds, LoggedAttempt};
use crate::panics::ignore_poison;
use crate::store::{Answer, Store};
use futures_util::FutureExt;
use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tourbillon::future::{Sleep, Timer};

/// The maximum number of attempts that wait. Further attempts are lost.
const WAITING: usize = 10_000;

/// The maximum number of attempts that are written together.
const BATCH: usize = 1000;

/// The pause between two batches.
const INTERVAL: Duration = Duration::from_millis(500);

/// The maximum time that an ending worker waits for the log.
const LAST: Duration = Duration::from_secs(1);

/// Ended attempts that wait to be written. They outlive a worker that fails.
#[derive(Debug)]
pub(crate) struct LogQueue {
    pub(crate) bounds: LogBounds,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    attempts: VecDeque<LoggedAttempt>,
    /// The number of lost attempts that were not reported yet.
    lost: u64,
}

impl LogQueue {
    pub(crate) fn new(bounds: LogBounds) -> Self {
        Self { bounds, waiting: Mutex::default() }
    }

    /// Adds an attempt, unless it has not ended.
    pub(crate) fn record(&self, attempt: &Attempt) {
        if attempt.outcome == Outcome::GivenBack {
            return;
        }
        let mut waiting = self.lock();
        if waiting.attempts.len() < WAITING {
            waiting.attempts.push_back(LoggedAttempt::new(attempt));
        } else {
            waiting.lost += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        ignore_poison(self.waiting.lock())
    }
}

/// Writes the attempts of a queue, batch by batch, while it is polled.
pub(crate) struct LogWriter {
    queue: Arc<LogQueue>,
    store: Arc<dyn Store>,
    timer: Timer,
    step: Step,
    /// The time limit of an ending worker.
    limit: Option<Sleep>,
}

enum Step {
    /// Opens the log, so that a log that cannot be opened is reported at the start.
    Opening(Answer<Vec<LoggedAttempt>>),
    Idle,
    Writing(Unwritten, Answer<()>),
    Resting(Sleep),
}

impl LogWriter {
    pub(crate) fn new(queue: Arc<LogQueue>, store: Arc<dyn Store>, timer: Timer) -> Self {
        let step = Step::Opening(store.log_latest(None, 0));
        Self { queue, store, timer, step, limit: None }
    }

    /// Writes what waits. Completes when nothing does.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, report: impl Fn(Event)) -> Poll<()> {
        loop {
            self.step = match &mut self.step {
                Step::Opening(opened) => {
                    if let Err(error) = ready!(opened.poll_unpin(context)) {
                        report(Event::LogFailed { lost: 0, error: Some(error) });
                    }
                    Step::Idle
                }
                Step::Idle => {
                    let mut waiting = self.queue.lock();
                    let lost = mem::take(&mut waiting.lost);
                    let count = waiting.attempts.len().min(BATCH);
                    let batch: Vec<LoggedAttempt> = waiting.attempts.drain(..count).collect();
                    drop(waiting);
                    if lost > 0 {
                        report(Event::LogFailed { lost, error: None });
                    }
                    if batch.is_empty() {
                        return Poll::Ready(());
                    }
                    let unwritten =
                        Unwritten { queue: Arc::clone(&self.queue), count: count as u64 };
                    Step::Writing(unwritten, self.store.log_add(batch, self.queue.bounds))
                }
                Step::Writing(unwritten, written) => {
                    let written = ready!(written.poll_unpin(context));
                    let lost = mem::take(&mut unwritten.count);
                    if let Err(error) = written {
                        report(Event::LogFailed { lost, error: Some(error) });
                    }
                    // More attempts end meanwhile.
                    Step::Resting(self.timer.sleep(INTERVAL))
                }
                Step::Resting(sleep) => {
                    if self.limit.is_none() {
                        // A closed timer refuses the sleep, and the worker fails.
                        let _ = ready!(sleep.poll_unpin(context));
                    }
                    Step::Idle
                }
            };
        }
    }

    /// Writes what waits without pauses, for a worker that ends. Completes at the latest after
    /// [`LAST`].
    pub(crate) fn poll_last(
        &mut self,
        context: &mut Context<'_>,
        report: impl Fn(Event),
    ) -> Poll<()> {
        let timer = &self.timer;
        let limit = self.limit.get_or_insert_with(|| timer.sleep(LAST));
        if limit.poll_unpin(context).is_ready() {
            return Poll::Ready(());
        }
        self.poll(context, report)
    }
}

/// The number of attempts in a batch, which are lost if its reply does not come.
struct Unwritten {
    queue: Arc<LogQueue>,
    count: u64,
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.queue.lock().lost += self.count;
    }
}

#[cfg(all(test, feature = "file"))]
mod tests {
    use super::*;
    use crate::embedded::Embedded;
    use crate::error::DurableError;
    use crate::model::clock::system;
    use pollster::block_on;
    use std::future::poll_fn;
    use std::sync::mpsc::channel;
    use tourbillon::{Builder, ManualClock};

    #[test]
    fn attempts_that_are_not_written_are_counted() -> Result<(), DurableError> {
        let path = std::env::temp_dir().join(format!("tourbillon-queue-{}", std::process::id()));
        let store: Arc<dyn Store> = Arc::new(Embedded::open(&path)?);
        let driver = Builder::new().clock(ManualClock::new()).driver();
        let timer = Timer::spawn(driver).expect("a thread starts");
        let queue = Arc::new(LogQueue::new(LogBounds::new()));
        let attempt = |outcome| Attempt {
            id: "id".to_owned(),
            planned: system(7),
            due: system(7),
            attempt: 1,
            outcome,
            lateness: Duration::ZERO,
            duration: None,
            status: None,
        };
        for _ in 0..WAITING + 3 {
            queue.record(&attempt(Outcome::GivenBack));
            queue.record(&attempt(Outcome::Acknowledged));
        }
        // A worker that was dropped while it waited for a reply.
        drop(Unwritten { queue: Arc::clone(&queue), count: 5 });
        let mut writer = LogWriter::new(queue, Arc::clone(&store), timer);
        let (send, events) = channel();
        let report = |event| drop(send.send(event));
        block_on(poll_fn(|context| writer.poll_last(context, report)));
        drop((writer, send));
        let expected = Event::LogFailed { lost: 3 + 5, error: None };
        assert_eq!(events.iter().collect::<Vec<_>>(), [expected]);
        let written = block_on(store.log_latest(None, 2 * WAITING))?;
        assert_eq!(written.len(), WAITING);
        drop(store);
        let _ = std::fs::remove_file(path.with_extension("history"));
        let _ = std::fs::remove_file(path);
        Ok(())
    }
}
