//! [`Ownership`], the workers of this process, and the partitions that each of them owns.
//!
//! A partition has one owner among the workers of all processes, which alone loads its keys and is
//! notified of changes to them. Each request for a page, at least one per second, is also the
//! heartbeat of the worker and returns the partitions it owns (`scripts/beat.lua`). After five
//! seconds without a heartbeat a worker counts as dead, and other workers take over its partitions.
//!
//! **Ownership is an optimisation, not a safety mechanism.** A worker that does not know it lost a
//! partition asks for leases that are rejected, or does work another worker would have done. Safety
//! comes from the fencing token of each lease.
//!
//! **Nothing is missed when an owner changes.** The new owner loads its window after it has learned
//! of its ownership, and once more after its process has subscribed to the notices of the partition
//! (`partitions/channels.rs`). Keys that were added before are in its pages. Keys that are added
//! later are published, and the window records all changes from the moment of ownership on.
//!
//! **A partition that cannot be read** (its master is gone, its slot is moving) does not stop the
//! other partitions. It is left out of the pages, a background task tries it until it can be read,
//! and then the window is loaded again. A partition that is slow to reply to a lease or its end is
//! also left out until it has replied to all such requests, so that no more of its timers take
//! permits. Meanwhile its keys have no effect when they fire.
//!
//! **Stragglers.** An owner may be alive and yet fall behind, because it cannot reach the partition
//! or all its handlers are busy. Each worker with spare capacity therefore checks one foreign
//! partition per second, in turn, and takes over timers that are long overdue.

#![cfg_attr(not(feature = "redis"), allow(dead_code, reason = "what only Redis needs"))]
#![forbid(unsafe_code)]

use crate::model::clock::Millis;
use crate::model::event::Event;
use crate::model::key::Change;
use crate::panics::ignore_poison;
use crate::store::window::Window;
use futures_util::task::AtomicWaker;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::Duration;

/// The interval between a worker's checks of foreign partitions.
const STRAGGLERS: Millis = 1000;

/// How long a worker takes its assignment for known. This bounds the effect of another program
/// that changes the table of owners.
const ROUND: Millis = 60_000;

/// The maximum delay of the heartbeat after another worker has left.
const SPREAD: Duration = Duration::from_secs(1);

/// The maximum number of events that wait for a worker.
const MAX_EVENTS: usize = 64;

/// The workers of this process, and the partitions that they own.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    /// The workers, by number.
    workers: Mutex<BTreeMap<u64, LocalWorker>>,
    /// The number of changes of the owned partitions so far.
    changes: AtomicU64,
    /// Wakes the task that waits for a change.
    follower: AtomicWaker,
}

#[derive(Debug)]
struct LocalWorker {
    window: Weak<Window>,
    owned: BTreeSet<u64>,
    /// The round in which these partitions were assigned, unless the next heartbeat has to ask.
    round: Option<Round>,
    /// The owned partitions that could not be read, so that their keys are not in the pages.
    missed: BTreeSet<u64>,
    /// The number of slow replies that the worker waits for, by partition.
    stalled: BTreeMap<u64, usize>,
    /// The foreign partition that was last checked for stragglers, and the time of the check.
    last_check: (u64, Millis),
    /// `true` if the master with the list of workers does not reply.
    lost_heartbeat: bool,
    /// `true` if the store was paused at the last heartbeat.
    paused: bool,
    /// `true` if there were more workers than partitions at the last heartbeat, and this worker
    /// owned none.
    spare: bool,
    /// The number of all workers of the store when the partitions were assigned.
    workers: u64,
    /// The events that the worker has not taken yet.
    events: Vec<Event>,
    /// `true` if the store was emptied and the worker has not yet reported it.
    emptied: bool,
}

/// The round of an assignment, which changes when partitions become free.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) name: String,
    /// The time of the assignment.
    pub(crate) since: Millis,
    /// The time of the worker's last heartbeat.
    pub(crate) last: Millis,
}

impl Round {
    pub(crate) fn is_fresh(&self, now: Millis) -> bool {
        (self.since..self.since.saturating_add(ROUND)).contains(&now)
    }
}

impl LocalWorker {
    fn is_withheld(&self, partition: u64) -> bool {
        self.missed.contains(&partition) || self.stalled.contains_key(&partition)
    }

    /// Adds an event for the worker, unless it has not taken the earlier events for a long time.
    fn tell(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        }
    }
}

impl Ownership {
    /// Adds a worker that owns no partition.
    pub(crate) fn join(&self, number: u64, window: &Arc<Window>) {
        let window = Arc::downgrade(window);
        let (owned, missed, last_check) = (BTreeSet::new(), BTreeSet::new(), (number, 0));
        let stalled = BTreeMap::new();
        let worker = LocalWorker {
            window,
            owned,
            round: None,
            missed,
            stalled,
            last_check,
            lost_heartbeat: false,
            paused: false,
            spare: false,
            workers: 0,
            events: Vec::new(),
            emptied: false,
        };
        self.lock().insert(number, worker);
    }

    pub(crate) fn leave(&self, number: u64) {
        self.lock().remove(&number);
        self.count_change();
    }

    /// Sets the partitions of a worker. If they have changed, its window is loaded again.
    pub(crate) fn set_owned(&self, number: u64, owned: &BTreeSet<u64>) {
        self.change(number, |worker| {
            let before = std::mem::replace(&mut worker.owned, owned.clone());
            let new = before != *owned;
            let gained: BTreeSet<u64> = owned.difference(&before).copied().collect();
            let lost: BTreeSet<u64> = before.difference(owned).copied().collect();
            if !lost.is_empty() {
                worker.tell(Event::PartitionsLost { partitions: lost });
            }
            if !gained.is_empty() {
                worker.tell(Event::PartitionsGained { partitions: gained });
            }
            worker.missed.retain(|partition| owned.contains(partition));
            new
        });
        self.count_change();
    }

    /// Waits until the number of changes differs from `known`. Returns the number of changes, and
    /// the partitions that the workers of this process own together. Only one task may wait at a
    /// time.
    pub(crate) async fn changed(&self, known: Option<u64>) -> (u64, BTreeSet<u64>) {
        poll_fn(|context| {
            self.follower.register(context.waker());
            // Acquire: observes the change that preceded the Release in `count_change`.
            let changes = self.changes.load(Acquire);
            if known == Some(changes) {
                Poll::Pending
            } else {
                Poll::Ready((changes, self.owned()))
            }
        })
        .await
    }

    /// Returns the partitions that the workers of this process own together.
    pub(crate) fn owned(&self) -> BTreeSet<u64> {
        self.lock().values().flat_map(|worker| worker.owned.iter().copied()).collect()
    }

    /// Counts a change of the owned partitions, and wakes the task that waits for it.
    fn count_change(&self) {
        // Release: publishes the preceding change to the Acquire in `changed`.
        self.changes.fetch_add(1, Release);
        self.follower.wake();
    }

    /// Takes the round in which a worker's partitions were assigned, for the time of a heartbeat.
    pub(crate) fn take_round(&self, number: u64) -> Option<Round> {
        self.lock().get_mut(&number).and_then(|worker| worker.round.take())
    }

    /// Sets the round in which a worker's partitions were assigned.
    pub(crate) fn set_round(&self, number: u64, round: Option<Round>) {
        if let Some(worker) = self.lock().get_mut(&number) {
            worker.round = round;
        }
    }

    /// Records whether the store is paused. If that has changed, the window of the worker is loaded
    /// again.
    pub(crate) fn set_paused(&self, number: u64, paused: bool) {
        self.change(number, |worker| std::mem::replace(&mut worker.paused, paused) != paused);
    }

    /// Returns `true` if the store was paused at the worker's last heartbeat.
    pub(crate) fn is_paused(&self, number: u64) -> bool {
        self.lock().get(&number).is_some_and(|worker| worker.paused)
    }

    /// Records the number of workers of the store, and whether a worker owns nothing because there
    /// are more workers than partitions.
    pub(crate) fn set_workers(&self, number: u64, workers: u64, spare: bool) {
        if let Some(worker) = self.lock().get_mut(&number) {
            (worker.workers, worker.spare) = (workers, spare);
        }
    }

    /// Returns `true` if the worker owned nothing at its last heartbeat, because there are more
    /// workers than partitions.
    pub(crate) fn is_spare(&self, number: u64) -> bool {
        self.lock().get(&number).is_some_and(|worker| worker.spare)
    }

    /// Returns the partitions of a worker that can be read, as far as is known.
    pub(crate) fn readable(&self, number: u64) -> BTreeSet<u64> {
        let all = self.lock();
        let worker = all.get(&number);
        let readable = |worker: &LocalWorker| {
            let owned = worker.owned.iter().copied();
            owned.filter(|partition| !worker.is_withheld(*partition)).collect()
        };
        worker.map_or(BTreeSet::new(), readable)
    }

    /// Returns `true` if a worker must not start timers of a partition, because the partition does
    /// not reply.
    pub(crate) fn is_withheld(&self, number: u64, partition: u64) -> bool {
        self.lock().get(&number).is_some_and(|worker| worker.is_withheld(partition))
    }

    /// Records that a worker has waited long for a reply of a partition.
    pub(crate) fn stall(&self, number: u64, partition: u64) {
        if let Some(worker) = self.lock().get_mut(&number) {
            *worker.stalled.entry(partition).or_default() += 1;
        }
    }

    /// Records that the wait is over. After the last wait the window is loaded again.
    pub(crate) fn unstall(&self, number: u64, partition: u64) {
        self.change(number, |worker| {
            let Some(count) = worker.stalled.get_mut(&partition) else { return false };
            *count -= 1;
            *count == 0 && worker.stalled.remove(&partition).is_some()
        });
    }

    /// Returns `true` if a worker could not read a partition.
    pub(crate) fn has_missed(&self, number: u64, partition: u64) -> bool {
        self.lock().get(&number).is_some_and(|worker| worker.missed.contains(&partition))
    }

    /// Records that a worker could not read a partition. Returns `true` if it could before.
    pub(crate) fn miss(&self, number: u64, partition: u64) -> bool {
        let mut all = self.lock();
        all.get_mut(&number).is_some_and(|worker| worker.missed.insert(partition))
    }

    /// Records that a partition can be read again, and loads the window again.
    pub(crate) fn found(&self, number: u64, partition: u64) {
        self.change(number, |worker| worker.missed.remove(&partition));
    }

    /// Records that a worker's heartbeat got no reply. Returns `true` if the previous one did.
    pub(crate) fn heartbeat_lost(&self, number: u64) -> bool {
        let mut all = self.lock();
        all.get_mut(&number)
            .is_some_and(|worker| !std::mem::replace(&mut worker.lost_heartbeat, true))
    }

    /// Returns `true` if the worker's last heartbeat got no reply.
    pub(crate) fn has_lost_heartbeat(&self, number: u64) -> bool {
        self.lock().get(&number).is_some_and(|worker| worker.lost_heartbeat)
    }

    /// Records that a worker's heartbeat got a reply again.
    pub(crate) fn heartbeat_answered(&self, number: u64) {
        if let Some(worker) = self.lock().get_mut(&number) {
            worker.lost_heartbeat = false;
        }
    }

    /// Adds an event for each worker.
    pub(crate) fn tell(&self, event: &Event) {
        for worker in self.lock().values_mut() {
            worker.tell(event.clone());
        }
    }

    /// Returns the events of a worker since the last call.
    pub(crate) fn take_events(&self, number: u64) -> Vec<Event> {
        let mut all = self.lock();
        all.get_mut(&number).map(|worker| std::mem::take(&mut worker.events)).unwrap_or_default()
    }

    /// Records that the store was emptied, for each worker to report.
    pub(crate) fn emptied(&self) {
        for worker in self.lock().values_mut() {
            worker.emptied = true;
        }
        self.invalidate();
    }

    /// Returns `true` if the store was emptied since the worker last reported it.
    pub(crate) fn take_emptied(&self, number: u64) -> bool {
        let mut all = self.lock();
        all.get_mut(&number).is_some_and(|worker| std::mem::take(&mut worker.emptied))
    }

    /// Changes a worker. If `change` returns `true`, its window is loaded again.
    fn change(&self, number: u64, change: impl FnOnce(&mut LocalWorker) -> bool) {
        let mut all = self.lock();
        let Some(worker) = all.get_mut(&number) else { return };
        let window = if change(worker) { worker.window.upgrade() } else { None };
        drop(all);
        if let Some(window) = window {
            window.invalidate();
        }
    }

    /// Returns the foreign partition that a worker must check for stragglers, if it is time.
    pub(crate) fn next_foreign_partition(
        &self,
        number: u64,
        partitions: u64,
        now: Millis,
    ) -> Option<u64> {
        let mut all = self.lock();
        let worker = all.get_mut(&number)?;
        let (last, when) = worker.last_check;
        if (when..when.saturating_add(STRAGGLERS)).contains(&now) {
            return None;
        }
        let mut others = (1..=partitions).map(|step| last.wrapping_add(step) % partitions);
        let next = others.find(|partition| {
            !worker.owned.contains(partition) && !worker.is_withheld(*partition)
        })?;
        worker.last_check = (next, now);
        Some(next)
    }

    /// Notifies the owner of a change to a key of a partition.
    pub(crate) fn notify(&self, partition: u64, change: Change) {
        let owners = self.windows(|worker| worker.owned.contains(&partition));
        for window in owners {
            window.notify(std::slice::from_ref(&change));
        }
    }

    /// Makes all workers load again, because changes of keys or owners may have been missed.
    pub(crate) fn invalidate(&self) {
        for window in self.windows(|_| true) {
            window.invalidate();
        }
    }

    /// Makes all workers load again from time to time, while changes are being missed.
    pub(crate) fn reload(&self) {
        for window in self.windows(|_| true) {
            window.reload();
        }
    }

    /// Makes the owners of some partitions load again once no page is pending.
    pub(crate) fn reload_owners(&self, partitions: &BTreeSet<u64>) {
        for window in self.windows(|worker| !worker.owned.is_disjoint(partitions)) {
            window.reload();
        }
    }

    /// Makes each worker send a heartbeat soon, for example because another worker has left. Each
    /// of these heartbeats reads the lists of workers and of owners. So that they do not occupy the
    /// server all at once, the heartbeats of a fleet are spread over one millisecond for each
    /// worker, and at most a second.
    pub(crate) fn request_checks(&self) {
        let all = self.lock();
        let soon = all.iter().filter_map(|(number, worker)| {
            let wait = number.checked_rem(worker.workers).unwrap_or(0);
            Some((worker.window.upgrade()?, Duration::from_millis(wait).min(SPREAD)))
        });
        let soon: Vec<_> = soon.collect();
        drop(all);
        for (window, wait) in soon {
            window.request_check_after(wait);
        }
    }

    /// Returns the windows of some workers, to be notified without the lock.
    fn windows(&self, which: impl Fn(&LocalWorker) -> bool) -> Vec<Arc<Window>> {
        let all = self.lock();
        let which = all.values().filter(|worker| which(worker));
        which.filter_map(|worker| worker.window.upgrade()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, LocalWorker>> {
        ignore_poison(self.workers.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::window::Reading;
    use futures_util::task::noop_waker_ref;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::{Context, Wake, Waker};
    use tourbillon::future::{DelayQueue, Timer};
    use tourbillon::{Builder, ManualClock};

    fn window() -> Arc<Window> {
        let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build().expect("a wheel");
        let timer = Timer::new(wheel);
        let queue: DelayQueue<_> =
            DelayQueue::new(&timer, Builder::new().shards(1)).expect("a queue");
        let now = Reading { store: 0, asked: timer.now(), answered: timer.now() };
        Arc::new(Window::new(queue.handle(), now))
    }

    /// A task that is woken, or not.
    #[derive(Default)]
    struct Task(AtomicBool);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_when_the_partitions_of_all_workers_change() {
        let (ownership, window, task) = (Ownership::default(), window(), Arc::<Task>::default());
        let waker = Waker::from(Arc::clone(&task));
        let poll = |known| {
            let changed = pin!(ownership.changed(known));
            changed.poll(&mut Context::from_waker(&waker))
        };
        ownership.join(1, &window);
        ownership.join(2, &window);
        let mut known = None;
        let mut expect = |owned: &[u64]| {
            let Poll::Ready((changes, all)) = poll(known) else { panic!("it has changed") };
            assert_eq!(all, owned.iter().copied().collect());
            known = Some(changes);
            assert!(poll(known).is_pending() && !task.0.load(Relaxed));
        };
        expect(&[]);
        let woken = || assert!(task.0.swap(false, Relaxed));
        ownership.set_owned(1, &BTreeSet::from([1, 4]));
        woken();
        ownership.set_owned(2, &BTreeSet::from([3]));
        expect(&[1, 3, 4]);
        ownership.set_owned(2, &BTreeSet::new());
        woken();
        expect(&[1, 4]);
        ownership.leave(1);
        woken();
        expect(&[]);
    }

    #[test]
    fn the_workers_of_a_large_fleet_check_one_after_another() {
        let (ownership, window) = (Ownership::default(), window());
        let wait_of = |number, workers| {
            ownership.join(number, &window);
            ownership.set_workers(number, workers, false);
            ownership.request_checks();
            ownership.leave(number);
            window.take_check_after()
        };
        assert_eq!(wait_of(1007, 0), Some(Duration::ZERO), "it has not been assigned anything");
        assert_eq!(wait_of(1007, 1), Some(Duration::ZERO));
        assert_eq!(wait_of(1007, 1000), Some(Duration::from_millis(7)));
        assert_eq!(wait_of(99_999, 100_000), Some(SPREAD));
        assert_eq!(window.take_check_after(), None);
    }

    #[test]
    fn a_partition_is_withheld_until_it_has_answered_to_all() {
        let window = window();
        let loaded_again = || window.poll_check_requested(&Context::from_waker(noop_waker_ref()));

        let ownership = Ownership::default();
        ownership.join(1, &window);
        ownership.set_owned(1, &BTreeSet::from([4, 5]));
        assert!(loaded_again());
        ownership.stall(1, 4);
        ownership.stall(1, 4);
        assert_eq!(ownership.readable(1), BTreeSet::from([5]));
        assert!(ownership.is_withheld(1, 4) && !ownership.is_withheld(1, 5));
        assert!(!ownership.is_withheld(2, 4), "another worker's");
        ownership.unstall(1, 4);
        assert!(ownership.is_withheld(1, 4) && !loaded_again());
        ownership.unstall(1, 4);
        assert!(!ownership.is_withheld(1, 4) && loaded_again());
        assert_eq!(ownership.readable(1), BTreeSet::from([4, 5]));
    }
}
