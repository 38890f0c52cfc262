//! [`Driver`]: a tick thread that owns the sweeper and hands expired timers to an executor.
//!
//! ```text
//!   callers ──insert, cancel, reset──► wheel ◄──sweep── tick thread ──batches──► executor
//!                                        │                 ▲   rests until             │
//!                                        └─── wake-up ─────┘   the next slot         │
//!                                          an earlier timer    ◄── room in flight ───┘
//! ```
//!
//! The tick thread never runs handlers, unless the executor is [`Inline`], and never waits for the
//! executor. It does not tick periodically. It parks until the next occupied slot expires, or
//! indefinitely if there is none, except for a check every 2^33 ticks. A wake-up ends the rest for
//! an earlier timer. If the thread wakes late, it sweeps everything it has missed, in order. It
//! rests until absolute instants, so delays do not add up.
//!
//! **In flight.** A timer counts as in flight from the creation of its [`Batch`](batch::Batch)
//! until its handler has ended. If the builder bounds the count and the bound is reached, due
//! timers stay in the wheel, where they can still be cancelled and reset, and the handler that
//! makes room wakes the tick thread. A batch that an executor drops unrun moves its timers to
//! `unfired`, and [`Driver::shutdown`] returns them.
//!
//! **Handlers that block.** The default executor has threads of the driver's own ([`workers`]), so
//! the handlers of one driver never delay another driver.
//!
//! **Shutting down** is possible from any thread. It closes the wheel, stops the tick thread, waits
//! for its last sweep, and drains the wheel. It does not wait on the tick thread itself, where an
//! inline handler may be the caller. The tick thread does not wait for a handler before its last
//! sweep, so a handler that waits for that sweep ends. Afterwards the tick thread drops the
//! executor, and no thread waits for that drop, because an executor may join its workers when it is
//! dropped and the thread that shuts down may be one of them. Waiting for handlers is a separate
//! operation, which fails in a handler.

#![forbid(unsafe_code)]

mod batch;
mod builder;
mod events;
mod executor;
mod parker;
mod tick_thread;
mod workers;

pub use builder::DriverBuilder;
#[cfg(feature = "rayon")]
pub use executor::GlobalPool;
pub use executor::{Executor, ExecutorJob, Inline};

use crate::discard::{discard, discard_armed};
use crate::panics::ignore_poison;
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Acquire, AtomicUsize, Inside, Relaxed, Release};
use crate::wheel::{Expired, Lateness, Metrics, Unfired, Wheel};
use batch::DriverShared;
use std::fmt;
use std::sync::Arc;

/// A wheel with a tick thread that hands expired timers to an executor.
///
/// Dropping the driver shuts it down and drops the timers that had not fired, even if handles of
/// the wheel still exist. The drop waits for the tick thread's last sweep and, with [`Inline`], for
/// its handlers. It does not wait if it happens on the tick thread, or if
/// [`detach_on_drop`](DriverBuilder::detach_on_drop) was set.
///
/// With the feature `tracing`, the driver emits events with the target `tourbillon` and the name of
/// the thread in the field `driver`. Start and end have the level debug, and panics of handlers
/// have the level error. At most once a second each, it warns of timers that were swept
/// [late](DriverBuilder::warn_late), of batches that are [stuck](DriverBuilder::warn_stuck), and of
/// an overload by the bound on timers in flight. The end of a stuck batch or an overload has the
/// level info. If timers that had not fired are dropped with the driver, it warns of their number
/// in the field `dropped`. A [`shutdown`](Self::shutdown) returns them instead.
///
/// # The end of the tick thread by a panic
///
/// A panic of a handler, an executor or a subscriber never ends the tick thread. A panic of the
/// wheel's [`Clock`](crate::Clock) does. The wheel is then [closed](Wheel::is_closed), inserts
/// return [`Refusal::Closed`](crate::Refusal::Closed), and a [`shutdown`](Self::shutdown) returns
/// the timers that have not fired. An event of level error has the message of the panic.
///
/// # Forked child processes
///
/// A child that is forked without `exec` has none of its parent's threads. In the child:
///
/// - The wheel of a driver that the parent started is closed. An insert returns
///   [`Refusal::Closed`](crate::Refusal::Closed), a timer can be cancelled, and no timer fires.
/// - A [shutdown](Self::shutdown) or drop returns or drops the child's copies of the values. A
///   value that another thread was taking at the fork is missing. A [job](crate::ExecutorJob) calls
///   the handler if the child runs it, and drops its values if the child drops it.
/// - [`wait`](Self::wait) returns at once. The driver emits no event of its end.
/// - `future::default_timer` starts a timer for the child on first use, unless the forking thread
///   was in the scope of another timer.
/// - A driver that the child starts works. So does a wheel whose sweeper belongs to the forking
///   thread.
///
/// None of these waits for a lock that a thread of the parent held at the fork, with three
/// exceptions:
///
/// - Destructors of values and wakers of sleeps run in the child. Any lock that they take must be
///   free there.
/// - Schedulers, keyed timers, caches and streams with timeouts use locks. The child may use or
///   drop one only if no other thread was using it at the fork.
/// - If another thread was starting or ending at the fork, as a worker of the default executor may
///   be, it may hold a lock of the standard library that each new thread takes. The threads that
///   the child starts then never run, so no timer of the child's own drivers fires, and their
///   shutdown waits forever. Fork while no thread starts or ends. On platforms other than 64-bit
///   Linux, the same holds for the very first operation on a wheel.
///
/// A handler that forks on the tick thread itself (with [`Inline`]) has to end the child before it
/// returns, because the child has a copy of that thread, which would continue.
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
#[must_use = "dropping the driver shuts it down"]
pub struct Driver<T> {
    shared: Arc<DriverShared<T>>,
    tick_thread: ThreadId,
    /// Set if the drop waits for the last sweep.
    waits: bool,
}

/// The error of [`Driver::wait`].
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
    /// The caller is a handler of this driver, and would wait for itself.
    InsideHandler,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a handler cannot wait for the handlers of its own driver")
    }
}

impl std::error::Error for WaitError {}

impl<T: Send + 'static> Driver<T> {
    /// Returns a snapshot of the counters of the wheel and the driver.
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

    /// Closes the wheel, stops the tick thread and returns every timer that had not fired.
    ///
    /// Running handlers, and batches that the executor already has, continue. Call
    /// [`wait`](Self::wait) afterwards to wait for their end. The call is idempotent, and timers
    /// that an earlier call returned are not returned again. It may be called from any thread,
    /// including a handler. If the tick thread is in the middle of a sweep, the call waits for the
    /// end of the sweep.
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
        self.stop_and_collect(true)
    }

    /// Shuts the driver down like [`shutdown`](Self::shutdown), but does not wait for the tick
    /// thread.
    ///
    /// The tick thread may be in the middle of a sweep or, with [`Inline`], of handlers. Use this
    /// if the caller may hold a lock that these take. Timers that the tick thread has in hand still
    /// go to the executor.
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
        self.stop_and_collect(false)
    }

    /// Stops the driver and returns the timers that have not fired. Those that an executor dropped
    /// unrun come first, then those that are armed.
    fn stop_and_collect(&self, waits: bool) -> Vec<Unfired<T>> {
        let first = self.stop(waits);
        let unfired = self.shared.take_unfired().into_iter();
        let mut returned: Vec<Unfired<T>> = unfired
            .map(|Expired { value, id, deadline }| Unfired { value, id, deadline })
            .collect();
        returned.extend(self.wheel().drain());
        self.shared.events.stopped(first, returned.len(), 0);
        returned
    }

    /// Waits until no handler runs and the executor has no batch.
    ///
    /// After [`shutdown`](Self::shutdown) this state is final. Before, it is temporary, and does
    /// not include due timers that the tick thread has not taken yet. The call blocks. A task on
    /// the executor's own threads that calls it may keep the batches it waits for from running.
    ///
    /// # Errors
    ///
    /// Fails if the caller is a handler of this driver.
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
        let mut guard = ignore_poison(self.shared.idle_lock.lock());
        // Acquire: pairs with the Release of the last batch's end, so that this thread sees what
        // its handlers did.
        while self.shared.batches_in_flight.load(Acquire) > 0 {
            guard = ignore_poison(self.shared.idle.wait(guard));
        }
        Ok(())
    }
}

impl<T> Driver<T> {
    /// Returns the wheel whose timers this driver fires.
    #[must_use]
    pub fn wheel(&self) -> &Wheel<T> {
        &self.shared.wheel
    }

    /// Drops the driver without waiting for the tick thread.
    ///
    /// The tick thread may be in the middle of a sweep or, with [`Inline`], of handlers. Use this
    /// if the driver may be dropped under a lock that these take.
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
        // Each timer that the tick thread has in hand still goes to the executor.
        self.waits = false;
    }

    /// Closes the wheel and stops the tick thread. If `waits`, blocks until its last sweep has
    /// ended, except on the tick thread itself and in a child.
    ///
    /// Returns `true` to the first call, which emits an event. In a child no call does, because a
    /// subscriber could wait for a lock that another thread held at the fork.
    fn stop(&self, waits: bool) -> bool {
        self.wheel().close();
        // Release: pairs with the Acquire load of the tick thread.
        let first = !self.shared.stopping.swap(true, Release);
        self.shared.parker.unpark();
        if waits && thread::current().id() != self.tick_thread && !self.shared.is_forked() {
            // A tick thread that panicked has dropped its sweeper too. The drain finds the
            // remaining timers.
            self.shared.last_sweep.wait();
        }
        first && !self.shared.is_forked()
    }
}

impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        let first = self.stop(self.waits);
        let unfired = self.shared.take_unfired();
        let dropped = discard(unfired) + discard_armed(self.wheel());
        // In a child, a thread that no longer exists may hold a subscriber's lock.
        if !self.shared.is_forked() {
            self.shared.events.stopped(first, 0, dropped);
        }
    }
}

impl<T> fmt::Debug for Driver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("wheel", self.wheel()).finish_non_exhaustive()
    }
}
