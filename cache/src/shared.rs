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

use super::entry::{CacheEntry, Lives};
use super::error::CacheRefusal;
use super::eviction::{Cause, Evicted};
use super::jitter::Jitter;
use super::map::{Map, Served};
use super::notifier::Notifier;
use super::shard::Removed;
use super::stats::{Count, Counters};
use super::timer::CacheTimer;
use crate::panics::{DropEach, quietly};
use std::hash::Hash;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tourbillon::Driver;
use tourbillon::Expired;
use tourbillon::InsertError;
use tourbillon::Refusal;
use tourbillon::TimerId;
use tourbillon::Unfired;
use tourbillon::Wheel;
use tourbillon::WheelInstant;

/// What the handles of a cache share.
pub(super) struct Shared<K, V> {
    pub(super) map: Map<K, V>,
    pub(super) wheel: Wheel<CacheTimer<K>>,
    pub(super) ttl: Duration,
    /// How long a value lives that is not used.
    pub(super) idle: Option<Duration>,
    /// How long before its end the next value is loaded.
    pub(super) ahead: Option<Duration>,
    pub(super) jitter: Jitter,
    pub(super) listener: Option<Notifier<K, V>>,
    pub(super) counters: Counters,
    /// Set once, by a cache that has a driver of its own.
    pub(super) driver: OnceLock<Driver<CacheTimer<K>>>,
    /// [`Shared::forget`], for `drop`, which knows nothing of the key.
    pub(super) forget: fn(&Self),
}

impl<K: Eq + Hash + Clone + Send, V: Clone> Shared<K, V> {
    /// How long no load ahead begins after the first that failed, at most.
    const FIRST_PAUSE: Duration = Duration::from_secs(1);

    /// And after any.
    const LONGEST_PAUSE: Duration = Duration::from_secs(60);

    /// How long a load that belongs to its key waits for a caller.
    const LOAD_WAITS: Duration = Duration::from_secs(60);

    /// Whether a value is to be served.
    #[inline]
    pub(super) fn is_live(&self, entry: &CacheEntry<V>) -> bool {
        !self.wheel.has_passed(entry.until())
    }

    /// What a value is good for; to be served is a use of it.
    #[inline]
    pub(super) fn serve(&self, entry: &CacheEntry<V>) -> Served<V> {
        let is_live = match self.idle {
            None => self.is_live(entry),
            Some(idle) => self.use_if_live(entry, idle),
        };
        if !is_live {
            return Served::Expired;
        }
        let value = entry.value.clone();
        if self.ages(entry) { Served::RefreshDue(value) } else { Served::Value(value) }
    }

    /// As [`is_live`](Self::is_live), where that is a use: by one look at the clock, mostly.
    #[inline]
    fn use_if_live(&self, entry: &CacheEntry<V>, idle: Duration) -> bool {
        // With the lag that is added to delays, it is no earlier than that long after now.
        let used = self.wheel.wheel_instant_after(idle);
        let is_live = entry.outlives(used, idle) || self.is_live(entry);
        if is_live {
            entry.used(used);
        }
        is_live
    }

    /// Whether the next value is to be loaded in the place of this one, which is served until then.
    #[inline]
    fn ages(&self, entry: &CacheEntry<V>) -> bool {
        self.ahead.is_some_and(|ahead| {
            self.wheel.has_passed(entry.ages(ahead)) && self.wheel.has_passed(entry.pause())
        })
    }

    /// A load ahead of this value has failed: the next one waits, and twice as long each time.
    pub(super) fn pause(&self, entry: &CacheEntry<V>) {
        let Some(ahead) = self.ahead else { return };
        entry.refresh_failed(|failures| {
            let first = (ahead / 32).min(Self::FIRST_PAUSE);
            let pause = first.saturating_mul(1 << (failures - 1).min(31));
            self.wheel.wheel_instant_after(pause.min(Self::LONGEST_PAUSE))
        });
    }

    /// As [`ages`](Self::ages), of a value that may have ended.
    pub(super) fn is_live_and_ages(&self, entry: &CacheEntry<V>) -> bool {
        self.is_live(entry) && self.ages(entry)
    }

    /// Step 1: arms the timer of a value that is to live for about `ttl`.
    pub(super) fn arm(&self, key: K, ttl: Duration) -> Result<(TimerId, Lives), CacheRefusal> {
        let drawn = self.draw(ttl)?;
        let unused = self.unused(drawn);
        let pinned = self.wheel.pin();
        let timer = pinned.insert(CacheTimer { key }, self.first_hop(unused));
        let timer = timer.map_err(|refused| CacheRefusal::Wheel(refused.reason))?;
        Ok((timer, self.lives(self.until(unused, pinned.deadline(timer)), drawn)))
    }

    /// How long a value lives that is to live for about `ttl`.
    fn draw(&self, ttl: Duration) -> Result<Duration, CacheRefusal> {
        if ttl.is_zero() { Err(CacheRefusal::TimeToLive) } else { Ok(self.jitter.around(ttl)) }
    }

    /// The delay of the timer of a value that lives so long: less, if that is beyond the wheel's
    /// range. The timer is armed again when it fires ([`expire`](Self::expire)).
    fn first_hop(&self, unused: Duration) -> Duration {
        if unused <= self.wheel.longest_delay() { unused } else { self.hop() }
    }

    /// Half of the wheel's range, so that it is in range also when the sweeper is late.
    fn hop(&self) -> Duration {
        self.wheel.longest_delay() / 2
    }

    /// Until when a value is served that lives so long: until the deadline of its timer, which has
    /// none if it has fired, or was drained, since it was armed.
    fn until(&self, unused: Duration, deadline: Option<Instant>) -> WheelInstant {
        let in_range = deadline.filter(|_| unused <= self.wheel.longest_delay());
        in_range.map_or_else(
            || self.wheel.wheel_instant_after(unused),
            |at| self.wheel.wheel_instant(at),
        )
    }

    /// How much of that it lives if it is not used.
    fn unused(&self, drawn: Duration) -> Duration {
        self.idle.map_or(drawn, |idle| idle.min(drawn))
    }

    fn lives(&self, until: WheelInstant, drawn: Duration) -> Lives {
        let used = || self.wheel.wheel_instant_after(drawn).max(until);
        Lives { until, at_most: self.idle.map_or(until, |_| used()) }
    }

    /// Gives a value, with the map's lock held, another time to live; whether it is to be served at
    /// all.
    pub(super) fn touch(
        &self,
        entry: &mut CacheEntry<V>,
        ttl: Duration,
    ) -> Result<bool, CacheRefusal> {
        let drawn = self.draw(ttl)?;
        if !self.is_live(entry) {
            return Ok(false);
        }
        let (pinned, unused) = (self.wheel.pin(), self.unused(drawn));
        let reset = pinned.reset(entry.timer, self.first_hop(unused));
        let refused = |refusal| Err(CacheRefusal::Wheel(refusal));
        let deadline = match reset {
            Ok(true) => pinned.deadline(entry.timer),
            // Its timer has fired for an earlier time: whoever sweeps arms it anew.
            Ok(false) if !self.wheel.is_closed() => None,
            Ok(false) => return refused(Refusal::Closed),
            Err(beyond) => return refused(Refusal::BeyondRange(beyond)),
        };
        entry.set_lives(self.lives(self.until(unused, deadline), drawn));
        Ok(true)
    }

    /// After step 2: sees to what the map gave up for the value of `timer`, and to that value
    /// itself if its timer fired before it was in the map.
    pub(super) fn settle(&self, key: &K, (timer, lives): (TimerId, Lives), removed: Removed<K, V>) {
        // In this order: a wheel is closed before it is drained, and a timer that was drained did
        // not fire, unless its time has come.
        let gone = !self.wheel.contains(timer);
        let fired = || !self.wheel.is_closed() || self.wheel.has_passed(lives.until);
        let missed = if gone && fired() { self.expire(key, timer) } else { None };
        let removed = removed.into_iter().map(|(gone, entry)| {
            let replaced = entry.timer != timer && gone == *key;
            let cause = if replaced { Cause::Replaced } else { Cause::Size };
            (gone, entry, cause)
        });
        self.evict(removed.chain(missed.map(|(key, entry)| (key, entry, Cause::Size))));
    }

    /// Takes the value out of the map that this timer ends, if it is still there and was not used
    /// since.
    pub(super) fn fire(&self, timer: &Expired<CacheTimer<K>>) {
        let key = &timer.value.key;
        let expired = self.expire(key, timer.id);
        if expired.is_none() {
            self.map.check_load(key, timer.id, || self.arm_load(key.clone()));
        }
        // For want of a place in the wheel, if its time has not come.
        self.evict(expired.map(|(key, entry)| (key, entry, Cause::Size)));
    }

    /// Arms the timer of a load that belongs to its key: it is dropped then if no caller waits for
    /// it.
    pub(super) fn arm_load(&self, key: K) -> Option<TimerId> {
        let wait = Self::LOAD_WAITS.min(self.wheel.longest_delay());
        self.wheel.insert(CacheTimer { key }, wait).ok()
    }

    fn expire(&self, key: &K, timer: TimerId) -> Option<(K, CacheEntry<V>)> {
        let is_live = |entry: &CacheEntry<V>| self.is_live(entry);
        self.map.expire(key, timer, is_live, |key, until| {
            let timer = self.wheel.insert_at_wheel_instant(CacheTimer { key: key.clone() }, until);
            let timer = match timer {
                Err(InsertError { reason: Refusal::BeyondRange(_), value }) => {
                    self.wheel.insert(value, self.hop())
                }
                timer => timer,
            };
            timer.map_err(|refused| refused.reason)
        })
    }

    /// Takes out the values whose timers were handed back when the wheel was closed, if their time
    /// has come.
    pub(super) fn end(&self, unfired: Vec<Unfired<CacheTimer<K>>>) {
        let ended =
            unfired.into_iter().filter_map(|Unfired { value: CacheTimer { key }, id, .. }| {
                self.map.check_load(&key, id, || None);
                let (key, entry) = self.map.remove_of(&key, id, |entry| self.is_live(entry))?;
                Some((key, entry, Cause::Expired))
            });
        self.evict(ended);
    }

    /// Step 3, for values that the caller had from the map: cancels their timers, counts them and
    /// tells the listener. A value whose time has passed has expired, whatever took it out. A panic
    /// of the listener, or of the drop of a value, goes on to the caller when all are told.
    pub(super) fn evict(&self, removed: impl IntoIterator<Item = (K, CacheEntry<V>, Cause)>) {
        let mut each = DropEach::default();
        for (key, entry, cause) in removed {
            self.wheel.cancel(entry.timer);
            let cause = if self.is_live(&entry) { cause } else { Cause::Expired };
            match cause {
                Cause::Expired => self.counters.add(Count::Expired),
                Cause::Size => self.counters.add(Count::Evicted),
                Cause::Replaced | Cause::Removed => {}
            }
            let deadline = self.wheel.instant(entry.until());
            let told = Evicted { key, value: entry.value, cause, deadline };
            each.run(|| match &self.listener {
                Some(listener) => listener.tell(told),
                None => drop(told),
            });
        }
    }

    /// Ends the timers of all values when the last handle goes: a wheel that lives on is not to
    /// keep the keys. A drop that panics has nobody to tell, and ends nothing.
    pub(super) fn forget(&self) {
        for (key, entry) in self.map.drain() {
            self.wheel.cancel(entry.timer);
            quietly(|| drop((key, entry)));
        }
        if self.wheel.is_closed() {
            // Nothing of the cache is armed there any more: whoever sweeps until then is told.
            self.wheel.close();
        }
    }
}

impl<K, V> Drop for Shared<K, V> {
    fn drop(&mut self) {
        (self.forget)(self);
    }
}
