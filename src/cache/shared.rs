//! [`Shared`]: what the handles of a cache share, and the steps that keep map and wheel together.
//!
//! **The map decides who has a value; the wheel only says when.** A value goes through three steps:
//!
//! 1. *Arm*: its timer, with the key, goes into the wheel, which returns the id. It is refused
//!    here, if at all, before anything has changed.
//! 2. *Publish*: the value goes into the map, with the id.
//! 3. *Part*: one caller takes it out of the map: a sweep's [`fire`](Shared::fire), an insert, a
//!    removal, or the policy of eviction. Only whoever had it from the map cancels its timer,
//!    counts it and tells the listener, outside of the map's locks: so it is told once, with one
//!    cause.
//!
//! A fire takes out of the map only the value that has the fired timer's id, and ids never recur:
//! the timer of an old value, which lost its race with a cancel, finds nothing. A timer may also
//! fire between steps 1 and 2, and finds nothing to take; so whoever publishes looks afterwards
//! whether the timer is still armed, and if it has fired, [takes the value out](Shared::settle)
//! itself. Both may try; the map gives it to one.

#![forbid(unsafe_code)]

use super::error::CacheRefusal;
use super::eviction::{Cause, Evicted, Listener};
use super::map::{Held, Map, Parted};
use super::spread::Spread;
use super::stats::{Count, Counters};
use super::timer::CacheTimer;
use crate::Driver;
use crate::InsertError;
use crate::Refusal;
use crate::TimerId;
use crate::Wheel;
use crate::panics::{discard, quietly};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What the handles of a cache share.
pub(super) struct Shared<K, V> {
    pub(super) map: Map<K, V>,
    pub(super) wheel: Wheel<CacheTimer<K>>,
    pub(super) ttl: Duration,
    pub(super) spread: Spread,
    pub(super) listener: Option<Listener<K, V>>,
    pub(super) counters: Counters,
    /// Set once, by a cache that has a driver of its own.
    pub(super) driver: OnceLock<Driver<CacheTimer<K>>>,
    /// [`Shared::forget`], for `drop`, which knows nothing of the key.
    pub(super) forget: fn(&Self),
}

impl<K: Eq + Hash + Clone + Send, V: Clone> Shared<K, V> {
    /// What the wheel's clock says.
    pub(super) fn now(&self) -> Instant {
        self.wheel.pin().now()
    }

    /// Step 1: arms the timer of a value that is to live for about `ttl`.
    pub(super) fn arm(&self, key: K, ttl: Duration) -> Result<(TimerId, Instant), CacheRefusal> {
        if ttl.is_zero() {
            return Err(CacheRefusal::TimeToLive);
        }
        let pinned = self.wheel.pin();
        let drawn = self.spread.around(ttl);
        let armed = match pinned.insert(CacheTimer { key }, drawn) {
            // What is allowed is not refused because of a draw.
            Err(InsertError { reason: Refusal::BeyondRange(beyond), value })
                if ttl <= beyond.longest =>
            {
                pinned.insert(value, ttl)
            }
            armed => armed,
        };
        let timer = armed.map_err(|refused| CacheRefusal::Wheel(refused.reason))?;
        // It has none any more if it has fired, or was drained, since.
        let deadline = pinned.deadline(timer).unwrap_or_else(|| pinned.now() + drawn.min(ttl));
        Ok((timer, deadline))
    }

    /// After step 2: sees to what the map gave up for the value of `timer`, and to that value
    /// itself if its timer fired before it was in the map.
    pub(super) fn settle(
        &self,
        key: &K,
        (timer, deadline): (TimerId, Instant),
        parted: Parted<K, V>,
    ) {
        // In this order: a wheel is closed before it is drained, and a timer that was drained did
        // not fire, unless its time has come.
        let gone = !self.wheel.contains(timer);
        let has_fired = gone && (!self.wheel.is_closed() || deadline <= self.now());
        let missed = has_fired.then(|| self.map.remove_of(key, timer)).flatten();
        let parted = parted.into_iter().map(|(gone, held)| {
            let replaced = held.timer != timer && gone == *key;
            let cause = if replaced { Cause::Replaced } else { Cause::Size };
            (gone, held, cause)
        });
        self.part(parted.chain(missed.map(|(key, held)| (key, held, Cause::Expired))));
    }

    /// Takes the value out of the map that this timer ends, if it is still there.
    pub(super) fn fire(&self, key: &K, timer: TimerId) {
        let expired = self.map.remove_of(key, timer);
        self.part(expired.map(|(key, held)| (key, held, Cause::Expired)));
    }

    /// Step 3, for values that the caller had from the map: cancels their timers, counts them and
    /// tells the listener. A value whose time has passed has expired, whatever took it out. A panic
    /// of the listener, or of the drop of a value, goes on to the caller when all are told.
    pub(super) fn part(&self, parted: impl IntoIterator<Item = (K, Held<V>, Cause)>) {
        let mut first = None;
        for (key, held, cause) in parted {
            self.wheel.cancel(held.timer);
            let cause = if held.deadline <= self.now() { Cause::Expired } else { cause };
            match cause {
                Cause::Expired => self.counters.add(Count::Expired),
                Cause::Size => self.counters.add(Count::Evicted),
                Cause::Replaced | Cause::Removed => {}
            }
            let told = Evicted { key, value: held.value, cause };
            let outcome = catch_unwind(AssertUnwindSafe(|| match &self.listener {
                Some(listener) => listener(told),
                None => drop(told),
            }));
            match (outcome, &first) {
                (Ok(()), _) => {}
                (Err(panic), None) => first = Some(panic),
                (Err(panic), Some(_)) => discard(panic),
            }
        }
        if let Some(panic) = first {
            resume_unwind(panic);
        }
    }

    /// Ends the timers of all values when the last handle goes: a wheel that lives on is not to
    /// keep the keys. A drop that panics has nobody to tell, and ends nothing.
    pub(super) fn forget(&self) {
        for (key, held) in self.map.drain() {
            self.wheel.cancel(held.timer);
            quietly(|| drop((key, held)));
        }
    }
}

impl<K, V> Drop for Shared<K, V> {
    fn drop(&mut self) {
        (self.forget)(self);
    }
}
