//! What a driver has in flight: batches on their way through the executor, and their counts.

#![forbid(unsafe_code)]

use super::bell::Bell;
use super::events::Teller;
use crate::panics::ignore_poison;
use crate::panics::quietly;
use crate::sync::{AcqRel, AtomicBool, AtomicUsize, Condvar, Mutex, Relaxed, thread_local};
use crate::wheel::{Expired, TimerId};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(super) type Handler<T> = Box<dyn Fn(Expired<T>) + Send + Sync>;
pub(super) type PanicObserver = Box<dyn Fn(TimerId, &(dyn Any + Send)) + Send + Sync>;

/// What the driver's handle, its tick thread and its batches share.
pub(super) struct Shared<T> {
    pub(super) handler: Handler<T>,
    pub(super) on_panic: PanicObserver,
    pub(super) stopping: AtomicBool,
    pub(super) timers_in_flight: AtomicUsize,
    pub(super) batches_in_flight: AtomicUsize,
    pub(super) panics: AtomicUsize,
    /// Whether timers that an executor drops unrun are dropped, and not kept in `unfired`.
    pub(super) drop_unrun: bool,
    /// Timers of batches that an executor dropped unrun.
    pub(super) unfired: Mutex<Vec<Expired<T>>>,
    pub(super) quiet: Condvar,
    pub(super) quiet_lock: Mutex<()>,
    pub(super) last_sweep: LastSweep,
    pub(super) bell: Arc<Bell>,
    pub(super) teller: Teller,
}

/// The moment at which the tick thread has swept for the last time and let go of the sweeper.
pub(super) struct LastSweep {
    over: Mutex<bool>,
    changed: Condvar,
}

impl LastSweep {
    pub(super) fn new() -> Self {
        Self { over: Mutex::new(false), changed: Condvar::new() }
    }

    /// Waits for it.
    pub(super) fn wait(&self) {
        let mut over = ignore_poison(self.over.lock());
        while !*over {
            over = ignore_poison(self.changed.wait(over));
        }
    }
}

/// Notifies whoever waits for the [`LastSweep`] when it is dropped, also by a panic.
pub(super) struct SaysLast<T>(pub(super) Arc<Shared<T>>);

impl<T> Drop for SaysLast<T> {
    fn drop(&mut self) {
        let last = &self.0.last_sweep;
        *ignore_poison(last.over.lock()) = true;
        last.changed.notify_all();
    }
}

/// Timers on their way through the executor.
pub(super) struct Batch<T> {
    timers: std::vec::IntoIter<Expired<T>>,
    size: usize,
    shared: Arc<Shared<T>>,
}

impl<T> Batch<T> {
    pub(super) fn new(timers: Vec<Expired<T>>, shared: Arc<Shared<T>>) -> Self {
        // Relaxed, twice: the tick thread counts up before it hands the batch on.
        shared.timers_in_flight.fetch_add(timers.len(), Relaxed);
        shared.batches_in_flight.fetch_add(1, Relaxed);
        Self { size: timers.len(), timers: timers.into_iter(), shared }
    }

    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _inside = Inside::enter(&shared);
        for timer in self.timers.by_ref() {
            let id = timer.id;
            let outcome = catch_unwind(AssertUnwindSafe(|| (shared.handler)(timer)));
            if let Err(panic) = outcome {
                // Relaxed: a figure.
                shared.panics.fetch_add(1, Relaxed);
                // An observer, or a payload's drop, that panics in turn has nobody left to tell.
                quietly(|| {
                    shared.teller.panicked(id, &*panic);
                    (shared.on_panic)(id, &*panic);
                    drop(panic);
                });
            }
        }
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.drop_unrun {
            drop_each(self.timers.by_ref());
        } else if self.timers.len() > 0 {
            ignore_poison(shared.unfired.lock()).extend(self.timers.by_ref());
        }
        // AcqRel: the Release half publishes what the handlers did to whoever waits, and the
        // room to the tick thread; the Acquire half keeps the chain over several batches.
        shared.timers_in_flight.fetch_sub(self.size, AcqRel);
        // AcqRel: as above.
        if shared.batches_in_flight.fetch_sub(1, AcqRel) == 1 {
            // The lock keeps the notice from slipping between a waiter's look and its wait.
            drop(ignore_poison(shared.quiet_lock.lock()));
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
pub(super) struct Inside;

impl Inside {
    fn enter<T>(shared: &Arc<Shared<T>>) -> Self {
        INSIDE.with(|inside| inside.borrow_mut().push(Arc::as_ptr(shared).addr()));
        Inside
    }

    pub(super) fn is<T>(shared: &Arc<Shared<T>>) -> bool {
        INSIDE.with(|inside| inside.borrow().contains(&Arc::as_ptr(shared).addr()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.borrow_mut().pop());
    }
}

/// Drops values of the user's, all of them though some panic. Returns how many they were.
pub(super) fn drop_each<V>(values: impl Iterator<Item = V>) -> usize {
    values.map(|value| quietly(|| drop(value))).count()
}
