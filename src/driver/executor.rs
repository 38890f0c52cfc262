//! Where the batches of a driver run: on the tick thread, on a rayon pool, or where the caller
//! says. The only file that knows of rayon.

#![forbid(unsafe_code)]

use std::io;
#[cfg(feature = "rayon")]
use std::panic::catch_unwind;
#[cfg(feature = "rayon")]
use std::sync::OnceLock;
#[cfg(feature = "rayon")]
use std::sync::mpsc::{self, TrySendError};

/// A batch of expired timers with their handler, ready to run once.
///
/// A job that is dropped without having run loses nothing: its timers are handed back by
/// [`Driver::shutdown`](crate::Driver::shutdown).
pub type Job = Box<dyn FnOnce() + Send + 'static>;

/// Runs the batches of a driver.
///
/// `execute` is called by the tick thread and should not block it. Every `Fn(Job)` is an
/// executor.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::{Builder, Job};
///
/// // A queue that this thread works off.
/// let (send, jobs) = mpsc::channel::<Job>();
/// let driver = Builder::new()
///     .driver()
///     .executor(move |job| drop(send.send(job)))
///     .spawn(|timer: tourbillon::Expired<&str>| assert_eq!(timer.value, "now"))?;
/// driver.wheel().insert("now", Duration::ZERO)?;
/// jobs.recv()?();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Executor: Send + Sync + 'static {
    /// Runs `job`, now or later, here or elsewhere.
    fn execute(&self, job: Job);
}

impl<F: Fn(Job) + Send + Sync + 'static> Executor for F {
    fn execute(&self, job: Job) {
        self(job);
    }
}

/// Runs batches on the tick thread: for handlers that are quick, or only pass the value on.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::{Builder, Expired, Inline};
///
/// let (send, idle) = mpsc::channel();
/// let driver = Builder::new().driver().executor(Inline).spawn(move |timer: Expired<u32>| {
///     let _ = send.send(timer.value); // the thread that receives it does the work
/// })?;
/// driver.wheel().insert(7, Duration::ZERO)?;
/// assert_eq!(idle.recv()?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl Executor for Inline {
    fn execute(&self, job: Job) {
        job();
    }
}

/// Runs batches on rayon's global pool.
///
/// A pool that is given a batch wakes several of its threads, which look for more for a while
/// before they sleep again. The default spares that while one thread keeps up.
///
/// # Examples
///
/// Handlers that compute for long, each on a thread of the pool that is free:
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::{Builder, Expired, GlobalPool};
///
/// let (send, sums) = mpsc::channel();
/// let driver = Builder::new().driver().executor(GlobalPool).batch(1);
/// let driver = driver.spawn(move |report: Expired<Vec<u64>>| {
///     let _ = send.send(report.value.iter().sum::<u64>());
/// })?;
/// driver.wheel().insert(vec![1, 2, 3], Duration::ZERO)?;
/// assert_eq!(sums.recv()?, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "rayon")]
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalPool;

#[cfg(feature = "rayon")]
impl Executor for GlobalPool {
    fn execute(&self, job: Job) {
        rayon::spawn(job);
    }
}

/// Runs batches on a pool of the caller's.
#[cfg(feature = "rayon")]
impl Executor for rayon::ThreadPool {
    fn execute(&self, job: Job) {
        self.spawn(job);
    }
}

/// Runs batches on a pool of the caller's.
#[cfg(feature = "rayon")]
impl Executor for std::sync::Arc<rayon::ThreadPool> {
    fn execute(&self, job: Job) {
        self.spawn(job);
    }
}

/// The executor of a driver that was told nothing else: with the feature `rayon`, a thread of the
/// driver's own that waits for batches, and the global pool for those that come while it is busy.
///
/// It is no thread of a pool: what a handler spawns on rayon would wait there behind its loop.
///
/// If there can be no global pool (its threads could not be started), the batches that come while
/// the thread is busy run where they are handed over: rayon would drop them.
///
/// # Errors
///
/// The thread could not be started.
#[cfg(feature = "rayon")]
#[allow(clippy::disallowed_methods, reason = "the worker thread")]
pub(crate) fn default_executor(name: &str) -> io::Result<Box<dyn Executor>> {
    // Without capacity: a batch is taken by a thread that waits for it, or not at all.
    let (hand, waiting) = mpsc::sync_channel::<Job>(0);
    std::thread::Builder::new()
        .name(format!("{name}-worker"))
        .spawn(move || waiting.into_iter().for_each(|job| job()))?;
    // Asked when it is first needed, since the question starts the pool; its answer never changes.
    let pool = OnceLock::new();
    Ok(Box::new(move |job| match hand.try_send(job) {
        Ok(()) => {}
        Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
            match pool.get_or_init(|| catch_unwind(rayon::current_num_threads).is_ok()) {
                true => rayon::spawn(job),
                false => job(),
            }
        }
    }))
}

#[cfg(not(feature = "rayon"))]
pub(crate) fn default_executor(_name: &str) -> io::Result<Box<dyn Executor>> {
    Ok(Box::new(Inline))
}
