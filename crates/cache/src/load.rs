//! [`Load`]: a load in progress, its outcome, and the callers that wait for it.
//!
//! In most cases one of the callers runs the load and the others wait, threads on a condition
//! variable and tasks in a list of wakers behind the same lock. All of them get the result, even an
//! error, which is in an `Arc` because few errors are `Clone`. A backend that is down is therefore
//! asked once, and not by one caller after the other. A load that is dropped before its end gives
//! up its place. The callers that waited look the key up again, and one of them loads it.
//!
//! A load that [belongs to its key](Load::store) is a future that is stored here and polled by any
//! waiting caller, one at a time. Its waker wakes all of them, so that the poll does not depend on
//! a caller that may be dropped. The first caller takes the future out to poll it. Callers that
//! find no future are woken again if it wants to be polled once more. The waker keeps neither the
//! load nor the cache alive. A load that no caller waits for is dropped by a timer of the wheel or
//! together with its place, and never under a lock of the map, because it may own anything. No user
//! code runs under the lock.

#![forbid(unsafe_code)]

use crate::inside::Inside;
use crate::panics::ignore_poison;
use crate::waiters::{WaiterId, Waiters, WakeList};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Wake, Waker};
use tourbillon::TimerId;

/// The outcome of a load. Each waiting caller gets a clone.
#[derive(Clone)]
pub(super) enum Outcome<V> {
    /// It returned a value, which the cache may have kept or not.
    Loaded(V),
    /// It failed with this error, an `Arc` of the load's own error type. A waiting caller may have
    /// another type.
    Failed(Arc<dyn Any + Send + Sync>),
    /// It reported that the value is unchanged, but there is none. Each waiting caller looks the
    /// key up again.
    Unchanged,
    /// It panicked, or its future was dropped before the end. One of the waiting callers loads.
    Nothing,
    /// The caller that waits for the load also runs it, so it would wait for itself.
    Recursive,
}

/// The future of a load that belongs to its key. It ends the [`Load`] by itself.
pub(super) type StoredFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A load, shared by the caller that runs it and the threads and tasks that wait.
pub(super) struct Load<V> {
    state: Mutex<State<V>>,
    /// Notified when the load has ended or wants to be polled.
    changed: Condvar,
}

struct State<V> {
    /// Set once. A later outcome is dropped.
    outcome: Option<Outcome<V>>,
    /// The tasks that wait.
    waiting: Waiters,
    /// The future of a load that belongs to its key, between two polls.
    stored: Option<(StoredFuture, Waker)>,
    /// Set if that future wants to be polled.
    woken: bool,
    timer: Option<TimerId>,
}

impl<V> State<V> {
    fn is_to_be_polled(&self) -> bool {
        self.woken && self.stored.is_some()
    }
}

impl<V> Load<V> {
    pub(super) fn new() -> Self {
        let (waiting, stored) = (Waiters::default(), None);
        let state = State { outcome: None, waiting, stored, woken: false, timer: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn end(&self, outcome: Outcome<V>) {
        let mut state = self.lock();
        state.outcome.get_or_insert(outcome);
        let told = state.waiting.take_all();
        drop(state);
        self.wake(told);
    }

    /// The timer that ends a load that belongs to its key.
    pub(super) fn timer(&self) -> Option<TimerId> {
        self.lock().timer
    }

    pub(super) fn set_timer(&self, timer: Option<TimerId>) {
        self.lock().timer = timer;
    }

    /// Polls a load that belongs to its key, if it wants to be polled and no other caller polls it.
    pub(super) fn drive(&self) {
        let mut state = self.lock();
        if !state.is_to_be_polled() {
            return;
        }
        let Some((mut stored, waker)) = state.stored.take() else { return };
        state.woken = false;
        drop(state);
        let polled = {
            let _inside = Inside::enter(self);
            let poll = || stored.as_mut().poll(&mut Context::from_waker(&waker));
            catch_unwind(AssertUnwindSafe(poll))
        };
        match polled {
            Ok(Poll::Pending) => self.put_back((stored, waker)),
            // Dropped here, where no lock is held.
            Ok(Poll::Ready(())) => {}
            Err(panic) => resume_unwind(panic),
        }
    }

    fn put_back(&self, stored: (StoredFuture, Waker)) {
        let mut state = self.lock();
        state.stored = Some(stored);
        // Callers that came meanwhile found nothing to poll.
        let told = if state.woken { state.waiting.take_all() } else { WakeList::default() };
        drop(state);
        self.wake(told);
    }

    /// Wakes the waiting threads and tasks.
    fn wake(&self, told: WakeList) {
        self.changed.notify_all();
        told.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        ignore_poison(self.state.lock())
    }
}

impl<V: Send + 'static> Load<V> {
    /// Makes `stored` the load, which from here on belongs to its key.
    pub(super) fn store(this: &Arc<Self>, timer: TimerId, stored: StoredFuture) {
        let waker = Waker::from(Arc::new(Alarm(Arc::downgrade(this))));
        let mut state = this.lock();
        state.stored = Some((stored, waker));
        state.timer = Some(timer);
        state.woken = true;
        let told = state.waiting.take_all();
        drop(state);
        this.wake(told);
    }
}

/// Wakes a load that belongs to its key. It holds the load weakly, because the load may hold what
/// wakes it.
struct Alarm<V>(Weak<Load<V>>);

impl<V: Send + 'static> Wake for Alarm<V> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(load) = self.0.upgrade() else { return };
        let mut state = load.lock();
        state.woken = true;
        let told = state.waiting.take_all();
        drop(state);
        load.wake(told);
    }
}

impl<V: Clone> Load<V> {
    /// Blocks until the load has ended.
    pub(super) fn wait(&self) -> Outcome<V> {
        if Inside::is(self) {
            return Outcome::Recursive;
        }
        let mut state = self.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            if state.is_to_be_polled() {
                drop(state);
                self.drive();
                state = self.lock();
            } else {
                state = ignore_poison(self.changed.wait(state));
            }
        }
    }
}

/// Waits for a load, as a future.
pub(super) struct Joining<V> {
    load: Arc<Load<V>>,
    waiter: WaiterId,
}

impl<V> Joining<V> {
    pub(super) fn new(load: Arc<Load<V>>) -> Self {
        Self { load, waiter: WaiterId::default() }
    }
}

impl<V: Clone> Joining<V> {
    /// Returns the outcome of the load if it has ended, and otherwise registers the task.
    fn check(&mut self, waker: Waker) -> Option<Outcome<V>> {
        let mut state = self.load.lock();
        if let Some(outcome) = &state.outcome {
            return Some(outcome.clone());
        }
        let replaced = state.waiting.register(&mut self.waiter, waker);
        drop(state);
        drop(replaced);
        None
    }
}

impl<V: Clone> Future for Joining<V> {
    type Output = Outcome<V>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<V>> {
        if Inside::is(&*self.load) {
            return Poll::Ready(Outcome::Recursive);
        }
        // Before the lock, because a waker is its runtime's code.
        let waker = context.waker().clone();
        if let Some(outcome) = self.check(waker) {
            return Poll::Ready(outcome);
        }
        self.load.drive();
        // An end that came with this poll has woken the task, and taken its waker.
        self.load.lock().outcome.clone().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<V> Drop for Joining<V> {
    fn drop(&mut self) {
        let waker = self.load.lock().waiting.deregister(&self.waiter);
        drop(waker);
    }
}
