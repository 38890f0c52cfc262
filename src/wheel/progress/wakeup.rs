//! The next tick at which the sweeper is wanted, and the wake-up that ends its rest early.
//!
//! A sweeper that is about to rest until some tick (a driver that parks, an event loop that polls
//! with a timeout) stores that tick. An inserter that files a reference in an earlier slot wakes
//! the sweeper. No wake-up is lost:
//!
//! 1. The sweeper stores the tick.
//! 2. It passes a full fence.
//! 3. It searches the shards that were reported for the next occupied slot again
//!    ([`next_scan`](crate::wheel::progress::next_scan)). It rests only if no slot expires before
//!    the tick it stored.
//! 4. An inserter publishes its reference. If the sweeper does not expect it, it reports the shard.
//! 5. It passes a full fence.
//! 6. It loads the tick, and wakes the sweeper if its own slot expires earlier.
//!
//! If fence 5 comes before fence 2, search 3 or an earlier one finds the report. Otherwise load 6
//! finds the tick of step 1, or a later one, and the inserter wakes the sweeper. The sweeper never
//! rests beyond a reference that it expects, so its inserter skips steps 5 and 6. Inserters never
//! write the tick, because an inserter that stalled between its load and its wake-up could
//! otherwise erase a tick that was stored since. Several inserters may therefore wake the sweeper
//! before it runs, which is harmless because waking is idempotent. Other requests to the sweeper,
//! such as closing and upkeep, wake it regardless of the tick.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Relaxed};
use crate::wheel::progress::swept::full_fence;
use crate::wheel::tick::Tick;
use std::fmt;

/// The function that wakes the sweeper: unparks a thread, writes to an event fd, ends a poll.
pub(crate) type WakeFn = Box<dyn Fn() + Send + Sync>;

/// The tick until which the sweeper rests. Zero while it does not rest.
pub(crate) struct Wakeup {
    until: AtomicU64,
    wake: Option<WakeFn>,
}

impl Wakeup {
    pub(crate) fn new(wake: Option<WakeFn>) -> Self {
        Self { until: AtomicU64::new(0), wake }
    }

    /// Steps 1 and 2. From here on, a reference filed in a slot before `until` wakes the sweeper.
    pub(crate) fn set(&self, until: Tick) {
        // Relaxed: ordered by the fence.
        self.until.store(until.0, Relaxed);
        full_fence();
    }

    /// Records that the sweeper is awake and will find further references by itself.
    pub(crate) fn clear(&self) {
        // Relaxed: a redundant wake-up is harmless.
        self.until.store(0, Relaxed);
    }

    /// Step 6, after the caller's fence. Wakes the sweeper if it rests beyond `at`, or at all if it
    /// is `wanted`.
    pub(crate) fn check(&self, at: Tick, wanted: bool) {
        // Relaxed: ordered by the fence of step 5.
        let until = self.until.load(Relaxed);
        if at.0 < until || wanted && until != 0 {
            self.wake();
        }
    }

    /// Wakes the sweeper, if it has a waker.
    pub(crate) fn wake(&self) {
        if let Some(wake) = &self.wake {
            wake();
        }
    }
}

impl fmt::Debug for Wakeup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeup").field("until", &self.until).finish_non_exhaustive()
    }
}
