//! When the sweeper is next wanted, and how it is woken sooner.
//!
//! A sweeper that is about to rest until some tick (a driver that parks, an event loop that
//! polls with a time-out) sets the alarm to it; an inserter that files a reference in an earlier
//! slot rings. No wake-up is lost:
//!
//! 1. the sweeper stores the tick; 2. fence; 3. it looks once more for the next occupied slot
//!    and rests only if that is not earlier than the tick it stored.
//! 4. an inserter publishes its reference; 5. fence; 6. it loads the tick and rings if its slot's
//!    expiry is earlier.
//!
//! If fence 5 comes before fence 2, look 3 finds the reference; otherwise load 6 finds the tick of
//! 1 (or a later one) and rings. Inserters never write the tick: one that was held up between load
//! and ring could otherwise silence an alarm set anew. So several may ring before the sweeper
//! wakes; ringing is idempotent. Everything else that the sweeper should notice (closing, tidying)
//! rings whatever the tick.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Relaxed};
use crate::wheel::progress::swept::full_fence;
use crate::wheel::tick::Tick;
use std::fmt;

/// What a ring calls: unparks a thread, writes to an event fd, wakes a poll.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

/// The tick until which the sweeper rests; zero while it does not.
pub(crate) struct Alarm {
    until: AtomicU64,
    wake: Option<Wake>,
}

impl Alarm {
    pub(crate) fn new(wake: Option<Wake>) -> Self {
        Self { until: AtomicU64::new(0), wake }
    }

    // In C, for `ci/genmc`: `rest`.
    /// Steps 1 and 2: from here on references filed in slots before `until` ring.
    pub(crate) fn set(&self, until: Tick) {
        // Relaxed: ordered by the fence.
        self.until.store(until.0, Relaxed);
        full_fence();
    }

    /// The sweeper is awake: what is filed now it will find by itself.
    pub(crate) fn clear(&self) {
        // Relaxed: a ring too many is harmless.
        self.until.store(0, Relaxed);
    }

    // In C, for `ci/genmc`: `alarm_check`.
    /// Step 6, after the caller's fence: rings if `at` is before the alarm.
    #[inline]
    pub(crate) fn check(&self, at: Tick) {
        if self.is_after(at) {
            self.ring();
        }
    }

    /// Whether the sweeper rests beyond `at`, as seen after the caller's fence.
    #[inline]
    pub(crate) fn is_after(&self, at: Tick) -> bool {
        // Relaxed: ordered by the fence of step 5.
        at.0 < self.until.load(Relaxed)
    }

    /// Wakes the sweeper, if it is one that can be woken.
    pub(crate) fn ring(&self) {
        if let Some(wake) = &self.wake {
            wake();
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("until", &self.until).finish_non_exhaustive()
    }
}
