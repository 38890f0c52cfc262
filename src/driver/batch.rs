//! [`Batch`]: timers on their way through the executor; and [`DriverShared`]: the state of a
//! driver, with the counts of timers and batches in flight.

#![forbid(unsafe_code)]

use super::events::{BatchNumber, DriverEvents};
use super::executor::ExecutorJob;
use super::parker::Parker;
use crate::discard::discard;
use crate::panics::{ignore_poison, quietly, unless_locked};
use crate::sync::{AcqRel, AtomicBool, AtomicUsize, Condvar, Inside, Mutex, Relaxed};
use crate::wheel::{ClosedInChildren, Expired, LATENESS_BUCKETS, Lateness, TimerId, Wheel};
use std::any::Any;
use std::mem::{replace, take};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) type Handler<T> = Box<dyn Fn(Expired<T>) + Send + Sync>;
pub(super) type PanicObserver = Box<dyn Fn(TimerId, &(dyn Any + Send)) + Send + Sync>;

/// The state that the driver's handle, its tick thread and its batches share.
pub(super) struct DriverShared<T> {
    pub(super) handler: Handler<T>,
    pub(super) on_panic: PanicObserver,
    pub(super) wheel: Wheel<T>,
    pub(super) _closed_in_children: ClosedInChildren<T>,
    pub(super) stopping: AtomicBool,
    /// The number of timers handed to the executor whose handlers have not ended.
    pub(super) timers_in_flight: AtomicUsize,
    /// The bound on `timers_in_flight`.
    pub(super) max_in_flight: usize,
    pub(super) batches_in_flight: AtomicUsize,
    pub(super) panics: AtomicUsize,
    /// The number of handlers that began in each bucket of lateness.
    pub(super) handler_lateness: [AtomicUsize; LATENESS_BUCKETS],
    /// Set if timers that an executor drops unrun are dropped, and not kept in `unfired`.
    pub(super) drop_unrun: bool,
    /// The timers of batches that an executor dropped unrun.
    pub(super) unfired: Mutex<Vec<Expired<T>>>,
    pub(super) idle: Condvar,
    pub(super) idle_lock: Mutex<()>,
    pub(super) last_sweep: LastSweep,
    pub(super) parker: Arc<Parker>,
    pub(super) events: DriverEvents,
}

/// The end of the tick thread's last sweep, after which it has dropped the sweeper.
pub(super) struct LastSweep {
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl LastSweep {
    pub(super) fn new() -> Self {
        Self { has_ended: Mutex::new(false), changed: Condvar::new() }
    }

    /// Blocks until the tick thread has swept for the last time and has dropped the sweeper.
    pub(super) fn wait(&self) {
        let mut has_ended = ignore_poison(self.has_ended.lock());
        while !*has_ended {
            has_ended = ignore_poison(self.changed.wait(has_ended));
        }
    }
}

/// Announces the [`LastSweep`] when it is dropped, even by a panic.
pub(super) struct LastSweepGuard<T>(pub(super) Arc<DriverShared<T>>);

impl<T> Drop for LastSweepGuard<T> {
    fn drop(&mut self) {
        let last = &self.0.last_sweep;
        *ignore_poison(last.has_ended.lock()) = true;
        last.changed.notify_all();
    }
}

impl<T> DriverShared<T> {
    /// Returns `true` in a child of the process that started the driver. A child has none of the
    /// driver's threads, and waits for no lock that one of them may have held at the fork.
    pub(super) fn is_forked(&self) -> bool {
        self.parker.is_forked()
    }

    /// Takes the timers that an executor dropped unrun.
    pub(super) fn take_unfired(&self) -> Vec<Expired<T>> {
        if self.is_forked() {
            let unfired = unless_locked(self.unfired.try_lock());
            return unfired.map(|mut unfired| take(&mut *unfired)).unwrap_or_default();
        }
        take(&mut *ignore_poison(self.unfired.lock()))
    }

    /// Counts handlers of timers with these deadlines, which began at `now`.
    fn count_lateness(&self, deadlines: &[Instant], now: Instant) {
        for same in deadlines.chunk_by(PartialEq::eq) {
            let bucket = Lateness::bucket(now.saturating_duration_since(same[0]));
            // Relaxed: a statistic.
            self.handler_lateness[bucket].fetch_add(same.len(), Relaxed);
        }
    }

    /// Returns `true` if the tick thread waits for room when the bound on timers in flight is
    /// reached.
    fn is_bounded(&self) -> bool {
        self.max_in_flight < usize::MAX
    }

    /// Subtracts `timers` from the number in flight, and wakes the tick thread if it may be waiting
    /// for room.
    fn release_room(&self, timers: usize) {
        // AcqRel:
        // - The Release half publishes what the handlers did to the tick thread, whose Acquire
        //   finds the room.
        // - The Acquire half keeps the chain over several batches.
        let before = self.timers_in_flight.fetch_sub(timers, AcqRel);
        // Only the tick thread adds to the count, and it waits only if the count is at the bound.
        if before >= self.max_in_flight {
            self.parker.unpark();
        }
    }
}

/// The number of handlers that run between two clock readings, after as many in a row were
/// [`QUICK`]. Before that, the clock is read after each handler.
const RUN: usize = 16;

/// The maximum duration of a quick handler. A reading of the clock takes a tenth of it.
const QUICK: Duration = Duration::from_nanos(640);

/// Timers on their way through the executor.
pub(super) struct Batch<T: Send> {
    timers: std::vec::IntoIter<Expired<T>>,
    shared: Arc<DriverShared<T>>,
    number: BatchNumber,
}

impl<T: Send> Batch<T> {
    pub(super) fn new(timers: Vec<Expired<T>>, shared: Arc<DriverShared<T>>) -> Self {
        // Relaxed, twice: the tick thread adds to the counts before it hands the batch over.
        shared.timers_in_flight.fetch_add(timers.len(), Relaxed);
        shared.batches_in_flight.fetch_add(1, Relaxed);
        // Before the clock is read, because its panic must not lose the timers.
        let mut batch = Self { timers: timers.into_iter(), shared, number: BatchNumber::NONE };
        let shared = &batch.shared;
        batch.number = shared.events.batch_handed_over(|| shared.wheel.clock().now());
        batch
    }

    /// Returns the job that runs the handlers. No panic leaves it, whether it runs or is dropped,
    /// because a pool may end the process by one.
    pub(super) fn into_job(self) -> ExecutorJob
    where
        T: 'static,
    {
        let mut job = QuietJob(Some(self));
        Box::new(move || {
            if let Some(batch) = job.0.take() {
                quietly(|| batch.run());
            }
        })
    }

    /// Calls the handler for each timer, in runs that read the clock once, and counts how late each
    /// call began.
    ///
    /// The first call of a run is counted with its own lateness. The others are counted when the
    /// run has ended: as if they had begun with the first if the run was quick, and otherwise as if
    /// they had begun at its end.
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _inside = Inside::enter(&*shared);
        let clock = shared.wheel.clock();
        let (mut now, mut quick) = (clock.now(), 0);
        let mut deadlines = [now; RUN];
        while self.timers.len() > 0 {
            let run = self.timers.len().min(if quick < RUN { 1 } else { RUN });
            for (deadline, timer) in deadlines.iter_mut().zip(self.timers.as_slice()).take(run) {
                *deadline = timer.deadline;
            }
            let (first, others) = deadlines[..run].split_at(1);
            shared.count_lateness(first, now);
            self.run_next(run);
            let began = replace(&mut now, clock.now());
            let took = now.saturating_duration_since(began);
            let were_quick = took.as_nanos() <= QUICK.as_nanos() * run as u128;
            quick = if were_quick { quick + run } else { 0 };
            shared.count_lateness(others, if were_quick { began } else { now });
        }
    }

    /// Calls the handler for the next `count` timers. Reports each panic, and releases the room of
    /// each timer.
    fn run_next(&mut self, count: usize) {
        let shared = &*self.shared;
        let mut ended = 0;
        for timer in self.timers.by_ref().take(count) {
            let id = timer.id;
            let outcome = catch_unwind(AssertUnwindSafe(|| (shared.handler)(timer)));
            if let Err(panic) = outcome {
                // Relaxed: a statistic.
                shared.panics.fetch_add(1, Relaxed);
                // No caller could handle a panic of the observer or of the payload's drop.
                quietly(|| {
                    shared.events.panicked(id, &*panic);
                    (shared.on_panic)(id, &*panic);
                    drop(panic);
                });
            }
            // At once, because the tick thread may be waiting for the room of this timer.
            if shared.is_bounded() {
                shared.release_room(1);
            } else {
                ended += 1;
            }
        }
        if ended > 0 {
            shared.release_room(ended);
        }
    }
}

impl<T: Send> Drop for Batch<T> {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.is_forked() {
            discard(self.timers.by_ref());
            return;
        }
        let unrun = self.timers.len();
        if unrun > 0 {
            if shared.drop_unrun {
                discard(self.timers.by_ref());
            } else {
                ignore_poison(shared.unfired.lock()).extend(self.timers.by_ref());
            }
            shared.release_room(unrun);
        }
        // A clock that panics must not keep the batch in flight, nor end the process if this thread
        // panics already.
        quietly(|| shared.events.batch_ended(&self.number, || shared.wheel.clock().now()));
        // AcqRel:
        // - The Release half publishes what the handlers did to a thread that waits for them, whose
        //   Acquire is in `Driver::wait`.
        // - The Acquire half keeps the chain over several batches.
        if shared.batches_in_flight.fetch_sub(1, AcqRel) == 1 {
            // The lock keeps the notification from falling between a waiter's check and its wait.
            drop(ignore_poison(shared.idle_lock.lock()));
            shared.idle.notify_all();
        }
        // The thread whose handler made the first room may have been preempted before it woke the
        // tick thread.
        if shared.is_bounded() {
            shared.parker.unpark();
        }
    }
}

/// A batch whose drop lets no panic out. It may be the last owner of the handler and of the values
/// that the handler has captured.
struct QuietJob<T: Send>(Option<Batch<T>>);

impl<T: Send> Drop for QuietJob<T> {
    fn drop(&mut self) {
        if let Some(batch) = self.0.take() {
            quietly(|| drop(batch));
        }
    }
}
