//! [`Ownership`]: the workers of this process, and the partitions that each of them owns.
//!
//! A partition has one owner among the workers of all processes, who alone loads its keys and hears
//! of its near changes. Each worker is heard whenever it asks for a page, once a second at least
//! (`scripts/beat.lua`), and learns then what it owns; one that is not heard for five seconds has
//! gone, and the others take what it had.
//!
//! **What is owned saves work and decides nothing**: an owner who does not know yet that it is none
//! any more asks for leases that are refused, or does what another would have done. So there is no
//! fence here; the one of each timer's lease is what counts.
//!
//! **Nothing is missed when an owner changes.** The new one loads all that is near after it has
//! learned that it is the owner: what was put there before is in its pages, what is put there later
//! is told, and what is told is kept from the moment on at which it has learned so.
//!
//! **A partition that cannot be read** (its master has gone, its slot is moving) stops no other: it
//! is left out of the pages, somebody tries it until it can be read, and then all is loaded again.
//! One that is long in answering to a lease or its end is left out as well, until it has answered
//! to all of them; so no more of its timers take a worker's places than had begun by then.
//! Meanwhile its keys that fire come to nothing.
//!
//! **Stragglers.** An owner may be there and yet not keep up: it cannot reach the partition, or all
//! its handlers are busy. So each worker that has room looks into one of the others' partitions a
//! second, in turn, and takes on what should have been delivered long ago.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::super::key::Change;
use super::super::window::Window;
use crate::panics::ignore_poison;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// How often a worker looks into a partition of another.
const STRAGGLERS: Millis = 1000;

/// The workers of this process, by number.
#[derive(Debug, Default)]
pub(super) struct Ownership(Mutex<BTreeMap<u64, LocalWorker>>);

#[derive(Debug)]
struct LocalWorker {
    window: Weak<Window>,
    owned: BTreeSet<u64>,
    /// Those of them that could not be read, so that their keys are not in its pages.
    missed: BTreeSet<u64>,
    /// How many calls the worker waits for whose answers are long in coming, by partition.
    stalled: BTreeMap<u64, usize>,
    /// The partition that was looked into for stragglers, and when.
    looked: (u64, Millis),
    /// `true` if the master that stores the list of workers does not answer.
    lost_heartbeat: bool,
    /// `true` if the store was emptied and the worker has not yet reported it.
    emptied: bool,
}

impl LocalWorker {
    fn is_withheld(&self, partition: u64) -> bool {
        self.missed.contains(&partition) || self.stalled.contains_key(&partition)
    }
}

impl Ownership {
    /// A worker that owns nothing yet.
    pub(super) fn join(&self, number: u64, window: &Arc<Window>) {
        let window = Arc::downgrade(window);
        let (owned, missed, looked) = (BTreeSet::new(), BTreeSet::new(), (number, 0));
        let stalled = BTreeMap::new();
        let worker = LocalWorker {
            window,
            owned,
            missed,
            stalled,
            looked,
            lost_heartbeat: false,
            emptied: false,
        };
        self.lock().insert(number, worker);
    }

    pub(super) fn leave(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// A worker owns these: if it did not know, all that it had loaded is void.
    pub(super) fn owns(&self, number: u64, owned: &BTreeSet<u64>) {
        self.change(number, |worker| {
            let new = worker.owned != *owned;
            worker.owned.clone_from(owned);
            worker.missed.retain(|partition| owned.contains(partition));
            new
        });
    }

    /// The partitions of a worker that can be read, as far as is known.
    pub(super) fn readable(&self, number: u64) -> BTreeSet<u64> {
        let all = self.lock();
        let worker = all.get(&number);
        let readable = |worker: &LocalWorker| {
            let owned = worker.owned.iter().copied();
            owned.filter(|partition| !worker.is_withheld(*partition)).collect()
        };
        worker.map_or(BTreeSet::new(), readable)
    }

    /// Returns `true` if a worker is to begin no timer of a partition, because the partition does
    /// not answer.
    pub(super) fn is_withheld(&self, number: u64, partition: u64) -> bool {
        self.lock().get(&number).is_some_and(|worker| worker.is_withheld(partition))
    }

    /// A worker has waited for long for an answer from a partition.
    pub(super) fn stall(&self, number: u64, partition: u64) {
        if let Some(worker) = self.lock().get_mut(&number) {
            *worker.stalled.entry(partition).or_default() += 1;
        }
    }

    /// It waits for that answer no more: after the last one all is loaded again.
    pub(super) fn go_on(&self, number: u64, partition: u64) {
        self.change(number, |worker| {
            let Some(count) = worker.stalled.get_mut(&partition) else { return false };
            *count -= 1;
            *count == 0 && worker.stalled.remove(&partition).is_some()
        });
    }

    /// Returns `true` if a worker has missed a partition.
    pub(super) fn has_missed(&self, number: u64, partition: u64) -> bool {
        self.lock().get(&number).is_some_and(|worker| worker.missed.contains(&partition))
    }

    /// A partition of a worker could not be read: whether it could before.
    pub(super) fn miss(&self, number: u64, partition: u64) -> bool {
        let mut all = self.lock();
        all.get_mut(&number).is_some_and(|worker| worker.missed.insert(partition))
    }

    /// A partition that could not be read can be again: all is loaded again, its keys among them.
    pub(super) fn found(&self, number: u64, partition: u64) {
        self.change(number, |worker| worker.missed.remove(&partition));
    }

    /// Notes that a worker's heartbeat got no answer. Returns `true` if the previous one did.
    pub(super) fn heartbeat_lost(&self, number: u64) -> bool {
        let mut all = self.lock();
        all.get_mut(&number)
            .is_some_and(|worker| !std::mem::replace(&mut worker.lost_heartbeat, true))
    }

    /// Returns `true` if the worker's last heartbeat got no answer.
    pub(super) fn has_lost_heartbeat(&self, number: u64) -> bool {
        self.lock().get(&number).is_some_and(|worker| worker.lost_heartbeat)
    }

    /// Notes that a worker's heartbeat was answered again.
    pub(super) fn heartbeat_answered(&self, number: u64) {
        if let Some(worker) = self.lock().get_mut(&number) {
            worker.lost_heartbeat = false;
        }
    }

    /// Notes that the store was emptied, for each worker to report.
    pub(super) fn emptied(&self) {
        for worker in self.lock().values_mut() {
            worker.emptied = true;
        }
        self.forget();
    }

    /// Returns `true` if the store was emptied since the worker last reported it.
    pub(super) fn take_emptied(&self, number: u64) -> bool {
        let mut all = self.lock();
        all.get_mut(&number).is_some_and(|worker| std::mem::take(&mut worker.emptied))
    }

    /// Changes what a worker is to load; if `change` has, all that it had loaded is void.
    fn change(&self, number: u64, change: impl FnOnce(&mut LocalWorker) -> bool) {
        let mut all = self.lock();
        let Some(worker) = all.get_mut(&number) else { return };
        let window = if change(worker) { worker.window.upgrade() } else { None };
        drop(all);
        if let Some(window) = window {
            window.forget();
        }
    }

    /// The partition of another in which a worker is to look for stragglers now, if it is time.
    pub(super) fn next_foreign_partition(
        &self,
        number: u64,
        partitions: u64,
        now: Millis,
    ) -> Option<u64> {
        let mut all = self.lock();
        let worker = all.get_mut(&number)?;
        let (last, when) = worker.looked;
        if (when..when.saturating_add(STRAGGLERS)).contains(&now) {
            return None;
        }
        let mut others = (1..=partitions).map(|step| last.wrapping_add(step) % partitions);
        let next = others.find(|partition| {
            !worker.owned.contains(partition) && !worker.is_withheld(*partition)
        })?;
        worker.looked = (next, now);
        Some(next)
    }

    /// A change of a key of that partition.
    pub(super) fn notify(&self, partition: u64, change: Change) {
        let owners = self.windows(|worker| worker.owned.contains(&partition));
        for window in owners {
            window.notify(std::slice::from_ref(&change));
        }
    }

    /// Changes may have been missed, of keys or of owners.
    pub(super) fn forget(&self) {
        for window in self.windows(|_| true) {
            window.forget();
        }
    }

    /// Changes are being missed: all is loaded again now and then.
    pub(super) fn reload(&self) {
        for window in self.windows(|_| true) {
            window.reload();
        }
    }

    /// Somebody has left: each is to be heard at once.
    pub(super) fn hasten(&self) {
        for window in self.windows(|_| true) {
            window.hasten();
        }
    }

    /// Those of some of the workers, to be told without the lock.
    fn windows(&self, which: impl Fn(&LocalWorker) -> bool) -> Vec<Arc<Window>> {
        let all = self.lock();
        let which = all.values().filter(|worker| which(worker));
        which.filter_map(|worker| worker.window.upgrade()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, LocalWorker>> {
        ignore_poison(self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Reading;
    use futures_util::task::noop_waker_ref;
    use std::task::Context;
    use tourbillon::future::{DelayQueue, Timer};
    use tourbillon::{Builder, ManualClock};

    #[test]
    fn a_partition_is_withheld_until_it_has_answered_to_all() {
        let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build().expect("a wheel");
        let timer = Timer::new(wheel);
        let queue: DelayQueue<_> =
            DelayQueue::new(&timer, Builder::new().shards(1)).expect("a queue");
        let now = Reading { store: 0, asked: timer.now(), answered: timer.now() };
        let window = Arc::new(Window::new(queue.handle(), now));
        let loaded_again = || window.poll_haste(&Context::from_waker(noop_waker_ref()));

        let ownership = Ownership::default();
        ownership.join(1, &window);
        ownership.owns(1, &BTreeSet::from([4, 5]));
        assert!(loaded_again());
        ownership.stall(1, 4);
        ownership.stall(1, 4);
        assert_eq!(ownership.readable(1), BTreeSet::from([5]));
        assert!(ownership.is_withheld(1, 4) && !ownership.is_withheld(1, 5));
        assert!(!ownership.is_withheld(2, 4), "another worker's");
        ownership.go_on(1, 4);
        assert!(ownership.is_withheld(1, 4) && !loaded_again());
        ownership.go_on(1, 4);
        assert!(!ownership.is_withheld(1, 4) && loaded_again());
        assert_eq!(ownership.readable(1), BTreeSet::from([4, 5]));
    }
}
