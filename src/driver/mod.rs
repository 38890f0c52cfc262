//! [`Driver`]: a tick thread that owns the sweeper and hands what is due to an executor.
//!
//! ```text
//!   callers ──insert, cancel, reset──► wheel ◄──sweep── tick thread ──batches──► executor
//!                                        │                 ▲   rests until             │
//!                                        └──── alarm ──────┘   the next slot         │
//!                                          an earlier timer    ◄── room in flight ───┘
//! ```
//!
//! The tick thread never runs handlers (unless told to, by [`Inline`]) and never
//! waits for the executor. It does not tick: it rests until the next occupied slot is due, for good
//! if there is none (but for a look every 2^33 ticks), and the alarm
//! wakes it for an earlier timer. Waking late, it sweeps all that was missed, in order; since it
//! rests until absolute instants, nothing adds up.
//!
//! **What is in flight.** A timer is counted from the making of its [`Batch`] until its handler has
//! ended. If the builder bounds the count and the bound is reached, due timers stay in the wheel,
//! where they can still be cancelled and reset, and the handler that makes room wakes the tick
//! thread. A batch that an executor drops unrun hands its timers to `unfired`; [`Driver::shutdown`]
//! gives them back.
//!
//! **Shutting down** from anywhere: close the wheel, stop the tick thread and wait for its last
//! sweep (not from the tick thread itself, where an inline handler may be calling), drain the
//! wheel. The tick thread does not wait for a handler before its last sweep, so a handler that
//! waits for that comes to an end. After it, the tick thread drops the executor, and nobody waits
//! for that: an executor may join its workers when it is dropped, and the one that shuts down may
//! be one of them. Waiting for handlers is an operation of its own, which a handler is refused.

#![forbid(unsafe_code)]

mod batch;
mod builder;
mod events;
mod executor;
mod parker;

pub use builder::DriverBuilder;
#[cfg(feature = "rayon")]
pub use executor::GlobalPool;
pub use executor::{Executor, ExecutorJob, Inline};

use crate::panics::ignore_poison;
use crate::panics::quietly;
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Acquire, AtomicUsize, Inside, Relaxed, Release};
use crate::wheel::{Expired, Lateness, Metrics, Sweeper, Unfired, Wheel};
use batch::{Batch, DriverShared, LastSweepGuard, drop_each};
use events::LoadMonitor;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// A wheel with a tick thread that hands what is due to an executor.
///
/// Dropping the driver shuts it down; what had not fired is then dropped, also if handles of the
/// wheel live on. The drop waits for the tick thread's last sweep, and with
/// [`Inline`] for its handlers, unless it is called there or the builder says
/// [otherwise](DriverBuilder::detach_on_drop).
///
/// With the feature `tracing`, the driver emits events with the target `tourbillon` and the name of
/// the thread in the field `driver`. Start and end have the level debug, and panics of handlers
/// have the level error. At most once a second each, it warns of timers that were swept
/// [late](DriverBuilder::warn_late), of batches that are [stuck](DriverBuilder::warn_stuck), and of
/// an overload by the bound on timers in flight. The end of a stuck batch or an overload has the
/// level info. If timers that had not fired are dropped with the driver, it warns of their number
/// in the field `dropped`. A [`shutdown`](Self::shutdown) returns them instead.
///
/// # Forked child processes
///
/// A child that is forked without `exec` has none of its parent's threads. There:
///
/// - The wheel of a driver that the parent started is closed. An insert returns
///   [`Refusal::Closed`](crate::Refusal::Closed), a timer can be cancelled, and nothing fires.
/// - A [shutdown](Self::shutdown) or drop returns or drops the child's copies of the values. A
///   value that another thread was taking at the fork is missing. A [job](crate::ExecutorJob) that the
///   child runs calls the handler, and one that the child drops drops its values.
/// - [`wait`](Self::wait) returns at once. The driver emits no event of its end.
/// - `future::default_timer` returns a timer of the child's own, which the first call starts,
///   unless the forking thread was in a scope of another.
/// - A driver that the child starts works, and so does a wheel whose sweeper the forking thread
///   has.
///
/// None of these waits for a lock that a thread of the parent held at the fork, with three
/// exceptions:
///
/// - The values that are dropped and the wakers of sleeps that are woken run in the child. Whatever
///   they lock must be free there.
/// - Schedulers, keyed timers, caches and streams with timeouts use locks. The child may use or
///   drop one only if no other thread was using it at the fork.
/// - If another thread was starting or ending at the fork, it may hold a lock of the standard
///   library that each new thread takes. The threads that the child starts then never run: no timer
///   of the child's own drivers fires, and their shutdown waits forever. Fork while no thread
///   starts or ends. Elsewhere than on 64-bit Linux, the same holds for the very first operation on
///   a wheel.
///
/// A handler that forks on the tick thread itself (with [`Inline`]) has to end the
/// child before it returns: the child has a copy of that thread, which goes on.
///
/// The child must be forked by the `fork` of the C library, which calls the handlers of
/// `pthread_atfork`, and not by a system call.
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
#[must_use = "dropping it shuts it down"]
pub struct Driver<T> {
    shared: Arc<DriverShared<T>>,
    tick_thread: ThreadId,
    /// Whether its drop waits for the last sweep.
    waits: bool,
}

/// Why waiting for handlers was refused.
///
/// # Examples
///
/// A closure that waits for its own end:
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::scheduler::{Scheduled, Scheduler};
/// use tourbillon::{Builder, WaitError};
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let (send, itself) = mpsc::channel::<Scheduled>();
/// let run = scheduler.after(Duration::ZERO, move || itself.recv().map(|run| run.wait()))?;
/// send.send(run.scheduled().clone())?;
/// assert_eq!(run.join()?, Ok(Err(WaitError::InsideHandler)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
        // Relaxed: figures.
        let figure = |counter: &AtomicUsize| counter.load(Relaxed) as u64;
        let handler_lateness = self.shared.handler_lateness.iter().map(figure).collect();
        Metrics {
            handler_lateness: Lateness::of(handler_lateness),
            timers_in_flight: figure(&self.shared.timers_in_flight),
            batches_in_flight: figure(&self.shared.batches_in_flight),
            handler_panics: figure(&self.shared.panics),
            ..self.wheel().metrics()
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
    pub fn shutdown(&self) -> Vec<Unfired<T>> {
        self.end(true)
    }

    /// As [`shutdown`](Self::shutdown), but does not wait for the tick thread, which may be in the
    /// midst of a sweep or, with [`Inline`], of handlers: for callers that may hold
    /// a lock which these take. What the tick thread has in hand still goes to the executor.
    ///
    /// # Examples
    ///
    /// ```
    /// let driver = tourbillon::Builder::new().driver().spawn(|_| ())?;
    /// driver.wheel().insert("unfinished", std::time::Duration::from_secs(60))?;
    /// assert_eq!(driver.shutdown_detached()[0].value, "unfinished");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_detached(&self) -> Vec<Unfired<T>> {
        self.end(false)
    }

    fn end(&self, waits: bool) -> Vec<Unfired<T>> {
        let first = self.stop(waits);
        let unfired = self.shared.take_unfired().into_iter();
        let mut returned: Vec<Unfired<T>> = unfired
            .map(|Expired { value, id, deadline }| Unfired { value, id, deadline })
            .collect();
        returned.extend(self.wheel().drain());
        self.shared.events.stopped(first, returned.len(), 0);
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
        if Inside::is(&*self.shared) {
            return Err(WaitError::InsideHandler);
        }
        if self.shared.is_forked() {
            return Ok(());
        }
        let mut guard = ignore_poison(self.shared.quiet_lock.lock());
        // Acquire: pairs with the Release of the last batch's end, so that what its handlers did
        // is seen.
        while self.shared.batches_in_flight.load(Acquire) > 0 {
            guard = ignore_poison(self.shared.quiet.wait(guard));
        }
        Ok(())
    }
}

impl<T> Driver<T> {
    /// The wheel whose timers this driver fires.
    #[must_use]
    pub fn wheel(&self) -> &Wheel<T> {
        &self.shared.wheel
    }

    /// Ends the driver as dropping it does, but does not wait for the tick thread, which may be in
    /// the midst of a sweep or, with [`Inline`], of handlers: for one that may be
    /// dropped under a lock which these take.
    ///
    /// # Examples
    ///
    /// ```
    /// let driver = tourbillon::Builder::new().driver().spawn(|_: tourbillon::Expired<()>| ())?;
    /// let wheel = driver.wheel().clone();
    /// driver.detach();
    /// assert!(wheel.is_closed());
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    pub fn detach(mut self) {
        // Of what the tick thread has in hand each timer goes to the executor still.
        self.waits = false;
    }

    /// Returns whether to emit an event: at the first call, except in a child, where a subscriber
    /// could wait for a lock that another thread held at the fork.
    fn stop(&self, waits: bool) -> bool {
        self.wheel().close();
        // Release: pairs with the Acquire of the tick thread's look.
        let first = !self.shared.stopping.swap(true, Release);
        self.shared.parker.unpark();
        if waits && thread::current().id() != self.tick_thread && !self.shared.is_forked() {
            // A tick thread that panicked has dropped its sweeper too; the drain finds the rest.
            self.shared.last_sweep.wait();
        }
        first && !self.shared.is_forked()
    }
}

impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        let first = self.stop(self.waits);
        let unfired = self.shared.take_unfired();
        let dropped = drop_each(unfired.into_iter()) + drop_armed(self.wheel());
        // In a child, a subscriber's lock may be that of a thread that is not there.
        if !self.shared.is_forked() {
            self.shared.events.stopped(first, 0, dropped);
        }
    }
}

/// Drops what is armed, and returns how much that was: handles of the wheel may live on, and the
/// values must not wait for them. None is dropped under a guard.
fn drop_armed<T>(wheel: &Wheel<T>) -> usize {
    drop_each(wheel.drain().into_iter())
}

impl<T> fmt::Debug for Driver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("wheel", self.wheel()).finish_non_exhaustive()
    }
}

/// The tick thread's own, dropped in this order: the sweeper, before that is said, and the executor
/// after, which may wait for a handler that waits for it.
struct TickThread<T> {
    sweeper: Sweeper<T>,
    _last_sweep_guard: LastSweepGuard<T>,
    executor: Box<dyn Executor>,
    shared: Arc<DriverShared<T>>,
    batch: usize,
    monitor: LoadMonitor,
}

impl<T: Send + 'static> TickThread<T> {
    fn run(mut self) {
        self.shared.parker.register_current();
        // Acquire: pairs with the Release of `Driver::stop`.
        while !self.shared.stopping.load(Acquire) {
            // Acquire: pairs with the Release of `DriverShared::no_longer_in_flight`.
            let in_flight = self.shared.timers_in_flight.load(Acquire);
            let room = self.shared.max_in_flight.saturating_sub(in_flight);
            if room == 0 {
                let overload = self.monitor.held_back(&self.sweeper, in_flight);
                let stuck = self.monitor.stuck(&self.sweeper);
                self.wait(overload.into_iter().chain(stuck).min());
                continue;
            }
            let mut timers = Vec::new();
            let finished = self.sweeper.collect(self.batch.min(room), &mut timers);
            if !timers.is_empty() {
                self.monitor.handed_over(&self.sweeper, &timers);
                self.hand_over(timers);
            }
            if finished {
                self.monitor.caught_up(&self.sweeper);
                self.rest();
            }
        }
    }

    fn hand_over(&self, timers: Vec<Expired<T>>) {
        let batch = Batch::new(timers, Arc::clone(&self.shared));
        // An executor that panics drops the batch, or has run it: either way nothing is lost.
        quietly(|| self.executor.execute(Box::new(move || batch.run())));
    }

    /// Parks until the next sweep is wanted, or the alarm, a batch or the clock wakes the thread.
    fn rest(&mut self) {
        let next = self.sweeper.next_deadline();
        let wheel = self.sweeper.wheel();
        let clock = wheel.clock();
        let latest = clock.now().checked_add(self.sweeper.longest_rest());
        let stuck = self.monitor.stuck(&self.sweeper);
        self.wait(next.into_iter().chain(latest).chain(stuck).min());
    }

    /// Parks until the alarm, a batch, the clock or the instant, if there is one, wakes the thread.
    fn wait(&self, until: Option<Instant>) {
        let clock = self.shared.wheel.clock();
        self.shared.parker.park(until.and_then(|until| clock.timeout(until)));
    }
}
