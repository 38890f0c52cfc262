//! The threads of an embedded store, one that writes in batches and one that reads.
//!
//! Callers wait for a future, never for the disk. The writer takes all pending calls, up to
//! [`BATCH`] and [`WEIGHT`], executes them in one transaction, commits it with an fsync, notifies
//! the watchers, and only then completes the futures. The next batch accumulates while the writer
//! waits for the disk. The queue has no bound of its own. It is as long as there are waiting calls.
//!
//! **When the disk fails** (no space is left, nothing can be written), the callers of the batch get
//! the error, and so do callers during the pause that follows. Calls of a worker wait, and are
//! retried after the pause. There is at most one for each handler of the worker, plus one page.

#![forbid(unsafe_code)]

use super::error::{TransitionError, ambiguous, asserted, not_executed};
use super::file::File;
#[cfg(feature = "log")]
use super::log::LogFile;
use super::reopen::ReopeningFile;
use super::snapshot::Snapshot;
use super::tables::{Changes, Transaction};
use crate::error::DurableError;
use crate::panics::{ignore_poison, quietly};
use crate::store::Answer;
use crate::store::window::Watchers;
use futures_channel::oneshot;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tourbillon::{Clock, MonotonicClock};

/// The maximum number of operations in a transaction.
const BATCH: usize = 4096;

/// A transaction ends after this number of bytes of records read and written.
const WEIGHT: usize = 16 << 20;

/// The first and the longest pause after a failure of the disk.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

/// The treatment of a call when the disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFailure {
    /// The caller gets the error.
    Report,
    /// The call waits until it can be executed, for a worker.
    Retry,
}

/// An operation on `T` whose caller is notified once it is durable.
pub(super) trait Work<T>: Send {
    /// Returns `true` if the operation waits for the disk and its caller still waits for it.
    fn is_waiting(&self) -> bool;

    /// Returns `true` if the caller still waits for the operation.
    #[cfg(feature = "log")]
    fn is_wanted(&self) -> bool;

    /// Executes the operation, for the first time or again. Fails if the database has failed.
    fn apply(&mut self, on: &mut T) -> Result<(), DurableError>;

    /// Sends the result to the caller, or the error if the commit failed.
    fn answer(self: Box<Self>, committed: Result<(), DurableError>);
}

struct PendingCall<F, R> {
    on_failure: OnFailure,
    call: F,
    done: Option<Result<R, DurableError>>,
    reply: oneshot::Sender<Result<R, DurableError>>,
}

impl<T, F, R> Work<T> for PendingCall<F, R>
where
    F: FnMut(&mut T) -> Result<R, TransitionError> + Send,
    R: Send,
{
    fn is_waiting(&self) -> bool {
        self.on_failure == OnFailure::Retry && !self.reply.is_canceled()
    }

    #[cfg(feature = "log")]
    fn is_wanted(&self) -> bool {
        !self.reply.is_canceled()
    }

    fn apply(&mut self, on: &mut T) -> Result<(), DurableError> {
        self.done = Some(match (self.call)(on) {
            Ok(done) => Ok(done),
            Err(TransitionError::Rejected(error)) => Err(error),
            Err(TransitionError::Failed(error)) => return Err(error),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), DurableError>) {
        let done = self.done.unwrap_or(Err(DurableError::Closed));
        // The caller may have dropped the future.
        let _ = self.reply.send(committed.and(done));
    }
}

type Works<T> = Receiver<Box<dyn Work<T>>>;

type WorkBatch<T> = Vec<Box<dyn Work<T>>>;

/// Sends operations on `T` to a thread.
pub(super) struct Calls<T> {
    calls: Sender<Box<dyn Work<T>>>,
    /// The file name in error messages.
    file_name: Arc<str>,
}

impl<T: 'static> Calls<T> {
    /// Sends an operation to the thread.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        on_failure: OnFailure,
        call: impl FnMut(&mut T) -> Result<R, TransitionError> + Send + 'static,
    ) -> Answer<R> {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(PendingCall { on_failure, call, done: None, reply });
        // A thread that has ended drops the operation, and the sender of its result.
        let _ = self.calls.send(work);
        let file_name = Arc::clone(&self.file_name);
        Box::pin(async move {
            let answer = answer.await.unwrap_or(Err(DurableError::Closed));
            answer.map_err(|error| error.at(&file_name))
        })
    }
}

/// The error of the last transaction, or `None` if it succeeded.
pub(super) type Trouble = Arc<Mutex<Option<DurableError>>>;

/// Starts the thread that writes.
pub(super) fn writer(
    store_file: Arc<ReopeningFile>,
    watchers: Arc<Watchers>,
    file_name: Arc<str>,
    trouble: Trouble,
) -> io::Result<(Calls<Transaction>, JoinHandle<()>)> {
    start("timers-writer", file_name, move |works: Works<Transaction>| {
        serve(&works, |batch| {
            let committed = store_file.with(|file| commit(file, batch, &works));
            *ignore_poison(trouble.lock()) = committed.as_ref().err().cloned();
            let changes = committed?;
            // A waker that panics must not end the thread.
            quietly(|| watchers.notify(&changes.keys));
            if changes.reload {
                quietly(|| watchers.invalidate());
            }
            Ok(())
        });
    })
}

/// Executes a batch, and adds calls that arrive meanwhile.
fn commit(
    file: &File,
    batch: &mut WorkBatch<Transaction>,
    works: &Works<Transaction>,
) -> Result<Changes, DurableError> {
    asserted(|| {
        let begun = asserted(|| file.begin());
        let mut transaction = begun.map_err(not_executed).map_err(TransitionError::Failed)?;
        // The database frees the pages of a transaction that is dropped, but not while a panic
        // unwinds, so the panic is caught first.
        let applied = asserted(|| apply(&mut transaction, batch, works));
        applied.map_err(not_executed).map_err(TransitionError::Failed)?;
        let committed = transaction.commit().map_err(DurableError::from);
        committed.map_err(ambiguous).map_err(TransitionError::Failed)
    })
}

fn apply(
    transaction: &mut Transaction,
    batch: &mut WorkBatch<Transaction>,
    works: &Works<Transaction>,
) -> Result<(), TransitionError> {
    let mut done = 0;
    while let Some(work) = batch.get_mut(done) {
        work.apply(transaction).map_err(TransitionError::Failed)?;
        done += 1;
        if done < BATCH && transaction.weight() < WEIGHT {
            batch.extend(works.try_recv());
        }
    }
    Ok(())
}

/// Starts the thread that reads.
pub(super) fn reader(
    store_file: Arc<ReopeningFile>,
    file_name: Arc<str>,
) -> io::Result<(Calls<Snapshot>, JoinHandle<()>)> {
    start("timers-reader", file_name, move |works: Works<Snapshot>| {
        serve(&works, |batch| match store_file.with(|file| read(file, batch)) {
            // The file has been reopened, whichever of the threads had failed.
            Err(error) if error.is_temporary() => store_file.with(|file| read(file, batch)),
            done => done,
        });
    })
}

fn read(file: &File, batch: &mut WorkBatch<Snapshot>) -> Result<(), DurableError> {
    asserted(|| {
        let mut snapshot = file.snapshot()?;
        for work in batch {
            work.apply(&mut snapshot).map_err(TransitionError::Failed)?;
        }
        Ok(())
    })
}

/// Executes calls with `turn`, batch by batch, until all senders are gone.
fn serve<T>(works: &Works<T>, mut turn: impl FnMut(&mut WorkBatch<T>) -> Result<(), DurableError>) {
    let mut waiting: WorkBatch<T> = Vec::new();
    let mut pause = PAUSES[0];
    loop {
        waiting.retain(|work| work.is_waiting());
        let mut batch = std::mem::take(&mut waiting);
        if batch.is_empty() {
            let Ok(work) = works.recv() else { return };
            batch.push(work);
        }
        let done = turn(&mut batch);
        let failed = done.as_ref().err().filter(|error| error.is_temporary()).cloned();
        for work in batch {
            if failed.is_some() && work.is_waiting() {
                waiting.push(work);
            } else {
                quietly(|| work.answer(done.clone()));
            }
        }
        let Some(failed) = failed else {
            pause = PAUSES[0];
            continue;
        };
        let until = MonotonicClock.now() + pause;
        pause = (pause * 2).min(PAUSES[1]);
        if !rest(works, until, &not_executed(failed), &mut waiting) {
            return;
        }
    }
}

/// Waits for the pause to pass, and gives callers the error meanwhile. Returns `false` if all
/// senders are gone.
fn rest<T>(
    works: &Works<T>,
    until: Instant,
    why: &DurableError,
    waiting: &mut WorkBatch<T>,
) -> bool {
    loop {
        let left = until.saturating_duration_since(MonotonicClock.now());
        if left.is_zero() {
            return true;
        }
        match works.recv_timeout(left) {
            Ok(work) if work.is_waiting() => waiting.push(work),
            Ok(work) => quietly(|| work.answer(Err(why.clone()))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Starts the thread of the log, which executes calls one by one. A call whose caller has gone is
/// skipped.
#[cfg(feature = "log")]
pub(super) fn logger(mut log: LogFile) -> io::Result<(Calls<LogFile>, JoinHandle<()>)> {
    let name = log.name().into();
    start("timers-log", name, move |works: Works<LogFile>| {
        for mut work in works.into_iter().filter(|work| work.is_wanted()) {
            let done = work.apply(&mut log);
            quietly(|| work.answer(done));
        }
    })
}

/// Starts a thread that executes calls until all senders are gone.
#[allow(clippy::disallowed_methods, reason = "the one place that starts the threads of a store")]
fn start<T: 'static>(
    name: &str,
    file_name: Arc<str>,
    work: impl FnOnce(Works<T>) + Send + 'static,
) -> io::Result<(Calls<T>, JoinHandle<()>)> {
    let (calls, asked) = channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(asked))?;
    Ok((Calls { calls, file_name }, thread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::file::Opener;
    use crate::model::options::{Existing, Options};
    use crate::store::{Due, Insert};
    use std::path::PathBuf;

    const MEGABYTE: usize = 1 << 20;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tourbillon-{name}-{}", std::process::id()))
    }

    fn call<R: Send + 'static>(
        call: impl FnMut(&mut Transaction) -> Result<R, TransitionError> + Send + 'static,
    ) -> Box<dyn Work<Transaction>> {
        let (reply, _) = oneshot::channel();
        Box::new(PendingCall { on_failure: OnFailure::Report, call, done: None, reply })
    }

    fn insert(id: usize, length: usize) -> Box<dyn Work<Transaction>> {
        let (payload, settings) = (Arc::new(vec![7; length]), Options::new().settings);
        let (id, due, existing) = (id.to_string(), Due::After(1), Existing::Replace);
        let insert = Insert { id, payload, due, existing, over: None, settings };
        call(move |to| to.insert(&insert, 0))
    }

    #[test]
    fn a_batch_is_bounded_by_its_number_and_its_bytes() -> Result<(), DurableError> {
        let path = place("batches");
        let file = Opener::file(&path, 1 << 20).open(true)?;
        for (length, most) in [(10, BATCH), (MEGABYTE, WEIGHT / MEGABYTE)] {
            let (calls, works) = channel();
            for id in 1..2 * most {
                let _ = calls.send(insert(id, length));
            }
            let mut batch = vec![insert(0, length)];
            assert_eq!(commit(&file, &mut batch, &works)?.keys.len(), most);
            assert_eq!((batch.len(), works.try_iter().count()), (most, most));
        }
        // Records that are only read count as well.
        let (calls, works) = channel();
        for _ in 0..WEIGHT / MEGABYTE {
            let _ = calls.send(call(|to| to.lease(&(1, Arc::from("0")), 0, false)));
        }
        let mut batch = vec![call(|to| to.lease(&(1, Arc::from("0")), 0, false))];
        assert!(commit(&file, &mut batch, &works)?.keys.is_empty());
        assert_eq!(batch.len(), WEIGHT / MEGABYTE);
        drop(file);
        let _ = std::fs::remove_file(path);
        Ok(())
    }

    #[cfg(feature = "log")]
    #[test]
    fn a_call_of_the_log_is_skipped_if_its_caller_has_gone() -> io::Result<()> {
        let log = LogFile::new(&place("skipped"), super::super::log::SetAside::default());
        let (calls, thread) = logger(log)?;
        let (go, wait) = channel();
        let first = calls.ask(OnFailure::Report, move |_| Ok(wait.recv().is_ok()));
        let (send, ran) = channel();
        drop(calls.ask(OnFailure::Report, move |_| Ok(send.send(()).is_ok())));
        let _ = go.send(());
        let last = calls.ask(OnFailure::Report, |_| Ok(()));
        assert_eq!(pollster::block_on(first), Ok(true));
        assert_eq!(pollster::block_on(last), Ok(()));
        assert!(ran.try_recv().is_err());
        drop(calls);
        assert!(thread.join().is_ok());
        Ok(())
    }

    #[test]
    fn a_batch_that_panics_leaves_nothing() -> Result<(), DurableError> {
        let path = place("panics");
        let file = Opener::file(&path, 1 << 20).open(true)?;
        let (_calls, works) = channel();
        for id in 0..64 {
            let panics =
                call(|_| -> Result<(), TransitionError> { panic!("the clock has stopped") });
            let mut batch = vec![insert(id, MEGABYTE), panics];
            assert!(matches!(commit(&file, &mut batch, &works), Err(DurableError::Corrupt { .. })));
        }
        commit(&file, &mut vec![insert(64, 10)], &works)?;
        assert!(matches!(file.snapshot().map(|now| now.len()), Ok(Ok((1, 0)))));
        let length = std::fs::metadata(&path).map_or(u64::MAX, |file| file.len());
        assert!(length < 32 << 20, "{length} bytes");
        drop(file);
        let _ = std::fs::remove_file(path);
        Ok(())
    }
}
