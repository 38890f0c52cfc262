//! The threads of an embedded store: one that writes, group by group, and one that reads.
//!
//! Whoever calls waits for a future, never for the disk. The writer takes all that has been asked
//! for by then, up to [`GROUP`] and [`WEIGHT`], does it in one transaction, commits that with an
//! fsync, tells the watchers, and only then answers. While it waits for the disk the next group
//! gathers.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::super::near::Watchers;
use super::super::store::{Answer, Change};
use super::tables::{Fault, File, Snapshot, Transaction};
use crate::panics::quietly;
use futures_channel::oneshot;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// How many verbs go into one transaction at most.
const GROUP: usize = 4096;

/// How many bytes of records one transaction reads and writes, or somewhat more: it ends with the
/// verb that comes to so many.
const WEIGHT: usize = 16 << 20;

/// Something to do on `T`, and somebody to be answered when it is durable.
pub(super) trait Work<T>: Send {
    /// Does it. An error: the database has failed.
    fn apply(&mut self, on: &mut T) -> Result<(), DurableError>;

    /// Answers what was done; or, with an error, that it was not.
    fn answer(self: Box<Self>, committed: Result<(), DurableError>);
}

struct Call<F, R> {
    call: Option<F>,
    done: Option<Result<R, DurableError>>,
    reply: oneshot::Sender<Result<R, DurableError>>,
}

impl<T, F, R> Work<T> for Call<F, R>
where
    F: FnOnce(&mut T) -> Result<R, Fault> + Send,
    R: Send,
{
    fn apply(&mut self, on: &mut T) -> Result<(), DurableError> {
        let Some(call) = self.call.take() else { return Ok(()) };
        self.done = Some(match call(on) {
            Ok(done) => Ok(done),
            Err(Fault::Refused(error)) => Err(error),
            Err(Fault::Broken(error)) => return Err(error),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), DurableError>) {
        let done = self.done.unwrap_or(Err(DurableError::Closed));
        // Who does not wait any more need not know.
        let _ = self.reply.send(committed.and(done));
    }
}

type Works<T> = Receiver<Box<dyn Work<T>>>;

/// Where a thread is asked to do something on `T`.
pub(super) struct Calls<T>(Sender<Box<dyn Work<T>>>);

impl<T: 'static> Calls<T> {
    /// Has it done.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut T) -> Result<R, Fault> + Send + 'static,
    ) -> Answer<R> {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(Call { call: Some(call), done: None, reply });
        // A thread that has gone drops it, and the answer with it.
        let _ = self.0.send(work);
        Box::pin(async move { answer.await.unwrap_or(Err(DurableError::Closed)) })
    }
}

/// The thread that writes.
pub(super) fn writer(
    file: Arc<File>,
    watchers: Arc<Watchers>,
) -> io::Result<(Calls<Transaction>, JoinHandle<()>)> {
    // A waker that panics must not end the thread that all wait for.
    start("timers-writer", move |works: Works<Transaction>| {
        while let Ok(first) = works.recv() {
            let mut group = vec![first];
            let committed = commit(&file, &mut group, &works);
            if let Ok(changes) = &committed {
                quietly(|| watchers.tell(changes));
            }
            let committed = committed.map(drop);
            for work in group {
                quietly(|| work.answer(committed.clone()));
            }
        }
    })
}

/// Does a group, to which what is asked for meanwhile is added.
fn commit(
    file: &File,
    group: &mut Vec<Box<dyn Work<Transaction>>>,
    works: &Works<Transaction>,
) -> Result<Vec<Change>, DurableError> {
    asserted(|| {
        let mut transaction = file.begin()?;
        // The database gives back the pages of a transaction that is dropped, but not while a panic
        // unwinds: it is caught before.
        asserted(|| apply(&mut transaction, group, works)).map_err(Fault::Broken)?;
        transaction.commit()
    })
}

fn apply(
    transaction: &mut Transaction,
    group: &mut Vec<Box<dyn Work<Transaction>>>,
    works: &Works<Transaction>,
) -> Result<(), Fault> {
    let mut done = 0;
    while let Some(work) = group.get_mut(done) {
        work.apply(transaction).map_err(Fault::Broken)?;
        done += 1;
        if done < GROUP && transaction.weight() < WEIGHT {
            group.extend(works.try_recv());
        }
    }
    Ok(())
}

/// The database asserts what it reads of a damaged file, and others wait for this thread.
fn asserted<R>(work: impl FnOnce() -> Result<R, Fault>) -> Result<R, DurableError> {
    let worked = catch_unwind(AssertUnwindSafe(work));
    let panicked = |_| Err(DurableError::Corrupt("an assertion failed".to_owned()).into());
    worked.unwrap_or_else(panicked).map_err(DurableError::from)
}

/// The thread that reads.
pub(super) fn reader(file: Arc<File>) -> io::Result<(Calls<Snapshot>, JoinHandle<()>)> {
    start("timers-reader", move |works: Works<Snapshot>| {
        while let Ok(mut work) = works.recv() {
            let done = asserted(|| {
                let mut snapshot = file.snapshot()?;
                work.apply(&mut snapshot).map_err(Fault::Broken)
            });
            quietly(|| work.answer(done));
        }
    })
}

/// Starts a thread that does what is asked for, until nobody can ask any more.
#[allow(clippy::disallowed_methods, reason = "the one place that starts the threads of a store")]
fn start<T: 'static>(
    name: &str,
    work: impl FnOnce(Works<T>) + Send + 'static,
) -> io::Result<(Calls<T>, JoinHandle<()>)> {
    let (calls, asked) = channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(asked))?;
    Ok((Calls(calls), thread))
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::super::super::options::{Existing, Options};
    use super::super::super::store::{Due, Insert};
    use super::*;
    use std::path::PathBuf;

    const MEGABYTE: usize = 1 << 20;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tourbillon-{name}-{}", std::process::id()))
    }

    fn call<R: Send + 'static>(
        call: impl FnOnce(&mut Transaction) -> Result<R, Fault> + Send + 'static,
    ) -> Box<dyn Work<Transaction>> {
        let (reply, _) = oneshot::channel();
        Box::new(Call { call: Some(call), done: None, reply })
    }

    fn insert(id: usize, length: usize) -> Box<dyn Work<Transaction>> {
        let (payload, settings) = (Arc::new(vec![7; length]), Options::new().settings);
        let (id, due, existing) = (id.to_string(), Due::After(1), Existing::Replace);
        call(move |to| to.schedule(&Insert { id, payload, due, existing, settings }, 0))
    }

    #[test]
    fn a_group_is_bounded_by_its_number_and_its_bytes() -> Result<(), DurableError> {
        let path = place("groups");
        let file = File::open(&path)?;
        for (length, most) in [(10, GROUP), (MEGABYTE, WEIGHT / MEGABYTE)] {
            let (calls, works) = channel();
            for id in 1..2 * most {
                let _ = calls.send(insert(id, length));
            }
            let mut group = vec![insert(0, length)];
            assert_eq!(commit(&file, &mut group, &works)?.len(), most);
            assert_eq!((group.len(), works.try_iter().count()), (most, most));
        }
        // What is only read weighs as well.
        let (calls, works) = channel();
        for _ in 0..WEIGHT / MEGABYTE {
            let _ = calls.send(call(|to| to.lease("0", 0)));
        }
        let mut group = vec![call(|to| to.lease("0", 0))];
        assert!(commit(&file, &mut group, &works)?.is_empty());
        assert_eq!(group.len(), WEIGHT / MEGABYTE);
        drop(file);
        let _ = std::fs::remove_file(path);
        Ok(())
    }

    #[test]
    fn a_group_that_panics_leaves_nothing() -> Result<(), DurableError> {
        let path = place("panics");
        let file = File::open(&path)?;
        let (_calls, works) = channel();
        for id in 0..64 {
            let panics = call(|_| -> Result<(), Fault> { panic!("the clock has stopped") });
            let mut group = vec![insert(id, MEGABYTE), panics];
            assert!(matches!(commit(&file, &mut group, &works), Err(DurableError::Corrupt(_))));
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
