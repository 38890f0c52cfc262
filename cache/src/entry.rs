//! [`CacheEntry`]: a value in the map, with its timer and its times.
//!
//! Two deadlines: that of the timer, and the value's own, until which it is served. They are the
//! same when it is inserted. A use of it, or a touch, moves the value's own to later and leaves the
//! timer where it is; when that fires, it is armed anew ([`Map::expire`](super::map::Map::expire)).
//! So a hit of a cache with a time to idle is a store, and the timer is never the later of the two.

#![forbid(unsafe_code)]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tourbillon::{TimerId, WheelInstant};

/// When a value ends.
#[derive(Clone, Copy)]
pub(super) struct Lives {
    /// From when on it is not served, if it is not used until then.
    pub(super) until: WheelInstant,
    /// However it is used.
    pub(super) at_most: WheelInstant,
}

/// A value in the map, with its timer.
pub(super) struct CacheEntry<V> {
    pub(super) value: V,
    /// Names this value among all that its key ever had, and the timer that ends it.
    pub(super) timer: TimerId,
    /// [`Lives::until`] and [`Lives::at_most`], in nanoseconds of their [`WheelInstant`]s. Relaxed: it
    /// stands for itself; those who read it beside a use may come before or after that, and the
    /// lock of the map orders it for all others.
    until: AtomicU64,
    at_most: u64,
    /// Before when no load ahead begins, in nanoseconds but for the lowest bits: those count the
    /// loads ahead that have failed. Relaxed: it is written under the lock of the map.
    pause: AtomicU64,
}

impl<V> CacheEntry<V> {
    pub(super) fn new(value: V, timer: TimerId, lives: Lives) -> Self {
        let until = AtomicU64::new(lives.until.as_nanos());
        Self { value, timer, until, at_most: lives.at_most.as_nanos(), pause: AtomicU64::new(0) }
    }

    /// From when on it is not served.
    pub(super) fn until(&self) -> WheelInstant {
        WheelInstant::from_nanos(self.until.load(Relaxed))
    }

    /// From when on the next value is to be loaded, if that is so long before its end.
    pub(super) fn ages(&self, ahead: Duration) -> WheelInstant {
        WheelInstant::from_nanos(self.at_most.saturating_sub(nanos(ahead)))
    }

    /// Until when the loads ahead that have failed have the next one wait.
    pub(super) fn pause(&self) -> WheelInstant {
        WheelInstant::from_nanos(self.pause.load(Relaxed) & !FAILURES)
    }

    /// A load ahead has failed. The next one waits until the moment that `after` makes of how many
    /// have.
    pub(super) fn refresh_failed(&self, after: impl FnOnce(u32) -> WheelInstant) {
        let failures = (self.pause.load(Relaxed) & FAILURES) + 1;
        let failures = failures.min(FAILURES);
        let pause = after(u32::try_from(failures).unwrap_or(u32::MAX));
        self.pause.store(pause.as_nanos() & !FAILURES | failures, Relaxed);
    }

    /// Whether it is served until later than so long before a moment.
    pub(super) fn outlives(&self, at: WheelInstant, before: Duration) -> bool {
        // None: the moment is the last of all, and that long before it is no moment.
        at.as_nanos().checked_sub(nanos(before)).is_some_and(|then| self.until().as_nanos() > then)
    }

    /// It was used, and so lives until `idle`, but no longer than it may.
    pub(super) fn used(&self, idle: WheelInstant) {
        let until = idle.as_nanos().min(self.at_most);
        // Mostly by one caller at a time; of several, the latest use holds.
        if until > self.until.load(Relaxed) {
            self.until.fetch_max(until, Relaxed);
        }
    }

    /// Gives it other times.
    pub(super) fn set_lives(&mut self, lives: Lives) {
        self.until = AtomicU64::new(lives.until.as_nanos());
        self.at_most = lives.at_most.as_nanos();
        self.pause = AtomicU64::new(0);
    }
}

/// The bits of [`CacheEntry::pause`] that count.
const FAILURES: u64 = 0b1_1111;

/// At most 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
