//! The owners of partitions, as the [`Audit`] sees them.

use super::Audit;
use crate::simulator::world::{Nanos, SECOND};
use std::collections::BTreeSet;

/// How long a partition may have an owner that is dead.
const ORPHANED: Nanos = 7 * SECOND;

impl Audit {
    /// A partition has a live owner, or cannot have any.
    pub(crate) fn has_owner(&self, partition: u64) {
        self.lock().orphaned.remove(&partition);
    }

    /// Checks how long a partition has had no live owner. `owner` is the process that is listed,
    /// and `recent` the number of recent faults. After several, an owner may be dead and the next
    /// as well.
    pub(crate) fn check_orphan(&self, partition: u64, owner: Option<u64>, recent: usize) {
        let now = self.world.now();
        let mut ledger = self.lock();
        if owner.is_some_and(|owner| ledger.left.contains(&owner)) {
            ledger.violated(now, format!("the owner of partition {partition} has left"));
        }
        let since = *ledger.orphaned.entry(partition).or_insert(now);
        let last = ledger.promptness.last_owner(partition);
        let has_left = last.is_some_and(|owner| ledger.left.contains(&owner));
        let most = match recent {
            0 if has_left => ledger.promptness.prompt,
            0 | 1 => ORPHANED,
            _ => 2 * ORPHANED,
        };
        if now - since > most {
            ledger.violated(now, format!("partition {partition} has no owner"));
        }
    }

    /// A worker has learned which partitions it owns.
    pub(crate) fn owns(&self, process: u64, owned: &BTreeSet<u64>) {
        let now = self.world.now();
        self.lock().promptness.owns(process, owned, now);
    }

    /// A worker has reported that it leaves.
    pub(crate) fn has_left(&self, process: u64) {
        self.lock().left.insert(process);
    }

    /// Checks that a worker that has ended has left.
    pub(crate) fn check_left(&self, process: u64) {
        let mut ledger = self.lock();
        if !ledger.left.contains(&process) {
            ledger.violated(self.world.now(), "a worker has ended and not left".to_owned());
        }
    }
}
