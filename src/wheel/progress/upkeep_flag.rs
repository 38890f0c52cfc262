//! [`UpkeepFlag`]: tells the sweeper that memory needs [`Upkeep`](crate::wheel::sweep), as
//! determined by the wheel's [`Usage`].

#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, AtomicU64, Relaxed};

/// An amount of garbage that is never worth a round.
#[cfg(not(any(modelled, tiny)))]
pub(crate) const SLACK: u64 = 1 << 14;
#[cfg(any(modelled, tiny))]
pub(crate) const SLACK: u64 = 0;

/// The amount of garbage that one thread makes between two checks.
pub(crate) const INTERVAL: u64 = if cfg!(tiny) { 4 } else { 1 << 10 };

/// A rest of more ticks than this is long. A burst is over when there is no work, or few timers
/// have fired, for such a time.
pub(crate) const LONG_REST: u64 = 16;

/// The present usage of a wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Armed timers.
    pub(crate) armed: u64,
    /// Filed references, stale ones included.
    pub(crate) references: u64,
    /// Entries, vacant or not.
    pub(crate) entries: u64,
    /// Vacant entries orphaned by threads that have exited.
    pub(crate) orphaned: u64,
    /// Blocks of references, in use or not.
    pub(crate) blocks: u64,
    pub(crate) blocks_in_use: u64,
    /// A number of unused blocks that is never worth a round: some pages of each shard.
    pub(crate) blocks_slack: u64,
}

impl Usage {
    /// Returns `true` if there are more references than twice the armed timers plus [`SLACK`].
    pub(crate) fn too_many_references(self) -> bool {
        self.references > 2 * self.armed + SLACK
    }

    fn vacant(self) -> u64 {
        self.entries.saturating_sub(self.armed)
    }

    fn vacant_blocks(self) -> u64 {
        self.blocks.saturating_sub(self.blocks_in_use)
    }
}

/// The flag by which callers request upkeep.
#[derive(Debug)]
pub(crate) struct UpkeepFlag {
    wanted: AtomicBool,
    /// `true` if far more entries were vacant than in use at the last check.
    surplus: AtomicBool,
    entries: TrimRounds,
    blocks: TrimRounds,
}

/// Figures of the last round of trimming, which avoid useless rounds: the amount that it could not
/// give back, and the amount in use. The next round waits until twice as much is vacant, or an
/// eighth as much is in use.
#[derive(Debug)]
struct TrimRounds {
    vacant_left: AtomicU64,
    used_then: AtomicU64,
}

impl TrimRounds {
    fn new() -> Self {
        Self { vacant_left: AtomicU64::new(0), used_then: AtomicU64::new(u64::MAX) }
    }

    /// Returns `true` if more is vacant than in use (plus `slack`), and enough for another round.
    fn are_worth_it(&self, vacant: u64, used: u64, slack: u64) -> bool {
        // Relaxed: written by the sweeper to avoid useless rounds; nothing else depends on them.
        let (left, then) = (self.vacant_left.load(Relaxed), self.used_then.load(Relaxed));
        vacant > used + slack && (vacant / 2 >= left || used < then / 8)
    }

    /// Records the end of a round.
    fn ended(&self, vacant: u64, used: u64) {
        // Relaxed: as in `are_worth_it`.
        self.vacant_left.store(vacant, Relaxed);
        // Relaxed: as above.
        self.used_then.store(used, Relaxed);
    }
}

impl UpkeepFlag {
    pub(crate) fn new() -> Self {
        Self {
            wanted: AtomicBool::new(false),
            surplus: AtomicBool::new(false),
            entries: TrimRounds::new(),
            blocks: TrimRounds::new(),
        }
    }

    /// Checks whether upkeep is needed, and requests it if so.
    pub(crate) fn check(&self, usage: Usage) -> bool {
        // Relaxed: a hint by which callers decide to give back the content of their magazines.
        self.surplus.store(usage.vacant() > usage.armed + SLACK, Relaxed);
        let wanted = usage.too_many_references()
            || self.too_many_entries(usage)
            || self.too_many_blocks(usage);
        if wanted {
            // Relaxed: a request; the sweeper checks the figures behind it again.
            self.wanted.store(true, Relaxed);
        }
        wanted
    }

    /// Clears the request. Returns `true` if there was one.
    pub(crate) fn take(&self) -> bool {
        // Relaxed: as in `check`.
        self.wanted.swap(false, Relaxed)
    }

    /// Returns `true` if upkeep has already been requested.
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: as in `check`.
        self.wanted.load(Relaxed)
    }

    /// `true` if far more entries were vacant than in use at the last check.
    pub(crate) fn has_surplus(&self) -> bool {
        // Relaxed: as in `check`.
        self.surplus.load(Relaxed)
    }

    /// Returns `true` if more entries are vacant than armed, and enough for another round.
    pub(crate) fn too_many_entries(&self, usage: Usage) -> bool {
        let vacant = usage.vacant();
        let orphaned = usage.orphaned > 0 && vacant > usage.armed + SLACK;
        orphaned || self.entries.are_worth_it(vacant, usage.armed, SLACK)
    }

    /// Returns `true` if more blocks of references are vacant than in use, and enough for another
    /// round.
    pub(crate) fn too_many_blocks(&self, usage: Usage) -> bool {
        self.blocks.are_worth_it(usage.vacant_blocks(), usage.blocks_in_use, usage.blocks_slack)
    }

    /// Records that trimming has ended and could not give the rest back.
    pub(crate) fn trimmed(&self, usage: Usage) {
        self.entries.ended(usage.vacant(), usage.armed);
        self.blocks.ended(usage.vacant_blocks(), usage.blocks_in_use);
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{SLACK, UpkeepFlag, Usage};

    const NOTHING: Usage = Usage {
        armed: 0,
        references: 0,
        entries: 0,
        orphaned: 0,
        blocks: 0,
        blocks_in_use: 0,
        blocks_slack: 1024,
    };

    #[test]
    fn a_round_that_gave_nothing_back_is_not_begun_anew() {
        for armed in [0, 1] {
            let flag = UpkeepFlag::new();
            let usage = Usage { armed, entries: 2 * SLACK, ..NOTHING };
            assert!(flag.check(usage) && flag.take());
            flag.trimmed(usage);
            assert!(!flag.check(usage) && !flag.check(Usage { armed: 0, ..usage }));
            assert!(flag.check(Usage { orphaned: 1, ..usage }), "there is more to give back");
        }
    }

    #[test]
    fn blocks_that_are_not_in_use_are_given_back_without_entries() {
        let flag = UpkeepFlag::new();
        let few = NOTHING.blocks_slack;
        assert!(!flag.check(Usage { blocks: 3 * few, blocks_in_use: few, ..NOTHING }));
        let usage = Usage { blocks: 3 * few + 1, blocks_in_use: few, ..NOTHING };
        assert!(flag.check(usage) && flag.take());
        flag.trimmed(usage);
        assert!(!flag.check(usage));
        assert!(flag.check(Usage { blocks: 5 * few + 3, ..usage }), "twice as many");
        assert!(flag.check(Usage { blocks_in_use: few / 10, ..usage }), "an eighth in use");
    }
}
