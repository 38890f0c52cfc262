//! [`Damaged`], the timers whose records could not be read recently.
//!
//! Such a record stays in the store, and its key stays due, so each page that begins before the key
//! contains it. A worker requests it once a minute, and reports each time that it cannot be read.
//! The workers of a process share these timers, so that one of them requests and reports each.

#![forbid(unsafe_code)]

use crate::model::clock::Millis;
use crate::panics::ignore_poison;
use crate::store::partitions::idle::APART;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// The interval between requests. It equals `AGAIN` of the module `window`, the delay before the
/// key is loaded again.
const AGAIN: Millis = 60_000;

#[derive(Debug, Default)]
pub(super) struct Damaged(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The store's clock at the last load of a worker.
    now: Millis,
    /// When each timer was found.
    found: BTreeMap<String, Millis>,
}

impl Damaged {
    /// Sets the time, and forgets timers that were found more than the interval ago.
    pub(super) fn now(&self, now: Millis) {
        let mut known = self.lock();
        known.now = now;
        // The replies to two workers may overtake each other or come from two servers, so the time
        // may go back a little. A clock that was set back must not hide anything.
        known.found.retain(|_, found| (found.saturating_sub(APART)..*found + AGAIN).contains(&now));
    }

    /// Adds a timer. Returns `true` unless it is there already, because two workers have requested
    /// it at the same time.
    pub(super) fn add(&self, id: &str) -> bool {
        let mut known = self.lock();
        let now = known.now;
        let new = !known.found.contains_key(id);
        if new {
            known.found.insert(id.to_owned(), now);
        }
        new
    }

    pub(super) fn remove(&self, id: &str) {
        self.lock().found.remove(id);
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.lock().found.contains_key(id)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        ignore_poison(self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_timer_is_asked_for_once_a_minute() {
        let damaged = Damaged::default();
        damaged.now(5000);
        assert!(damaged.add("a") && damaged.add("b"));
        assert!(!damaged.add("a"), "another worker has reported it");
        damaged.remove("b");
        assert!(damaged.has("a") && !damaged.has("b"));
        damaged.now(64_999);
        assert!(damaged.has("a"));
        damaged.now(65_000);
        assert!(!damaged.has("a"));
        assert!(damaged.add("a"));
        damaged.now(60_000);
        assert!(damaged.has("a"), "a reply that was overtaken");
        damaged.now(59_999);
        assert!(!damaged.has("a"), "the clock was set back");
    }
}
