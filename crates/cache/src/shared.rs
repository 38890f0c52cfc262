//! [`Shared`]: the state that the handles of a cache share, and the steps that keep map and wheel
//! consistent.
//!
//! **The map decides which value a key has, and the wheel only decides when it ends.** A value goes
//! through three steps:
//!
//! 1. *Arm.* Its timer, which contains the key, goes into the wheel, which returns the id. If the
//!    value is refused, it is refused here, before anything has changed.
//! 2. *Publish.* The value goes into the map, with the id.
//! 3. *Evict.* One caller takes it out of the map. The caller is a sweep's [`fire`](Shared::fire),
//!    an insert, a removal, or the eviction policy. Only the caller that got it from the map
//!    cancels its timer, counts it and calls the listener, outside the locks of the map. The
//!    listener is therefore called once, with one cause.
//!
//! A fire takes only the value with the fired timer's id out of the map, and ids never recur. The
//! timer of an old value that lost its race with a cancel finds nothing. A timer may also fire
//! between steps 1 and 2, when there is nothing to take. The publisher therefore checks afterwards
//! if the timer is still armed, and [takes the value out](Shared::settle) itself if not. Both may
//! try, and the map gives the value to one.
//!
//! **A refresh is begun by a caller that wants the value**, in the last part of its life, and not
//! by the wheel when that part begins. A value that no caller requests then expires. The load takes
//! the key's place like any other load, so a write supersedes it, and the present value is served
//! meanwhile. After a failed load the entry keeps the earliest time of the next load, and the
//! number of failures, which makes the pauses grow.
//!
//! **The cost of a hit** beyond the cost in quick_cache is mainly one read of the processor's
//! counter, because a hit that read no clock could serve an expired value. A clock reading that is
//! slightly old ([`Wheel::has_passed`]) shows that a value is live, and the clock itself is read
//! only for values that end within the time that a reading is cached. The read of the counter takes
//! two thirds of the time of such a hit if everything lies in near caches. Otherwise it keeps the
//! misses of neighbouring hits from overlapping. (`ci/measure caches` runs quick_cache with only
//! this read added.) The rest, a fifth or less, is the count and the larger entry, which has the
//! timer's id, two deadlines and a pause. The key is hashed once, for its shard and for its table,
//! and each thread counts in a row of its own.

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

/// The state that the handles of a cache share.
pub(super) struct Shared<K, V> {
    pub(super) map: Map<K, V>,
    pub(super) wheel: Wheel<CacheTimer<K>>,
    pub(super) ttl: Duration,
    /// The time to idle.
    pub(super) idle: Option<Duration>,
    /// The refresh-ahead window.
    pub(super) ahead: Option<Duration>,
    pub(super) jitter: Jitter,
    pub(super) listener: Option<Notifier<K, V>>,
    pub(super) counters: Counters,
    /// Set once, by a cache with a driver of its own.
    pub(super) driver: OnceLock<Driver<CacheTimer<K>>>,
    /// [`Shared::forget`], for `drop`, which has no bounds on the key.
    pub(super) forget: fn(&Self),
}

impl<K: Eq + Hash + Clone + Send, V: Clone> Shared<K, V> {
    /// The longest pause after the first failed refresh.
    const FIRST_PAUSE: Duration = Duration::from_secs(1);

    /// The longest pause after any failed refresh.
    const MAX_PAUSE: Duration = Duration::from_secs(60);

    /// The time between two checks whether callers wait for a load that belongs to its key.
    const LOAD_WAITS: Duration = Duration::from_secs(60);

    /// Returns `true` if an entry has not expired.
    #[inline]
    pub(super) fn is_live(&self, entry: &CacheEntry<V>) -> bool {
        !self.wheel.has_passed(entry.until())
    }

    /// Returns the state of an entry, and records a use if it is served.
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

    /// Returns `true` if an entry has not expired, and records the use. In most cases it reads the
    /// clock once.
    #[inline]
    fn use_if_live(&self, entry: &CacheEntry<V>, idle: Duration) -> bool {
        // The result includes the lag that is added to delays, so it is no earlier than `idle` from
        // now.
        let used = self.wheel.wheel_instant_after(idle);
        let is_live = entry.outlives(used, idle) || self.is_live(entry);
        if is_live {
            entry.used(used);
        }
        is_live
    }

    /// Returns `true` if the next value is due to be loaded, while this one is served.
    #[inline]
    fn ages(&self, entry: &CacheEntry<V>) -> bool {
        self.ahead.is_some_and(|ahead| {
            self.wheel.has_passed(entry.ages(ahead)) && self.wheel.has_passed(entry.pause())
        })
    }

    /// Records a failed refresh of this entry. Each failure doubles the pause before the next
    /// refresh.
    pub(super) fn pause(&self, entry: &CacheEntry<V>) {
        let Some(ahead) = self.ahead else { return };
        entry.refresh_failed(|failures| {
            let first = (ahead / 32).min(Self::FIRST_PAUSE);
            let pause = first.saturating_mul(1 << (failures - 1).min(31));
            self.wheel.wheel_instant_after(pause.min(Self::MAX_PAUSE))
        });
    }

    /// Returns `true` if an entry that may have expired is live and due for a refresh.
    pub(super) fn is_live_and_ages(&self, entry: &CacheEntry<V>) -> bool {
        self.is_live(entry) && self.ages(entry)
    }

    /// Step 1. Arms the timer of a value with a time to live of about `ttl`.
    pub(super) fn arm(&self, key: K, ttl: Duration) -> Result<(TimerId, Lives), CacheRefusal> {
        let drawn = self.draw(ttl)?;
        let unused = self.unused(drawn);
        let pinned = self.wheel.pin();
        let timer = pinned.insert(CacheTimer { key }, self.first_hop(unused));
        let timer = timer.map_err(|refused| CacheRefusal::Wheel(refused.reason))?;
        Ok((timer, self.lives(self.until(unused, pinned.deadline(timer)), drawn)))
    }

    /// Step 1 for a value that takes over the time to live of `entry`, which counts as a use.
    pub(super) fn arm_like(
        &self,
        key: K,
        entry: &CacheEntry<V>,
    ) -> Result<(TimerId, Lives), CacheRefusal> {
        let lives = entry.lives(self.idle.map(|idle| self.wheel.wheel_instant_after(idle)));
        let timer = self.arm_at(key, lives.until).map_err(CacheRefusal::Wheel)?;
        Ok((timer, lives))
    }

    /// Arms a timer that fires at `until`, or before if that is beyond the wheel's range.
    fn arm_at(&self, key: K, until: WheelInstant) -> Result<TimerId, Refusal> {
        let timer = match self.wheel.insert_at_wheel_instant(CacheTimer { key }, until) {
            Err(InsertError { reason: Refusal::BeyondRange(_), value }) => {
                self.wheel.insert(value, self.hop())
            }
            timer => timer,
        };
        timer.map_err(|refused| refused.reason)
    }

    /// Draws the time to live of a value around `ttl`.
    fn draw(&self, ttl: Duration) -> Result<Duration, CacheRefusal> {
        if ttl.is_zero() { Err(CacheRefusal::TimeToLive) } else { Ok(self.jitter.around(ttl)) }
    }

    /// Returns the delay of the timer of a value with this lifetime, which is shorter if the
    /// lifetime is beyond the wheel's range. The timer is armed again when it fires
    /// ([`expire`](Self::expire)).
    fn first_hop(&self, unused: Duration) -> Duration {
        if unused <= self.wheel.longest_delay() { unused } else { self.hop() }
    }

    /// Returns half of the wheel's range, which is in range even if the sweeper is late.
    fn hop(&self) -> Duration {
        self.wheel.longest_delay() / 2
    }

    /// Returns the instant when a value with this lifetime stops being served. That is the deadline
    /// of its timer. A timer that has fired or was drained since it was armed has none.
    fn until(&self, unused: Duration, deadline: Option<Instant>) -> WheelInstant {
        let in_range = deadline.filter(|_| unused <= self.wheel.longest_delay());
        in_range.map_or_else(
            || self.wheel.wheel_instant_after(unused),
            |at| self.wheel.wheel_instant(at),
        )
    }

    /// Returns the lifetime of a value that is not used.
    fn unused(&self, drawn: Duration) -> Duration {
        self.idle.map_or(drawn, |idle| idle.min(drawn))
    }

    fn lives(&self, until: WheelInstant, drawn: Duration) -> Lives {
        let used = || self.wheel.wheel_instant_after(drawn).max(until);
        Lives { until, at_most: self.idle.map_or(until, |_| used()) }
    }

    /// Sets another time to live for an entry, with the map's lock held. Returns `true` if the
    /// entry is live.
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
            // Its timer has fired for an earlier deadline. The thread that sweeps arms it again.
            Ok(false) if !self.wheel.is_closed() => None,
            Ok(false) => return refused(Refusal::Closed),
            Err(beyond) => return refused(Refusal::BeyondRange(beyond)),
        };
        entry.set_lives(self.lives(self.until(unused, deadline), drawn));
        Ok(true)
    }

    /// After step 2. Handles the entries that the map gave up for the value of `timer`, and that
    /// value itself if its timer fired before it was in the map.
    pub(super) fn settle(&self, key: &K, (timer, lives): (TimerId, Lives), removed: Removed<K, V>) {
        // In this order, because a wheel is closed before it is drained. A timer that was drained
        // did not fire, unless its deadline has passed.
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

    /// Removes the entry that this timer ends, if the key still has it and it was not used since.
    pub(super) fn fire(&self, timer: &Expired<CacheTimer<K>>) {
        let key = &timer.value.key;
        let expired = self.expire(key, timer.id);
        if expired.is_none() {
            self.map.check_load(key, timer.id, || self.arm_load(key.clone()));
        }
        // `Size` if its deadline has not passed, because the wheel had no room.
        self.evict(expired.map(|(key, entry)| (key, entry, Cause::Size)));
    }

    /// Arms the timer of a load that belongs to its key. When it fires, the load is dropped if no
    /// caller waits for it.
    pub(super) fn arm_load(&self, key: K) -> Option<TimerId> {
        let wait = Self::LOAD_WAITS.min(self.wheel.longest_delay());
        self.wheel.insert(CacheTimer { key }, wait).ok()
    }

    fn expire(&self, key: &K, timer: TimerId) -> Option<(K, CacheEntry<V>)> {
        let is_live = |entry: &CacheEntry<V>| self.is_live(entry);
        self.map.expire(key, timer, is_live, |key, until| self.arm_at(key.clone(), until))
    }

    /// Removes the expired entries among those whose timers were handed back when the wheel was
    /// closed.
    pub(super) fn end(&self, unfired: Vec<Unfired<CacheTimer<K>>>) {
        let ended =
            unfired.into_iter().filter_map(|Unfired { value: CacheTimer { key }, id, .. }| {
                self.map.check_load(&key, id, || None);
                let (key, entry) = self.map.remove_of(&key, id, |entry| self.is_live(entry))?;
                Some((key, entry, Cause::Expired))
            });
        self.evict(ended);
    }

    /// Step 3, for entries that the caller got from the map. Cancels their timers, counts them and
    /// calls the listener. The cause is `Expired` if the deadline has passed, regardless of what
    /// removed the entry. A panic of the listener, or of the drop of a value, propagates to the
    /// caller after the last call.
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

    /// Cancels the timers of all entries when the last handle is dropped, so that a wheel that
    /// lives on does not keep the keys. A drop that panics is discarded and stops nothing.
    pub(super) fn forget(&self) {
        for (key, entry) in self.map.drain() {
            self.wheel.cancel(entry.timer);
            quietly(|| drop((key, entry)));
        }
        if self.wheel.is_closed() {
            // The cache has no armed timers left there. This wakes a thread that sweeps until then.
            self.wheel.close();
        }
    }
}

impl<K, V> Drop for Shared<K, V> {
    fn drop(&mut self) {
        (self.forget)(self);
    }
}
