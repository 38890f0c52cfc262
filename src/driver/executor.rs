//! The executors of a driver's batches: the tick thread, a rayon pool, or an executor that the
//! caller provides. This is the only file that uses rayon.

#![forbid(unsafe_code)]

#[cfg(feature = "rayon")]
use rayon::ThreadPool;
#[cfg(feature = "rayon")]
use std::sync::Arc;

/// A batch of expired timers with their handler, ready to run once.
///
/// If a job is dropped without having run, [`Driver::shutdown`](crate::Driver::shutdown) returns
/// its timers.
pub type ExecutorJob = Box<dyn FnOnce() + Send + 'static>;

/// An executor of the batches of a driver.
///
/// The tick thread calls `execute`, which should not block. Every `Fn(ExecutorJob)` is an executor.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::{Builder, ExecutorJob};
///
/// // A queue that this thread works off.
/// let (send, jobs) = mpsc::channel::<ExecutorJob>();
/// let driver = Builder::new()
///     .driver()
///     .executor(move |job| drop(send.send(job)))
///     .spawn(|timer: tourbillon::Expired<&str>| assert_eq!(timer.value, "now"))?;
/// driver.wheel().insert("now", Duration::ZERO)?;
/// jobs.recv()?();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Executor: Send + Sync + 'static {
    /// Runs `job`, now or later, on this thread or another.
    fn execute(&self, job: ExecutorJob);
}

impl<F: Fn(ExecutorJob) + Send + Sync + 'static> Executor for F {
    fn execute(&self, job: ExecutorJob) {
        self(job);
    }
}

/// An executor that runs batches on the tick thread. It suits handlers that are quick or only pass
/// the value on.
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
    fn execute(&self, job: ExecutorJob) {
        job();
    }
}

/// An executor that runs batches on rayon's global pool, beside the program's own computations.
///
/// A batch then waits for a free thread of that pool, possibly as long as the program's longest
/// computation. A thread that waits in `join` or in a parallel iterator may run the batch
/// meanwhile. If that thread holds a lock that a handler takes, it deadlocks.
///
/// # Examples
///
/// Handlers with long computations, each on a free thread of the pool:
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
    fn execute(&self, job: ExecutorJob) {
        rayon::spawn(job);
    }
}

/// Runs batches on the pool.
#[cfg(feature = "rayon")]
impl Executor for ThreadPool {
    fn execute(&self, job: ExecutorJob) {
        self.spawn(job);
    }
}

/// Runs batches on the pool.
#[cfg(feature = "rayon")]
impl Executor for Arc<ThreadPool> {
    fn execute(&self, job: ExecutorJob) {
        self.spawn(job);
    }
}
