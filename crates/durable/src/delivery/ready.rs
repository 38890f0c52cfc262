//! [`Ready`], the keys that have fired, and the workers that take them.
//!
//! The workers of a [`Feed`](crate::delivery::feed::Feed) take keys here, oldest first. Each key is
//! handed to one worker as a [`Claim`], so that workers do not compete for the same leases. The
//! store still decides about each lease, so a key that is handed out twice costs one rejected
//! request.
//!
//! **No key waits for a worker that is not polled.** A claim that is dropped before the store has
//! replied puts its key back. A worker that leaves keys behind because all its handlers are busy
//! wakes the idle workers. A worker that ends wakes all other workers.
//!
//! A worker may hold claims and yet not be polled, because a handler blocks its thread or its
//! future is not polled any more. It then reads no reply of the store. The feed counts each *check*
//! of the store here, and each check wakes all workers. If a worker has not been polled during the
//! last [`MISSED`] checks, the keys of its open claims are offered again, once for each claim. The
//! worker keeps its claims and may still use the replies, because the store grants at most one of
//! the leases. Checks are counted instead of time, so that a clock jump, as after the computer has
//! slept, expires no claim.
//!
//! **No waker is called under a lock**, because it may poll a worker where it is called. While a
//! worker polls the feed, wake-ups are recorded, and sent when it has released the feed.

#![forbid(unsafe_code)]

use crate::model::key::Key;
use crate::panics::{ignore_poison, quietly};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Wake, Waker};

/// The number of checks that a worker misses before its keys are offered to other workers. Each
/// check wakes the worker, which has the interval between two checks to be polled.
const MISSED: u64 = 2;

/// The keys that have fired, for all workers of a feed. As a waker, it wakes all of them.
#[derive(Debug, Default)]
pub(crate) struct Ready(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    keys: BTreeSet<Key>,
    /// The workers, by the numbers of their registrations.
    workers: BTreeMap<u64, WorkerState>,
    /// The claims without a reply from the store, by number.
    open: BTreeMap<u64, OpenClaim>,
    /// The last number of a registration or a claim.
    last: u64,
    /// The number of checks of the store so far.
    checks: u64,
    /// The number of workers that poll the feed or wait for it.
    polling: usize,
    /// Set if the workers are to be woken after the feed has been polled.
    wake_pending: bool,
}

/// The state of a worker between its polls.
#[derive(Debug, Default)]
struct WorkerState {
    /// `None` if the worker was woken since its last poll.
    waker: Option<Waker>,
    /// Set if the worker found no key.
    idle: bool,
    /// The number of checks before the worker's last poll.
    polled: u64,
}

/// A claim without a reply from the store.
#[derive(Debug)]
struct OpenClaim {
    key: Key,
    registration: u64,
    /// The number of checks before the claim was taken.
    taken: u64,
}

impl Ready {
    /// Adds keys that have fired.
    pub(crate) fn extend(&self, keys: Vec<Key>) {
        self.lock().keys.extend(keys);
    }

    /// Returns the number of keys that wait for a worker.
    pub(crate) fn len(&self) -> usize {
        self.lock().keys.len()
    }

    /// Counts a check of the store. Offers the keys of workers that are not polled again.
    pub(crate) fn count_check(&self) {
        let inner = &mut *self.lock();
        inner.checks += 1;
        let Inner { keys, workers, open, checks, .. } = inner;
        open.retain(|_, claim| {
            // An ending worker has no registration, and its claims count from their start.
            let polled = workers.get(&claim.registration).map_or(0, |worker| worker.polled);
            let kept = *checks < claim.taken.max(polled) + MISSED;
            if !kept {
                keys.insert(claim.key.clone());
            }
            kept
        });
    }

    /// Holds back wake-ups until the returned value is dropped.
    pub(crate) fn hold_wakes(&self) -> HeldWakes<'_> {
        self.lock().polling += 1;
        HeldWakes(self)
    }

    /// Wakes all workers.
    pub(crate) fn wake_all(&self) {
        let mut inner = self.lock();
        if inner.polling > 0 {
            inner.wake_pending = true;
            return;
        }
        let woken = inner.waiting(|_| true);
        drop(inner);
        wake(woken);
    }

    /// Wakes the workers that found no key.
    fn wake_idle(&self) {
        let woken = self.lock().waiting(|worker| worker.idle);
        wake(woken);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        ignore_poison(self.0.lock())
    }
}

/// Wakes workers. A waker that panics does not keep other workers from being woken.
fn wake(woken: Vec<Waker>) {
    for waker in woken {
        quietly(|| waker.wake());
    }
}

impl Inner {
    fn waiting(&mut self, which: impl Fn(&WorkerState) -> bool) -> Vec<Waker> {
        let states = self.workers.values_mut().filter(|worker| which(worker));
        states.filter_map(|worker| worker.waker.take()).collect()
    }

    /// Returns a number that no registration and no claim has.
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}

/// Holds back wake-ups while the feed is polled.
#[derive(Debug)]
pub(crate) struct HeldWakes<'a>(&'a Ready);

impl Drop for HeldWakes<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.polling -= 1;
        if !std::mem::take(&mut inner.wake_pending) {
            return;
        }
        let woken = inner.waiting(|_| true);
        drop(inner);
        wake(woken);
    }
}

/// The registration of one worker of a feed.
#[derive(Debug)]
pub(crate) struct Registration {
    ready: Arc<Ready>,
    number: u64,
}

impl Registration {
    pub(crate) fn new(ready: &Arc<Ready>) -> Self {
        let mut inner = ready.lock();
        let number = inner.number();
        inner.workers.insert(number, WorkerState::default());
        drop(inner);
        Self { ready: Arc::clone(ready), number }
    }

    /// Records that the worker is being polled, and the waker for afterwards.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut inner = self.ready.lock();
        let worker = WorkerState { waker: Some(waker.clone()), idle: false, polled: inner.checks };
        let before = inner.workers.insert(self.number, worker);
        // A waker that is replaced may be the last reference to its task.
        drop(inner);
        drop(before);
    }

    /// Takes the oldest key. If there is none, the worker is woken when one arrives.
    pub(crate) fn take(&self) -> Option<Claim> {
        let mut inner = self.ready.lock();
        let Some(key) = inner.keys.pop_first() else {
            if let Some(worker) = inner.workers.get_mut(&self.number) {
                worker.idle = true;
            }
            return None;
        };
        let (number, taken) = (inner.number(), inner.checks);
        inner.open.insert(number, OpenClaim { key: key.clone(), registration: self.number, taken });
        drop(inner);
        Some(Claim { ready: Arc::clone(&self.ready), key, number })
    }

    /// Leaves the remaining keys to other workers, because this one cannot start more now.
    pub(crate) fn pass(&self) {
        if self.ready.len() > 0 {
            self.ready.wake_idle();
        }
    }
}

/// Wakes the other workers, which take the keys that this one has left.
impl Drop for Registration {
    fn drop(&mut self) {
        let worker = self.ready.lock().workers.remove(&self.number);
        drop(worker);
        self.ready.wake_all();
    }
}

/// A key that one worker has taken.
#[derive(Debug)]
pub(crate) struct Claim {
    ready: Arc<Ready>,
    pub(crate) key: Key,
    number: u64,
}

impl Claim {
    /// Records that the key need not be offered again.
    pub(crate) fn settle(&self) {
        let open = self.ready.lock().open.remove(&self.number);
        drop(open);
    }
}

/// Puts the key back if the store has not replied and the key was not offered again already.
impl Drop for Claim {
    fn drop(&mut self) {
        let mut inner = self.ready.lock();
        let Some(open) = inner.open.remove(&self.number) else { return };
        inner.keys.insert(open.key);
        drop(inner);
        self.ready.wake_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// A worker that counts its wake-ups.
    struct TestWorker {
        registration: Registration,
        woken: Arc<Count>,
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    impl TestWorker {
        fn new(ready: &Arc<Ready>) -> Self {
            Self { registration: Registration::new(ready), woken: Arc::default() }
        }

        /// Polls, and takes up to `most` keys.
        fn poll(&self, most: usize) -> Vec<Claim> {
            self.registration.register(&Waker::from(Arc::clone(&self.woken)));
            let mut claims = Vec::new();
            while claims.len() < most {
                let Some(claim) = self.registration.take() else { return claims };
                claims.push(claim);
            }
            self.registration.pass();
            claims
        }

        fn woken(&self) -> usize {
            self.woken.0.swap(0, SeqCst)
        }
    }

    fn keys(due: &[u64]) -> Vec<Key> {
        due.iter().map(|due| (*due, Arc::from("id"))).collect()
    }

    fn due(claims: &[Claim]) -> Vec<u64> {
        claims.iter().map(|claim| claim.key.0).collect()
    }

    #[test]
    fn keys_are_handed_out_once_oldest_first() {
        let ready = Arc::default();
        let [first, second] = [TestWorker::new(&ready), TestWorker::new(&ready)];
        ready.extend(keys(&[5, 3, 9]));
        let (some, others) = (first.poll(2), second.poll(2));
        assert_eq!((due(&some), due(&others)), (vec![3, 5], vec![9]));
        assert_eq!(ready.len(), 0);
    }

    #[test]
    fn a_claim_without_an_answer_goes_to_an_idle_worker() {
        let ready = Arc::default();
        let [first, idle] = [TestWorker::new(&ready), TestWorker::new(&ready)];
        ready.extend(keys(&[3, 5]));
        let claims = first.poll(2);
        assert!(idle.poll(1).is_empty());
        for claim in &claims {
            if claim.key.0 == 3 {
                claim.settle();
            }
        }
        assert_eq!(idle.woken(), 0);
        drop(claims);
        assert_eq!((idle.woken(), first.woken()), (1, 0));
        assert_eq!(due(&idle.poll(2)), [5]);
    }

    #[test]
    fn claims_of_a_worker_that_is_not_polled_are_offered_again() {
        let ready = Arc::default();
        let [stalled, other] = [TestWorker::new(&ready), TestWorker::new(&ready)];
        ready.extend(keys(&[3, 5, 7, 9]));
        let claims = stalled.poll(3);
        let held = other.poll(1);
        assert_eq!(due(&held), [9]);
        claims[0].settle();
        ready.count_check();
        assert!(other.poll(4).is_empty(), "it has missed one check");
        ready.count_check();
        let offered = other.poll(4);
        assert_eq!(due(&offered), [5, 7], "the worker that is polled keeps its own");
        // The late replies do not bring the key back.
        claims[1].settle();
        drop(claims);
        assert_eq!(ready.len(), 0);
        // A second claim of a key counts by itself, and the claims of an ending worker by their
        // age.
        let TestWorker { registration, .. } = other;
        drop(registration);
        ready.count_check();
        assert_eq!(ready.len(), 1);
        ready.count_check();
        assert_eq!(due(&stalled.poll(4)), [5, 7, 9]);
        drop((held, offered));
        assert_eq!(ready.len(), 3);
    }

    #[test]
    fn a_busy_worker_leaves_keys_to_idle_workers_only() {
        let ready = Arc::default();
        let workers = [TestWorker::new(&ready), TestWorker::new(&ready), TestWorker::new(&ready)];
        let [first, busy, idle] = &workers;
        ready.extend(keys(&[1]));
        let held = [busy.poll(1), idle.poll(1)];
        ready.extend(keys(&[2, 3]));
        let claims = first.poll(1);
        assert_eq!((due(&claims), busy.woken(), idle.woken()), (vec![2], 0, 1));
        // A worker is woken once.
        first.registration.pass();
        assert_eq!(idle.woken(), 0);
        let others = idle.poll(1);
        assert_eq!(due(&others), [3]);
        // There is nothing left to take.
        assert!(idle.poll(1).is_empty());
        first.registration.pass();
        assert_eq!((busy.woken(), idle.woken()), (0, 0));
        drop((held, claims, others));
    }

    #[test]
    fn wake_ups_wait_until_the_feed_is_released() {
        let ready = Arc::default();
        let [first, second] = [TestWorker::new(&ready), TestWorker::new(&ready)];
        drop((first.poll(1), second.poll(1)));
        let [one, other] = [ready.hold_wakes(), ready.hold_wakes()];
        Waker::from(Arc::clone(&ready)).wake_by_ref();
        assert_eq!((first.woken(), second.woken()), (0, 0));
        drop(one);
        assert_eq!((first.woken(), second.woken()), (1, 1));
        drop((first.poll(1), second.poll(1)));
        drop(other);
        assert_eq!((first.woken(), second.woken()), (0, 0));
        Waker::from(Arc::clone(&ready)).wake();
        assert_eq!((first.woken(), second.woken()), (1, 1));
    }

    #[test]
    fn a_worker_that_ends_wakes_the_others() {
        let ready = Arc::default();
        let [first, second] = [TestWorker::new(&ready), TestWorker::new(&ready)];
        drop((first.poll(1), second.poll(1)));
        let TestWorker { registration, woken } = first;
        drop(registration);
        assert_eq!((woken.0.load(SeqCst), second.woken()), (0, 1));
        assert_eq!(ready.lock().workers.len(), 1);
        // A worker that is not registered, or was woken, is skipped.
        ready.wake_all();
        assert_eq!(second.woken(), 0);
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_from_being_woken() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("this waker panics");
            }
        }
        let ready = Arc::default();
        let [first, second] = [TestWorker::new(&ready), TestWorker::new(&ready)];
        first.registration.register(&Waker::from(Arc::new(Panics)));
        drop(second.poll(1));
        ready.wake_all();
        assert_eq!(second.woken(), 1);
    }
}
