//! [`IdleHints`], which show that a partition need not be asked for keys.
//!
//! A page of a partition contains the due time of the first key beyond it. Until then only keys
//! that are added later can be due, and each addition within the next 45 s is published as a
//! notice. For 40 s after the page, all keys that are due before that first key are therefore
//! known.
//!
//! A page and a notice may cross. A page therefore counts only if no notice arrived while it was
//! pending. If the store's clock is set back, the hint is dropped.
//!
//! **Only a partition that is followed has a hint**, because the notices of other partitions do not
//! arrive. A page counts only if the partition was followed from the request to the reply. The page
//! of a foreign partition, which a worker checks for stragglers, leaves no hint.

#![forbid(unsafe_code)]

use crate::model::clock::Millis;
use crate::panics::ignore_poison;
use std::collections::BTreeSet;
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
    /// The number of notices and of dropped hints so far.
    notices: u64,
    /// Set while this process is subscribed to the partition's channel.
    is_followed: bool,
}

impl IdleHint {
    /// Drops the hint, and invalidates pending pages.
    fn forget(&mut self) {
        self.notices += 1;
        self.before = 0;
    }
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
        if hint.is_followed && hint.notices == notices {
            let notified = now + NOTIFY_AHEAD - APART;
            let before = beyond.map_or(notified, |beyond| beyond.min(notified));
            // If `from` is after `until`, nothing is known of the keys between them.
            *hint = IdleHint { after: until.max(from), before, since: now, ..*hint };
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
        self.lock().iter_mut().for_each(IdleHint::forget);
    }

    /// Records that the notices of some partitions arrive from now on.
    pub(crate) fn follow(&self, partitions: &BTreeSet<u64>) {
        self.set_followed(partitions, true);
    }

    /// Records that the notices of some partitions no longer arrive.
    pub(crate) fn unfollow(&self, partitions: &BTreeSet<u64>) {
        self.set_followed(partitions, false);
    }

    fn set_followed(&self, partitions: &BTreeSet<u64>, is_followed: bool) {
        let mut all = self.lock();
        for partition in partitions {
            let Some(hint) = find(&mut all, *partition) else { continue };
            hint.forget();
            hint.is_followed = is_followed;
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
        idle.follow(&BTreeSet::from([0]));
        let asked = |now, from, until| idle.asked(0, now, from, until);
        assert_eq!(asked(1000, 0, 11_000), Some(1));
        idle.page(0, 1, 1000, (0, 11_000), Some(25_000));
        assert_eq!(asked(2000, 11_001, 12_000), None);
        assert_eq!(asked(2000, 0, 12_000), Some(1), "from the start");
        assert_eq!(asked(15_000, 11_001, 25_000), Some(1), "its first key");
        assert_eq!(asked(999, 11_001, 12_000), Some(1), "the clock was set back");

        idle.page(0, 1, 1000, (12_000, 11_000), Some(25_000));
        assert_eq!(asked(2000, 12_000, 13_000), Some(1), "between both ends");
        assert_eq!(asked(2000, 12_001, 13_000), None);

        idle.page(0, 1, 1000, (0, 11_000), None);
        assert_eq!(asked(20_000, 11_001, 40_999), None);
        assert_eq!(asked(21_000, 11_001, 41_000), Some(1), "beyond what is told");
        idle.notice(0, 20_000);
        assert_eq!(asked(2000, 11_001, 20_000), Some(2));
        assert_eq!(asked(2000, 11_001, 19_999), None);
        idle.page(0, 1, 2000, (11_001, 20_000), None);
        assert_eq!(asked(2000, 20_001, 20_500), Some(2), "the page came too late");
        idle.forget();
        assert_eq!(asked(2000, 11_001, 11_002), Some(3));
    }

    #[test]
    fn a_partition_is_asked_unless_its_notices_arrive() {
        let (idle, both) = (IdleHints::new(2), BTreeSet::from([0, 1]));
        let asked = |partition| idle.asked(partition, 1000, 11_001, 12_000);
        let page = |partition, notices| idle.page(partition, notices, 1000, (0, 11_000), None);
        page(0, 0);
        assert_eq!(asked(0), Some(0), "not followed");
        idle.follow(&both);
        page(0, 0);
        assert_eq!(asked(0), Some(1), "not followed when it was requested");
        page(0, 1);
        page(1, 1);
        assert_eq!((asked(0), asked(1)), (None, None));
        idle.unfollow(&BTreeSet::from([0]));
        assert_eq!((asked(0), asked(1)), (Some(2), None), "not followed any more");
        page(0, 2);
        assert_eq!(asked(0), Some(2));
        idle.follow(&both);
        assert_eq!((asked(0), asked(1)), (Some(3), Some(2)), "notices were missed in between");
    }
}
