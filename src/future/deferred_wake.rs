//! [`DeferredWake`]: a guard that defers the wake-up of a [`DelayQueue`](super::DelayQueue).

#![forbid(unsafe_code)]

use super::delay_queue::DelayQueueHandle;
use crate::{InsertError, TimerId};
use std::fmt;
use std::time::Instant;

impl<T: Send> DelayQueueHandle<T> {
    /// Returns a guard that inserts and cancels without waking the stream's task until it is
    /// dropped.
    ///
    /// Use it while you hold a lock that the task takes when it is woken. Create the guard before
    /// you take the lock, and drop it after you release the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use std::time::Instant;
    /// use tourbillon::Builder;
    /// use tourbillon::future::{DelayQueue, Timer};
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let queue = DelayQueue::new(&timer, Builder::new())?;
    /// let last = Mutex::new(None);
    ///
    /// let quiet = queue.defer_wake();
    /// let mut held = last.lock().unwrap();
    /// *held = Some(quiet.insert_at("due", Instant::now())?);
    /// drop(held);
    /// drop(quiet); // the task is woken here
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn defer_wake(&self) -> DeferredWake<'_, T> {
        DeferredWake { handle: self }
    }
}

/// A [handle](DelayQueueHandle) that wakes the stream's task only when it is dropped.
///
/// It is created by [`defer_wake`](DelayQueueHandle::defer_wake).
///
/// # Examples
///
/// One retry takes the place of another while a table of them is locked:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{DelayQueue, Timer};
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let queue = DelayQueue::new(&timer, Builder::new())?;
/// let retries = Mutex::new(HashMap::from([(7, queue.insert("old", Duration::from_secs(5))?)]));
///
/// let quiet = queue.defer_wake();
/// let mut table = retries.lock().unwrap();
/// let old = table.remove(&7).and_then(|id| quiet.cancel(id));
/// table.insert(7, quiet.insert_at("new", timer.now())?);
/// drop(table);
/// drop(quiet); // the task is woken here, and finds the table unlocked
/// assert_eq!((old, queue.len()), (Some("old"), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the task is woken when the guard is dropped"]
pub struct DeferredWake<'q, T> {
    handle: &'q DelayQueueHandle<T>,
}

impl<T: Send> DeferredWake<'_, T> {
    /// Inserts a value, like [`DelayQueueHandle::insert_at`].
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::insert_at`](crate::Wheel::insert_at) and returns the value.
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<TimerId, InsertError<T>> {
        self.handle.insert_without_wake(value, deadline)
    }

    /// Cancels a value, like [`DelayQueueHandle::cancel`].
    pub fn cancel(&self, id: TimerId) -> Option<T> {
        self.handle.cancel_without_wake(id)
    }
}

impl<T> Drop for DeferredWake<'_, T> {
    fn drop(&mut self) {
        self.handle.wake_if_requested();
    }
}

impl<T> fmt::Debug for DeferredWake<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredWake").finish_non_exhaustive()
    }
}
