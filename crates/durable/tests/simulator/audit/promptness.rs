//! [`Promptness`], which says when a timer must be leased at the latest.

use super::permits::Permits;
use crate::model::clock::Millis;
use crate::simulator::faults::Disturbance;
use crate::simulator::plan::Plan;
use crate::simulator::server::ServerClock;
use crate::simulator::transport::partition_of;
use crate::simulator::world::{MILLISECOND, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum lateness of a lease while there is no fault, without the latency.
const PROMPT: Nanos = 300 * MILLISECOND;

/// How many times a message may be on its way before a lease is granted: a page, a batch that is
/// in flight, and the request for the lease.
const MESSAGES: u64 = 8;

/// The owners of partitions, and the times of faults.
pub(super) struct Promptness {
    /// The maximum lateness of a lease while there is no fault and its owner has a permit.
    pub(super) prompt: Nanos,
    partitions: u64,
    disturbances: Vec<Disturbance>,
    /// The clock of the first server.
    pub(super) reference: ServerClock,
    /// The processes that have owned each partition, each with its start.
    owners: BTreeMap<u64, Vec<(Nanos, u64)>>,
}

impl Promptness {
    pub(super) fn of(plan: &Plan, started: Nanos) -> Self {
        Self {
            prompt: PROMPT + MESSAGES * plan.latency,
            partitions: plan.setting.partitions,
            disturbances: Disturbance::of(&plan.faults, started, plan.concurrency > 2),
            reference: ServerClock::default(),
            owners: BTreeMap::new(),
        }
    }

    /// A worker owns these partitions.
    pub(super) fn owns(&mut self, process: u64, owned: &BTreeSet<u64>, now: Nanos) {
        for partition in owned {
            let owners = self.owners.entry(*partition).or_default();
            if owners.last().is_none_or(|(_, last)| *last != process) {
                owners.push((now, process));
            }
        }
    }

    /// Returns the process that was the last to own a partition.
    pub(super) fn last_owner(&self, partition: u64) -> Option<u64> {
        self.owners.get(&partition)?.last().map(|(_, process)| *process)
    }

    /// Checks a timer that has been due for `late` by the clock of its server and was written at
    /// `written`. Returns how late it is, or `None` if it is too late. A timer that a fault has
    /// delayed is not late.
    pub(super) fn check(
        &self,
        permits: &Permits,
        id: &str,
        (late, written): (Millis, Nanos),
        (server, clock): (usize, ServerClock),
        now: Nanos,
    ) -> Option<Nanos> {
        // The wheels of workers go by the first clock.
        let skew = clock.shown(now).saturating_sub(self.reference.shown(now));
        let late = late.saturating_sub(skew) * MILLISECOND;
        let due = now.saturating_sub(late).max(written);
        if now <= due + self.prompt {
            let is_disturbed = self.disturbances.iter().any(|fault| fault.includes(now));
            return Some(if is_disturbed { 0 } else { now - due });
        }
        (now <= self.deadline(permits, id, (server, due), now)).then_some(0)
    }

    /// Returns when a timer of a server that is due at `due` must be leased. This is later while
    /// its owner has no permit, when the owner changes, and after a fault, one after the other.
    fn deadline(
        &self,
        permits: &Permits,
        id: &str,
        (server, due): (usize, Nanos),
        now: Nanos,
    ) -> Nanos {
        let owners = self.owners.get(&partition_of(id, self.partitions));
        let owners = owners.map_or(&[][..], Vec::as_slice);
        let moved = self.disturbances.iter().map(|fault| fault.moves(due, now)).max();
        let mut possible = due + self.prompt + moved.unwrap_or(0);
        loop {
            let faults = self.disturbances.iter();
            let deadline = faults.fold(possible, |deadline, fault| {
                deadline.max(fault.deadline(server, (due, possible), deadline))
            });
            let excused = owners.iter().map(|(start, process)| {
                let busy = permits.busy_until(*process, deadline, now);
                busy.max(if *start <= deadline { *start } else { 0 })
            });
            let later = excused.max().unwrap_or(0) + self.prompt;
            if later <= possible || deadline >= now {
                return deadline;
            }
            possible = later;
        }
    }
}
