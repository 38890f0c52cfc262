//! [`Groups`]: the lines in which [operations](Operation) wait for their group, one for each
//! partition. Who asks for the groups, and how, is in [`groups`](super::groups).

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::super::error::DurableError;
use super::super::store::Due;
use crate::panics::ignore_poison;
use crate::panics::quietly;
use redis::Value;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, Weak};
use std::time::Instant;
use tokio::runtime::Handle;

/// An operation of `scripts/group.lua`: its name and what it takes.
pub(super) struct Operation {
    pub(super) partition: u64,
    /// Each with its length before it, of four bytes.
    pub(super) words: Vec<u8>,
    /// Set if it is not to be done once its caller does not wait any more.
    pub(super) only_if_wanted: bool,
}

impl Operation {
    pub(super) fn new(partition: u64, name: &str) -> Self {
        let words = Vec::with_capacity(160);
        Self { partition, words, only_if_wanted: false }.text(name.as_bytes())
    }

    /// Not to be done for somebody who has gone, if that is known before it goes.
    pub(super) fn only_if_wanted(mut self) -> Self {
        self.only_if_wanted = true;
        self
    }

    pub(super) fn text(self, text: &[u8]) -> Self {
        self.word(|words| words.extend(text))
    }

    pub(super) fn number(self, number: u64) -> Self {
        self.written(format_args!("{number}"))
    }

    /// A due time; a delay has a + before it.
    pub(super) fn due(self, due: Due) -> Self {
        match due {
            Due::At(time) => self.number(time),
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

/// The answer to an operation, and the store's clock then.
pub(super) type Answered = Result<(Value, Millis), DurableError>;

/// Answers somebody.
pub(super) type End<V> = Box<dyn FnOnce(&V, Answered) + Send>;

/// An operation, and somebody to be answered.
pub(super) struct Call<V> {
    pub(super) operation: Operation,
    /// When it is waited for no more.
    pub(super) deadline: Option<Instant>,
    /// Goes when nobody waits any more, and it is then not to be done.
    pub(super) wanted: Option<Weak<()>>,
    pub(super) end: End<V>,
}

impl<V> Call<V> {
    pub(super) fn end(self, operations: &V, answered: Answered) {
        // A waker that panics must not end the task that others wait for.
        quietly(|| (self.end)(operations, answered));
    }

    pub(super) fn ran_out(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    pub(super) fn is_for_nobody(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.strong_count() == 0)
    }
}

/// The operations of a partition that wait for their group.
pub(super) struct Line<V> {
    pub(super) calls: VecDeque<Call<V>>,
    /// Set while a task takes care of them.
    pub(super) busy: bool,
    /// How many groups there have been.
    pub(super) groups: u64,
    /// Set if a group that was sent and not answered may still be done.
    pub(super) unsure: bool,
}

impl<V> Line<V> {
    fn new() -> Self {
        Self { calls: VecDeque::new(), busy: false, groups: 0, unsure: false }
    }
}

/// The lines of all partitions, and the name of this process among those that use the store.
pub(super) struct Groups<V> {
    lines: Vec<Mutex<Line<V>>>,
    pub(super) process: [u8; 8],
    pub(super) runtime: Handle,
}

impl<V> Groups<V> {
    pub(super) fn new(partitions: u64, runtime: Handle) -> Self {
        let lines = (0..partitions).map(|_| Mutex::new(Line::new())).collect();
        // Not by a generator whose state a fork would copy: names must differ.
        let process = RandomState::new().hash_one(std::process::id()).to_le_bytes();
        Self { lines, process, runtime }
    }

    pub(super) fn line(&self, partition: u64) -> MutexGuard<'_, Line<V>> {
        let line = &self.lines[usize::try_from(partition).unwrap_or(usize::MAX)];
        ignore_poison(line.lock())
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
            Groups::<()>::new(1, runtime.handle().clone()).process
        };
        assert_ne!(name(), name());
    }
}
