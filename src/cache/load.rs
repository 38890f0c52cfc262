//! [`Load`]: a load that is under way, what became of it, and those who wait for that.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use crate::sync::{Condvar, Inside, Mutex, MutexGuard, Place, Waiters};
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What became of a load. Everyone who waited for it gets a clone.
#[derive(Clone)]
pub(super) enum Outcome<V> {
    /// It gave a value, whether or not the cache kept that.
    Loaded(V),
    /// It failed: an `Arc` of the load's own type of error, which those who wait may not share.
    Failed(Arc<dyn Any + Send + Sync>),
    /// None: it panicked, or it was a future and was dropped before its end. A caller that waited
    /// for it loads.
    Nothing,
    /// The caller that waits for it runs it: it would wait for itself.
    Recursive,
}

/// A load, shared by whoever runs it and those who wait: threads that it blocks, and tasks.
pub(super) struct Load<V> {
    state: Mutex<State<V>>,
    ended: Condvar,
}

struct State<V> {
    /// Set once, by whoever runs the load.
    outcome: Option<Outcome<V>>,
    /// The tasks that wait.
    waiting: Waiters,
}

impl<V> Load<V> {
    pub(super) fn new() -> Self {
        let state = State { outcome: None, waiting: Waiters::default() };
        Self { state: Mutex::new(state), ended: Condvar::new() }
    }

    pub(super) fn end(&self, outcome: Outcome<V>) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        let told = state.waiting.tell();
        drop(state);
        self.ended.notify_all();
        told.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        ignore_poison(self.state.lock())
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
            match &state.outcome {
                Some(outcome) => return outcome.clone(),
                None => {
                    state = ignore_poison(self.ended.wait(state));
                }
            }
        }
    }
}

/// Waits for a load, as a future.
pub(super) struct Joining<V> {
    load: Arc<Load<V>>,
    place: Place,
}

impl<V> Joining<V> {
    pub(super) fn new(load: Arc<Load<V>>) -> Self {
        Self { load, place: Place::default() }
    }
}

impl<V: Clone> Future for Joining<V> {
    type Output = Outcome<V>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<V>> {
        let this = &mut *self;
        if Inside::is(&*this.load) {
            return Poll::Ready(Outcome::Recursive);
        }
        // Before the lock: a waker is its runtime's code.
        let waker = context.waker().clone();
        let mut state = this.load.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        let replaced = state.waiting.wait(&mut this.place, waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl<V> Drop for Joining<V> {
    fn drop(&mut self) {
        let waker = self.load.lock().waiting.give_up(&self.place);
        drop(waker);
    }
}
