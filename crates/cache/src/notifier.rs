//! [`Notifier`]: calls the listener of a cache, on each thread for one entry after another.
//!
//! A listener may use the cache and make further values leave. Those values wait until its call has
//! returned. Otherwise a listener that inserts each value that left would call itself recursively
//! without bound.

#![forbid(unsafe_code)]

use super::eviction::{Evicted, Listener};
use crate::inside::Inside;
use crate::panics::{DropEach, ignore_poison};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, ThreadId};

/// The listener of a cache and the entries that wait for it.
pub(super) struct Notifier<K, V> {
    listener: Listener<K, V>,
    /// The entries that left on a thread during a call of the listener.
    waiting: Mutex<HashMap<ThreadId, Vec<Evicted<K, V>>>>,
    /// The number of threads with waiting entries. Relaxed, because a thread asks for its own
    /// entries.
    threads: AtomicUsize,
}

impl<K, V> Notifier<K, V> {
    pub(super) fn new(listener: Listener<K, V>) -> Self {
        Self { listener, waiting: Mutex::default(), threads: AtomicUsize::new(0) }
    }

    /// Calls the listener with a value, and then with the values that left during that call. Within
    /// a call of the listener on this thread, the value is left to the outer call. A panic of the
    /// listener propagates after the last call.
    pub(super) fn tell(&self, told: Evicted<K, V>) {
        if Inside::is(self) {
            let mut waiting = ignore_poison(self.waiting.lock());
            waiting.entry(thread::current().id()).or_default().push(told);
            self.threads.store(waiting.len(), Relaxed);
            return;
        }
        let _inside = Inside::enter(self);
        let mut each = DropEach::default();
        each.run(|| (self.listener)(told));
        while let Some(more) = self.take() {
            more.into_iter().for_each(|told| each.run(|| (self.listener)(told)));
        }
    }

    /// Takes the entries that wait on this thread.
    fn take(&self) -> Option<Vec<Evicted<K, V>>> {
        if self.threads.load(Relaxed) == 0 {
            return None;
        }
        let mut waiting = ignore_poison(self.waiting.lock());
        let taken = waiting.remove(&thread::current().id());
        self.threads.store(waiting.len(), Relaxed);
        taken
    }
}
