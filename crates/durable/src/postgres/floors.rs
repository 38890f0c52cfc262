//! The position where the keys of a worker begin, the checks for keys that appear before it, and
//! the gaps between heartbeats that make the worker load all keys again.

#![forbid(unsafe_code)]

use crate::model::clock::Millis;
use crate::model::key::{Key, Page, first_after, first_from};
use crate::panics::ignore_poison;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time between two checks for overdue keys, as a multiple of a check's duration. While a
/// transaction is open for long, each check passes all keys that have ended since.
const REST: u32 = 20;

/// The shortest time between two checks for overdue keys.
const MIN_REST: Duration = Duration::from_millis(100);

/// A window is loaded again from at least this long before now.
const FLOOR: Millis = 60_000;

/// The worker may have counted as dead if more than this passes between two pages. It is less than
/// the time in `sql/load.sql` by the age that a heartbeat may have when it is not written again.
const GONE: Millis = 4500;

/// A check for overdue keys.
#[derive(Debug)]
pub(super) struct Late {
    /// The due time where the first check of a round begins.
    pub(super) from: Millis,
    pub(super) until: Millis,
    /// How long the keys have been overdue, in milliseconds.
    pub(super) age: Millis,
    /// The maximum number of keys.
    pub(super) most: usize,
    /// The parts of the keys, or `None` for all.
    pub(super) parts: Option<Vec<i32>>,
}

/// The checks for overdue keys, wherever a window begins. They are separate statements, because
/// they may take long. **A check continues after the last key that the previous check found**, and
/// from the first key on once there are no more. Keys that cannot be leased, because a transaction
/// has locked them or all handlers are busy, therefore never keep other keys from being found.
#[derive(Debug, Default)]
pub(super) struct LateChecks(Mutex<LateCheck>);

#[derive(Debug, Default)]
struct LateCheck {
    /// The time of the next check.
    next: Option<Instant>,
    running: bool,
    /// The keys that are added to the next page.
    found: Vec<Key>,
    /// The keys that the last check found.
    known: BTreeSet<Key>,
    /// The position after the last key, if there may be more.
    position: Option<Key>,
}

impl LateChecks {
    /// Returns `true` if the caller has to run a check.
    pub(super) fn begin(&self, now: Instant) -> bool {
        let mut check = ignore_poison(self.0.lock());
        let due = !check.running && check.next.is_none_or(|next| next <= now);
        check.running |= due;
        due
    }

    /// Returns the position where the next check begins, at or after a due time.
    pub(super) fn position(&self, from: Millis) -> Key {
        let check = ignore_poison(self.0.lock());
        check.position.clone().unwrap_or(first_from(0)).max(first_from(from))
    }

    /// Ends a check for up to `most` keys. Returns `true` if it found a key that the last check did
    /// not.
    pub(super) fn end(&self, found: Vec<Key>, most: usize, begun: Instant, now: Instant) -> bool {
        let mut check = ignore_poison(self.0.lock());
        let is_new = found.iter().any(|key| !check.known.contains(key));
        let rest = (now.saturating_duration_since(begun) * REST).max(MIN_REST);
        let known = found.iter().cloned().collect();
        let last = found.last().filter(|_| found.len() >= most);
        let position = last.map(first_after);
        *check = LateCheck { next: Some(now + rest), running: false, found, known, position };
        is_new
    }

    pub(super) fn take(&self) -> Vec<Key> {
        std::mem::take(&mut ignore_poison(self.0.lock()).found)
    }
}

/// The positions where reloads of windows begin. A worker has no key before its position, except
/// keys that appear later, which the checks for overdue keys find.
///
/// Without it each page from the first key on would pass the entries of all timers that repeat, are
/// paused, or have ended while a transaction is open for long.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<BTreeMap<u64, Floor>>);

/// When each worker last sent a heartbeat.
#[derive(Debug, Default)]
pub(super) struct Beats(Mutex<BTreeMap<u64, Millis>>);

impl Beats {
    /// Notes the time of a page, which is a heartbeat. Returns `true` if the worker may have
    /// counted as dead before. If it owns the same parts as then, other workers owned them in
    /// between, and notices of keys were not sent if no other worker listened.
    pub(super) fn note(&self, worker: u64, now: Millis) -> bool {
        let before = ignore_poison(self.0.lock()).insert(worker, now);
        before.is_some_and(|before| now.saturating_sub(before) > GONE)
    }

    pub(super) fn remove(&self, worker: u64) {
        ignore_poison(self.0.lock()).remove(&worker);
    }
}

#[derive(Debug)]
struct Floor {
    due: Millis,
    parts: BTreeSet<u64>,
}

impl Floors {
    pub(super) fn of(&self, worker: u64) -> Millis {
        ignore_poison(self.0.lock()).get(&worker).map_or(0, |floor| floor.due)
    }

    /// Notes the page of a worker that was loaded from its floor on. Returns `false` if it may lack
    /// keys, because the worker has other parts than before, or the clock was set back.
    pub(super) fn note(&self, worker: u64, parts: &BTreeSet<u64>, page: &Page) -> bool {
        let mut floors = ignore_poison(self.0.lock());
        let holds =
            floors.get(&worker).is_none_or(|floor| floor.parts == *parts && floor.due <= page.now);
        if !holds {
            floors.remove(&worker);
        } else if !page.paused && !parts.is_empty() {
            let first = page.keys.first().map_or(page.until, |(due, _)| *due);
            let due = first.min(page.now.saturating_sub(FLOOR));
            floors.insert(worker, Floor { due, parts: parts.clone() });
        }
        holds
    }

    /// Makes each worker load its window from a time on, if it has begun later.
    pub(super) fn lower(&self, due: Millis) {
        for floor in ignore_poison(self.0.lock()).values_mut() {
            floor.due = floor.due.min(due);
        }
    }

    pub(super) fn remove(&self, worker: u64) {
        ignore_poison(self.0.lock()).remove(&worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tourbillon::{Clock, MonotonicClock};

    #[test]
    fn a_window_is_loaded_again_from_its_first_key_or_shortly_before_now() {
        let floors = Floors::default();
        let (all, half) = (BTreeSet::from([1, 2]), BTreeSet::from([1]));
        let page = |now: Millis, keys: &[Millis], paused| Page {
            now,
            until: now + 15_000,
            keys: keys.iter().map(|due| (*due, Arc::from("id"))).collect(),
            paused,
            ..Page::default()
        };
        assert_eq!(floors.of(7), 0);
        assert!(floors.note(7, &all, &page(100_000, &[5000, 110_000], false)));
        assert_eq!((floors.of(7), floors.of(8)), (5000, 0));
        assert!(floors.note(7, &all, &page(100_000, &[], true)), "it is paused");
        assert_eq!(floors.of(7), 5000);
        assert!(floors.note(7, &all, &page(100_000, &[101_000], false)));
        assert_eq!(floors.of(7), 40_000);
        assert!(!floors.note(7, &half, &page(100_000, &[], false)), "it may have gained parts");
        assert_eq!(floors.of(7), 0);
        assert!(floors.note(7, &half, &page(100_000, &[], false)));
        assert_eq!(floors.of(7), 40_000);
        assert!(!floors.note(7, &half, &page(39_000, &[], false)), "the clock was set back");
        assert_eq!(floors.of(7), 0);
    }

    #[test]
    fn a_worker_may_have_counted_as_dead_after_a_pause() {
        let beats = Beats::default();
        assert!(!beats.note(7, 100_000), "it has just joined");
        assert!(!beats.note(7, 104_500) && !beats.note(8, 110_000));
        assert!(beats.note(7, 109_001));
        assert!(!beats.note(7, 109_000), "the clock was set back");
        beats.remove(7);
        assert!(!beats.note(7, 200_000));
    }

    #[test]
    fn a_check_for_overdue_keys_reports_new_ones_and_rests() {
        let checks = LateChecks::default();
        let now = MonotonicClock.now();
        let after = |millis| now + std::time::Duration::from_millis(millis);
        let key: Key = (7, Arc::from("id"));
        assert!(checks.begin(now) && !checks.begin(now));
        assert!(checks.end(vec![key.clone()], 2, now, after(10)));
        assert_eq!((checks.take().len(), checks.take().len()), (1, 0));
        assert!(!checks.begin(after(209)) && checks.begin(after(210)));
        assert!(!checks.end(vec![key.clone()], 2, after(210), after(210)), "it is known");
        assert_eq!(checks.position(5), first_from(5), "there were no more");
        assert!(!checks.end(vec![key], 1, after(310), after(310)));
        assert_eq!(checks.position(5), (7, Arc::from("id\0")));
        assert_eq!(checks.position(9), first_from(9));
        assert!(!checks.end(Vec::new(), 1, after(410), after(410)));
        assert_eq!(checks.position(5), first_from(5));
    }
}
