//! A one-shot channel that carries the result of a closure from its run to the thread or task that
//! joins.

#![forbid(unsafe_code)]

use crate::panics::{ignore_poison, quietly};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Creates a channel.
pub(super) fn result_channel<R>() -> (ResultSender<R>, ResultReceiver<R>) {
    let shared = Arc::new(ResultChannel {
        state: Mutex::new(ChannelState { delivery: Delivery::Pending, waits: false, task: None }),
        changed: Condvar::new(),
    });
    (ResultSender(Some(Arc::clone(&shared))), ResultReceiver(shared))
}

/// The sender, held by the closure. Dropping it closes the channel without a result.
pub(super) struct ResultSender<R>(Option<Arc<ResultChannel<R>>>);

/// The receiver, held by [`Joined`](super::Joined).
pub(super) struct ResultReceiver<R>(Arc<ResultChannel<R>>);

/// The state that both ends share.
pub(super) struct ResultChannel<R> {
    state: Mutex<ChannelState<R>>,
    changed: Condvar,
}

/// The state under the lock of the channel.
struct ChannelState<R> {
    delivery: Delivery<R>,
    /// `true` if a thread waits for the delivery.
    waits: bool,
    /// The task that waits for the delivery.
    task: Option<Waker>,
}

/// The progress of the delivery.
enum Delivery<R> {
    Pending,
    Ready(thread::Result<R>),
    /// No result will come, or it was taken.
    Closed,
}

impl<R> ResultSender<R> {
    /// Sends the result of the run. Returns it if the receiver was dropped.
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
    /// Waits for the result. Returns `None` if none will come.
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

    /// Polls for the result, like [`wait`](Self::wait) without blocking.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Option<thread::Result<R>>> {
        // Before the lock, because a waker is the runtime's code.
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

    /// Takes the result, or returns `Err` if it may still come.
    pub(super) fn try_take(&self) -> Result<Option<thread::Result<R>>, ()> {
        self.0.lock().try_take()
    }
}

impl<R> ResultChannel<R> {
    fn lock(&self) -> MutexGuard<'_, ChannelState<R>> {
        ignore_poison(self.state.lock())
    }

    /// Stores the outcome and notifies the receiver.
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
    /// Takes the result, or returns `Err` if it may still come.
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
