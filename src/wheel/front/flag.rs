//! [`UpkeepFlag`]: whether the sweeper is to look after the memory
//! ([`Upkeep`](crate::wheel::sweep)), as the figures of the wheel ([`Held`]) say.

#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, AtomicU64, Relaxed};

/// Garbage that is never worth a round.
#[cfg(not(modelled))]
pub(crate) const SLACK: u64 = 1 << 14;
#[cfg(modelled)]
pub(crate) const SLACK: u64 = 0;

/// How many operations of one caller pass between two checks.
pub(crate) const INTERVAL: u64 = 1 << 10;

/// What a wheel holds at present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Timers armed.
    pub(crate) armed: u64,
    /// Names filed, stale ones included.
    pub(crate) names: u64,
    /// Entries, vacant or not.
    pub(crate) entries: u64,
    /// Vacant entries that threads which have ended left behind.
    pub(crate) left_behind: u64,
}

impl Held {
    /// Whether there are more names than twice the armed timers and [`SLACK`].
    pub(crate) fn too_many_names(self) -> bool {
        self.names > 2 * self.armed + SLACK
    }

    fn vacant(self) -> u64 {
        self.entries.saturating_sub(self.armed)
    }
}

/// Whether upkeep is wanted.
#[derive(Debug)]
pub(crate) struct UpkeepFlag {
    wanted: AtomicBool,
    /// What the last trimming could not give back: the next waits for twice as many vacant
    /// entries, or an eighth as many timers.
    vacant_left: AtomicU64,
    armed_then: AtomicU64,
}

impl UpkeepFlag {
    pub(crate) fn new() -> Self {
        Self {
            wanted: AtomicBool::new(false),
            vacant_left: AtomicU64::new(0),
            armed_then: AtomicU64::new(u64::MAX),
        }
    }

    /// Whether it is time to [look](Self::look): a caller's count of what makes garbage, `more` of
    /// it new, has passed another interval, and upkeep is not wanted already.
    #[inline]
    pub(crate) fn is_time_to_look(&self, count: u64, more: u64) -> bool {
        count % INTERVAL < more && !self.is_wanted()
    }

    /// Looks whether upkeep is wanted, and tells the sweeper if so.
    pub(crate) fn look(&self, held: Held) -> bool {
        let wanted = held.too_many_names() || self.too_many_entries(held);
        if wanted {
            // Relaxed: a wish; the figures behind it are looked at again.
            self.wanted.store(true, Relaxed);
        }
        wanted
    }

    /// Whether upkeep was wanted; it is not any more.
    pub(crate) fn take(&self) -> bool {
        // Relaxed: as in `look`.
        self.wanted.swap(false, Relaxed)
    }

    fn is_wanted(&self) -> bool {
        // Relaxed: as in `look`.
        self.wanted.load(Relaxed)
    }

    /// Whether more entries are vacant than armed, and enough to try again.
    pub(crate) fn too_many_entries(&self, held: Held) -> bool {
        let vacant = held.vacant();
        // Relaxed: written by the sweeper to spare itself rounds; nothing hangs on them.
        let (left, then) = (self.vacant_left.load(Relaxed), self.armed_then.load(Relaxed));
        let worth_a_round = vacant / 2 >= left || held.armed < then / 8 || held.left_behind > 0;
        vacant > held.armed + SLACK && worth_a_round
    }

    /// Trimming has come to its end, and could not give back what is left.
    pub(crate) fn trimmed(&self, held: Held) {
        // Relaxed: as in `too_many_entries`.
        self.vacant_left.store(held.vacant(), Relaxed);
        // Relaxed: as above.
        self.armed_then.store(held.armed, Relaxed);
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Held, SLACK, UpkeepFlag};

    #[test]
    fn a_round_that_gave_nothing_back_is_not_begun_anew() {
        for armed in [0, 1] {
            let flag = UpkeepFlag::new();
            let held = Held { armed, names: 0, entries: 2 * SLACK, left_behind: 0 };
            assert!(flag.look(held) && flag.take());
            flag.trimmed(held);
            assert!(!flag.look(held) && !flag.look(Held { armed: 0, ..held }));
            assert!(flag.look(Held { left_behind: 1, ..held }), "there is more to give back");
        }
    }
}
