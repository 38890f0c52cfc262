//! [`SchedulerShared`]: what the handles of a scheduler and its closures share.
//!
//! **The list.** A closure whose next run takes more than one timer (a calendar asks its rule again
//! and again, a delay may be longer than the wheel's range), or that is paused, has no run in the
//! wheel that a drain could hand back. Such a closure is listed before that is so, until it ends,
//! and a shutdown looks through the list after it has drained the wheel. The lock of a closure's
//! state may be held while the list's is taken, and never the other way round.
//!
//! **ClosurePermits.** The wheel frees the place of a timer when that is swept, and anything may be armed
//! before a repetition is armed anew. So on a wheel with a capacity the scheduler counts closures,
//! and not timers: each takes a place when it is scheduled and gives it back when its last run
//! begins or it ends. There are never more timers than places taken, so a closure that has a place
//! finds room in the wheel. (The wheel splits its room among shards, and may refuse an insert while
//! timers end in one shard and are armed in the next; a second attempt finds the room.)

#![forbid(unsafe_code)]

use crate::Refusal;
use crate::panics::ignore_poison;
use crate::sync::{Acquire, AtomicBool, AtomicU64, Relaxed, Release};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// What the handles of a scheduler and its closures, of type `C`, share.
pub(super) struct SchedulerShared<C> {
    /// Whether new closures are refused and repetitions end with their next run.
    closed: AtomicBool,
    /// None on a wheel without a capacity.
    permits: Option<ClosurePermits>,
    /// The closures that a shutdown looks through, by their address; `None` once no handle is left
    /// that could shut the scheduler down.
    listed: Mutex<Option<HashMap<usize, Arc<C>>>>,
}

struct ClosurePermits {
    capacity: u64,
    taken: AtomicU64,
}

impl<C> SchedulerShared<C> {
    /// For a wheel of that capacity.
    pub(super) fn new(capacity: Option<u64>) -> Self {
        Self {
            closed: AtomicBool::new(false),
            permits: capacity.map(|capacity| ClosurePermits { capacity, taken: AtomicU64::new(0) }),
            listed: Mutex::new(Some(HashMap::new())),
        }
    }

    /// Takes a place in the wheel for a new closure. Returns whether places are counted.
    pub(super) fn acquire_permit(&self) -> Result<bool, Refusal> {
        let Some(ClosurePermits { capacity, taken }) = &self.permits else { return Ok(false) };
        let one_more = |taken| (taken < *capacity).then_some(taken + 1);
        // Acquire: pairs with the Release of `release_permit`. The room that the closure before had in
        // the wheel is there for this one.
        match taken.fetch_update(Acquire, Relaxed, one_more) {
            Ok(_) => Ok(true),
            Err(_) => Err(Refusal::AtCapacity { capacity: *capacity }),
        }
    }

    /// Gives back a place that was taken.
    pub(super) fn release_permit(&self) {
        if let Some(ClosurePermits { taken, .. }) = &self.permits {
            // Release: pairs with the Acquire of `acquire_permit`.
            taken.fetch_sub(1, Release);
        }
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

impl<C> fmt::Debug for SchedulerShared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the list: the lock of a closure's state is never taken under its own.
        f.debug_struct("SchedulerShared").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
