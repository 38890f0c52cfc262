//! [`Damaged`], the timers whose records could not be read recently.
//!
//! Such a record stays in the store, and its key stays due, so each page that begins before the key
//! contains it. A worker requests it once a minute, and reports each time that it cannot be read.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use crate::panics::ignore_poison;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// The interval between requests. It equals `AGAIN` of `window.rs`, after which the key is loaded
/// again.
const AGAIN: Millis = 60_000;

#[derive(Debug, Default)]
pub(super) struct Damaged(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The store's clock at the last load of a worker.
    now: Millis,
    /// The time at which each timer was found.
    found: BTreeMap<String, Millis>,
}

impl Damaged {
    /// Sets the time, and forgets timers that were found more than the interval ago.
    pub(super) fn now(&self, now: Millis) {
        let mut known = self.lock();
        known.now = now;
        // A clock that was set back must not hide anything.
        known.found.retain(|_, found| (*found..*found + AGAIN).contains(&now));
    }

    pub(super) fn add(&self, id: &str) {
        let mut known = self.lock();
        let now = known.now;
        known.found.insert(id.to_owned(), now);
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
        damaged.add("a");
        damaged.add("b");
        damaged.remove("b");
        assert!(damaged.has("a") && !damaged.has("b"));
        damaged.now(64_999);
        assert!(damaged.has("a"));
        damaged.now(65_000);
        assert!(!damaged.has("a"));
        damaged.add("a");
        damaged.now(64_999);
        assert!(!damaged.has("a"), "the clock was set back");
    }
}
