//! [`Shared`]: what the handles of a scheduler and its closures share.
//!
//! **The list.** A closure whose next run takes more than one timer (a calendar asks its rule again
//! and again, a delay may be longer than the wheel's range) has no run in the wheel that a drain
//! could hand back. Such a closure is listed before its first timer of that kind is armed, until it
//! ends, and a shutdown looks through the list after it has drained the wheel. The lock of a
//! closure's state may be held while the list's is taken, and never the other way round.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use crate::sync::{AtomicBool, Relaxed};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// What the handles of a scheduler and its closures, of type `C`, share.
pub(super) struct Shared<C> {
    /// Whether new closures are refused and repetitions end with their next run.
    closed: AtomicBool,
    /// The closures that a shutdown looks through, by their address; `None` once no handle is left
    /// that could shut the scheduler down.
    listed: Mutex<Option<HashMap<usize, Arc<C>>>>,
}

impl<C> Shared<C> {
    pub(super) fn new() -> Self {
        Self { closed: AtomicBool::new(false), listed: Mutex::new(Some(HashMap::new())) }
    }

    /// Refuses new closures from now on, and ends repetitions with their next run.
    pub(super) fn close(&self) {
        // Relaxed: nothing else is published by it.
        self.closed.store(true, Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: as in `close`.
        self.closed.load(Relaxed)
    }

    /// Puts a closure on the list, unless that is gone.
    pub(super) fn list(&self, closure: &Arc<C>) {
        if let Some(listed) = &mut *ignore_poison(self.listed.lock()) {
            listed.insert(Arc::as_ptr(closure).addr(), Arc::clone(closure));
        }
    }

    /// Takes a closure off the list.
    pub(super) fn unlist(&self, closure: &C) {
        let mut listed = ignore_poison(self.listed.lock());
        let address = std::ptr::from_ref(closure).addr();
        let unlisted = listed.as_mut().and_then(|listed| listed.remove(&address));
        // The caller has the closure too, so this is no user's drop; still, not under the lock.
        drop(listed);
        drop(unlisted);
    }

    /// Whether a listed closure that has no timer will be found.
    pub(super) fn has_list(&self) -> bool {
        ignore_poison(self.listed.lock()).is_some()
    }

    /// The listed closures.
    pub(super) fn listed(&self) -> Vec<Arc<C>> {
        let listed = ignore_poison(self.listed.lock());
        listed.iter().flat_map(|listed| listed.values().map(Arc::clone)).collect()
    }

    /// No handle is left that could shut the scheduler down. Returns the closures that were listed.
    pub(super) fn drop_list(&self) -> Vec<Arc<C>> {
        let listed = ignore_poison(self.listed.lock()).take();
        listed.into_iter().flat_map(HashMap::into_values).collect()
    }
}

impl<C> fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the list: the lock of a closure's state is never taken under its own.
        f.debug_struct("Shared").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
