//! The result of a closure that runs once, on its way from the run to whoever joins.

#![forbid(unsafe_code)]

use crate::panics::{ignore_poison, quietly};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Makes the two ends.
pub(super) fn result_channel<R>() -> (ResultSender<R>, ResultReceiver<R>) {
    let shared = Arc::new(ResultChannel {
        state: Mutex::new(ChannelState { delivery: Delivery::Pending, waits: false, task: None }),
        changed: Condvar::new(),
    });
    (ResultSender(Some(Arc::clone(&shared))), ResultReceiver(shared))
}

/// The end of the closure. Dropping it says that no result comes.
pub(super) struct ResultSender<R>(Option<Arc<ResultChannel<R>>>);

/// The end of whoever joins.
pub(super) struct ResultReceiver<R>(Arc<ResultChannel<R>>);

/// What both ends share.
pub(super) struct ResultChannel<R> {
    state: Mutex<ChannelState<R>>,
    changed: Condvar,
}

struct ChannelState<R> {
    delivery: Delivery<R>,
    /// Whether a thread sleeps until that changes.
    waits: bool,
    /// The task that does.
    task: Option<Waker>,
}

enum Delivery<R> {
    Pending,
    Ready(thread::Result<R>),
    /// No result comes, or it has been taken.
    Closed,
}

impl<R> ResultSender<R> {
    /// Tells how the run ended; if nobody can join any more, that comes back.
    pub(super) fn send(mut self, ran: thread::Result<R>) -> Option<thread::Result<R>> {
        let shared = self.0.take()?;
        if Arc::strong_count(&shared) == 1 {
            return Some(ran);
        }
        shared.deliver(Delivery::Ready(ran));
        None
    }
}

impl<R> Drop for ResultSender<R> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.deliver(Delivery::Closed);
        }
    }
}

impl<R> ResultReceiver<R> {
    /// The result, once; `None` if none comes. Waits for it.
    pub(super) fn wait(self) -> Option<thread::Result<R>> {
        let mut state = self.0.lock();
        loop {
            if let Ok(delivery) = state.try_take() {
                return delivery;
            }
            state.waits = true;
            state = ignore_poison(self.0.changed.wait(state));
        }
    }

    /// As [`wait`](Self::wait), for a task.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Option<thread::Result<R>>> {
        // Before the lock: a waker is its runtime's code.
        let waker = context.waker().clone();
        let mut state = self.0.lock();
        if let Ok(delivery) = state.try_take() {
            return Poll::Ready(delivery);
        }
        let replaced = state.task.replace(waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// The result, once, or `Err` if it may still come.
    pub(super) fn try_take(&self) -> Result<Option<thread::Result<R>>, ()> {
        self.0.lock().try_take()
    }
}

impl<R> ResultChannel<R> {
    fn lock(&self) -> MutexGuard<'_, ChannelState<R>> {
        ignore_poison(self.state.lock())
    }

    fn deliver(&self, delivery: Delivery<R>) {
        let mut state = self.lock();
        state.delivery = delivery;
        let (waits, task) = (state.waits, state.task.take());
        drop(state);
        if waits {
            self.changed.notify_all();
        }
        if let Some(task) = task {
            quietly(|| task.wake());
        }
    }
}

impl<R> ChannelState<R> {
    /// The result, once, or `Err` if it may still come.
    fn try_take(&mut self) -> Result<Option<thread::Result<R>>, ()> {
        match std::mem::replace(&mut self.delivery, Delivery::Closed) {
            Delivery::Ready(ran) => Ok(Some(ran)),
            Delivery::Closed => Ok(None),
            Delivery::Pending => {
                self.delivery = Delivery::Pending;
                Err(())
            }
        }
    }
}

impl<R> fmt::Debug for ResultReceiver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultReceiver").finish_non_exhaustive()
    }
}
