//! [`Queue`]: timers in one `DelayQueue` of tokio-util's.

use super::structure::{Batch, DUE_AT_ONCE, Name, Records, Timers};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

/// A queue.
#[derive(Debug)]
pub(super) struct Queue<V>(DelayQueue<V>);

/// A batch of operations on a [`Queue`].
#[derive(Debug)]
pub(super) struct QueueBatch<'a, V> {
    queue: &'a mut DelayQueue<V>,
    now: tokio::time::Instant,
}

impl<V: Name> Queue<V> {
    /// Creates an empty queue.
    pub(super) fn new() -> Self {
        Self(DelayQueue::new())
    }
}

impl<V: Name> Timers<V> for Queue<V> {
    type Id = Key;
    type Batch<'a> = QueueBatch<'a, V>;

    fn batch(&mut self) -> QueueBatch<'_, V> {
        QueueBatch { queue: &mut self.0, now: tokio::time::Instant::now() }
    }

    fn poll_due(
        &mut self,
        context: &mut Context<'_>,
        _: &mut impl Records<V, Key>,
        due: &mut Vec<V>,
    ) -> Poll<()> {
        while due.len() < DUE_AT_ONCE {
            match self.0.poll_expired(context) {
                Poll::Ready(Some(expired)) => due.push(expired.into_inner()),
                // An empty queue keeps the waker too.
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if due.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }

    fn armed(&self) -> usize {
        self.0.len()
    }
}

impl<V: Name> Batch<V> for QueueBatch<'_, V> {
    type Id = Key;

    fn now(&self) -> Instant {
        self.now.into_std()
    }

    fn arm(&mut self, value: V, delay: Duration) -> Key {
        self.queue.insert_at(value, self.now + delay)
    }

    fn reset(&mut self, key: &mut Key, _: &V, delay: Duration) -> bool {
        // It panics if the timer has fired.
        self.queue.reset_at(key, self.now + delay);
        true
    }

    fn cancel(&mut self, key: Key) -> bool {
        self.queue.try_remove(&key).is_some()
    }
}
