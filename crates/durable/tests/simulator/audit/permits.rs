//! [`Permits`], which counts the deliveries of each worker that hold a permit.
//!
//! A delivery holds one from its request for a lease on, until the end of the lease was accepted.
//! It gives the permit back while a reply is overdue, and has one again before its handler runs.

use crate::simulator::world::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The deliveries of all processes, by process.
#[derive(Default)]
pub(super) struct Permits {
    processes: BTreeMap<u64, Deliveries>,
}

/// The deliveries of a worker.
#[derive(Default)]
struct Deliveries {
    /// By the number of the request for the lease.
    all: BTreeMap<u64, Held>,
    /// The times in which all permits were held, and since when they are.
    busy: Vec<(Nanos, Nanos)>,
    busy_since: Option<Nanos>,
}

/// A delivery that is in progress.
struct Held {
    id: Arc<str>,
    /// The token of the lease, once it was granted.
    fence: Option<u64>,
    /// Set while a reply is awaited.
    waits: bool,
    holds: bool,
}

impl Deliveries {
    fn count(&self) -> usize {
        self.all.values().filter(|held| held.holds).count()
    }

    /// Notes whether all permits are held from now on.
    fn note(&mut self, concurrency: usize, now: Nanos) {
        match (self.busy_since, self.count() >= concurrency) {
            (None, true) => self.busy_since = Some(now),
            (Some(since), false) => {
                self.busy.push((since, now));
                self.busy_since = None;
            }
            _ => {}
        }
    }
}

/// A change of the permits of a worker.
#[derive(Debug, Hash)]
pub(crate) enum PermitChange {
    /// A lease was requested under this number.
    Asked(u64, Arc<str>),
    /// The reply has arrived, with the token of the lease if it was granted.
    Answered(u64, Option<u64>),
    /// A reply about a timer is overdue.
    Stalled(Arc<str>),
    /// A handler begins.
    Begun(Arc<str>),
    /// The end of a lease is requested.
    Ends(Arc<str>, u64),
    /// The end of a lease was answered.
    Ended(Arc<str>, u64),
    /// The worker was asked to end, or was killed.
    Gone,
}

impl Permits {
    /// Changes the permits of a worker. Returns the number that it holds now.
    pub(super) fn change(
        &mut self,
        process: u64,
        change: PermitChange,
        (concurrency, now): (usize, Nanos),
    ) -> usize {
        let deliveries = self.processes.entry(process).or_default();
        let all = &mut deliveries.all;
        match change {
            PermitChange::Asked(number, id) => {
                all.insert(number, Held { id, fence: None, waits: true, holds: true });
            }
            PermitChange::Answered(number, None) => drop(all.remove(&number)),
            PermitChange::Answered(number, fence) => {
                if let Some(held) = all.get_mut(&number) {
                    (held.fence, held.waits) = (fence, false);
                }
            }
            PermitChange::Stalled(id) => {
                let is_it = |held: &&mut Held| held.id == id && held.waits && held.holds;
                let held = all.values_mut().find(is_it);
                held.into_iter().for_each(|held| held.holds = false);
            }
            PermitChange::Begun(id) => {
                let held = all.values_mut().rfind(|held| held.id == id && held.fence.is_some());
                held.into_iter().for_each(|held| held.holds = true);
            }
            PermitChange::Ends(id, fence) => {
                let is_it = |held: &&mut Held| held.id == id && held.fence == Some(fence);
                let held = all.values_mut().find(is_it);
                held.into_iter().for_each(|held| (held.waits, held.holds) = (true, true));
            }
            PermitChange::Ended(id, fence) => {
                all.retain(|_, held| held.id != id || held.fence != Some(fence));
            }
            PermitChange::Gone => all.clear(),
        }
        deliveries.note(concurrency, now);
        deliveries.count()
    }

    /// Returns the end of the last time that began by `time` and in which all permits of a worker
    /// were held, or 0.
    pub(super) fn busy_until(&self, process: u64, time: Nanos, now: Nanos) -> Nanos {
        let Some(deliveries) = self.processes.get(&process) else { return 0 };
        if deliveries.busy_since.is_some_and(|since| since <= time) {
            return now;
        }
        let place = deliveries.busy.partition_point(|(begin, _)| *begin <= time);
        place.checked_sub(1).map_or(0, |last| deliveries.busy[last].1)
    }
}
