//! The result of a closure that runs once, on its way from the run to whoever joins.

#![forbid(unsafe_code)]

use crate::panics::{ignore_poison, quietly};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Makes the two ends.
pub(super) fn result<R>() -> (Teller<R>, Awaited<R>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State { told: Told::NotYet, waits: false, task: None }),
        changed: Condvar::new(),
    });
    (Teller(Some(Arc::clone(&shared))), Awaited(shared))
}

/// The end of the closure. Dropping it says that no result comes.
pub(super) struct Teller<R>(Option<Arc<Shared<R>>>);

/// The end of whoever joins.
pub(super) struct Awaited<R>(Arc<Shared<R>>);

/// What both ends share.
pub(super) struct Shared<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct State<R> {
    told: Told<R>,
    /// Whether a thread sleeps until that changes.
    waits: bool,
    /// The task that does.
    task: Option<Waker>,
}

enum Told<R> {
    NotYet,
    Ran(thread::Result<R>),
    /// No result comes, or it has been taken.
    Nothing,
}

impl<R> Teller<R> {
    /// Tells how the run ended; if nobody can join any more, that comes back.
    pub(super) fn tell(mut self, ran: thread::Result<R>) -> Option<thread::Result<R>> {
        let shared = self.0.take()?;
        if Arc::strong_count(&shared) == 1 {
            return Some(ran);
        }
        shared.change(Told::Ran(ran));
        None
    }
}

impl<R> Drop for Teller<R> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.change(Told::Nothing);
        }
    }
}

impl<R> Awaited<R> {
    /// The result, once; `None` if none comes. Waits for it.
    pub(super) fn wait(self) -> Option<thread::Result<R>> {
        let mut state = self.0.lock();
        loop {
            if let Ok(told) = state.look() {
                return told;
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
        if let Ok(told) = state.look() {
            return Poll::Ready(told);
        }
        let replaced = state.task.replace(waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// The result, once, or `Err` if it may still come.
    pub(super) fn look(&self) -> Result<Option<thread::Result<R>>, ()> {
        self.0.lock().look()
    }
}

impl<R> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        ignore_poison(self.state.lock())
    }

    fn change(&self, told: Told<R>) {
        let mut state = self.lock();
        state.told = told;
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

impl<R> State<R> {
    /// The result, once, or `Err` if it may still come.
    fn look(&mut self) -> Result<Option<thread::Result<R>>, ()> {
        match std::mem::replace(&mut self.told, Told::Nothing) {
            Told::Ran(ran) => Ok(Some(ran)),
            Told::Nothing => Ok(None),
            Told::NotYet => {
                self.told = Told::NotYet;
                Err(())
            }
        }
    }
}

impl<R> fmt::Debug for Awaited<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").finish_non_exhaustive()
    }
}
