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
    /// The number of workers that write these attempts.
    writers: usize,
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
    /// The pause between two reports of lost attempts.
    quiet: Option<Sleep>,
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
        queue.lock().writers += 1;
        Self { queue, store, timer, step, quiet: None, limit: None }
    }

    /// Writes what waits. Completes when nothing does.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, report: impl Fn(Event)) -> Poll<()> {
        loop {
            self.report_lost(context, &report);
            self.step = match &mut self.step {
                Step::Opening(opened) => {
                    if let Err(error) = ready!(opened.poll_unpin(context)) {
                        report(Event::LogFailed { lost: 0, error: Some(error) });
                    }
                    Step::Idle
                }
                Step::Idle => {
                    let mut waiting = self.queue.lock();
                    let count = waiting.attempts.len().min(BATCH);
                    let batch: Vec<LoggedAttempt> = waiting.attempts.drain(..count).collect();
                    drop(waiting);
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

    /// Reports attempts that were lost, although a batch may still be written for long.
    fn report_lost(&mut self, context: &mut Context<'_>, report: impl Fn(Event)) {
        if self.quiet.as_mut().is_some_and(|quiet| quiet.poll_unpin(context).is_pending()) {
            return;
        }
        let lost = mem::take(&mut self.queue.lock().lost);
        self.quiet = (lost > 0).then(|| self.timer.sleep(INTERVAL));
        if lost > 0 {
            report(Event::LogFailed { lost, error: None });
        }
    }

    /// Writes what waits without pauses, for a worker that ends. Completes at the latest after
    /// [`LAST`]. Attempts that still wait then, and that no other worker writes, are lost.
    pub(crate) fn poll_last(
        &mut self,
        context: &mut Context<'_>,
        report: impl Fn(Event),
    ) -> Poll<()> {
        let timer = &self.timer;
        let limit = self.limit.get_or_insert_with(|| timer.sleep(LAST));
        let done = match limit.poll_unpin(context) {
            Poll::Pending => self.poll(context, &report),
            Poll::Ready(_) => {
                // Counts the attempts of a batch without a reply.
                self.step = Step::Idle;
                let mut waiting = self.queue.lock();
                if waiting.writers == 1 {
                    let left = mem::take(&mut waiting.attempts).len();
                    waiting.lost += left as u64;
                }
                Poll::Ready(())
            }
        };
        if done.is_ready() {
            self.quiet = None;
            self.report_lost(context, report);
        }
        done
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.queue.lock().writers -= 1;
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
    use std::future::{pending, poll_fn};
    use std::path::PathBuf;
    use std::sync::mpsc::channel;
    use std::task::Waker;
    use tourbillon::{Builder, ManualClock};

    fn place(name: &str) -> Result<(PathBuf, Arc<dyn Store>), DurableError> {
        let path = std::env::temp_dir().join(format!("tourbillon-{name}-{}", std::process::id()));
        let store = Embedded::open(&path)?;
        Ok((path, Arc::new(store)))
    }

    fn timer(clock: &ManualClock) -> Timer {
        let driver = Builder::new().clock(clock.clone()).driver();
        Timer::spawn(driver).expect("a thread starts")
    }

    fn attempt(outcome: Outcome) -> Attempt {
        Attempt {
            id: "id".to_owned(),
            planned: system(7),
            due: system(7),
            attempt: 1,
            outcome,
            lateness: Duration::ZERO,
            duration: None,
            status: None,
        }
    }

    #[test]
    fn a_batch_without_a_reply_hides_no_loss() -> Result<(), DurableError> {
        let ((path, store), clock) = (place("silence")?, ManualClock::new());
        let queue = Arc::new(LogQueue::new(LogBounds::new()));
        let (send, events) = channel();
        let report = |event| drop(send.send(event));
        let lost = || events.try_iter().collect::<Vec<_>>();
        let failed = |lost| [Event::LogFailed { lost, error: None }];
        let mut writers = [(); 2].map(|()| {
            let mut writer = LogWriter::new(Arc::clone(&queue), Arc::clone(&store), timer(&clock));
            let unwritten = Unwritten { queue: Arc::clone(&queue), count: 5 };
            writer.step = Step::Writing(unwritten, Box::pin(pending()));
            writer
        });
        for _ in 0..WAITING + 3 {
            queue.record(&attempt(Outcome::Acknowledged));
        }
        let context = &mut Context::from_waker(Waker::noop());
        assert!(writers[0].poll(context, report).is_pending());
        assert_eq!(lost(), failed(3), "the queue is full");
        // The second has no other worker that could write what waits.
        for (mut writer, expected) in writers.into_iter().zip([5, 5 + WAITING as u64]) {
            assert!(writer.poll_last(context, report).is_pending());
            clock.advance(LAST);
            block_on(poll_fn(|context| writer.poll_last(context, report)));
            assert_eq!(lost(), failed(expected));
        }
        drop(store);
        let _ = std::fs::remove_file(path.with_extension("history"));
        let _ = std::fs::remove_file(path);
        Ok(())
    }

    #[test]
    fn attempts_that_are_not_written_are_counted() -> Result<(), DurableError> {
        let (path, store) = place("queue")?;
        let timer = timer(&ManualClock::new());
        let queue = Arc::new(LogQueue::new(LogBounds::new()));
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
