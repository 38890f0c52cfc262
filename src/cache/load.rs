//! [`Load`]: a load that is under way, what became of it, and those who wait for that.

#![forbid(unsafe_code)]

use super::error::CacheRefusal;
use crate::panics::ignore_poison;
use crate::sync::{Condvar, Mutex};
use std::any::Any;
use std::sync::Arc;

/// What became of a load. Everyone who waited for it gets a clone.
#[derive(Clone)]
pub(super) enum Outcome<V> {
    /// It gave a value, whether or not the cache kept that.
    Loaded(V),
    /// It failed: an `Arc` of the load's own type of error, which those who wait may not share.
    Failed(Arc<dyn Any + Send + Sync>),
    /// It gave a value, which could not be armed.
    Refused(CacheRefusal, V),
    /// It panicked; the panic went on to its caller.
    Panicked,
}

/// A load, shared by whoever runs it and those who wait.
pub(super) struct Load<V> {
    /// Set once, by whoever runs the load.
    outcome: Mutex<Option<Outcome<V>>>,
    ended: Condvar,
}

impl<V> Load<V> {
    pub(super) fn new() -> Self {
        Self { outcome: Mutex::new(None), ended: Condvar::new() }
    }

    pub(super) fn end(&self, outcome: Outcome<V>) {
        *ignore_poison(self.outcome.lock()) = Some(outcome);
        self.ended.notify_all();
    }
}

impl<V: Clone> Load<V> {
    /// Blocks until the load has ended.
    pub(super) fn wait(&self) -> Outcome<V> {
        let mut outcome = ignore_poison(self.outcome.lock());
        loop {
            match &*outcome {
                Some(outcome) => return outcome.clone(),
                None => {
                    outcome = ignore_poison(self.ended.wait(outcome));
                }
            }
        }
    }
}
