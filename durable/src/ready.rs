//! [`Ready`]: the keys that have fired, and the workers that take them.
//!
//! The workers of a [`Feed`](super::feed::Feed) take keys here, oldest first. Each key is handed to
//! one of them, as a [`Claim`], so that they do not ask the store for the same leases. The store
//! still decides about each lease: a key that is handed out twice costs one refused request.
//!
//! **No key waits for a worker that is not polled.** A claim that is dropped before the store has
//! answered puts its key back. A worker that leaves keys behind because all its handlers are busy
//! wakes the workers that had found none. A worker that ends wakes all others.
//!
//! **No waker is called under a lock**, because it may poll a worker where it is called. While a
//! worker polls the feed, wake-ups are noted and passed on when it has released the feed.

#![forbid(unsafe_code)]

use super::key::Key;
use crate::panics::{ignore_poison, quietly};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Wake, Waker};

/// The keys that have fired, for all workers of a feed. As a waker, it wakes all of them.
#[derive(Debug, Default)]
pub(super) struct Ready(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    keys: BTreeSet<Key>,
    seats: Vec<Option<Waiter>>,
    /// The number of workers that poll the feed or wait for it.
    polling: usize,
    /// Set if the workers are to be woken when the feed has been polled.
    rung: bool,
}

/// A worker between its polls.
#[derive(Debug, Default)]
struct Waiter {
    /// `None` if it was woken since its last poll.
    waker: Option<Waker>,
    /// Set if it found no key.
    idle: bool,
}

impl Ready {
    /// Adds keys that have fired.
    pub(super) fn extend(&self, keys: Vec<Key>) {
        self.lock().keys.extend(keys);
    }

    /// Returns the number of keys that wait for a worker.
    pub(super) fn len(&self) -> usize {
        self.lock().keys.len()
    }

    /// Holds back wake-ups until the returned value is dropped.
    pub(super) fn hold_wakes(&self) -> HeldWakes<'_> {
        self.lock().polling += 1;
        HeldWakes(self)
    }

    /// Wakes all workers.
    pub(super) fn wake_all(&self) {
        let mut inner = self.lock();
        if inner.polling > 0 {
            inner.rung = true;
            return;
        }
        let woken = inner.waiting(|_| true);
        drop(inner);
        wake(woken);
    }

    /// Wakes the workers that found no key.
    fn wake_idle(&self) {
        let woken = self.lock().waiting(|waiter| waiter.idle);
        wake(woken);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        ignore_poison(self.0.lock())
    }
}

/// Wakes workers. A waker that panics does not keep the others from being woken.
fn wake(woken: Vec<Waker>) {
    for waker in woken {
        quietly(|| waker.wake());
    }
}

impl Inner {
    fn waiting(&mut self, which: impl Fn(&Waiter) -> bool) -> Vec<Waker> {
        let waiters = self.seats.iter_mut().flatten().filter(|waiter| which(waiter));
        waiters.filter_map(|waiter| waiter.waker.take()).collect()
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
pub(super) struct HeldWakes<'a>(&'a Ready);

impl Drop for HeldWakes<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.polling -= 1;
        if !std::mem::take(&mut inner.rung) {
            return;
        }
        let woken = inner.waiting(|_| true);
        drop(inner);
        wake(woken);
    }
}

/// The place of one worker among those of a feed.
#[derive(Debug)]
pub(super) struct Seat {
    ready: Arc<Ready>,
    number: usize,
}

impl Seat {
    pub(super) fn new(ready: &Arc<Ready>) -> Self {
        let mut inner = ready.lock();
        let free = inner.seats.iter().position(Option::is_none);
        let number = free.unwrap_or(inner.seats.len());
        if free.is_none() {
            inner.seats.push(None);
        }
        inner.seats[number] = Some(Waiter::default());
        drop(inner);
        Self { ready: Arc::clone(ready), number }
    }

    /// Notes that the worker is being polled, and how it is woken afterwards.
    pub(super) fn register(&self, waker: &Waker) {
        let waiter = Waiter { waker: Some(waker.clone()), idle: false };
        self.replace(Some(waiter));
    }

    /// A waker that is replaced may be the last reference to its task: it is dropped without the
    /// lock.
    fn replace(&self, waiter: Option<Waiter>) {
        let before = std::mem::replace(&mut self.ready.lock().seats[self.number], waiter);
        drop(before);
    }

    /// Takes the oldest key. If there is none, the worker is woken when there is one.
    pub(super) fn take(&self) -> Option<Claim> {
        let mut inner = self.ready.lock();
        let key = inner.keys.pop_first();
        if key.is_none()
            && let Some(waiter) = &mut inner.seats[self.number]
        {
            waiter.idle = true;
        }
        drop(inner);
        key.map(|key| Claim { ready: Arc::clone(&self.ready), key, settled: false })
    }

    /// Leaves the keys to the others, because this worker can begin no more of them now.
    pub(super) fn pass(&self) {
        if self.ready.len() > 0 {
            self.ready.wake_idle();
        }
    }
}

/// The others go on with what this worker has left.
impl Drop for Seat {
    fn drop(&mut self) {
        self.replace(None);
        self.ready.wake_all();
    }
}

/// A key that one worker has taken.
#[derive(Debug)]
pub(super) struct Claim {
    ready: Arc<Ready>,
    pub(super) key: Key,
    settled: bool,
}

impl Claim {
    /// Notes that the key need not come back.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }
}

/// If the store has not answered, another worker asks.
impl Drop for Claim {
    fn drop(&mut self) {
        if !self.settled {
            self.ready.extend(vec![self.key.clone()]);
            self.ready.wake_idle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// A worker, and how often it was woken since it was last asked.
    struct Worker {
        seat: Seat,
        woken: Arc<Count>,
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    impl Worker {
        fn new(ready: &Arc<Ready>) -> Self {
            Self { seat: Seat::new(ready), woken: Arc::default() }
        }

        /// Polls, and takes keys while there are any, up to so many.
        fn poll(&self, most: usize) -> Vec<Claim> {
            self.seat.register(&Waker::from(Arc::clone(&self.woken)));
            let mut claims = Vec::new();
            while claims.len() < most {
                let Some(claim) = self.seat.take() else { return claims };
                claims.push(claim);
            }
            self.seat.pass();
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
        let [first, second] = [Worker::new(&ready), Worker::new(&ready)];
        ready.extend(keys(&[5, 3, 9]));
        let (some, others) = (first.poll(2), second.poll(2));
        assert_eq!((due(&some), due(&others)), (vec![3, 5], vec![9]));
        assert_eq!(ready.len(), 0);
    }

    #[test]
    fn a_claim_without_an_answer_goes_to_an_idle_worker() {
        let ready = Arc::default();
        let [first, idle] = [Worker::new(&ready), Worker::new(&ready)];
        ready.extend(keys(&[3, 5]));
        let mut claims = first.poll(2);
        assert!(idle.poll(1).is_empty());
        for claim in &mut claims {
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
    fn a_busy_worker_leaves_keys_to_idle_workers_only() {
        let ready = Arc::default();
        let workers = [Worker::new(&ready), Worker::new(&ready), Worker::new(&ready)];
        let [first, busy, idle] = &workers;
        ready.extend(keys(&[1]));
        let held = [busy.poll(1), idle.poll(1)];
        ready.extend(keys(&[2, 3]));
        let claims = first.poll(1);
        assert_eq!((due(&claims), busy.woken(), idle.woken()), (vec![2], 0, 1));
        // Once is enough.
        first.seat.pass();
        assert_eq!(idle.woken(), 0);
        let others = idle.poll(1);
        assert_eq!(due(&others), [3]);
        // There is nothing left to take.
        assert!(idle.poll(1).is_empty());
        first.seat.pass();
        assert_eq!((busy.woken(), idle.woken()), (0, 0));
        drop((held, claims, others));
    }

    #[test]
    fn wake_ups_wait_until_the_feed_is_released() {
        let ready = Arc::default();
        let [first, second] = [Worker::new(&ready), Worker::new(&ready)];
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
        let [first, second] = [Worker::new(&ready), Worker::new(&ready)];
        drop((first.poll(1), second.poll(1)));
        let Worker { seat, woken } = first;
        drop(seat);
        assert_eq!((woken.0.load(SeqCst), second.woken()), (0, 1));
        // Its number is free.
        assert_eq!(Worker::new(&ready).seat.number, 0);
        // A seat that is not registered, or was woken, is passed over.
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
        let [first, second] = [Worker::new(&ready), Worker::new(&ready)];
        first.seat.register(&Waker::from(Arc::new(Panics)));
        drop(second.poll(1));
        ready.wake_all();
        assert_eq!(second.woken(), 1);
    }
}
