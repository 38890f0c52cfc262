//! [`Window`], the keys that one worker has loaded into its wheel.
//!
//! ```text
//!                     low watermark                            high watermark
//!   due ─────────►         │                                          │
//!    ├──── all loaded ─────┼─────────── resting in the store ─────────┼── not requested yet ──►
//! ```
//!
//! **All keys below the low watermark are in the wheel.** Beyond it only the store knows. The store
//! notifies the window of each change after it is durable, in the order of its transactions. A new
//! key below the low watermark enters the wheel, any other stays in the store, and a removed key
//! leaves the wheel.
//!
//! **While a page is pending** the changes are also recorded, and applied again when the page has
//! arrived, because the page may show the store as it was before them. Each change is complete, so
//! applying it twice has no effect.
//!
//! **Bounded.** If there are more than [`MAX_KEYS`] keys, the last key leaves the wheel and the low
//! watermark moves back to it. The key is loaded again when there is room.
//!
//! **A key that a caller's transaction has locked makes room.** It is [deferred](Window::defer), as
//! the transaction may stay open for long. The key fires again after a while. Until then it does
//! not count, and no page brings it back. The number of these keys is bounded as well. Further keys
//! are forgotten until a page has them.
//!
//! **No worker is woken under a lock**, because a waker may poll the worker where it is called, and
//! the worker locks `Window` again. A change of the wheel records that the worker has to be polled.
//! The thread that holds the lock wakes the worker after it has released the lock.

#![forbid(unsafe_code)]

use crate::model::clock::{Millis, whole_millis};
use crate::model::key::{Change, Key, Page, first_after, first_from};
use crate::panics::ignore_poison;
use futures_util::task::AtomicWaker;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, Weak};
use std::task::Context;
use std::time::{Duration, Instant};
use tourbillon::TimerId;
use tourbillon::future::{DeferredWake, DelayQueueHandle};

/// The maximum number of keys in the wheel.
pub(crate) const MAX_KEYS: usize = 4096;

/// The delay before unreadable records are loaded again.
const AGAIN: Duration = Duration::from_secs(60);

/// The delay before keys are loaded again if a paused store has rejected their leases.
const PAUSED: Duration = Duration::from_secs(1);

/// The maximum number of changes that are recorded while a page is pending.
const LOG: usize = 16 * MAX_KEYS;

/// The maximum number of keys that are deferred.
const MAX_DEFERRED: usize = 16 * MAX_KEYS;

/// The minimum wait until a deferred key fires again.
const MIN_DEFERRAL: Duration = Duration::from_millis(20);

/// The maximum wait until a deferred key fires again, if there are few.
const DEFERRAL: Duration = Duration::from_secs(1);

/// The maximum wait until a deferred key fires again.
const MAX_DEFERRAL: Duration = Duration::from_secs(30);

/// Deferred keys may occupy one in this number of a worker's deliveries.
const DEFERRED_SHARE: u32 = 4;

/// The store's clock counts as set if it drifts by more than this.
const ASTRAY: Millis = 50;

/// The keys that a worker has in its wheel.
pub(crate) struct Window {
    queue: DelayQueueHandle<Key>,
    loaded: Mutex<Loaded>,
    /// Wakes the worker to check the store at once.
    check_waker: AtomicWaker,
}

struct Loaded {
    /// All keys below this key are in the wheel.
    low_watermark: Key,
    armed: BTreeMap<Key, TimerId>,
    /// The keys that fire again although they are due.
    deferred: BTreeMap<Key, TimerId>,
    /// The changes since a page was requested.
    log: Option<Vec<Change>>,
    /// Set if the store is to be checked at once.
    check_requested: bool,
    /// The delay after which the store is to be checked, if a check was requested.
    check_after: Option<Duration>,
    base: Reading,
    /// When everything is loaded again, because the record of a key that has left the wheel could
    /// not be read, or its lease was rejected.
    again: Option<Instant>,
}

/// A reading of the store's clock, with the instants of the request and the reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) store: Millis,
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
}

impl Reading {
    /// Returns the instant when the store's clock will show `time`, or slightly earlier.
    fn instant(self, time: Millis) -> Instant {
        let ahead = Duration::from_millis(time.saturating_sub(self.store));
        self.asked.checked_add(ahead).unwrap_or(self.asked)
    }

    /// Returns the latest time that the store's clock can show at that instant.
    fn latest(self, local: Instant) -> Millis {
        self.store + whole_millis(local.saturating_duration_since(self.asked))
    }

    /// Returns `true` if the clock was set between this reading and the next. The duration of a
    /// request does not count as a step of the clock.
    fn has_step_before(self, next: Self) -> bool {
        let slack = whole_millis(self.answered.saturating_duration_since(self.asked)) + ASTRAY;
        let least = self.latest(next.asked).saturating_sub(slack);
        let most = self.latest(next.answered) + ASTRAY;
        !(least..=most).contains(&next.store)
    }
}

impl Window {
    pub(crate) fn new(queue: DelayQueueHandle<Key>, base: Reading) -> Self {
        let (low_watermark, armed) = (first_from(0), BTreeMap::new());
        let deferred = BTreeMap::new();
        let (log, check_requested, check_after, again) = (None, false, None, None);
        let loaded = Loaded {
            low_watermark,
            armed,
            deferred,
            log,
            check_requested,
            check_after,
            base,
            again,
        };
        Self { queue, loaded: Mutex::new(loaded), check_waker: AtomicWaker::new() }
    }

    /// Returns the number of keys in the wheel, the low watermark, and the approximate time of the
    /// store's clock.
    pub(crate) fn state(&self, local: Instant) -> (usize, Key, Millis) {
        let mut loaded = self.lock();
        // A pending page is used first, however long it takes.
        if loaded.log.is_none() && loaded.again.take_if(|again| *again <= local).is_some() {
            loaded.clear();
        }
        (loaded.armed.len(), loaded.low_watermark.clone(), loaded.base.latest(local))
    }

    /// Records that a page from the low watermark on is being requested.
    pub(crate) fn begin_page(&self) {
        self.lock().log = Some(Vec::new());
    }

    /// Adds a page with all keys from `from` to its end, or to its last key if there are more. The
    /// page is discarded if the low watermark has moved back or changes were missed.
    pub(crate) fn end_page(&self, page: Page, from: &Key, now: Reading) {
        let mut loaded = self.lock();
        let Some(log) = loaded.log.take() else { return };
        let before = std::mem::replace(&mut loaded.base, now);
        if before.has_step_before(now) {
            // Every key is at the wrong time.
            loaded.clear();
            return;
        }
        if loaded.low_watermark != *from {
            return;
        }
        let last = page.keys.last().filter(|_| page.more);
        let low_watermark = last.map_or_else(|| first_from(page.until + 1), first_after);
        loaded.low_watermark = low_watermark.max(from.clone());
        for key in page.keys {
            loaded.put(key);
        }
        for change in log {
            loaded.change(change);
        }
    }

    /// Applies changes in the store, in order.
    pub(crate) fn notify(&self, changes: &[Change]) {
        let mut loaded = self.lock();
        for change in changes {
            if let Some(log) = &mut loaded.log {
                log.push(change.clone());
            }
            loaded.change(change.clone());
        }
        // The page is overdue, so it is discarded and requested again.
        loaded.log.take_if(|log| log.len() > LOG);
    }

    /// Plans to load everything again after a while, because a record cannot be read or keys are
    /// out of order. Returns `true` if that was not planned yet.
    pub(crate) fn plan_reload(&self, local: Instant) -> bool {
        self.plan(local + AGAIN)
    }

    /// Plans to load everything again in a second, because a paused store has rejected a lease. A
    /// worker may not notice a short pause at all, and may notice the end of a pause before the
    /// last part of the store is resumed.
    pub(crate) fn plan_reload_after_pause(&self, local: Instant) {
        self.plan(local + PAUSED);
    }

    /// Plans to load everything again at an instant, unless an earlier reload is planned. Returns
    /// `true` if no reload was planned.
    fn plan(&self, at: Instant) -> bool {
        let again = &mut self.lock().again;
        let planned = again.map_or(at, |again| again.min(at));
        again.replace(planned).is_none()
    }

    /// Loads everything again, and discards a pending page, because changes may have been missed.
    pub(crate) fn invalidate(&self) {
        let mut loaded = self.lock();
        loaded.log = None;
        loaded.clear();
        drop(loaded);
        self.request_check();
    }

    /// Loads everything again once no page is pending, because changes are being missed. A slow
    /// page is still used.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn reload(&self) {
        let mut loaded = self.lock();
        loaded.again = Some(loaded.base.asked);
        drop(loaded);
        self.request_check();
    }

    /// Makes the worker check the store at once.
    pub(crate) fn request_check(&self) {
        self.lock().check_requested = true;
        self.check_waker.wake();
    }

    /// Makes the worker check the store after a delay.
    pub(crate) fn request_check_after(&self, wait: Duration) {
        self.lock().check_after = Some(wait);
        self.check_waker.wake();
    }

    /// Takes the delay after which the worker has to check the store, if a check was requested.
    pub(crate) fn take_check_after(&self) -> Option<Duration> {
        self.lock().check_after.take()
    }

    /// Returns `true` if the worker has to check the store at once, and wakes it when it has to.
    pub(crate) fn poll_check_requested(&self, context: &Context<'_>) -> bool {
        self.check_waker.register(context.waker());
        std::mem::take(&mut self.lock().check_requested)
    }

    /// Removes a key that has fired.
    pub(crate) fn fired(&self, key: &Key, id: TimerId) {
        let mut loaded = self.lock();
        if loaded.armed.get(key) == Some(&id) {
            loaded.armed.remove(key);
        }
        if loaded.deferred.get(key) == Some(&id) {
            loaded.deferred.remove(key);
        }
    }

    /// Makes a key fire again after a while, because a transaction of another client has locked its
    /// timer. The longer the key has been due, the longer the wait. If there are many such
    /// keys, it is so long that their requests occupy a quarter of the `places` of a worker.
    pub(crate) fn defer(&self, key: Key, now: Reading, places: usize) {
        let late = Duration::from_millis(now.store.saturating_sub(key.0));
        let asked = now.answered.saturating_duration_since(now.asked);
        let places = u32::try_from(places).unwrap_or(u32::MAX).max(1);
        let mut loaded = self.lock();
        if let Some(id) = loaded.armed.remove(&key) {
            drop(loaded.queue.cancel(id));
        }
        if loaded.deferred.len() >= MAX_DEFERRED || loaded.deferred.contains_key(&key) {
            return;
        }
        let count = u32::try_from(loaded.deferred.len()).unwrap_or(u32::MAX);
        let wait = (late / 4).clamp(MIN_DEFERRAL, DEFERRAL);
        let wait = wait.max(asked.saturating_mul(count) / places * DEFERRED_SHARE);
        // Keys that were due together must not be requested together forever.
        let mut hasher = DefaultHasher::new();
        (&key, now.store).hash(&mut hasher);
        let sooner = u32::try_from(hasher.finish() % 512).unwrap_or_default();
        let wait = wait.min(MAX_DEFERRAL) * (1024 - sooner) / 1024;
        // Otherwise the worker has gone.
        if let Ok(id) = loaded.queue.insert_at(key.clone(), now.answered + wait) {
            loaded.deferred.insert(key, id);
        }
    }

    /// Inserts again a key that was not due yet.
    pub(crate) fn reinsert(&self, key: Key, now: Reading) {
        let mut loaded = self.lock();
        if let Some(id) = loaded.armed.remove(&key) {
            drop(loaded.queue.cancel(id));
        }
        // The reading of that reply counts. It may be from another master than the pages, which
        // notice by themselves if the clock of their master is set.
        loaded.put_at(key, now);
    }

    fn lock(&self) -> WindowGuard<'_> {
        let loaded = ignore_poison(self.loaded.lock());
        WindowGuard { loaded, queue: self.queue.defer_wake() }
    }
}

/// The loaded keys, locked for one caller. Fields drop in their order, so the lock is released
/// before the worker is woken.
struct WindowGuard<'a> {
    loaded: MutexGuard<'a, Loaded>,
    queue: DeferredWake<'a, Key>,
}

impl WindowGuard<'_> {
    fn clear(&mut self) {
        for id in std::mem::take(&mut self.loaded.armed).into_values() {
            drop(self.queue.cancel(id));
        }
        self.loaded.low_watermark = first_from(0);
    }

    fn change(&mut self, change: Change) {
        if let Some(key) = change.removed {
            let loaded = &mut *self.loaded;
            let ids = [loaded.armed.remove(&key), loaded.deferred.remove(&key)];
            ids.into_iter().flatten().for_each(|id| drop(self.queue.cancel(id)));
        }
        if let Some(key) = change.added {
            self.put(key);
        }
    }

    fn put(&mut self, key: Key) {
        let base = self.loaded.base;
        self.put_at(key, base);
    }

    /// Inserts a key that is due by this reading of the clock.
    fn put_at(&mut self, key: Key, clock: Reading) {
        let loaded = &mut *self.loaded;
        let is_known = loaded.armed.contains_key(&key) || loaded.deferred.contains_key(&key);
        if key >= loaded.low_watermark || is_known {
            return;
        }
        match self.queue.insert_at(key.clone(), clock.instant(key.0)) {
            Ok(id) => drop(loaded.armed.insert(key, id)),
            // The worker has gone. (The wheel is unbounded and ranges over years, and the key is
            // below the low watermark, which was seconds ahead of a clock that has not been set
            // since.) In any case the key is not in the wheel.
            Err(_) => loaded.low_watermark = key,
        }
        if loaded.armed.len() > MAX_KEYS
            && let Some((last, id)) = loaded.armed.pop_last()
        {
            drop(self.queue.cancel(id));
            loaded.low_watermark = last;
        }
    }
}

impl Deref for WindowGuard<'_> {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        &self.loaded
    }
}

impl DerefMut for WindowGuard<'_> {
    fn deref_mut(&mut self) -> &mut Loaded {
        &mut self.loaded
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").finish_non_exhaustive()
    }
}

/// The windows that are notified of changes.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<Vec<Weak<Window>>>);

impl Watchers {
    pub(crate) fn add(&self, window: Weak<Window>) {
        ignore_poison(self.0.lock()).push(window);
    }

    pub(crate) fn notify(&self, changes: &[Change]) {
        self.each(|window| window.notify(changes));
    }

    /// Makes all windows load again, because changes may have been missed.
    pub(crate) fn invalidate(&self) {
        self.each(Window::invalidate);
    }

    fn each(&self, call: impl Fn(&Window)) {
        let mut windows = Vec::new();
        let mut watchers = ignore_poison(self.0.lock());
        watchers.retain(|watcher| watcher.upgrade().map(|window| windows.push(window)).is_some());
        // A window that is added from here on has loaded nothing yet.
        drop(watchers);
        windows.iter().for_each(|window| call(window));
    }
}

#[cfg(test)]
mod tests;
