//! [`Waiters`]: the wakers of the tasks that wait for one event. The lock of the event's state
//! guards them.

#![forbid(unsafe_code)]

use crate::panics::quietly;
use std::collections::BTreeMap;
use std::task::Waker;

/// The tasks that wait for one event.
#[derive(Default)]
pub(crate) struct Waiters {
    wakers: BTreeMap<u64, Waker>,
    /// The number of ids that were assigned.
    registered: u64,
}

/// The id of one waiting task; empty until it registers.
#[derive(Default)]
pub(crate) struct WaiterId(Option<u64>);

/// Wakers of tasks that are to be woken after the lock is released.
#[derive(Default)]
#[must_use]
pub(crate) struct WakeList(Vec<Waker>);

impl Waiters {
    /// Registers the waker of a task, or replaces it. The caller drops the returned waker after it
    /// has released the lock, because that runs the runtime's code.
    #[must_use]
    pub(crate) fn register(&mut self, id: &mut WaiterId, waker: Waker) -> Option<Waker> {
        let number = *id.0.get_or_insert_with(|| {
            self.registered += 1;
            self.registered
        });
        self.wakers.insert(number, waker)
    }

    /// Removes a task. The caller drops the returned waker after it has released the lock.
    #[must_use]
    pub(crate) fn deregister(&mut self, id: &WaiterId) -> Option<Waker> {
        id.0.and_then(|number| self.wakers.remove(&number))
    }

    /// Removes and returns all waiting tasks.
    pub(crate) fn take_all(&mut self) -> WakeList {
        WakeList(std::mem::take(&mut self.wakers).into_values().collect())
    }
}

impl WakeList {
    /// Wakes the tasks. A waker that panics does not affect the others.
    pub(crate) fn wake(self) {
        for waker in self.0 {
            quietly(|| waker.wake());
        }
    }
}
