//! [`Places`], which bounds the concurrent calls of each receiver, so that one that is slow delays
//! no other.
//!
//! ```text
//!   due ──► a place is free ──► called
//!      └──► the receiver is quick ──► waits a moment for a place
//!      └──► otherwise ──► given back, for about as long as its calls take
//! ```
//!
//! A receiver is a host and a port. Deliveries that are given back hold no permit of the worker.
//! They come back one after another and not all at once.

#![forbid(unsafe_code)]

use super::super::target::Target;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use url::Host;

/// The time for which a delivery waits for a place. A receiver whose calls take longer on average is
/// slow, and deliveries to it do not wait.
const PATIENCE: Duration = Duration::from_millis(100);

/// The longest time for which a delivery is given back. It bounds the time after which deliveries
/// come to a receiver that has become quick again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The longest time between two deliveries that come back. Few at a time ask for a place in vain.
const LONGEST_STEP: Duration = Duration::from_millis(20);

/// The number of calls without a response in time, one after another, after which a receiver has one
/// place.
const SILENT: u32 = 3;

/// The number of receivers without calls that are remembered. Their names come from timers.
const MOST_REMEMBERED: usize = 4096;

#[derive(Debug)]
pub(crate) struct Places {
    /// The maximum number of concurrent calls of a receiver.
    each: usize,
    receivers: Mutex<HashMap<Key, Receiver>>,
}

/// The host and the port of a receiver.
type Key = (Host<String>, u16);

/// The calls of a receiver.
#[derive(Debug)]
struct Receiver {
    calling: usize,
    /// The deliveries that wait for a place, each to be sent one.
    waiting: VecDeque<oneshot::Sender<Place>>,
    /// The average duration of a call.
    average: Duration,
    /// The number of the latest calls without a response in time.
    silent: u32,
    /// The time at which the last of the deliveries that were given back comes back.
    last_return: Instant,
}

/// A place for one call, free again once it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    key: Key,
    begun: Instant,
}

impl Places {
    /// Creates places of which each receiver has at most so many.
    pub(crate) fn new(each: usize) -> Self {
        Self { each: each.max(1), receivers: Mutex::default() }
    }

    /// Takes a place for a call of a target. Fails with the time for which the delivery is to be
    /// given back.
    pub(crate) async fn enter(self: &Arc<Self>, target: &Target) -> Result<Place, Duration> {
        let key = (target.host.clone(), target.port);
        let waiting = {
            let mut all = self.lock();
            let receiver = all.entry(key.clone()).or_insert_with(Receiver::new);
            let most = receiver.most(self.each);
            if receiver.calling < most && receiver.waiting.is_empty() {
                receiver.calling += 1;
                return Ok(Place::new(self, key));
            }
            if !receiver.is_quick() || receiver.waiting.len() >= most {
                return Err(receiver.wait(self.each));
            }
            let (send, waiting) = oneshot::channel();
            receiver.waiting.push_back(send);
            waiting
        };
        if let Ok(Ok(place)) = timeout(PATIENCE, waiting).await {
            return Ok(Place { begun: Instant::now(), ..place });
        }
        let mut all = self.lock();
        let receiver = all.entry(key).or_insert_with(Receiver::new);
        receiver.waiting.retain(|waiting| !waiting.is_closed());
        receiver.average = receiver.average.max(2 * PATIENCE);
        Err(receiver.wait(self.each))
    }

    /// Passes a place on to a delivery that waits for it, or makes it free.
    fn leave(self: &Arc<Self>, key: &Key) {
        let mut all = self.lock();
        let Some(receiver) = all.get_mut(key) else { return };
        receiver.calling -= 1;
        let is_free = receiver.calling < receiver.most(self.each);
        if let Some(waiting) = is_free.then(|| receiver.waiting.pop_front()).flatten() {
            receiver.calling += 1;
            drop(all);
            // One that has stopped waiting returns the place, and its end passes it on.
            drop(waiting.send(Place::new(self, key.clone())));
        } else if all.len() > MOST_REMEMBERED {
            all.retain(|_, receiver| receiver.calling > 0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Receiver>> {
        self.receivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn new(places: &Arc<Places>, key: Key) -> Self {
        Self { places: Arc::clone(places), key, begun: Instant::now() }
    }

    /// Notes the duration of the call, and whether its receiver responded in time.
    pub(crate) fn note(&self, responded: bool) {
        let took = self.begun.elapsed();
        let mut all = self.places.lock();
        let Some(receiver) = all.get_mut(&self.key) else { return };
        let is_first = receiver.average.is_zero() || (responded && receiver.silent >= SILENT);
        receiver.average = if is_first { took } else { (receiver.average * 7 + took) / 8 };
        receiver.silent = if responded { 0 } else { receiver.silent.saturating_add(1) };
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.leave(&self.key);
    }
}

impl Receiver {
    fn new() -> Self {
        let (calling, waiting, last_return) = (0, VecDeque::new(), Instant::now());
        Self { calling, waiting, average: Duration::ZERO, silent: 0, last_return }
    }

    /// Returns the maximum number of concurrent calls.
    fn most(&self, each: usize) -> usize {
        if self.silent >= SILENT { 1 } else { each }
    }

    fn is_quick(&self) -> bool {
        self.average <= PATIENCE && self.silent < SILENT
    }

    /// Returns the time for which a delivery is given back. Each comes back after the one before it,
    /// in the time of a call and up to a minute. If more wait than are called in a minute, the rest
    /// is spread over the second half of it.
    fn wait(&mut self, each: usize) -> Duration {
        let (now, places) = (Instant::now(), u32::try_from(self.most(each)).unwrap_or(u32::MAX));
        let step = (self.average / places).min(LONGEST_STEP);
        let mut wait = self.last_return.saturating_duration_since(now) + step;
        if wait > LONGEST_WAIT {
            wait = LONGEST_WAIT / 2;
        }
        self.last_return = now + wait;
        (wait + self.average).clamp(PATIENCE, LONGEST_WAIT)
    }
}
