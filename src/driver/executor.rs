//! The executors of a driver's batches: the tick thread, a rayon pool, or one that the caller
//! provides. This is the only file that uses rayon.

#![forbid(unsafe_code)]

#[cfg(feature = "rayon")]
use crate::panics::unless_locked;
#[cfg(feature = "rayon")]
use crate::sync::Process;
#[cfg(feature = "rayon")]
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::io;
#[cfg(feature = "rayon")]
use std::sync::mpsc::{self, TrySendError};
#[cfg(feature = "rayon")]
use std::sync::{Arc, Mutex, OnceLock, Weak};

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

/// The default executor: the driver's own worker thread, and a pool shared by all drivers of the
/// process for batches that arrive while the worker is busy.
///
/// The worker is not a thread of a pool, so work that a handler spawns on rayon does not wait
/// behind the worker's loop.
#[cfg(feature = "rayon")]
struct Worker {
    /// A channel without capacity. A batch is taken by a worker that waits for it, or not at all.
    hand: mpsc::SyncSender<ExecutorJob>,
    /// Initialised when it is first needed, because its threads start then.
    pool: OnceLock<Option<Arc<ThreadPool>>>,
}

#[cfg(feature = "rayon")]
impl Executor for Worker {
    fn execute(&self, job: ExecutorJob) {
        let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
            self.hand.try_send(job)
        else {
            return;
        };
        match self.pool.get_or_init(shared_pool) {
            Some(pool) => pool.spawn(job),
            // The process cannot start any more threads.
            None => job(),
        }
    }
}

/// Creates the default executor, whose worker is called `name-worker`.
///
/// # Errors
///
/// Fails if the worker cannot be started.
#[cfg(feature = "rayon")]
#[allow(clippy::disallowed_methods, reason = "the worker thread")]
pub(crate) fn default_executor(name: &str) -> io::Result<Box<dyn Executor>> {
    let (hand, waiting) = mpsc::sync_channel::<ExecutorJob>(0);
    std::thread::Builder::new()
        .name(format!("{name}-worker"))
        .spawn(move || waiting.into_iter().for_each(|job| job()))?;
    Ok(Box::new(Worker { hand, pool: OnceLock::new() }))
}

/// Returns the pool that the drivers of this process share, and starts its threads if no driver has
/// it yet. Returns `None` if they cannot be started. The pool ends with the last of those drivers.
#[cfg(feature = "rayon")]
fn shared_pool() -> Option<Arc<ThreadPool>> {
    /// A pool and the process that has its threads, which a fork does not copy.
    type Pool = Option<(Process, Weak<ThreadPool>)>;
    static SHARED: Mutex<Pool> = Mutex::new(None);
    let process = Process::current().ok()?;
    let known = |shared: &Pool| {
        shared.as_ref().filter(|(owner, _)| *owner == process).and_then(|(_, pool)| pool.upgrade())
    };
    // If another thread holds the lock at this moment, the caller gets a pool of its own.
    let shared = unless_locked(SHARED.try_lock());
    if let Some(pool) = shared.and_then(|shared| known(&shared)) {
        return Some(pool);
    }
    // Not under the lock, which would stay locked in a child that is forked meanwhile.
    let pool = ThreadPoolBuilder::new()
        .num_threads(pool_threads())
        .thread_name(|number| format!("tourbillon-pool-{number}"))
        .build()
        .ok()
        .map(Arc::new)?;
    let Some(mut shared) = unless_locked(SHARED.try_lock()) else {
        return Some(pool);
    };
    Some(known(&shared).unwrap_or_else(|| {
        *shared = Some((process, Arc::downgrade(&pool)));
        pool
    }))
}

/// Returns the size of the shared pool, which is large enough for some handlers to block while
/// others run.
#[cfg(feature = "rayon")]
fn pool_threads() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| cores.get().clamp(4, 16))
}

#[cfg(not(feature = "rayon"))]
pub(crate) fn default_executor(_name: &str) -> io::Result<Box<dyn Executor>> {
    Ok(Box::new(Inline))
}

#[cfg(feature = "rayon")]
#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Executor, Worker};
    use std::sync::{OnceLock, mpsc};
    use std::thread;

    /// For a process that cannot start a thread.
    #[test]
    fn a_batch_that_finds_no_pool_runs_where_it_is_handed_over() {
        let (hand, _busy) = mpsc::sync_channel(0);
        let worker = Worker { hand, pool: OnceLock::from(None) };
        let (send, ran) = mpsc::channel();
        worker.execute(Box::new(move || send.send(thread::current().id()).unwrap_or(())));
        assert_eq!(ran.try_recv(), Ok(thread::current().id()));
    }
}
