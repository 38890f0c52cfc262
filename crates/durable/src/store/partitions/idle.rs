//! [`IdleHints`], which show that a partition need not be asked for keys.
//!
//! A page of a partition contains the due time of the first key beyond it. Until then only keys
//! that are added later can be due, and each addition within the next 45 s is published as a
//! notice. For 40 s after the page, all keys that are due before that first key are therefore
//! known.
//!
//! A page and a notice may cross. A page therefore counts only if no notice arrived while it was
//! pending. If the store's clock is set back, the hint is dropped.

#![forbid(unsafe_code)]

use crate::model::clock::Millis;
use crate::panics::ignore_poison;
use std::sync::{Mutex, MutexGuard};

/// How far ahead of now the scripts publish changes, equal to `NOTIFY_AHEAD` of
/// `scripts/change.lua`.
pub(crate) const NOTIFY_AHEAD: Millis = 45_000;

/// The maximum difference between two servers' clocks, or step back of one clock, without missed
/// notices.
pub(crate) const APART: Millis = 5000;

/// The hints for each partition.
#[derive(Debug)]
pub(crate) struct IdleHints(Mutex<Vec<IdleHint>>);

/// A range of times without a due key, both ends excluded.
#[derive(Clone, Copy, Debug, Default)]
struct IdleHint {
    after: Millis,
    before: Millis,
    /// When the hint was recorded.
    since: Millis,
    /// The number of notices so far.
    notices: u64,
}

impl IdleHints {
    pub(crate) fn new(partitions: u64) -> Self {
        let partitions = usize::try_from(partitions).unwrap_or(usize::MAX);
        Self(Mutex::new(vec![IdleHint::default(); partitions]))
    }

    /// Returns the number of notices so far if the partition has to be asked for keys from `from`
    /// to `until`.
    pub(crate) fn asked(
        &self,
        partition: u64,
        now: Millis,
        from: Millis,
        until: Millis,
    ) -> Option<u64> {
        let mut all = self.lock();
        let hint = find(&mut all, partition)?;
        if now < hint.since {
            hint.before = 0;
        }
        let idle = from > hint.after && until < hint.before;
        (!idle).then_some(hint.notices)
    }

    /// Records a complete page from `from` to `until` that was requested after `notices` notices.
    pub(crate) fn page(
        &self,
        partition: u64,
        notices: u64,
        now: Millis,
        (from, until): (Millis, Millis),
        beyond: Option<Millis>,
    ) {
        let mut all = self.lock();
        let Some(hint) = find(&mut all, partition) else { return };
        if hint.notices == notices {
            let notified = now + NOTIFY_AHEAD - APART;
            let before = beyond.map_or(notified, |beyond| beyond.min(notified));
            // If `from` is after `until`, nothing is known of the keys between them.
            *hint = IdleHint { after: until.max(from), before, since: now, notices };
        }
    }

    /// Records that a key was added.
    pub(crate) fn notice(&self, partition: u64, due: Millis) {
        let mut all = self.lock();
        let Some(hint) = find(&mut all, partition) else { return };
        hint.notices += 1;
        hint.before = hint.before.min(due);
    }

    /// Drops all hints, because notices may have been lost.
    pub(crate) fn forget(&self) {
        for hint in &mut *self.lock() {
            hint.notices += 1;
            hint.before = 0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<IdleHint>> {
        ignore_poison(self.0.lock())
    }
}

fn find(all: &mut [IdleHint], partition: u64) -> Option<&mut IdleHint> {
    all.get_mut(usize::try_from(partition).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_asked_again_when_something_may_be_there() {
        let idle = IdleHints::new(1);
        let asked = |now, from, until| idle.asked(0, now, from, until);
        assert_eq!(asked(1000, 0, 11_000), Some(0));
        idle.page(0, 0, 1000, (0, 11_000), Some(25_000));
        assert_eq!(asked(2000, 11_001, 12_000), None);
        assert_eq!(asked(2000, 0, 12_000), Some(0), "from the start");
        assert_eq!(asked(15_000, 11_001, 25_000), Some(0), "its first key");
        assert_eq!(asked(999, 11_001, 12_000), Some(0), "the clock was set back");

        idle.page(0, 0, 1000, (12_000, 11_000), Some(25_000));
        assert_eq!(asked(2000, 12_000, 13_000), Some(0), "between both ends");
        assert_eq!(asked(2000, 12_001, 13_000), None);

        idle.page(0, 0, 1000, (0, 11_000), None);
        assert_eq!(asked(20_000, 11_001, 40_999), None);
        assert_eq!(asked(21_000, 11_001, 41_000), Some(0), "beyond what is told");
        idle.notice(0, 20_000);
        assert_eq!(asked(2000, 11_001, 20_000), Some(1));
        assert_eq!(asked(2000, 11_001, 19_999), None);
        idle.page(0, 0, 2000, (11_001, 20_000), None);
        assert_eq!(asked(2000, 20_001, 20_500), Some(1), "the page came too late");
        idle.forget();
        assert_eq!(asked(2000, 11_001, 11_002), Some(2));
    }
}
