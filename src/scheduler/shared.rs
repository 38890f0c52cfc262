//! [`SchedulerShared`]: the state that the clones of a scheduler and its closures share.
//!
//! **The list.** Some closures have no run in the wheel that a drain could return. Either their
//! next run takes more than one timer (a calendar asks its rule repeatedly, and a delay may exceed
//! the wheel's range), or they are paused. Such a closure is put on the list before it loses its
//! timer, and stays there until it ends. A shutdown drains the wheel first and then reads the list.
//! A thread that holds the lock of a closure's state may take the lock of the list, but never the
//! other way round. To let repetitions end by themselves, the scheduler is closed and not the
//! wheel, which would also refuse the further timers of such a run.
//!
//! **Permits.** The wheel frees the room of a timer when the timer is swept, and other timers may
//! be armed before a repetition is armed again. On a wheel with a capacity the scheduler therefore
//! counts closures and not timers. A closure acquires a permit when it is scheduled, and releases
//! it when its last run begins or it ends. There are never more timers than permits, so a closure
//! with a permit finds room in the wheel. (The wheel divides its room among shards, and may refuse
//! an insert while timers end in one shard and are armed in the next. A second attempt finds the
//! room.)

#![forbid(unsafe_code)]

use crate::Refusal;
use crate::panics::ignore_poison;
use crate::sync::{Acquire, AtomicBool, AtomicU64, Relaxed, Release};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// The state that the clones of a scheduler and its closures, of type `C`, share.
pub(super) struct SchedulerShared<C> {
    /// `true` if new closures are refused and repetitions end with their next run.
    closed: AtomicBool,
    /// `None` on a wheel without a capacity.
    permits: Option<ClosurePermits>,
    /// The closures that a shutdown examines, by their address. `None` after the last handle that
    /// could shut the scheduler down was dropped.
    listed: Mutex<Option<HashMap<usize, Arc<C>>>>,
}

/// The permits of closures on a wheel with a capacity.
struct ClosurePermits {
    capacity: u64,
    taken: AtomicU64,
}

impl<C> SchedulerShared<C> {
    /// Creates the state for a wheel with this capacity.
    pub(super) fn new(capacity: Option<u64>) -> Self {
        Self {
            closed: AtomicBool::new(false),
            permits: capacity.map(|capacity| ClosurePermits { capacity, taken: AtomicU64::new(0) }),
            listed: Mutex::new(Some(HashMap::new())),
        }
    }

    /// Acquires a permit for a new closure. Returns `false` if permits are not counted.
    pub(super) fn acquire_permit(&self) -> Result<bool, Refusal> {
        let Some(ClosurePermits { capacity, taken }) = &self.permits else { return Ok(false) };
        let one_more = |taken| (taken < *capacity).then_some(taken + 1);
        // Acquire: pairs with the Release of `release_permit`, so that the room of the earlier
        // closure in the wheel is free for this one.
        match taken.fetch_update(Acquire, Relaxed, one_more) {
            Ok(_) => Ok(true),
            Err(_) => Err(Refusal::AtCapacity { capacity: *capacity }),
        }
    }

    /// Releases a permit.
    pub(super) fn release_permit(&self) {
        if let Some(ClosurePermits { taken, .. }) = &self.permits {
            // Release: pairs with the Acquire of `acquire_permit`.
            taken.fetch_sub(1, Release);
        }
    }

    /// Refuses new closures from now on, and ends repetitions with their next run.
    pub(super) fn close(&self) {
        // Relaxed: the flag publishes nothing else.
        self.closed.store(true, Relaxed);
    }

    /// Returns `true` after [`close`](Self::close).
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: as in `close`.
        self.closed.load(Relaxed)
    }

    /// Puts a closure on the list, unless the list was dropped.
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
        // The caller also owns the closure, so this drops no user code. It happens outside the lock
        // all the same.
        drop(listed);
        drop(unlisted);
    }

    /// Returns `true` if a shutdown can still find a listed closure that has no timer.
    pub(super) fn has_list(&self) -> bool {
        ignore_poison(self.listed.lock()).is_some()
    }

    /// Returns the listed closures.
    pub(super) fn listed(&self) -> Vec<Arc<C>> {
        let listed = ignore_poison(self.listed.lock());
        listed.iter().flat_map(|listed| listed.values().map(Arc::clone)).collect()
    }

    /// Drops the list, after the last handle that could shut the scheduler down was dropped.
    /// Returns the closures that were listed.
    pub(super) fn drop_list(&self) -> Vec<Arc<C>> {
        let listed = ignore_poison(self.listed.lock()).take();
        listed.into_iter().flat_map(HashMap::into_values).collect()
    }
}

impl<C> fmt::Debug for SchedulerShared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the list, because the lock of a closure's state is never taken under the list's.
        f.debug_struct("SchedulerShared").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
