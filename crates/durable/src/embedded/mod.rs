//! [`Embedded`], a store in one file of this machine, built on the database `redb`.
//!
//! `redb` is well maintained and pure Rust. It has a single file in a stable format, transactions
//! that are atomic across any crash, and a commit that costs one fsync, which a batch of calls can
//! share. Its B-trees keep due times in order without compaction.

#![forbid(unsafe_code)]

mod copying;
mod error;
mod file;
mod labels;
mod letters;
mod lists;
#[cfg(feature = "log")]
mod log;
mod mend;
mod options;
mod reopen;
mod snapshot;
mod stats;
mod tables;
mod tests;
mod threads;

use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::check::{Checked, Cursor};
use crate::model::clock::{Millis, Present, StoreClock, SystemClock, present};
use crate::model::condition::Condition;
use crate::model::durability::{Durability, Loss};
#[cfg(feature = "log")]
use crate::model::event::Event;
use crate::model::key::{Key, Page};
use crate::model::label::Label;
#[cfg(feature = "log")]
use crate::model::log::{LogBounds, LoggedAttempt};
use crate::model::record::{Dead, Record};
use crate::model::stats::Counts;
use crate::panics::ignore_poison;
use crate::store::options::StoreOptions;
use crate::store::window::{Watchers, Window};
use crate::store::{
    Answer, AnyStore, Cancelled, Due, Finish, Finished, Found, Ids, Insert, Inserted, Leasing,
    Letters, LettersOf, Renewed, Store,
};
use error::TransitionError;
use file::{File, Opener};
#[cfg(feature = "log")]
use log::LogFile;
pub use options::EmbeddedOptions;
use reopen::ReopeningFile;
use snapshot::Snapshot;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use tables::Transaction;
use threads::{Calls, OnFailure, Trouble, reader, writer};

/// A store in one file of this machine, for one process at a time. Nothing else needs to be
/// installed.
///
/// A change is on the disk before its future completes (an fsync, which concurrent calls share), so
/// it survives a killed process and a power failure. The file is locked while it is open.
///
/// While the disk fails, because no space is left or nothing can be written, callers get
/// [`DurableError::ReadOnly`], reads continue where possible, and workers wait. The store reopens
/// the file by itself, with pauses of up to two seconds.
///
/// Calls that wait for the disk are held in memory with their payloads. Only the number of waiting
/// callers bounds their number. Dead letters are not bounded either, unless you set
/// [bounds](StoreOptions).
///
/// # Examples
///
/// ```
/// use tourbillon::Builder;
/// use tourbillon_durable::{DurableError, DurableTimers, Embedded};
/// use tourbillon::future::Timer;
///
/// let file = std::env::temp_dir().join(format!("tourbillon-{}.timers", std::process::id()));
/// let store = Embedded::open(&file)?;
/// assert!(matches!(Embedded::open(&file), Err(DurableError::Locked(_))));
///
/// let timers = DurableTimers::new(store, &Timer::spawn(Builder::new().driver())?);
/// assert!(pollster::block_on(timers.is_empty())?);
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Embedded {
    /// `None` only while the store is being dropped.
    calls: Option<(Calls<Transaction>, Calls<Snapshot>)>,
    /// `None` only while the store is being dropped.
    #[cfg(feature = "log")]
    log: Option<Calls<LogFile>>,
    /// The new names of damaged files of the log, until a worker reports them.
    #[cfg(feature = "log")]
    aside: log::SetAside,
    threads: Vec<JoinHandle<()>>,
    watchers: Arc<Watchers>,
    clock: Arc<dyn StoreClock>,
    bounds: LetterBounds,
    trouble: Trouble,
}

impl Embedded {
    /// Opens the store in a file, or creates it if there is none. On Unix, only the owner can read
    /// and write a file that is created.
    ///
    /// A file of 16 MiB or more is compacted first if less than half of it is needed, which copies
    /// the contents. After a process was killed, the whole file is read.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written, is not a timer store, or is damaged. Fails at once with
    /// [`DurableError::Locked`] if the file is open elsewhere, so a program that replaces another
    /// should retry for a while. The error names the file.
    pub fn open(file: impl AsRef<Path>) -> Result<Self, DurableError> {
        Self::open_with(file, EmbeddedOptions::new())
    }

    /// Like [`open`](Self::open), with options.
    ///
    /// # Errors
    ///
    /// Fails like [`open`](Self::open).
    pub fn open_with(
        file: impl AsRef<Path>,
        options: impl Into<EmbeddedOptions>,
    ) -> Result<Self, DurableError> {
        let (path, options) = (file.as_ref(), options.into());
        let (opener, opened) = Opener::first(path, options.cache)?;
        Self::start(opener, opened, path, options)
    }

    fn start(
        opener: Opener,
        opened: File,
        path: &Path,
        options: EmbeddedOptions,
    ) -> Result<Self, DurableError> {
        let name: Arc<str> = path.display().to_string().into();
        let watchers = Arc::new(Watchers::default());
        let store_file = Arc::new(ReopeningFile::new(opener, opened, Arc::clone(&watchers)));
        let thread =
            |error: std::io::Error| DurableError::Io(format!("could not start a thread: {error}"));
        let (reads, reader) = reader(Arc::clone(&store_file), Arc::clone(&name)).map_err(thread)?;
        let trouble = Trouble::default();
        let (writes, writer) =
            writer(store_file, Arc::clone(&watchers), name, Arc::clone(&trouble))
                .map_err(thread)?;
        let StoreOptions { bounds, clock } = options.store;
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        let (calls, threads) = (Some((writes, reads)), vec![reader, writer]);
        #[cfg(feature = "log")]
        let (log, aside, threads) = {
            let aside = log::SetAside::default();
            let (log, logger) =
                threads::logger(LogFile::new(path, Arc::clone(&aside))).map_err(thread)?;
            (Some(log), aside, threads.into_iter().chain([logger]).collect())
        };
        Ok(Self {
            calls,
            #[cfg(feature = "log")]
            log,
            #[cfg(feature = "log")]
            aside,
            threads,
            watchers,
            clock,
            bounds,
            trouble,
        })
    }

    fn write<R: Send + 'static>(
        &self,
        on_failure: OnFailure,
        mut call: impl FnMut(&mut Transaction, Present) -> Result<R, TransitionError> + Send + 'static,
    ) -> Answer<R> {
        let clock = Arc::clone(&self.clock);
        match &self.calls {
            Some((writes, _)) => writes
                .ask(on_failure, move |transaction| call(transaction, Present::of(clock.now()))),
            None => Box::pin(std::future::ready(Err(DurableError::Closed))),
        }
    }

    fn read<R: Send + 'static>(
        &self,
        on_failure: OnFailure,
        call: impl Fn(&Snapshot, Millis) -> Result<R, TransitionError> + Send + 'static,
    ) -> Answer<R> {
        let clock = Arc::clone(&self.clock);
        match &self.calls {
            Some((_, reads)) => {
                reads.ask(on_failure, move |snapshot| call(snapshot, present(clock.now())))
            }
            None => Box::pin(std::future::ready(Err(DurableError::Closed))),
        }
    }

    #[cfg(feature = "log")]
    fn log<R: Send + 'static>(
        &self,
        mut call: impl FnMut(&mut LogFile) -> Result<R, DurableError> + Send + 'static,
    ) -> Answer<R> {
        match &self.log {
            Some(log) => log.ask(OnFailure::Report, move |log| Ok(call(log)?)),
            None => Box::pin(std::future::ready(Err(DurableError::Closed))),
        }
    }
}

impl Store for Embedded {
    fn durability(&self) -> Answer<Durability> {
        // Each change is acknowledged after an fsync.
        let (killed, power_failure) = (Loss::Nothing, Loss::Nothing);
        let durability = Durability { killed, power_failure, replicas: 0, version: None };
        Box::pin(std::future::ready(Ok(durability)))
    }

    fn now(&self) -> Answer<Millis> {
        Box::pin(std::future::ready(Ok(present(self.clock.now()))))
    }

    fn insert(&self, timer: Insert) -> Answer<Inserted> {
        self.write(OnFailure::Report, move |transaction, now| {
            transaction.insert(&timer, now.coming)
        })
    }

    fn cancel(&self, id: &str, only: Option<Condition>) -> Answer<Cancelled> {
        let id = id.to_owned();
        self.write(OnFailure::Report, move |transaction, _| transaction.cancel(&id, only.as_ref()))
    }

    fn reset(&self, id: &str, due: Due) -> Answer<bool> {
        let id = id.to_owned();
        self.write(OnFailure::Report, move |transaction, now| {
            transaction.reset(&id, due, now.coming)
        })
    }

    fn run_now(&self, id: &str) -> Answer<bool> {
        let id = id.to_owned();
        self.write(OnFailure::Report, move |transaction, now| transaction.run_now(&id, now.passed))
    }

    fn pause_timer(&self, id: &str, pauses: bool, label: Option<Label>) -> Answer<bool> {
        let (id, only) = (id.to_owned(), label.map(Condition::Label));
        self.write(OnFailure::Report, move |transaction, _| {
            transaction.pause_timer(&id, pauses, only.as_ref())
        })
    }

    fn pause(&self, pauses: bool) -> Answer<()> {
        self.write(OnFailure::Report, move |transaction, _| transaction.pause(pauses))
    }

    fn is_paused(&self) -> Answer<bool> {
        self.read(OnFailure::Report, |snapshot, _| snapshot.is_paused())
    }

    fn get(&self, id: &str) -> Answer<Option<Record>> {
        let id = id.to_owned();
        self.read(OnFailure::Report, move |snapshot, _| snapshot.get(&id))
    }

    fn list(&self, after: Option<&str>, limit: usize) -> Answer<Vec<(String, Record)>> {
        let after = after.map(str::to_owned);
        self.read(OnFailure::Report, move |snapshot, _| snapshot.list(after.as_deref(), limit))
    }

    fn label_ids(&self, label: Label, ids: Ids, limit: usize) -> Answer<Vec<String>> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.label_ids(&label, &ids, limit))
    }

    fn label_len(&self, label: Label, after: Option<String>) -> Answer<(u64, Option<String>)> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.label_len(&label, after.clone()))
    }

    fn get_each(&self, ids: Vec<String>) -> Answer<Vec<(String, Option<Record>)>> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.get_each(&ids))
    }

    fn find(&self, from: Key, until: Millis, limit: usize) -> Answer<Found> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.find(&from, until, limit))
    }

    fn due_counts(&self, ranges: Vec<(Millis, Millis)>, most: u64) -> Answer<Vec<u64>> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.due_counts(&ranges, most))
    }

    fn retries_until(&self) -> Answer<Millis> {
        self.read(OnFailure::Report, |snapshot, _| snapshot.retries_until())
    }

    fn len(&self) -> Answer<(u64, u64)> {
        self.read(OnFailure::Report, |snapshot, _| snapshot.len())
    }

    fn stats(&self, from: Key) -> Answer<Counts> {
        self.read(OnFailure::Report, move |snapshot, now| snapshot.stats(&from, now))
    }

    fn join(&self, window: &Arc<Window>) -> u64 {
        self.watchers.add(Arc::downgrade(window));
        0
    }

    fn has_shared_keys(&self) -> bool {
        true
    }

    fn load(&self, _worker: u64, from: Key, until: Millis, limit: usize) -> Answer<Page> {
        self.read(OnFailure::Retry, move |snapshot, now| snapshot.load(&from, until, limit, now))
    }

    /// Does nothing, because a window that was dropped is not notified any more.
    fn leave(&self, _worker: u64) -> Answer<()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn lease(&self, key: &Key) -> Answer<Leasing> {
        let key = key.clone();
        self.write(OnFailure::Retry, move |transaction, now| {
            transaction.lease(&key, now.passed, false)
        })
    }

    fn take_over(&self, key: &Key) -> Answer<Leasing> {
        let key = key.clone();
        self.write(OnFailure::Report, move |transaction, now| {
            transaction.lease(&key, now.passed, true)
        })
    }

    fn renew(&self, id: &str, fence: u64) -> Answer<Renewed> {
        let id = id.to_owned();
        self.write(OnFailure::Retry, move |transaction, now| {
            transaction.renew(&id, fence, now.passed)
        })
    }

    fn trouble(&self) -> Option<DurableError> {
        ignore_poison(self.trouble.lock()).clone()
    }

    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<Finished> {
        let (id, bounds) = (id.to_owned(), self.bounds);
        self.write(OnFailure::Retry, move |transaction, now| {
            transaction.finish(&id, fence, finish.clone(), &bounds, now)
        })
    }

    fn dead(&self, letters: Letters, limit: usize) -> Answer<Vec<(u64, Dead)>> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.dead(letters, limit))
    }

    fn letters_of(&self, of: LettersOf, letters: Letters, limit: usize) -> Answer<Vec<u64>> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.letters_of(&of, letters, limit))
    }

    fn letter_bounds(&self) -> LetterBounds {
        self.bounds
    }

    fn letter_ages(&self, after: Option<u64>, limit: usize) -> Answer<Vec<(u64, Millis)>> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.letter_ages(after, limit))
    }

    fn redrive(&self, number: u64) -> Answer<bool> {
        self.write(OnFailure::Report, move |transaction, now| {
            transaction.redrive(number, now.passed)
        })
    }

    fn letter(&self, number: u64) -> Answer<Option<Dead>> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.letter(number))
    }

    fn delete_dead_letter(&self, number: u64) -> Answer<bool> {
        self.write(OnFailure::Report, move |transaction, _| transaction.delete_dead_letter(number))
    }

    fn discard(&self, id: &str) -> Answer<bool> {
        let id = id.to_owned();
        self.write(OnFailure::Report, move |transaction, _| transaction.discard(&id))
    }

    fn copy_timers(&self, timers: Vec<(String, Record)>) -> Answer<()> {
        self.write(OnFailure::Report, move |transaction, _| {
            timers.iter().try_for_each(|(id, record)| transaction.copy_timer(id, record))
        })
    }

    fn copy_letters(&self, letters: Vec<Dead>) -> Answer<()> {
        self.write(OnFailure::Report, move |transaction, _| {
            letters.iter().try_for_each(|dead| transaction.copy_letter(dead))
        })
    }

    fn check(&self, from: Cursor) -> Answer<Checked> {
        self.read(OnFailure::Report, move |snapshot, _| snapshot.check(&from))
    }

    fn repair(&self) -> Answer<()> {
        self.write(OnFailure::Report, |transaction, _| transaction.repair())
    }

    #[cfg(feature = "log")]
    fn log_add(&self, attempts: Vec<LoggedAttempt>, bounds: LogBounds) -> Answer<()> {
        let clock = Arc::clone(&self.clock);
        self.log(move |log| log.add(&attempts, bounds, present(clock.now())))
    }

    #[cfg(feature = "log")]
    fn log_latest(&self, id: Option<String>, limit: usize) -> Answer<Vec<LoggedAttempt>> {
        self.log(move |log| log.latest(id.as_deref(), limit))
    }

    #[cfg(feature = "log")]
    fn take_events(&self, _worker: u64) -> Vec<Event> {
        let aside = std::mem::take(&mut *ignore_poison(self.aside.lock()));
        aside.into_iter().map(|file| Event::LogSetAside { file }).collect()
    }
}

/// Opens a store in the database that `open` opens, or creates if its argument is `true`. Disk
/// errors are prefixed with `name`.
#[doc(hidden)]
pub fn open_database(
    name: &str,
    open: impl Fn(bool) -> Result<redb::Database, redb::DatabaseError> + Send + Sync + 'static,
) -> Result<Embedded, DurableError> {
    let opener = Opener::new(open);
    let file = opener.open(true)?;
    Embedded::start(opener, file, Path::new(name), EmbeddedOptions::new())
}

/// Requests a lease, as a worker does. Returns its fencing token.
#[doc(hidden)]
pub fn lease(
    store: &Embedded,
    id: &str,
) -> impl Future<Output = Result<Option<u64>, DurableError>> + use<> {
    let leasing = store.lease(&(0, Arc::from(id)));
    async move {
        match leasing.await? {
            Leasing::Taken(lease) => Ok(Some(lease.fence)),
            _ => Ok(None),
        }
    }
}

/// Renews a lease, as a worker does. Returns `true` if it is held.
#[doc(hidden)]
pub fn renew(
    store: &Embedded,
    id: &str,
    fence: u64,
) -> impl Future<Output = Result<bool, DurableError>> + use<> {
    let renewing = store.renew(id, fence);
    async move { Ok(renewing.await? != Renewed::Lost) }
}

impl From<Embedded> for AnyStore {
    fn from(store: Embedded) -> Self {
        Self(Arc::new(store))
    }
}

/// Waits until pending calls have been written, and unlocks the file and the file of the log. A log
/// that is being checked or written delays it.
impl Drop for Embedded {
    fn drop(&mut self) {
        self.calls = None;
        #[cfg(feature = "log")]
        {
            self.log = None;
        }
        for thread in self.threads.drain(..) {
            // A waker may drop the last future of a worker on one of these threads.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("clock", &self.clock).finish_non_exhaustive()
    }
}
