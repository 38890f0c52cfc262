//! [`CacheEntry`]: a value in the map, with its timer and deadlines.
//!
//! An entry has two deadlines: the deadline of its timer, and its own, when it stops being served.
//! They are equal when the entry is inserted. A use or a touch moves the entry's own deadline to
//! later and leaves the timer where it is, as Netty's `IdleStateHandler` and Jetty do with packets.
//! A hit of a cache with a time to idle is therefore a store under the read lock, and the timer is
//! never the later of the two. A timer that fires too early is armed again under the write lock,
//! with a new id ([`Map::expire`](super::map::Map::expire)).

#![forbid(unsafe_code)]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tourbillon::{TimerId, WheelInstant};

/// The deadlines of an entry.
#[derive(Clone, Copy)]
pub(super) struct Lives {
    /// The entry is not served from here on, unless it is used before.
    pub(super) until: WheelInstant,
    /// The entry is not served from here on, even if it is used.
    pub(super) at_most: WheelInstant,
}

/// A value in the map, with its timer.
pub(super) struct CacheEntry<V> {
    pub(super) value: V,
    /// The weight at the insert. The policy subtracts it when the entry leaves, even if the value
    /// has grown or shrunk meanwhile.
    pub(super) weight: u64,
    /// Identifies this value among all that its key ever had, and the timer that ends it.
    pub(super) timer: TimerId,
    /// [`Lives::until`] and [`Lives::at_most`] as nanoseconds of their [`WheelInstant`]s. Relaxed,
    /// because each value stands for itself. A read beside a use may see it or not, and the lock of
    /// the map orders the value for all other readers.
    until: AtomicU64,
    at_most: u64,
    /// The earliest instant of the next refresh, in nanoseconds except for the lowest bits, which
    /// count the refreshes that have failed. Relaxed, because it is written under the lock of the
    /// map.
    pause: AtomicU64,
}

impl<V> CacheEntry<V> {
    pub(super) fn new(value: V, timer: TimerId, lives: Lives) -> Self {
        let until = AtomicU64::new(lives.until.as_nanos());
        let (at_most, pause) = (lives.at_most.as_nanos(), AtomicU64::new(0));
        Self { value, weight: 1, timer, until, at_most, pause }
    }

    /// Returns the instant when the entry stops being served.
    pub(super) fn until(&self) -> WheelInstant {
        WheelInstant::from_nanos(self.until.load(Relaxed))
    }

    /// Returns the earliest instant to load the next value, `ahead` before the entry's end.
    pub(super) fn ages(&self, ahead: Duration) -> WheelInstant {
        WheelInstant::from_nanos(self.at_most.saturating_sub(nanos(ahead)))
    }

    /// Returns the earliest instant of the next refresh after failed ones.
    pub(super) fn pause(&self) -> WheelInstant {
        WheelInstant::from_nanos(self.pause.load(Relaxed) & !FAILURES)
    }

    /// Records that a refresh failed. The next one waits until the instant that `after` computes
    /// from the number of failures.
    pub(super) fn refresh_failed(&self, after: impl FnOnce(u32) -> WheelInstant) {
        let failures = (self.pause.load(Relaxed) & FAILURES) + 1;
        let failures = failures.min(FAILURES);
        let pause = after(u32::try_from(failures).unwrap_or(u32::MAX));
        self.pause.store(pause.as_nanos() & !FAILURES | failures, Relaxed);
    }

    /// Returns `true` if the entry is served until later than `before` ahead of `at`.
    pub(super) fn outlives(&self, at: WheelInstant, before: Duration) -> bool {
        // `None` if `at` is the last instant of all and no instant lies that long before it.
        at.as_nanos().checked_sub(nanos(before)).is_some_and(|then| self.until().as_nanos() > then)
    }

    /// Records a use, which extends the entry's life to `idle`, but not beyond `at_most`.
    pub(super) fn used(&self, idle: WheelInstant) {
        let until = idle.as_nanos().min(self.at_most);
        // In most cases there is one caller at a time. Of several, the latest use wins.
        if until > self.until.load(Relaxed) {
            self.until.fetch_max(until, Relaxed);
        }
    }

    /// Returns the deadlines after a use that extends the entry's life to `idle`, if there is one.
    pub(super) fn lives(&self, idle: Option<WheelInstant>) -> Lives {
        let at_most = WheelInstant::from_nanos(self.at_most);
        let until = self.until();
        Lives { until: idle.map_or(until, |idle| until.max(idle.min(at_most))), at_most }
    }

    /// Replaces the deadlines.
    pub(super) fn set_lives(&mut self, lives: Lives) {
        self.until = AtomicU64::new(lives.until.as_nanos());
        self.at_most = lives.at_most.as_nanos();
        self.pause = AtomicU64::new(0);
    }
}

/// The bits of [`CacheEntry::pause`] that count failures.
const FAILURES: u64 = 0b1_1111;

/// At most 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
