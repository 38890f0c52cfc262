//! [`Driver`]: a tick thread that owns the sweeper and hands what is due to an executor.
//!
//! ```text
//!   callers ──insert, cancel, reset──► wheel ◄──sweep── tick thread ──batches──► executor
//!                                        │                 ▲   rests until             │
//!                                        └──── alarm ──────┘   the next slot         │
//!                                          an earlier timer    ◄── a batch ended ────┘
//! ```
//!
//! The tick thread never runs handlers (unless told to, by [`Inline`](crate::Inline)) and never
//! waits for the executor. It does not tick: it rests until the next occupied slot is due, for
//! good if there is none (but for a look every 2^33 ticks), and the [alarm](crate::alarm) wakes
//! it for an earlier timer. Waking late, it sweeps all that was missed, in order; since it rests
//! until absolute instants, nothing adds up.
//!
//! **What is in flight.** A [`Batch`] is counted from its making to its end. If the builder
//! bounds what is in flight and the bound is reached, due timers stay in the wheel, where they
//! can still be cancelled and reset, and the end of a batch wakes the tick thread. A batch that an
//! executor drops unrun hands its timers to `unfired`; [`Driver::shutdown`] gives them back.
//!
//! **Shutting down** from anywhere: close the wheel, stop and join the tick thread (not from the
//! tick thread itself, where an inline handler may be calling), drain the wheel. The thread never
//! waits for a handler, so joining it from a handler ends. Waiting for handlers is a verb of its
//! own, which a handler is refused.

#![forbid(unsafe_code)]

use crate::TimerId;
use crate::bell::Bell;
use crate::builder::Builder;
use crate::caller::Caller;
use crate::core::Call;
use crate::error::BuildError;
use crate::executor::{Executor, default_executor};
use crate::metrics::Metrics;
use crate::reclaim::pin;
use crate::sweeper::{Expired, Sweeper};
use crate::sync::thread::{self, JoinHandle, ThreadId};
use crate::sync::{
    AcqRel, Acquire, AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Relaxed, Release,
    thread_local,
};
use crate::tick::Tick;
use crate::trace::{Teller, Watch};
use crate::wheel::{Armed, Wheel};
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

type Handler<T> = Box<dyn Fn(Expired<T>) + Send + Sync>;
type PanicObserver = Box<dyn Fn(TimerId, &(dyn Any + Send)) + Send + Sync>;

/// Says what a driver should be like; made by [`Builder::driver`].
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
    batch: usize,
    max_in_flight: usize,
    thread_name: String,
    on_panic: PanicObserver,
}

impl DriverBuilder {
    pub(crate) fn new(wheel: Builder) -> Self {
        Self {
            wheel,
            executor: None,
            batch: 2048,
            max_in_flight: usize::MAX,
            thread_name: String::from("tourbillon"),
            on_panic: Box::new(|_, _| ()),
        }
    }

    /// Where batches run. By default, one after the other on a thread of the driver's own, and on
    /// rayon's global pool while that is busy; without the feature `rayon`, on the tick thread.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.executor = Some(Box::new(executor));
        self
    }

    /// The most timers that a batch holds, at least 1; 2048 by default. The handlers of a batch run
    /// one after the other: make it small if they may take long.
    pub fn batch(mut self, timers: usize) -> Self {
        self.batch = timers;
        self
    }

    /// The most timers that may be with the executor at a time, at least 1; unbounded by default.
    /// Beyond it, due timers wait in the wheel, armed, and fire late.
    pub fn max_in_flight(mut self, timers: usize) -> Self {
        self.max_in_flight = timers;
        self
    }

    /// The name of the tick thread, `tourbillon` by default; the thread of the default executor has
    /// it with `-worker` behind.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Called after a handler has panicked, with the timer's id and the panic's payload.
    pub fn on_panic(
        mut self,
        observer: impl Fn(TimerId, &(dyn Any + Send)) + Send + Sync + 'static,
    ) -> Self {
        self.on_panic = Box::new(observer);
        self
    }

    /// Builds the wheel and starts its tick thread. `handler` runs once for each timer that
    /// reaches its deadline. A handler that panics harms no other timer.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`]; also when batches or timers in flight are bounded to none, or the
    /// thread cannot be started.
    pub fn spawn<T: Send + 'static>(
        self,
        handler: impl Fn(Expired<T>) + Send + Sync + 'static,
    ) -> Result<Driver<T>, BuildError> {
        self.spawn_with(|_| handler)
    }

    /// As [`spawn`](Self::spawn), for a handler that uses the wheel itself: `make` makes it.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// A timer that is armed again when it fires:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Expired};
    ///
    /// let driver = Builder::new().driver().spawn_with(|wheel| {
    ///     move |heartbeat: Expired<u64>| {
    ///         // Refused only when the driver has been shut down.
    ///         let _ = wheel.insert(heartbeat.value + 1, Duration::from_secs(1));
    ///     }
    /// })?;
    /// driver.wheel().insert(0, Duration::from_secs(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::disallowed_methods, reason = "the one place that starts a thread")]
    pub fn spawn_with<T: Send + 'static, H: Fn(Expired<T>) + Send + Sync + 'static>(
        mut self,
        make: impl FnOnce(Wheel<T>) -> H,
    ) -> Result<Driver<T>, BuildError> {
        if self.thread_name.contains('\0') {
            let reason = "the name of the tick thread holds a zero byte";
            let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
            return Err(BuildError::Thread(error));
        }
        if self.batch == 0 {
            return Err(BuildError::Batch);
        }
        if self.max_in_flight == 0 {
            return Err(BuildError::InFlight);
        }
        let executor = match self.executor {
            Some(executor) => executor,
            None => default_executor(&self.thread_name).map_err(BuildError::Thread)?,
        };
        let bell = Arc::new(Bell::default());
        let (ring, moved) = (Arc::clone(&bell), Arc::downgrade(&bell));
        self.wheel.waker = Some(Box::new(move || ring.ring()));
        let (wheel, sweeper) = self.wheel.build()?;
        wheel
            .inner
            .clock
            .subscribe(Box::new(move || moved.upgrade().inspect(|bell| bell.ring()).is_some()));
        let shared = Arc::new(Shared {
            handler: Box::new(make(wheel.clone())),
            on_panic: self.on_panic,
            stopping: AtomicBool::new(false),
            timers_in_flight: AtomicUsize::new(0),
            batches_in_flight: AtomicUsize::new(0),
            panics: AtomicUsize::new(0),
            unfired: Mutex::new(Vec::new()),
            quiet: Condvar::new(),
            quiet_lock: Mutex::new(()),
            bell,
            teller: Teller::new(&self.thread_name),
        });
        let ticking = TickThread {
            sweeper,
            shared: Arc::clone(&shared),
            executor,
            batch: self.batch,
            max_in_flight: self.max_in_flight,
            watch: Watch::new(&shared.teller),
        };
        let thread = thread::Builder::new()
            .name(self.thread_name)
            .spawn(move || ticking.run())
            .map_err(BuildError::Thread)?;
        let tick_thread = thread.thread().id();
        shared.teller.started(&wheel);
        Ok(Driver { wheel, shared, tick_thread, thread: Mutex::new(Some(thread)) })
    }
}

impl fmt::Debug for DriverBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverBuilder")
            .field("wheel", &self.wheel)
            .field("batch", &self.batch)
            .field("max_in_flight", &self.max_in_flight)
            .field("thread_name", &self.thread_name)
            .finish_non_exhaustive()
    }
}

/// A wheel with a tick thread that hands what is due to an executor.
///
/// Dropping the driver shuts it down; what had not fired is then dropped, also if handles of the
/// wheel live on.
///
/// With the feature `tracing` it tells events of the target `tourbillon`, each with the thread's
/// name as `driver`: start and end, and panics of handlers; and, at most once a second, timers that
/// were swept late and overload by the bound on what is in flight.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let (send, fired) = mpsc::channel();
/// let driver = Builder::new().driver().spawn(move |timer| {
///     let _ = send.send(timer.value);
/// })?;
///
/// let wheel = driver.wheel(); // clone it into every thread
/// wheel.insert("request 7 timed out", Duration::from_millis(5))?;
/// let answered = wheel.insert("request 8 timed out", Duration::from_secs(5))?;
/// wheel.cancel(answered);
///
/// assert_eq!(fired.recv()?, "request 7 timed out");
/// assert!(driver.shutdown().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Driver<T> {
    wheel: Wheel<T>,
    shared: Arc<Shared<T>>,
    tick_thread: ThreadId,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why waiting for handlers was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The caller is itself a handler of this driver, and would wait for itself.
    InsideHandler,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a handler cannot wait for the handlers of its own driver to end")
    }
}

impl std::error::Error for WaitError {}

impl<T: Send + 'static> Driver<T> {
    /// The wheel whose timers this driver fires.
    #[must_use]
    pub fn wheel(&self) -> &Wheel<T> {
        &self.wheel
    }

    /// A snapshot of what the wheel and the driver count.
    ///
    /// # Examples
    ///
    /// ```
    /// let driver = tourbillon::Builder::new().driver().spawn(|_: tourbillon::Expired<()>| ())?;
    /// assert_eq!(driver.metrics().handler_panics, 0);
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        // Relaxed, thrice: figures.
        let figure = |counter: &AtomicUsize| counter.load(Relaxed) as u64;
        Metrics {
            timers_in_flight: figure(&self.shared.timers_in_flight),
            batches_in_flight: figure(&self.shared.batches_in_flight),
            handler_panics: figure(&self.shared.panics),
            ..self.wheel.metrics()
        }
    }

    /// Closes the wheel, stops the tick thread and hands back every timer that had not fired.
    ///
    /// Handlers that run, and batches already with the executor, go on; to see them end, call
    /// [`wait`](Self::wait) after. Idempotent: what an earlier call handed back is not handed
    /// back again. It may be called from anywhere, also from a handler. Called while the tick
    /// thread is in the middle of a sweep, it waits for the end of that.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let driver = tourbillon::Builder::new().driver().spawn(|_| ())?;
    /// driver.wheel().insert("unfinished", Duration::from_secs(60))?;
    /// assert_eq!(driver.shutdown()[0].value, "unfinished");
    /// assert!(driver.shutdown().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self) -> Vec<Armed<T>> {
        let first = self.stop();
        let unfired = std::mem::take(&mut *lock(&self.shared.unfired));
        let mut returned: Vec<Armed<T>> = unfired
            .into_iter()
            .map(|Expired { value, id, deadline }| Armed { value, id, deadline })
            .collect();
        returned.extend(self.wheel.drain());
        self.shared.teller.stopped(first, returned.len(), 0);
        returned
    }

    /// Waits until no handler runs and no batch is with the executor.
    ///
    /// After [`shutdown`](Self::shutdown) that is final; before, it is true for a moment, and says
    /// nothing of timers that are due and that the tick thread has not taken yet. It blocks: a
    /// task on the executor's own threads that calls it may keep the batches it waits for from
    /// running.
    ///
    /// # Errors
    ///
    /// The caller is a handler of this driver.
    ///
    /// # Examples
    ///
    /// ```
    /// let driver = tourbillon::Builder::new().driver().spawn(|_: tourbillon::Expired<()>| ())?;
    /// driver.shutdown();
    /// driver.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self) -> Result<(), WaitError> {
        if Inside::is(&self.shared) {
            return Err(WaitError::InsideHandler);
        }
        let mut guard = lock(&self.shared.quiet_lock);
        // Acquire: pairs with the Release of the last batch's end, so that what its handlers did
        // is seen.
        while self.shared.batches_in_flight.load(Acquire) > 0 {
            guard = self.shared.quiet.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}

impl<T> Driver<T> {
    /// Answers whether this is the first call.
    fn stop(&self) -> bool {
        self.wheel.inner.core.close();
        // Release: pairs with the Acquire of the tick thread's look.
        let first = !self.shared.stopping.swap(true, Release);
        self.shared.bell.ring();
        if thread::current().id() == self.tick_thread {
            return first;
        }
        // Joined under the lock, so that of two threads that shut down both see it ended.
        let mut thread = lock(&self.thread);
        if let Some(running) = thread.take() {
            // A tick thread that panicked has dropped its sweeper; the drain finds the rest.
            let _ = running.join();
        }
        first
    }
}

impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        let first = self.stop();
        // Handles of the wheel may live on: the values must not wait for them.
        let core = &self.wheel.inner.core;
        let call = Call { caller: Caller::current(), guard: &pin() };
        let mut dropped = lock(&self.shared.unfired).len();
        core.drain(call, |_, _, value| {
            dropped += 1;
            drop(value);
        });
        self.shared.teller.stopped(first, 0, dropped);
    }
}

impl<T> fmt::Debug for Driver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("wheel", &self.wheel).finish_non_exhaustive()
    }
}

/// What the driver's handle, its tick thread and its batches share.
struct Shared<T> {
    handler: Handler<T>,
    on_panic: PanicObserver,
    stopping: AtomicBool,
    timers_in_flight: AtomicUsize,
    batches_in_flight: AtomicUsize,
    panics: AtomicUsize,
    /// Timers of batches that an executor dropped unrun.
    unfired: Mutex<Vec<Expired<T>>>,
    quiet: Condvar,
    quiet_lock: Mutex<()>,
    bell: Arc<Bell>,
    teller: Teller,
}

/// The tick thread's own.
struct TickThread<T> {
    sweeper: Sweeper<T>,
    shared: Arc<Shared<T>>,
    executor: Box<dyn Executor>,
    batch: usize,
    max_in_flight: usize,
    watch: Watch,
}

impl<T: Send + 'static> TickThread<T> {
    fn run(mut self) {
        self.shared.bell.hang_up();
        // Acquire: pairs with the Release of `Driver::stop`.
        while !self.shared.stopping.load(Acquire) {
            // Acquire: pairs with the Release of a batch's end.
            let in_flight = self.shared.timers_in_flight.load(Acquire);
            let room = self.max_in_flight.saturating_sub(in_flight);
            if room == 0 {
                self.shared.bell.wait(self.watch.held_back(&self.sweeper, in_flight));
                continue;
            }
            let mut timers = Vec::new();
            let finished = self.sweeper.collect(self.batch.min(room), &mut timers);
            if !timers.is_empty() {
                self.watch.handed_over(&self.sweeper, &timers);
                self.hand_over(timers);
            }
            if finished {
                self.watch.caught_up(&self.sweeper);
                self.rest();
            }
        }
    }

    fn hand_over(&self, timers: Vec<Expired<T>>) {
        let batch = Batch::new(timers, Arc::clone(&self.shared));
        // An executor that panics drops the batch, or has run it: either way nothing is lost.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.executor.execute(Box::new(move || batch.run()));
        }));
    }

    /// Parks until the next sweep is wanted, or the alarm, a batch or the clock wakes the thread.
    fn rest(&mut self) {
        let next = self.sweeper.next_deadline();
        let wheel = self.sweeper.wheel();
        let (clock, timeline) = (&wheel.inner.clock, &wheel.inner.core.timeline);
        let longest = timeline.duration(Tick::LONGEST_REST);
        let until: Option<Instant> = next.or_else(|| clock.now().checked_add(longest));
        self.shared.bell.wait(until.and_then(|until| clock.timeout(until)));
    }
}

/// Timers on their way through the executor.
struct Batch<T> {
    timers: std::vec::IntoIter<Expired<T>>,
    size: usize,
    shared: Arc<Shared<T>>,
}

impl<T> Batch<T> {
    fn new(timers: Vec<Expired<T>>, shared: Arc<Shared<T>>) -> Self {
        // Relaxed, twice: the tick thread counts up before it hands the batch on.
        shared.timers_in_flight.fetch_add(timers.len(), Relaxed);
        shared.batches_in_flight.fetch_add(1, Relaxed);
        Self { size: timers.len(), timers: timers.into_iter(), shared }
    }

    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _inside = Inside::enter(&shared);
        for timer in self.timers.by_ref() {
            let id = timer.id;
            let outcome = catch_unwind(AssertUnwindSafe(|| (shared.handler)(timer)));
            if let Err(panic) = outcome {
                // Relaxed: a figure.
                shared.panics.fetch_add(1, Relaxed);
                // An observer, or a payload's drop, that panics in turn has nobody left to tell.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    shared.teller.panicked(id, &*panic);
                    (shared.on_panic)(id, &*panic);
                    drop(panic);
                }));
            }
        }
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        let shared = &self.shared;
        if self.timers.len() > 0 {
            lock(&shared.unfired).extend(self.timers.by_ref());
        }
        // AcqRel: the Release half publishes what the handlers did to whoever waits, and the
        // room to the tick thread; the Acquire half keeps the chain over several batches.
        shared.timers_in_flight.fetch_sub(self.size, AcqRel);
        // AcqRel: as above.
        if shared.batches_in_flight.fetch_sub(1, AcqRel) == 1 {
            // The lock keeps the notice from slipping between a waiter's look and its wait.
            drop(lock(&shared.quiet_lock));
            shared.quiet.notify_all();
        }
        shared.bell.ring();
    }
}

thread_local! {
    /// The drivers whose handlers this thread is in the middle of, innermost last.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// While this lives, the thread runs handlers of a driver.
struct Inside;

impl Inside {
    fn enter<T>(shared: &Arc<Shared<T>>) -> Self {
        INSIDE.with(|inside| inside.borrow_mut().push(Arc::as_ptr(shared).addr()));
        Inside
    }

    fn is<T>(shared: &Arc<Shared<T>>) -> bool {
        INSIDE.with(|inside| inside.borrow().contains(&Arc::as_ptr(shared).addr()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.borrow_mut().pop());
    }
}

/// The lock's contents: nothing here is left half done by a panic.
fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
