//! [`Figures`], the costs and times of a scenario.

use super::scenario::{REST, Scenario, Step};
use super::usage::{Late, Used};
use crate::model::clock::Millis;
use crate::simulator::fleet::{Fleet, LOOK};
use crate::simulator::world::{MILLISECOND, Nanos, SECOND};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The interval between checks of a fleet while its partitions are not shared.
const OFTEN: Nanos = MILLISECOND;

/// The time that a fleet is observed after a step.
const OBSERVED: Nanos = 8 * SECOND;

/// The figures of a scenario.
#[derive(Debug)]
pub(crate) struct Figures {
    /// The usage in a minute at rest.
    pub(crate) rest: Used,
    pub(crate) heartbeats: u64,
    pub(crate) steps: Vec<Shared>,
    /// The lateness of the leases, in order.
    pub(crate) late: Vec<Late>,
    /// The first guarantee that was violated.
    pub(crate) violation: Option<String>,
}

/// The sharing of the partitions after a step.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// The time from the end of the step, or `None` if they were not shared.
    pub(crate) after: Option<Nanos>,
    /// The time from the last heartbeat of a worker that has died to the step.
    pub(crate) since_heartbeat: Nanos,
    /// The longest time that a partition had no owner.
    pub(crate) longest_orphan: Nanos,
    /// The usage for assignments while the step is observed.
    pub(crate) assignments: Used,
    pub(crate) most_waiting: usize,
    /// The share of the partitions without an owner, by the time since the step began.
    pub(crate) orphans: Vec<(Nanos, f64)>,
}

/// The owners of partitions at a time.
struct Owners {
    /// The partitions whose owner is not alive.
    orphans: Vec<u64>,
    /// `true` if the workers that live share all partitions evenly.
    are_shared: bool,
}

impl Scenario {
    /// Simulates the scenario.
    pub(super) fn measure(&self) -> Figures {
        let fleet = Fleet::new(&self.plan);
        fleet.cluster.with(0, |server| server.usage.is_timed = true);
        fleet.cluster.set_distance(self.distance);
        let callers = fleet.start_all(&self.plan);
        pass(&fleet, REST.start);
        let used = |fleet: &Fleet| fleet.cluster.with(0, |server| server.usage.total());
        let beats = |fleet: &Fleet| fleet.cluster.with(0, |server| server.usage.heartbeats());
        let (before, beats_before) = (used(&fleet), beats(&fleet));
        pass(&fleet, REST.end);
        let (rest, heartbeats) = (used(&fleet).since(before), beats(&fleet) - beats_before);
        let steps = self.steps.iter().map(|step| shared(&fleet, *step)).collect();
        pass(&fleet, self.plan.setting.length);
        let mut late = fleet.cluster.with(0, |server| server.usage.late().to_vec());
        late.sort_unstable();
        let violation = fleet.end_all(&callers).err();
        Figures { rest, heartbeats, steps, late, violation }
    }
}

/// Runs a fleet until a time, and checks its promises on the way.
fn pass(fleet: &Arc<Fleet>, until: Nanos) {
    loop {
        let now = fleet.world.now();
        if now >= until {
            return;
        }
        let next = (now / LOOK + 1) * LOOK;
        fleet.world.run_until(next.min(until));
        if next <= until {
            fleet.look();
        }
    }
}

/// Observes a step.
fn shared(fleet: &Arc<Fleet>, step: Step) -> Shared {
    pass(fleet, step.begin - 1);
    let used = || fleet.cluster.with(0, |server| server.usage.assignments());
    let (before, _) = (used(), fleet.cluster.take_most_waiting(0));
    pass(fleet, step.begin);
    let members = fleet.members();
    let since_heartbeat = fleet.cluster.with(0, |server| {
        let dead = server.heartbeats().filter(|(process, _)| !members.contains(process));
        dead.map(|(_, age)| age * MILLISECOND).max().unwrap_or(0)
    });
    let (mut after, mut orphans) = (None, Vec::new());
    let mut orphaned: BTreeMap<u64, Nanos> = BTreeMap::new();
    let mut longest_orphan = 0;
    while fleet.world.now() < step.end + OBSERVED {
        pass(fleet, fleet.world.now() + if after.is_some() { LOOK } else { OFTEN });
        let (now, owners) = (fleet.world.now(), owners(fleet));
        orphaned.retain(|partition, _| owners.orphans.contains(partition));
        for partition in &owners.orphans {
            let since = *orphaned.entry(*partition).or_insert(now);
            longest_orphan = longest_orphan.max(now - since + OFTEN);
        }
        let share = owners.orphans.len() as f64 / fleet.setting.partitions as f64;
        orphans.push((now - step.begin, share));
        if owners.are_shared && now >= step.end {
            after = after.or(Some(now - step.end));
        }
    }
    Shared {
        after,
        since_heartbeat,
        longest_orphan,
        assignments: used().since(before),
        most_waiting: fleet.cluster.take_most_waiting(0),
        orphans,
    }
}

fn owners(fleet: &Fleet) -> Owners {
    let mut counts: BTreeMap<u64, u64> =
        fleet.members().into_iter().map(|process| (process, 0)).collect();
    let partitions = fleet.setting.partitions;
    let listed: Vec<Option<u64>> = fleet
        .cluster
        .with(0, |server| (0..partitions).map(|partition| server.owner(partition)).collect());
    let mut orphans = Vec::new();
    for (partition, owner) in (0..).zip(listed) {
        match owner.and_then(|owner| counts.get_mut(&owner)) {
            Some(count) => *count += 1,
            None => orphans.push(partition),
        }
    }
    let least = partitions / counts.len().max(1) as u64;
    let are_shared = orphans.is_empty() && counts.values().all(|count| *count >= least);
    Owners { orphans, are_shared }
}

impl Figures {
    /// Returns the lateness that `share` of a thousand leases did not exceed.
    pub(crate) fn late_by(&self, share: u64) -> Millis {
        self.late_of(|_| true, share)
    }

    /// Returns the same for the leases of timers with some handlers.
    pub(super) fn late_of(&self, has: impl Fn(Option<u8>) -> bool, share: u64) -> Millis {
        let late = self.late.iter().filter(|(_, handler)| has(*handler));
        let late: Vec<Millis> = late.map(|(late, _)| *late).collect();
        let count = usize::try_from(share).unwrap_or(1000) * late.len();
        late.get(count.div_ceil(1000).saturating_sub(1)).copied().unwrap_or(0)
    }
}
