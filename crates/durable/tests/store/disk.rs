//! A store on a disk that fails for a while, because it is full or write-protected or reports a
//! wrong result.
//!
//! [`FaultyDisk`] is a storage backend of the database in memory. It has four states.
//!
//! - **Well**. Every operation succeeds.
//! - **Full**. Bytes that were written before can be overwritten. A write to a block that has no
//!   place on the disk yet fails with `StorageFull`. A longer file alone takes no space.
//! - **Protected**. Every write and every change of the length fails.
//! - **Lying**. The next sync fails although it has taken effect, which leaves the commit in doubt.
//! - Reads always succeed. At most one database has the disk open, like the lock of a file.
//!
//! The tests use no random numbers, so `cargo test -p tourbillon-durable --test store disk::`
//! repeats a failure.

#![allow(clippy::disallowed_methods, reason = "a worker has a thread of its own")]

use super::resting;
use crate::common::bench::attempts;
use crate::common::events::Observed;
use futures_channel::oneshot;
use pollster::block_on;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::future::Timer;
use tourbillon::{Builder, Clock, Inline, MonotonicClock};
use tourbillon_durable::__internals::{lease, open_database};
use tourbillon_durable::{
    Attempt, Cancelled, DurableError, DurableTimers, Embedded, Event, Existing, Inserted, Options,
    Outcome, Wait,
};

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskState {
    Well,
    /// Written bytes can be overwritten, and no more can be added.
    Full,
    /// Nothing can be written.
    Protected,
    /// The disk writes, and reports once that it did not.
    Lying,
}

const BLOCK: u64 = 4096;

#[derive(Debug)]
struct Blocks {
    bytes: InMemoryBackend,
    state: Mutex<DiskState>,
    /// The blocks that have a place on the disk.
    placed: Mutex<BTreeSet<u64>>,
    /// The number of databases that have the disk open.
    open: AtomicUsize,
    refusals: Mutex<Sender<()>>,
}

/// A handle of the disk.
#[derive(Debug)]
struct FaultyDisk(Arc<Blocks>);

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

impl Blocks {
    fn new() -> (Arc<Self>, Receiver<()>) {
        let (refusals, refused) = channel();
        let blocks = Self {
            bytes: InMemoryBackend::new(),
            state: Mutex::new(DiskState::Well),
            placed: Mutex::default(),
            open: AtomicUsize::new(0),
            refusals: Mutex::new(refusals),
        };
        (Arc::new(blocks), refused)
    }

    fn store(self: &Arc<Self>) -> std::result::Result<Embedded, DurableError> {
        let blocks = Arc::clone(self);
        open_database("the disk", move |_| {
            // As the lock of a file.
            if blocks.open.fetch_add(1, SeqCst) > 0 {
                blocks.open.fetch_sub(1, SeqCst);
                return Err(redb::DatabaseError::DatabaseAlreadyOpen);
            }
            redb::Builder::new().create_with_backend(FaultyDisk(Arc::clone(&blocks)))
        })
    }

    fn set(&self, state: DiskState) {
        *self.state.lock().unwrap() = state;
    }

    fn state(&self) -> DiskState {
        *self.state.lock().unwrap()
    }

    fn refuse(&self) -> Result<()> {
        let _ = self.refusals.lock().unwrap().send(());
        Err(Error::from(ErrorKind::StorageFull))
    }
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> Result<u64> {
        self.0.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.0.bytes.read(offset, out)
    }

    /// A longer file takes no space.
    fn set_len(&self, len: u64) -> Result<()> {
        if self.0.state() == DiskState::Protected {
            return self.0.refuse();
        }
        self.0.bytes.set_len(len)
    }

    fn sync_data(&self) -> Result<()> {
        match self.0.state() {
            DiskState::Lying => {
                self.0.set(DiskState::Well);
                self.0.refuse()
            }
            _ => self.0.bytes.sync_data(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let blocks = offset / BLOCK..=(offset + data.len() as u64 - 1) / BLOCK;
        let mut placed = self.0.placed.lock().unwrap();
        match self.0.state() {
            DiskState::Full if blocks.clone().any(|block| !placed.contains(&block)) => {
                return self.0.refuse();
            }
            DiskState::Protected => return self.0.refuse(),
            _ => placed.extend(blocks),
        }
        self.0.bytes.write(offset, data)
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// Keeps a broken build from hanging.
const LIMIT: Duration = Duration::from_secs(20);

fn timers(blocks: &Arc<Blocks>) -> std::result::Result<DurableTimers, DurableError> {
    let timer = Timer::spawn(Builder::new().driver().executor(Inline));
    let timer = timer.map_err(|error| DurableError::Io(error.to_string()))?;
    Ok(DurableTimers::new(blocks.store()?, &timer))
}

fn schedule(timers: &DurableTimers, id: &str) -> std::result::Result<Inserted, DurableError> {
    let options = Options::new().existing(Existing::Keep);
    block_on(timers.insert(id, vec![7; 10_000], DAY, options)).map_err(|refused| refused.reason)
}

/// Inserts timers until one is refused. Returns the acknowledged ids, the refused id, and the
/// error.
fn fill(timers: &DurableTimers, prefix: &str) -> (Vec<String>, String, DurableError) {
    let mut acknowledged = Vec::new();
    loop {
        let id = format!("{prefix} {}", acknowledged.len());
        match schedule(timers, &id) {
            Ok(_) => acknowledged.push(id),
            Err(error) => return (acknowledged, id, error),
        }
    }
}

/// Repeats an operation until it succeeds.
fn insist<R>(mut ask: impl FnMut() -> std::result::Result<R, DurableError>) -> R {
    let until = MonotonicClock.now() + LIMIT;
    loop {
        match ask() {
            Ok(done) => return done,
            Err(DurableError::ReadOnly(_) | DurableError::Io(_)) => {
                assert!(MonotonicClock.now() < until, "it is never done");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn passes(error: &DurableError) -> bool {
    matches!(error, DurableError::ReadOnly(_) | DurableError::Io(_) | DurableError::Locked(_))
}

#[test]
fn a_disk_that_is_full_for_a_while() -> TestResult {
    let (blocks, _refused) = Blocks::new();
    let timers = timers(&blocks)?;
    resting::insert(&timers)?;
    schedule(&timers, "before")?;
    let mut known = vec!["before".to_owned()];
    for round in ["a", "b", "c"] {
        blocks.set(DiskState::Full);
        let (acknowledged, refused, error) = fill(&timers, round);
        assert!(error.to_string().contains("the disk: "), "{error}");
        known.extend(acknowledged);
        // Acknowledged timers are there, and can be read while nothing can be written.
        let mut there = resting::list(&timers)?;
        there.retain(|id| *id != refused);
        known.sort();
        assert_eq!(there, known);
        assert!(block_on(timers.get("before"))?.is_some());
        // An operation that is rejected as read-only was not executed.
        if matches!(error, DurableError::ReadOnly(_)) {
            assert_eq!(block_on(timers.get(&refused))?, None);
        }
        blocks.set(DiskState::Well);
        insist(|| schedule(&timers, &refused));
        known.push(refused);
        assert_eq!(block_on(timers.cancel("before"))?, Cancelled::Removed);
        assert_eq!(schedule(&timers, "before")?, Inserted::New);
    }
    drop(timers);
    known.sort();
    let timers = self::timers(&blocks)?;
    assert_eq!(resting::list(&timers)?, known);
    Ok(())
}

#[test]
fn a_disk_that_cannot_be_written_at_all() -> TestResult {
    let (blocks, refused) = Blocks::new();
    let timers = timers(&blocks)?;
    schedule(&timers, "before")?;
    blocks.set(DiskState::Protected);
    let error = schedule(&timers, "after").err().ok_or("it cannot be written")?;
    assert!(passes(&error), "{error}");
    refused.recv_timeout(LIMIT)?;
    // During the pause nothing is tried, and callers get the error.
    let error = schedule(&timers, "again").err().ok_or("it cannot be written")?;
    assert!(matches!(error, DurableError::ReadOnly(_)), "{error:?}");
    // The database cannot even be opened. A read either fails or returns the right result.
    match block_on(timers.get("before")) {
        Ok(found) => assert!(found.is_some()),
        Err(error) => assert!(passes(&error), "{error}"),
    }
    blocks.set(DiskState::Well);
    // A read is enough to reopen the file.
    assert!(insist(|| block_on(timers.get("before"))).is_some());
    assert_eq!(insist(|| schedule(&timers, "after")), Inserted::New);
    assert_eq!(blocks.open.load(SeqCst), 1);
    Ok(())
}

/// A worker on its own thread, which runs until the sender is dropped.
type Working = (
    Receiver<Attempt>,
    oneshot::Sender<()>,
    std::thread::JoinHandle<std::result::Result<(), DurableError>>,
);

fn work(timers: &DurableTimers, handler: impl Fn() + Send + Sync + 'static) -> Working {
    let ((send, events), (end, ends)) = (channel(), oneshot::channel::<()>());
    let worker = timers.worker().observe(attempts(send));
    let worker = worker.until(async move {
        let _ = ends.await;
    });
    let run = worker.run(move |_| {
        handler();
        std::future::ready(Ok::<(), String>(()))
    });
    (events, end, std::thread::spawn(move || block_on(run)))
}

/// Waits for the thread of a worker that was asked to end.
fn ended(thread: std::thread::JoinHandle<std::result::Result<(), DurableError>>) -> TestResult {
    let begun = MonotonicClock.now();
    while !thread.is_finished() {
        assert!(MonotonicClock.now() < begun + LIMIT, "the worker never ends");
        std::thread::yield_now();
    }
    Ok(thread.join().map_err(|_| "the worker panicked")??)
}

#[test]
fn a_worker_ends_though_the_disk_is_full() -> TestResult {
    let (blocks, refused) = Blocks::new();
    let timers = timers(&blocks)?;
    // The lease is granted, and its end cannot be written.
    let full = Arc::clone(&blocks);
    let (events, end, thread) = work(&timers, move || full.set(DiskState::Protected));
    let lease = Duration::from_millis(300);
    let options = Options::new().lease(lease);
    block_on(timers.insert("a", "", Duration::ZERO, options)).map_err(|refused| refused.reason)?;
    refused.recv_timeout(LIMIT)?;
    drop(end);
    ended(thread)?;
    let event = events.recv_timeout(LIMIT)?;
    assert_eq!((&*event.id, event.outcome), ("a", Outcome::Unanswered));
    // The next worker tries it again, and is asked to end before a lease can be granted.
    let (events, end, thread) = work(&timers, || ());
    while refused.try_recv().is_ok() {}
    refused.recv_timeout(LIMIT)?;
    drop(end);
    ended(thread)?;
    assert!(events.try_recv().is_err());
    blocks.set(DiskState::Well);
    let (events, end, thread) = work(&timers, || ());
    while events.recv_timeout(LIMIT)?.outcome != Outcome::Acknowledged {}
    drop(end);
    ended(thread)
}

fn soon(timers: &DurableTimers, id: &str) -> std::result::Result<Inserted, DurableError> {
    let scheduled = timers.insert(id, "", Duration::ZERO, Options::new());
    block_on(scheduled).map_err(|refused| refused.reason)
}

#[test]
fn a_worker_waits_for_the_disk() -> TestResult {
    let (blocks, refused) = Blocks::new();
    let timers = timers(&blocks)?;
    resting::insert(&timers)?;
    let full = Arc::clone(&blocks);
    let (events, end, thread) = work(&timers, move || full.set(DiskState::Protected));
    for id in ["a", "b", "c"] {
        soon(&timers, id)?;
        // The attempt cannot be acknowledged, several times.
        for _ in 0..3 {
            refused.recv_timeout(LIMIT)?;
        }
        assert!(events.try_recv().is_err());
        blocks.set(DiskState::Well);
        let event = events.recv_timeout(LIMIT)?;
        assert_eq!((&*event.id, event.outcome), (id, Outcome::Acknowledged));
        while refused.try_recv().is_ok() {}
    }
    drop(end);
    assert_eq!(thread.join().map_err(|_| "the worker panicked")?, Ok(()));
    assert!(resting::list(&timers)?.is_empty());
    Ok(())
}

#[test]
fn what_was_done_and_not_answered_is_delivered() -> TestResult {
    let (blocks, _refused) = Blocks::new();
    let timers = timers(&blocks)?;
    let (events, end, thread) = work(&timers, || ());
    soon(&timers, "before")?;
    assert_eq!(events.recv_timeout(LIMIT)?.id, "before");
    blocks.set(DiskState::Lying);
    let error = soon(&timers, "in doubt").err().ok_or("the disk says that it failed")?;
    assert!(matches!(error, DurableError::Io(_)), "{error:?}");
    // No worker was notified of it.
    let event = events.recv_timeout(LIMIT)?;
    assert_eq!((&*event.id, event.outcome), ("in doubt", Outcome::Acknowledged));
    drop(end);
    assert_eq!(thread.join().map_err(|_| "the worker panicked")?, Ok(()));
    Ok(())
}

#[test]
fn a_store_ends_while_its_worker_waits() -> TestResult {
    let (blocks, refused) = Blocks::new();
    let store = blocks.store()?;
    blocks.set(DiskState::Protected);
    let lease = lease(&store, "id");
    refused.recv_timeout(LIMIT)?;
    drop(store);
    assert!(matches!(block_on(lease), Err(DurableError::Closed)));
    Ok(())
}

#[test]
fn a_worker_tells_that_it_waits_for_a_full_disk() -> TestResult {
    let (blocks, _refused) = Blocks::new();
    let timers = timers(&blocks)?;
    let full = Arc::clone(&blocks);
    let worker = Observed::start(timers.worker(), move |_| {
        full.set(DiskState::Protected);
        std::future::ready(Ok::<(), String>(()))
    });
    block_on(timers.insert("id", "", Duration::ZERO, Options::new()))?;
    let waits = worker.next(|| ());
    let Event::Waiting { reason: Wait::StoreReadOnly, error: Some(error) } = &waits else {
        panic!("{waits:?}");
    };
    assert!(matches!(error, DurableError::ReadOnly(_)), "{error}");
    blocks.set(DiskState::Well);
    // The lease has not run out.
    let ends = [worker.next(|| ()), worker.next(|| ())];
    assert!(matches!(&ends[0], Event::Attempt(it) if it.outcome == Outcome::Acknowledged));
    assert!(matches!(&ends[1], Event::Resumed { reason: Wait::StoreReadOnly, .. }), "{ends:?}");
    assert_eq!(worker.stop(), []);
    Ok(())
}
