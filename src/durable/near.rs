//! [`Near`]: the keys that one worker has loaded into its wheel.
//!
//! ```text
//!   due ─────────────►   frontier                                horizon
//!    ├── all loaded ───────┤── resting in the store ────────────────┤── not looked at yet ──►
//! ```
//!
//! **Whatever is due before the frontier is here**; beyond it the store alone knows. The store
//! tells of each change after it is durable, in the order of its transactions: a key before the
//! frontier goes into the wheel, another is left to rest, and one that has gone leaves the wheel.
//!
//! **While a page is being loaded** the changes are kept as well, and told once more when the page
//! has come: it may show the store as it was before them. Each is told whole, so that one that the
//! page shows already does no harm.
//!
//! **Bounded.** If more than [`MOST`] keys are here, the last of them leaves the wheel and the
//! frontier moves back to it: it is loaded again when there is room.

#![forbid(unsafe_code)]

use super::clock::{Millis, whole_millis};
use super::store::{Change, Key, Page};
use crate::TimerId;
use crate::future::DelayQueueHandle;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How many keys may be in the wheel.
pub(super) const MOST: usize = 4096;

/// How far the store's clock may go astray before the wheel is loaded anew.
const ASTRAY: Millis = 50;

/// The keys that a worker has in its wheel.
pub(super) struct Near {
    queue: DelayQueueHandle<Key>,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    /// All keys before it are here.
    frontier: Key,
    armed: BTreeMap<Key, TimerId>,
    /// What has changed since a page was asked for.
    log: Option<Vec<Change>>,
    base: Base,
}

/// What the store's clock said, and not before when.
#[derive(Clone, Copy)]
struct Base {
    store: Millis,
    local: Instant,
}

impl Base {
    /// The instant at which the store's clock will say `time`, or somewhat before.
    fn instant(self, time: Millis) -> Instant {
        let ahead = Duration::from_millis(time.saturating_sub(self.store));
        self.local.checked_add(ahead).unwrap_or(self.local)
    }

    fn store_at(self, local: Instant) -> Millis {
        self.store + whole_millis(local.saturating_duration_since(self.local))
    }
}

impl Near {
    pub(super) fn new(queue: DelayQueueHandle<Key>, store: Millis, local: Instant) -> Self {
        let loaded = Loaded {
            frontier: (0, Arc::from("")),
            armed: BTreeMap::new(),
            log: None,
            base: Base { store, local },
        };
        Self { queue, loaded: Mutex::new(loaded) }
    }

    /// How many keys are in the wheel, the frontier, and about what the store's clock says.
    pub(super) fn state(&self, local: Instant) -> (usize, Key, Millis) {
        let loaded = self.lock();
        (loaded.armed.len(), loaded.frontier.clone(), loaded.base.store_at(local))
    }

    /// A page is being asked for, from the frontier on.
    pub(super) fn begin(&self) {
        self.lock().log = Some(Vec::new());
    }

    /// The page has come that was asked for at `local`: all keys from `from` up to its end, or up to
    /// the last one of it if there are more. It is of no use if the frontier has moved back, or if
    /// changes were missed.
    pub(super) fn end(&self, page: Page, from: &Key, local: Instant) {
        let mut loaded = self.lock();
        let Some(log) = loaded.log.take() else { return };
        let expected = loaded.base.store_at(local);
        loaded.base = Base { store: page.now, local };
        if page.now.abs_diff(expected) > ASTRAY {
            // The clock has been set: every key is where it does not belong.
            self.clear(&mut loaded);
            return;
        }
        if loaded.frontier != *from {
            return;
        }
        let last = page.keys.last().filter(|_| page.more);
        let frontier = match last {
            Some((due, id)) => (*due, Arc::from(format!("{id}\0"))),
            None => (page.until + 1, Arc::from("")),
        };
        loaded.frontier = frontier.max(from.clone());
        for key in page.keys {
            self.put(&mut loaded, key);
        }
        for change in log {
            self.change(&mut loaded, change);
        }
    }

    /// Changes in the store, in their order.
    pub(super) fn tell(&self, changes: &[Change]) {
        let mut loaded = self.lock();
        for change in changes {
            if let Some(log) = &mut loaded.log {
                log.push(change.clone());
            }
            self.change(&mut loaded, change.clone());
        }
    }

    /// Changes may have been missed: all is loaded again, and a page that is on its way is void.
    #[cfg(feature = "redis")]
    pub(super) fn forget(&self) {
        let mut loaded = self.lock();
        loaded.log = None;
        self.clear(&mut loaded);
    }

    /// A key has left the wheel by its time.
    pub(super) fn fired(&self, key: &Key, id: TimerId) {
        let mut loaded = self.lock();
        if loaded.armed.get(key) == Some(&id) {
            loaded.armed.remove(key);
        }
    }

    /// A key was not due yet when the store's clock, asked at `local`, said `now`.
    pub(super) fn again(&self, key: Key, now: Millis, local: Instant) {
        let mut loaded = self.lock();
        loaded.base = Base { store: now, local };
        if let Some(id) = loaded.armed.remove(&key) {
            drop(self.queue.remove(id));
        }
        self.put(&mut loaded, key);
    }

    fn clear(&self, loaded: &mut Loaded) {
        for id in std::mem::take(&mut loaded.armed).into_values() {
            drop(self.queue.remove(id));
        }
        loaded.frontier = (0, Arc::from(""));
    }

    fn change(&self, loaded: &mut Loaded, change: Change) {
        if let Some(id) = change.gone.and_then(|key| loaded.armed.remove(&key)) {
            drop(self.queue.remove(id));
        }
        if let Some(key) = change.here {
            self.put(loaded, key);
        }
    }

    fn put(&self, loaded: &mut Loaded, key: Key) {
        if key >= loaded.frontier || loaded.armed.contains_key(&key) {
            return;
        }
        // Refused only if the worker has gone.
        if let Ok(id) = self.queue.insert_at(key.clone(), loaded.base.instant(key.0)) {
            loaded.armed.insert(key, id);
        }
        if loaded.armed.len() > MOST {
            if let Some((last, id)) = loaded.armed.pop_last() {
                drop(self.queue.remove(id));
                loaded.frontier = last;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Near").finish_non_exhaustive()
    }
}

/// The workers to tell of changes.
#[derive(Debug, Default)]
pub(super) struct Watchers(Mutex<Vec<Weak<Near>>>);

impl Watchers {
    pub(super) fn add(&self, near: Weak<Near>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(near);
    }

    pub(super) fn tell(&self, changes: &[Change]) {
        self.each(|near| near.tell(changes));
    }

    /// Changes may have been missed.
    #[cfg(feature = "redis")]
    pub(super) fn forget(&self) {
        self.each(Near::forget);
    }

    fn each(&self, call: impl Fn(&Near)) {
        let mut watchers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| watcher.upgrade().inspect(|near| call(near)).is_some());
    }
}
