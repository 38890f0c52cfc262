//! [`Embedded`]: a store in one file of this machine, by the database `redb`.
//!
//! `redb` because it is well kept and pure Rust, has one file with a stable format, transactions
//! that are whole or not at all after any crash, and a commit that is an fsync, which is what a
//! group of calls shares; and because its B-trees keep slices in their order without compaction.

#![forbid(unsafe_code)]

mod tables;
mod threads;

use super::clock::{Millis, Present, StoreClock, SystemClock, present};
use super::error::DurableError;
use super::near::{Near, Watchers};
use super::record::{Dead, Record};
use super::store::{Answer, Due, Finish, Insert, Key, Leasing, Page, Scheduled, Store};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use tables::{Fault, File, Snapshot, Transaction};
use threads::{Calls, reader, writer};

/// A store in one file of this machine, for one process at a time. Nothing to install.
///
/// What it has answered is on the disk (an fsync, which the calls of a moment share). The file is
/// locked while it is open, and whole after any crash.
///
/// # Examples
///
/// ```
/// use tourbillon::Builder;
/// use tourbillon::durable::{DurableError, DurableTimers, Embedded};
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
    /// `None` only while it is being dropped.
    calls: Option<(Calls<Transaction>, Calls<Snapshot>)>,
    threads: Vec<JoinHandle<()>>,
    watchers: Arc<Watchers>,
    clock: Arc<dyn StoreClock>,
}

impl Embedded {
    /// Opens the store in that file, and makes one if there is none.
    ///
    /// # Errors
    ///
    /// The file is open elsewhere, cannot be written, is no such store, or damaged.
    pub fn open(file: impl AsRef<Path>) -> Result<Self, DurableError> {
        Self::open_with_clock(file, SystemClock)
    }

    /// As [`open`](Self::open), by another wall clock than the system's.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with_clock(
        file: impl AsRef<Path>,
        clock: impl StoreClock,
    ) -> Result<Self, DurableError> {
        let path = file.as_ref();
        let file = Arc::new(File::open(path)?);
        let watchers = Arc::new(Watchers::default());
        let thread = |error: std::io::Error| DurableError::Io(error.to_string());
        let (reads, reader) = reader(Arc::clone(&file)).map_err(thread)?;
        let (writes, writer) = writer(file, Arc::clone(&watchers)).map_err(thread)?;
        let calls = Some((writes, reads));
        Ok(Self { calls, threads: vec![reader, writer], watchers, clock: Arc::new(clock) })
    }

    fn write<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Transaction, Present) -> Result<R, Fault> + Send + 'static,
    ) -> Answer<R> {
        let clock = Arc::clone(&self.clock);
        match &self.calls {
            Some((writes, _)) => writes.ask(move |transaction| {
                let now = Present::of(clock.now());
                call(transaction, now)
            }),
            None => Box::pin(std::future::ready(Err(DurableError::Closed))),
        }
    }

    fn read<R: Send + 'static>(
        &self,
        call: impl FnOnce(&Snapshot, Millis) -> Result<R, Fault> + Send + 'static,
    ) -> Answer<R> {
        let clock = Arc::clone(&self.clock);
        match &self.calls {
            Some((_, reads)) => reads.ask(move |snapshot| call(snapshot, present(clock.now()))),
            None => Box::pin(std::future::ready(Err(DurableError::Closed))),
        }
    }
}

impl Store for Embedded {
    fn now(&self) -> Answer<Millis> {
        Box::pin(std::future::ready(Ok(present(self.clock.now()))))
    }

    fn schedule(&self, timer: Insert) -> Answer<Scheduled> {
        self.write(move |transaction, now| transaction.schedule(&timer, now.coming))
    }

    fn cancel(&self, id: &str) -> Answer<bool> {
        let id = id.to_owned();
        self.write(move |transaction, _| transaction.cancel(&id))
    }

    fn reschedule(&self, id: &str, due: Due) -> Answer<bool> {
        let id = id.to_owned();
        self.write(move |transaction, now| transaction.reschedule(&id, due, now.coming))
    }

    fn get(&self, id: &str) -> Answer<Option<Record>> {
        let id = id.to_owned();
        self.read(move |snapshot, _| snapshot.get(&id))
    }

    fn list(&self, after: Option<&str>, limit: usize) -> Answer<Vec<(String, Record)>> {
        let after = after.map(str::to_owned);
        self.read(move |snapshot, _| snapshot.list(after.as_deref(), limit))
    }

    fn len(&self) -> Answer<(u64, u64)> {
        self.read(|snapshot, _| snapshot.len())
    }

    /// All keys are every worker's: a lease that is refused costs little within a process.
    fn join(&self, near: &Arc<Near>) -> u64 {
        self.watchers.add(Arc::downgrade(near));
        0
    }

    fn load(&self, _worker: u64, from: Key, until: Millis, limit: usize) -> Answer<Page> {
        self.read(move |snapshot, now| snapshot.load(&from, until, limit, now))
    }

    /// Who has gone is not told any more.
    fn leave(&self, _worker: u64) -> Answer<()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn lease(&self, id: &str) -> Answer<Leasing> {
        let id = id.to_owned();
        self.write(move |transaction, now| transaction.lease(&id, now.passed))
    }

    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<bool> {
        let id = id.to_owned();
        self.write(move |transaction, now| transaction.finish(&id, fence, finish, now))
    }

    fn dead(&self, after: Option<u64>, limit: usize) -> Answer<Vec<(u64, Dead)>> {
        self.read(move |snapshot, _| snapshot.dead(after, limit))
    }

    fn redrive(&self, number: u64) -> Answer<bool> {
        self.write(move |transaction, now| transaction.redrive(number, now.passed))
    }

    fn bury(&self, number: u64) -> Answer<Option<Dead>> {
        self.write(move |transaction, _| transaction.bury(number))
    }
}

/// Waits until what was asked for has been written, and unlocks the file.
impl Drop for Embedded {
    fn drop(&mut self) {
        self.calls = None;
        for thread in self.threads.drain(..) {
            // The last future of a worker may be dropped by a waker, on one of these threads.
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

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::super::options::{Existing, Options};
    use super::super::record::DeadReason;
    use super::super::store::first_from;
    use super::*;
    use pollster::block_on;

    fn insert(id: &str, due: Due) -> Insert {
        let payload = Arc::new(b"payload".to_vec());
        let settings = Options::new().settings;
        Insert { id: id.to_owned(), payload, due, existing: Existing::Replace, settings }
    }

    /// A clock that stands in the midst of a millisecond.
    #[derive(Debug)]
    struct Between;

    impl StoreClock for Between {
        fn now(&self) -> std::time::SystemTime {
            std::time::UNIX_EPOCH + std::time::Duration::from_micros(10_900)
        }
    }

    #[test]
    fn a_delay_is_waited_for_whole() -> Result<(), DurableError> {
        let folder =
            std::env::temp_dir().join(format!("tourbillon-between-{}", std::process::id()));
        let store = Embedded::open_with_clock(&folder, Between)?;
        block_on(store.schedule(insert("id", Due::After(1))))?;
        let due = block_on(store.get("id"))?.map(|record| record.due);
        drop(store);
        let _ = std::fs::remove_file(&folder);
        assert_eq!(due, Some(12), "11.9 ms, rounded up");
        Ok(())
    }

    /// A clock that passes over a lease with each look.
    #[derive(Debug, Default)]
    struct Strides(std::sync::Mutex<u64>);

    impl StoreClock for Strides {
        fn now(&self) -> std::time::SystemTime {
            let mut days = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *days += 1;
            std::time::UNIX_EPOCH + std::time::Duration::from_secs(*days * 86_400)
        }
    }

    #[test]
    fn a_lease_that_was_taken_over_finishes_nothing() -> Result<(), DurableError> {
        let path = std::env::temp_dir().join(format!("tourbillon-fence-{}", std::process::id()));
        let store = Embedded::open_with_clock(&path, Strides::default())?;
        block_on(store.schedule(insert("id", Due::At(0))))?;
        let mut fences = Vec::new();
        for overrun in [false, true] {
            let Leasing::Taken(lease) = block_on(store.lease("id"))? else {
                panic!("its lease has run out")
            };
            assert_eq!((lease.overrun, lease.record.attempt), (overrun, 1));
            fences.push(lease.fence);
        }
        for (fence, counts) in [(fences[0], false), (fences[1], true)] {
            let finish = Finish::Done { next: None };
            assert_eq!(block_on(store.finish("id", fence, finish))?, counts);
        }
        drop(store);
        let _ = std::fs::remove_file(path);
        Ok(())
    }

    /// Does something to a timer.
    fn step(store: &Embedded, random: &mut fastrand::Rng) -> Result<(), DurableError> {
        let id = format!("{}", random.u8(..6));
        let due = Due::After(random.u64(..2) * 60_000);
        match random.u8(..5) {
            0 => drop(block_on(store.schedule(insert(&id, due)))?),
            1 => drop(block_on(store.cancel(&id))?),
            2 => drop(block_on(store.reschedule(&id, due))?),
            3 => {
                let letter = block_on(store.dead(None, 1))?.pop();
                let number = letter.map_or(0, |(number, _)| number);
                // Refused if there is such a timer.
                let _ = block_on(store.redrive(number));
            }
            _ => {
                let Leasing::Taken(lease) = block_on(store.lease(&id))? else { return Ok(()) };
                let finish = match random.u8(..4) {
                    0 => Finish::Done { next: None },
                    1 => Finish::Retry { wait: 0, error: String::new() },
                    2 => return Ok(()),
                    _ => Finish::Dead {
                        reason: DeadReason::Attempts,
                        error: String::new(),
                        next: None,
                    },
                };
                assert!(block_on(store.finish(&id, lease.fence, finish.clone()))?);
                assert!(!block_on(store.finish(&id, lease.fence, finish))?, "only once");
            }
        }
        Ok(())
    }

    #[test]
    fn each_timer_has_one_key() -> Result<(), DurableError> {
        let name = format!("tourbillon-keys-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let store = Embedded::open(&path)?;
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..400 {
            step(&store, &mut random)?;
            let page = block_on(store.load(0, first_from(0), Millis::MAX - 1, 99))?;
            let timers = block_on(store.list(None, 99))?;
            let mut keys: Vec<Key> =
                timers.iter().map(|(id, record)| (record.due, Arc::from(&**id))).collect();
            keys.sort_unstable();
            assert_eq!(page.keys, keys);
            assert_eq!(block_on(store.len())?.0, timers.len() as u64);
        }
        drop(store);
        let _ = std::fs::remove_file(path);
        Ok(())
    }
}
