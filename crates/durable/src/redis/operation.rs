//! [`Queues`], where [operations](Operation) wait for their batch, one queue for each partition.
//! [`batch`](super::batch) sends the batches.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::panics::ignore_poison;
use crate::panics::quietly;
use crate::store::Due;
use redis::Value;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, Weak};
use std::time::Instant;
use tokio::runtime::Handle;

/// An operation of `scripts/batch.lua`, with its name and arguments.
pub(super) struct Operation {
    pub(super) partition: u64,
    /// The name and the arguments, each preceded by its length in four bytes.
    pub(super) words: Vec<u8>,
    /// Set if the operation must not be executed once its future was dropped.
    pub(super) skip_if_dropped: bool,
}

impl Operation {
    pub(super) fn new(partition: u64, name: &str) -> Self {
        let words = Vec::with_capacity(160);
        Self { partition, words, skip_if_dropped: false }.text(name.as_bytes())
    }

    /// Skips the operation if its future is dropped before it is sent.
    pub(super) fn skip_if_dropped(mut self) -> Self {
        self.skip_if_dropped = true;
        self
    }

    pub(super) fn text(self, text: &[u8]) -> Self {
        self.word(|words| words.extend(text))
    }

    pub(super) fn number(self, number: u64) -> Self {
        self.written(format_args!("{number}"))
    }

    /// Appends a due time. A delay is preceded by `+`.
    pub(super) fn due(self, due: Due) -> Self {
        match due {
            Due::At(time) | Due::ByRule(time) => self.number(time),
            Due::After(delay) => self.written(format_args!("+{delay}")),
        }
    }

    fn written(self, text: std::fmt::Arguments<'_>) -> Self {
        // Writing to memory does not fail.
        self.word(|words| drop(words.write_fmt(text)))
    }

    fn word(mut self, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let start = self.words.len();
        self.words.extend([0; 4]);
        write(&mut self.words);
        let length = u32::try_from(self.words.len() - start - 4).unwrap_or(u32::MAX);
        self.words[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self
    }
}

/// The reply to an operation with the time of the store's clock.
pub(super) type Answered = Result<(Value, Millis), DurableError>;

/// Sends the reply to the caller.
pub(super) type Respond<V> = Box<dyn FnOnce(&V, Answered) + Send>;

/// An operation with the caller that waits for it.
pub(super) struct Request<V> {
    pub(super) operation: Operation,
    /// When the caller gives up.
    pub(super) deadline: Option<Instant>,
    /// Expires when the future is dropped, so that the operation is skipped.
    pub(super) waiter: Option<Weak<()>>,
    pub(super) respond: Respond<V>,
}

impl<V> Request<V> {
    pub(super) fn respond(self, operations: &V, answered: Answered) {
        // A waker that panics must not end the task of the queue.
        quietly(|| (self.respond)(operations, answered));
    }

    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| waiter.strong_count() == 0)
    }
}

/// The operations of a partition that wait for their batch.
pub(super) struct Queue<V> {
    pub(super) requests: VecDeque<Request<V>>,
    /// Set while a task sends them.
    pub(super) sending: bool,
    /// The number of batches so far.
    pub(super) batches: u64,
    /// Set if a batch that was sent without a reply may still be executed.
    pub(super) ambiguous: bool,
}

impl<V> Queue<V> {
    fn new() -> Self {
        Self { requests: VecDeque::new(), sending: false, batches: 0, ambiguous: false }
    }
}

/// The queues of all partitions, and the name of this process among the users of the store.
pub(super) struct Queues<V> {
    queues: Vec<Mutex<Queue<V>>>,
    pub(super) process: [u8; 8],
    pub(super) runtime: Handle,
}

impl<V> Queues<V> {
    pub(super) fn new(partitions: u64, runtime: Handle) -> Self {
        let queues = (0..partitions).map(|_| Mutex::new(Queue::new())).collect();
        // A generator's state would be copied by a fork, and names must differ.
        let process = RandomState::new().hash_one(std::process::id()).to_le_bytes();
        Self { queues, process, runtime }
    }

    pub(super) fn queue(&self, partition: u64) -> MutexGuard<'_, Queue<V>> {
        let queue = &self.queues[usize::try_from(partition).unwrap_or(usize::MAX)];
        ignore_poison(queue.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_have_the_same_name() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let name = || {
            // As after a fork, which copies the state of each generator.
            fastrand::seed(7);
            Queues::<()>::new(1, runtime.handle().clone()).process
        };
        assert_ne!(name(), name());
    }
}
