//! [`DriverBuilder`]: the configuration of a driver.

#![forbid(unsafe_code)]

use super::Driver;
use super::batch::{DriverShared, LastSweep, LastSweepGuard, PanicObserver};
use super::events::{DriverEvents, LoadMonitor, WarnLimits};
use super::executor::Executor;
use super::parker::Parker;
use super::tick_thread::TickThread;
use super::workers::Workers;
use crate::error::BuildError;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Process, thread};
use crate::wheel::{Builder, Expired, TimerId, Wheel};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A builder of a [`Driver`]; created by [`Builder::driver`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// # #[cfg(feature = "rayon")] {
/// let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(2).build()?);
/// let driver = Builder::new()
///     .driver()
///     .executor(pool)
///     .max_in_flight(10_000)
///     .thread_name("timeouts")
///     .on_panic(|id, _| eprintln!("the handler of {id:?} panicked"))
///     .spawn(|timer: tourbillon::Expired<&str>| assert_eq!(timer.value, "now"))?;
/// driver.wheel().insert("now", Duration::ZERO)?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct DriverBuilder {
    wheel: Builder,
    executor: Option<Box<dyn Executor>>,
    batch: Option<usize>,
    default_batch: usize,
    max_in_flight: usize,
    thread_name: String,
    on_panic: PanicObserver,
    drop_unrun: bool,
    detach_on_drop: bool,
    limits: WarnLimits,
}

impl Builder {
    /// Returns a builder for a driver of such a wheel.
    pub fn driver(self) -> DriverBuilder {
        DriverBuilder::new(self)
    }
}

impl DriverBuilder {
    fn new(wheel: Builder) -> Self {
        Self {
            wheel,
            executor: None,
            batch: None,
            default_batch: 2048,
            max_in_flight: usize::MAX,
            thread_name: String::from("tourbillon"),
            on_panic: Box::new(|_, _| ()),
            drop_unrun: false,
            detach_on_drop: false,
            limits: WarnLimits::default(),
        }
    }

    /// Sets the executor, which runs the batches.
    ///
    /// By default batches run on the driver's own worker thread. A batch that arrives while the
    /// worker is busy starts another one, which ends after ten seconds without a batch. Beside the
    /// first, a driver has at most one worker per core, but at least 4 and at most 16. When all are
    /// busy, batches wait for the next worker that is free.
    ///
    /// If a worker cannot be started, the next attempt comes a second later at the earliest. Until
    /// then, batches that find all workers busy run on the tick thread.
    ///
    /// Each driver has its own workers, so handlers that block never delay another driver. Handlers
    /// never run on the program's own threads unless the executor does so, as `GlobalPool` does
    /// with rayon's.
    ///
    /// The tick thread drops the executor after its last sweep. A shutdown does not wait for that.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.executor = Some(Box::new(executor));
        self
    }

    /// Sets the executor if there is none.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) fn or_executor(mut self, executor: impl Executor) -> Self {
        self.executor = self.executor.or_else(|| Some(Box::new(executor)));
        self
    }

    /// Sets the maximum number of timers in a batch, 2048 by default. It must be at least 1.
    ///
    /// The handlers of a batch run one after the other, so make it small if they may take long.
    pub fn batch(mut self, timers: usize) -> Self {
        self.batch = Some(timers);
        self
    }

    /// Sets the batch size that applies unless [`batch`](Self::batch) is called, before or after.
    ///
    /// This is for a layer that accepts a builder and knows how long its handlers take.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::{BuildError, Driver, DriverBuilder, Expired};
    ///
    /// /// Sends letters, which takes long: two that are due together go out side by side.
    /// fn letters(driver: DriverBuilder) -> Result<Driver<String>, BuildError> {
    ///     driver.default_batch(1).spawn(|letter: Expired<String>| println!("{}", letter.value))
    /// }
    ///
    /// let mine = letters(tourbillon::Builder::new().driver())?;
    /// let theirs = letters(tourbillon::Builder::new().driver().batch(100))?;
    /// # drop((mine, theirs));
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn default_batch(mut self, timers: usize) -> Self {
        self.default_batch = timers;
        self
    }

    /// Sets the maximum number of timers in flight, which means with the executor. It must be at
    /// least 1. There is no limit by default.
    ///
    /// Beyond it, due timers stay armed in the wheel and fire late.
    pub fn max_in_flight(mut self, timers: usize) -> Self {
        self.max_in_flight = timers;
        self
    }

    /// Sets the name of the tick thread, `tourbillon` by default. The first worker of the default
    /// executor has the same name with the suffix `-worker`, the next one `-worker-2`, and so on.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Sets the lateness beyond which a sweep logs a warning with `tracing`, 10 ms by default and
    /// never less than a tick. Without the feature `tracing` it has no effect.
    ///
    /// # Examples
    ///
    /// On a shared machine with a scheduler that is often late:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let driver = tourbillon::Builder::new().driver().warn_late(Duration::from_millis(250));
    /// # drop(driver);
    /// ```
    pub fn warn_late(mut self, lateness: Duration) -> Self {
        self.limits.late = lateness;
        self
    }

    /// Sets the duration beyond which a batch logs a warning with `tracing`, 1 s by default. It is
    /// measured from the hand-over to the executor until the last handler has ended. Without the
    /// feature `tracing` it has no effect.
    ///
    /// # Examples
    ///
    /// For handlers that may take a minute each:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let driver = tourbillon::Builder::new().driver().batch(1);
    /// let driver = driver.warn_stuck(Duration::from_secs(90));
    /// # drop(driver);
    /// ```
    pub fn warn_stuck(mut self, duration: Duration) -> Self {
        self.limits.stuck = duration;
        self
    }

    /// Sets a function that is called after a handler has panicked, with the timer's id and the
    /// panic's payload.
    pub fn on_panic(
        mut self,
        observer: impl Fn(TimerId, &(dyn Any + Send)) + Send + Sync + 'static,
    ) -> Self {
        self.on_panic = Box::new(observer);
        self
    }

    /// Drops timers that the executor drops unrun, instead of keeping them for
    /// [`shutdown`](Driver::shutdown). This is for values whose drop does all that is necessary.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Expired, ExecutorJob};
    ///
    /// let driver = Builder::new()
    ///     .driver()
    ///     .executor(|job: ExecutorJob| drop(job)) // one that has ended
    ///     .drop_unrun()
    ///     .spawn(|_: Expired<mpsc::Sender<()>>| ())?;
    /// let (send, dropped) = mpsc::channel();
    /// driver.wheel().insert(send, Duration::from_millis(2))?;
    /// assert!(dropped.recv().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drop_unrun(mut self) -> Self {
        self.drop_unrun = true;
        self
    }

    /// Makes a drop of the driver act like [`Driver::detach`], which does not wait for the tick
    /// thread. This is for a driver that may be dropped under a lock that its handlers take.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Expired, Inline};
    ///
    /// let lock = Arc::new(Mutex::new(()));
    /// let takes = Arc::clone(&lock);
    /// let driver = Builder::new()
    ///     .driver()
    ///     .executor(Inline)
    ///     .detach_on_drop()
    ///     .spawn(move |_: Expired<()>| drop(takes.lock()))?;
    /// driver.wheel().insert((), Duration::ZERO)?;
    ///
    /// let held = lock.lock();
    /// drop(driver); // the handler may be waiting for the lock
    /// drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn detach_on_drop(mut self) -> Self {
        self.detach_on_drop = true;
        self
    }

    /// Builds the wheel and starts its tick thread.
    ///
    /// `handler` runs once for each timer whose deadline passes. A handler that panics harms no
    /// other timer.
    ///
    /// # Errors
    ///
    /// Fails like [`Builder::build`]. Also fails if the batch size or the bound on timers in flight
    /// is zero, if the thread cannot be started, or if the handler for forked child processes
    /// cannot be registered.
    pub fn spawn<T: Send + 'static>(
        self,
        handler: impl Fn(Expired<T>) + Send + Sync + 'static,
    ) -> Result<Driver<T>, BuildError> {
        self.spawn_with(|_| handler)
    }

    /// Starts a driver like [`spawn`](Self::spawn), for a handler that uses the wheel itself.
    /// `make` receives the wheel and returns the handler.
    ///
    /// # Errors
    ///
    /// Fails like [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// A request that is retried until the third attempt. For a timer that is armed again
    /// indefinitely, such as a heartbeat, use a [`Series`](crate::Series), which can be cancelled
    /// while its handler runs.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Expired};
    ///
    /// let driver = Builder::new().driver().spawn_with(|wheel| {
    ///     move |attempt: Expired<u64>| {
    ///         if attempt.value < 3 {
    ///             // Refused only when the driver has been shut down.
    ///             let _ = wheel.insert(attempt.value + 1, Duration::from_secs(1));
    ///         }
    ///     }
    /// })?;
    /// driver.wheel().insert(1, Duration::from_secs(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::disallowed_methods, reason = "the tick thread")]
    pub fn spawn_with<T: Send + 'static, H: Fn(Expired<T>) + Send + Sync + 'static>(
        self,
        make: impl FnOnce(Wheel<T>) -> H,
    ) -> Result<Driver<T>, BuildError> {
        if self.thread_name.contains('\0') {
            let reason = "the name of the tick thread contains a zero byte";
            let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
            return Err(BuildError::Thread(error));
        }
        let batch = self.batch.unwrap_or(self.default_batch);
        if batch == 0 {
            return Err(BuildError::Batch);
        }
        if self.max_in_flight == 0 {
            return Err(BuildError::InFlight);
        }
        let process = Process::current().map_err(BuildError::ForkHandler)?;
        let executor = match self.executor {
            Some(executor) => executor,
            None => Box::new(Workers::start(&self.thread_name).map_err(BuildError::Thread)?),
        };
        let parker = Arc::new(Parker::new(process));
        let (wakes, moved) = (Arc::clone(&parker), Arc::downgrade(&parker));
        let (wheel, sweeper) = self.wheel.waker(move || wakes.unpark()).build()?;
        let moved = move || moved.upgrade().inspect(|parker| parker.unpark()).is_some();
        wheel.clock().subscribe(Box::new(moved));
        let shared = Arc::new(DriverShared {
            handler: Box::new(make(wheel.clone())),
            _closed_in_children: wheel.close_in_children(process),
            wheel: wheel.clone(),
            on_panic: self.on_panic,
            stopping: AtomicBool::new(false),
            drop_unrun: self.drop_unrun,
            timers_in_flight: AtomicUsize::new(0),
            max_in_flight: self.max_in_flight,
            batches_in_flight: AtomicUsize::new(0),
            panics: AtomicUsize::new(0),
            handler_lateness: std::array::from_fn(|_| AtomicUsize::new(0)),
            unfired: Mutex::new(Vec::new()),
            idle: Condvar::new(),
            idle_lock: Mutex::new(()),
            last_sweep: LastSweep::new(),
            parker,
            events: DriverEvents::new(&self.thread_name, self.limits),
        });
        let ticking = TickThread {
            sweeper,
            _last_sweep_guard: LastSweepGuard(Arc::clone(&shared)),
            executor,
            shared: Arc::clone(&shared),
            batch,
            monitor: LoadMonitor::new(&shared.events),
        };
        let thread = thread::Builder::new()
            .name(self.thread_name)
            .spawn(move || ticking.run_and_report())
            .map_err(BuildError::Thread)?;
        let tick_thread = thread.thread().id();
        shared.events.started(wheel.resolution(), wheel.shards());
        Ok(Driver { shared, tick_thread, waits: !self.detach_on_drop })
    }
}

impl fmt::Debug for DriverBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverBuilder")
            .field("wheel", &self.wheel)
            .field("batch", &self.batch.unwrap_or(self.default_batch))
            .field("max_in_flight", &self.max_in_flight)
            .field("thread_name", &self.thread_name)
            .finish_non_exhaustive()
    }
}
