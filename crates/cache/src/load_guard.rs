//! [`LoadGuard`]: the right to load a key's value.

#![forbid(unsafe_code)]

use super::entry::CacheEntry;
use super::load::{Load, Outcome};
use super::shard::Removed;
use super::shared::Shared;
use crate::inside::Inside;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tourbillon::TimerId;

/// The right to load a key's value, held by the caller that loads it. If it is dropped without an
/// end, as by a panic, one of the waiting callers loads.
pub(super) struct LoadGuard<K: Eq + Hash + Clone + Send, V: Clone> {
    shared: Arc<Shared<K, V>>,
    key: K,
    load: Arc<Load<V>>,
    ended: bool,
}

impl<K: Eq + Hash + Clone + Send, V: Clone> LoadGuard<K, V> {
    pub(super) fn new(shared: Arc<Shared<K, V>>, key: K, load: Arc<Load<V>>) -> Self {
        Self { shared, key, load, ended: false }
    }

    pub(super) fn shared(&self) -> &Arc<Shared<K, V>> {
        &self.shared
    }

    pub(super) fn key(&self) -> &K {
        &self.key
    }

    /// Runs the load, or one poll of it.
    pub(super) fn run<R>(&self, part: impl FnOnce() -> R) -> R {
        let _inside = Inside::enter(&*self.load);
        part()
    }

    /// As [`run`](Self::run), to the end of a load that is a future.
    pub(super) async fn run_async<F: Future>(&self, mut load: Pin<&mut F>) -> F::Output {
        poll_fn(|context| self.run(|| load.as_mut().poll(context))).await
    }

    /// Stores the load under its key. `future` creates it from a weak guard, and the callers that
    /// wait for it poll it, one at a time.
    pub(super) fn store<F>(
        mut self,
        timer: TimerId,
        future: impl FnOnce(WeakLoadGuard<K, V>) -> F,
    ) -> Arc<Load<V>>
    where
        F: Future<Output = ()> + Send + 'static,
        V: Send + 'static,
    {
        let (shared, load) = (Arc::downgrade(&self.shared), Arc::downgrade(&self.load));
        let guard = WeakLoadGuard { shared, key: self.key.clone(), load };
        Load::store(&self.load, timer, Box::pin(future(guard)));
        self.ended = true;
        Arc::clone(&self.load)
    }

    fn cancel(&self) {
        if let Some(timer) = self.load.timer() {
            self.shared.wheel.cancel(timer);
        }
    }

    /// Ends the load, which returned nothing to keep. `outcome` is called if a caller waits.
    pub(super) fn fail(self, outcome: impl FnOnce() -> Outcome<V>) {
        self.give_up();
        self.end(outcome);
    }

    /// Gives up the key's place. The next refresh of the present value has to wait.
    fn give_up(&self) {
        self.shared.map.release(&self.key, &self.load, |entry| self.shared.pause(entry));
    }

    /// Ends the load. `outcome` is called if a caller waits.
    pub(super) fn end(mut self, outcome: impl FnOnce() -> Outcome<V>) {
        self.shared.map.land(&self.key, &self.load);
        self.cancel();
        // No caller can find the load any more, so the number of waiting callers can only decrease.
        let outcome = (Arc::strong_count(&self.load) > 1).then(outcome);
        self.ended = true;
        if let Some(outcome) = outcome {
            self.load.end(outcome);
        }
    }

    /// Gives up the key's place, and begins the time to live of the present value anew unless an
    /// insert or a removal of the key has taken the place. Returns the key's value.
    pub(super) fn renew(&self, ttl: Duration) -> Option<V> {
        let shared = &self.shared;
        let value = |entry: &CacheEntry<V>| shared.is_live(entry).then(|| entry.value.clone());
        let renewed = shared.map.release(&self.key, &self.load, |entry| {
            // The next refresh has to wait if the value cannot live longer.
            if shared.touch(entry, ttl).is_err() {
                shared.pause(entry);
            }
            value(entry)
        });
        renewed.unwrap_or_else(|| shared.map.peek(&self.key, value).flatten())
    }

    /// Puts the value into the key's place. Returns it if an insert or a removal of the key has
    /// taken the place.
    pub(super) fn keep(&self, entry: CacheEntry<V>) -> Result<Removed<K, V>, CacheEntry<V>> {
        self.shared.map.keep(&self.key, &self.load, entry)
    }
}

impl<K: Eq + Hash + Clone + Send, V: Clone> Drop for LoadGuard<K, V> {
    fn drop(&mut self) {
        if !self.ended {
            self.give_up();
            self.load.end(Outcome::Nothing);
            self.cancel();
        }
    }
}

/// A [`LoadGuard`] of a load that belongs to its key. It keeps neither the cache nor the load
/// alive, because it is a part of the load.
pub(super) struct WeakLoadGuard<K: Eq + Hash + Clone + Send, V: Clone> {
    shared: Weak<Shared<K, V>>,
    key: K,
    load: Weak<Load<V>>,
}

impl<K: Eq + Hash + Clone + Send, V: Clone> WeakLoadGuard<K, V> {
    /// Returns the guard while the cache exists and a caller waits for the load.
    fn guard(&self) -> Option<LoadGuard<K, V>> {
        let (shared, load) = (self.shared.upgrade()?, self.load.upgrade()?);
        Some(LoadGuard::new(shared, self.key.clone(), load))
    }

    /// Ends the load by `finish`.
    pub(super) fn end(self, finish: impl FnOnce(LoadGuard<K, V>)) {
        if let Some(guard) = self.guard() {
            finish(guard);
        }
    }
}

impl<K: Eq + Hash + Clone + Send, V: Clone> Drop for WeakLoadGuard<K, V> {
    fn drop(&mut self) {
        // After an end, the guard finds that it has no place any more.
        drop(self.guard());
    }
}
