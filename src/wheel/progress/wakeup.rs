//! The next tick at which the sweeper is wanted, and the wake-up that ends its rest early.
//!
//! A sweeper that is about to rest until some tick (a driver that parks, an event loop that polls
//! with a timeout) stores that tick. A filer that reports an earlier slot wakes the sweeper. In the
//! terms of the [handshake](super), the fences F5 and W2 are ordered in one of two ways:
//!
//! * F5 is first. Then W3 finds the report, or an earlier S3 has found it, and the sweeper does not
//!   rest beyond the slot.
//! * W2 is first. Then F7 finds the tick of W1, or a tick stored since. If that is after the slot's
//!   expiry, the filer wakes the sweeper. Otherwise the sweeper is awake, or wakes up by then.
//!
//! The sweeper never rests beyond a reference that it expects, so the filer of that reference skips
//! F7. Filers never write the tick, because a filer that stalled between its load and its wake-up
//! could otherwise erase a tick that was stored since. Several filers may therefore wake the
//! sweeper before it runs, which is harmless because waking is idempotent. Other requests to the
//! sweeper, such as closing and upkeep, wake it regardless of the tick.

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

    /// Steps W1 and W2. From here on, a filer that reports a slot before `until` wakes the sweeper.
    pub(crate) fn set(&self, until: Tick) {
        // Relaxed: ordered by the fence W2, whose partner is F5.
        self.until.store(until.0, Relaxed);
        full_fence();
    }

    /// Records that the sweeper is awake and will find further references by itself.
    pub(crate) fn clear(&self) {
        // Relaxed: a redundant wake-up is harmless.
        self.until.store(0, Relaxed);
    }

    /// Step F7, after the caller's fence F5. Wakes the sweeper if it rests beyond `at`, or at all
    /// if it is `wanted`.
    pub(crate) fn wake_before(&self, at: Tick, wanted: bool) {
        // Relaxed: ordered by the fence F5, whose partner is W2.
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
