//! [`Ticket`]: the place of a key whose value is being loaded.

#![forbid(unsafe_code)]

use super::held::Held;
use super::load::{Load, Outcome};
use super::shard::Parted;
use super::shared::Shared;
use crate::sync::Inside;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;

/// The place of a key whose value is being loaded, for the caller that loads it. Dropped without an
/// end, as by a panic, it has those that wait load.
pub(super) struct Ticket<K: Eq + Hash, V> {
    shared: Arc<Shared<K, V>>,
    key: K,
    load: Arc<Load<V>>,
    ended: bool,
}

impl<K: Eq + Hash, V> Ticket<K, V> {
    pub(super) fn new(shared: Arc<Shared<K, V>>, key: K, load: Arc<Load<V>>) -> Self {
        Self { shared, key, load, ended: false }
    }

    pub(super) fn shared(&self) -> &Arc<Shared<K, V>> {
        &self.shared
    }

    pub(super) fn key(&self) -> &K {
        &self.key
    }

    /// Runs the load, or as much of it as one poll does.
    pub(super) fn run<R>(&self, part: impl FnOnce() -> R) -> R {
        let _inside = Inside::enter(&*self.load);
        part()
    }

    /// As [`run`](Self::run), to the end of a load that is a future.
    pub(super) async fn run_async<F: Future>(&self, mut load: Pin<&mut F>) -> F::Output {
        poll_fn(|context| self.run(|| load.as_mut().poll(context))).await
    }

    /// Ends the load, with what `outcome` makes if anybody waits for it.
    pub(super) fn end(mut self, outcome: impl FnOnce() -> Outcome<V>) {
        self.shared.map.land(&self.key, &self.load);
        // Nobody can find the load any more, so that those who wait can only become fewer.
        let outcome = (Arc::strong_count(&self.load) > 1).then(outcome);
        self.ended = true;
        if let Some(outcome) = outcome {
            self.load.end(outcome);
        }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Ticket<K, V> {
    /// Puts the value into the key's place; it comes back if that was taken away by an insert or a
    /// removal of the key.
    pub(super) fn keep(&self, held: Held<V>) -> Result<Parted<K, V>, Held<V>> {
        self.shared.map.keep(&self.key, &self.load, held)
    }
}

impl<K: Eq + Hash, V> Drop for Ticket<K, V> {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.map.land(&self.key, &self.load);
            self.load.end(Outcome::Nothing);
        }
    }
}
