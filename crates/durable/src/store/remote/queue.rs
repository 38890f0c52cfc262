//! [`Queue`], where operations wait for their batch.
//!
//! At most one task sends the batches of a queue. The push that finds no such task starts one, and
//! the task ends when it finds nothing to send. Both are decided under one lock, so that no request
//! is left behind. The models in `loom-tests` compile this file.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use crate::sync::{ModelledGuard, ModelledMutex};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

/// Requests of type `R` that wait for their batch.
pub(crate) struct Queue<R> {
    /// The place of this queue among the queues of the store.
    pub(crate) place: usize,
    /// The number of this queue among the users of the store.
    pub(crate) process: u64,
    waiting: ModelledMutex<Waiting<R>>,
}

struct Waiting<R> {
    requests: VecDeque<R>,
    /// Set while a task sends them.
    sending: bool,
    /// The number of batches so far.
    batches: u64,
    /// Set if a batch that was sent without a reply may still be executed.
    ambiguous: bool,
}

impl<R> Queue<R> {
    pub(crate) fn new(place: usize) -> Self {
        let (requests, sending, batches, ambiguous) = (VecDeque::new(), false, 0, false);
        let waiting = ModelledMutex::new(Waiting { requests, sending, batches, ambiguous });
        Self { place, process: process_number(), waiting }
    }

    /// Adds a request. Returns `true` if a task has to be started that sends it.
    pub(crate) fn push(&self, request: R) -> bool {
        let mut waiting = self.lock();
        waiting.requests.push_back(request);
        !std::mem::replace(&mut waiting.sending, true)
    }

    /// Adds requests of a batch that were not executed.
    pub(crate) fn rejoin(&self, requests: Vec<R>) {
        self.lock().requests.extend(requests);
    }

    /// Takes up to `most` requests of up to `bytes` bytes, at least one if any waits, with the
    /// number of their batch. `weigh` returns the bytes of a request, or `None` if it is to be left
    /// out. If none waits, the task that sends them must end.
    pub(crate) fn take(
        &self,
        (most, bytes): (usize, usize),
        weigh: impl Fn(&R) -> Option<usize>,
    ) -> Option<(u64, Vec<Option<R>>)> {
        let mut waiting = self.lock();
        let (mut requests, mut weight) = (Vec::new(), 0);
        while let Some(request) = waiting.requests.front() {
            let Some(own) = weigh(request) else {
                waiting.requests.pop_front();
                continue;
            };
            weight += own;
            if requests.len() == most || (weight > bytes && !requests.is_empty()) {
                break;
            }
            requests.push(waiting.requests.pop_front());
        }
        if requests.is_empty() {
            waiting.sending = false;
            return None;
        }
        waiting.batches += 1;
        Some((waiting.batches, requests))
    }

    /// Removes waiting requests.
    pub(crate) fn remove(&self, which: impl Fn(&R) -> bool) -> VecDeque<R> {
        let mut waiting = self.lock();
        let requests = std::mem::take(&mut waiting.requests);
        let (removed, kept) = requests.into_iter().partition(which);
        waiting.requests = kept;
        removed
    }

    /// Returns `true` if a batch that was sent may still be executed.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.lock().ambiguous
    }

    /// Records whether an earlier batch may still be executed.
    pub(crate) fn set_ambiguous(&self, ambiguous: bool) {
        self.lock().ambiguous = ambiguous;
    }

    /// Drops all waiting requests, because the task that sends them has ended.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.sending = false;
        let requests = std::mem::take(&mut waiting.requests);
        drop(waiting);
        drop(requests);
    }

    fn lock(&self) -> ModelledGuard<'_, Waiting<R>> {
        ignore_poison(self.waiting.lock())
    }
}

/// Returns a number that no other user of a store has. The state of a generator would be copied by
/// a fork, and numbers must differ.
pub(crate) fn process_number() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
