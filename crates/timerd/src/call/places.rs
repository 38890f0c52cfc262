//! [`Places`], which limits the concurrent calls to each receiver, so that a slow receiver does not
//! delay the others.
//!
//! ```text
//!   due ──► a place is free ──► called
//!      └──► the receiver is quick ──► waits a moment for a place
//!      └──► otherwise ──► given back, for about as long as its calls take
//! ```
//!
//! A receiver is a host and a port. Deliveries that are given back hold no permit of the worker.
//! They come back one after another, not all at once.

#![forbid(unsafe_code)]

use crate::target::Target;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use url::Host;

/// How long a delivery waits for a place. A receiver whose calls take longer on average is slow,
/// and deliveries to it do not wait.
const MAX_QUICK_WAIT: Duration = Duration::from_millis(100);

/// The longest wait of a delivery that is given back. It bounds how long a receiver that is quick
/// again waits for its next call.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The longest time between two deliveries that come back. Because they are spread out, only a few
/// at a time find no place.
const MAX_STEP: Duration = Duration::from_millis(20);

/// The number of consecutive calls without a timely response that reduce a receiver to one place.
const SILENT: u32 = 3;

/// The number of remembered receivers. Beyond it, idle receivers are forgotten, because timers can
/// name any number of receivers.
const MAX_REMEMBERED: usize = 4096;

#[derive(Debug)]
pub(crate) struct Places {
    /// The maximum number of concurrent calls to a receiver.
    each: usize,
    receivers: Mutex<HashMap<Key, Receiver>>,
}

/// The host and the port of a receiver.
type Key = (Host<String>, u16);

/// The calls to a receiver.
#[derive(Debug)]
struct Receiver {
    calling: usize,
    /// The deliveries that wait for a place. Each place is sent to the first of them.
    waiting: VecDeque<oneshot::Sender<Place>>,
    /// The average duration of a call.
    average: Duration,
    /// The number of consecutive calls, up to the latest, without a timely response.
    silent: u32,
    /// The return time of the last delivery that was given back.
    last_return: Instant,
}

/// A place for one call, which becomes free when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    key: Key,
    begun: Instant,
}

impl Places {
    /// Creates places, at most `each` of them for each receiver.
    pub(crate) fn new(each: usize) -> Self {
        Self { each: each.max(1), receivers: Mutex::default() }
    }

    /// Takes a place for a call to a target. If no place is free, fails with the time until the
    /// delivery comes back.
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
        if let Ok(Ok(mut place)) = timeout(MAX_QUICK_WAIT, waiting).await {
            place.begun = Instant::now();
            return Ok(place);
        }
        let mut all = self.lock();
        let receiver = all.entry(key).or_insert_with(Receiver::new);
        receiver.waiting.retain(|waiting| !waiting.is_closed());
        receiver.average = receiver.average.max(2 * MAX_QUICK_WAIT);
        Err(receiver.wait(self.each))
    }

    /// Passes a place on to a waiting delivery, or frees the place.
    fn leave(self: &Arc<Self>, key: &Key) {
        let mut all = self.lock();
        let Some(receiver) = all.get_mut(key) else { return };
        receiver.calling -= 1;
        let is_free = receiver.calling < receiver.most(self.each);
        if let Some(waiting) = is_free.then(|| receiver.waiting.pop_front()).flatten() {
            receiver.calling += 1;
            drop(all);
            // If this delivery no longer waits, the place is dropped here, which passes it on.
            drop(waiting.send(Place::new(self, key.clone())));
        } else if all.len() > MAX_REMEMBERED {
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

    /// Records the duration of the call, and whether its receiver responded in time.
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
        self.average <= MAX_QUICK_WAIT && self.silent < SILENT
    }

    /// Returns the wait of a delivery that is given back. Deliveries come back one after another,
    /// no sooner than a call takes, and within a minute. If more deliveries wait than can be called
    /// in a minute, the rest are spread over the second half of the minute.
    fn wait(&mut self, each: usize) -> Duration {
        let (now, places) = (Instant::now(), u32::try_from(self.most(each)).unwrap_or(u32::MAX));
        let step = (self.average / places).min(MAX_STEP);
        let mut wait = self.last_return.saturating_duration_since(now) + step;
        if wait > MAX_WAIT {
            wait = MAX_WAIT / 2;
        }
        self.last_return = now + wait;
        (wait + self.average).clamp(MAX_QUICK_WAIT, MAX_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::Webhook;
    use serde_json::json;

    fn target(host: &str) -> Target {
        let webhook = json!({ "url": format!("http://{host}/") });
        let webhook: Webhook = serde_json::from_value(webhook).expect("a webhook");
        webhook.try_into().expect("a target")
    }

    fn places(each: usize) -> Arc<Places> {
        Arc::new(Places::new(each))
    }

    /// Takes places until no place is left.
    async fn all_of(places: &Arc<Places>, target: &Target) -> Vec<Place> {
        let mut taken = Vec::new();
        while let Ok(place) = places.enter(target).await {
            taken.push(place);
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_has_its_places_and_takes_none_of_others() {
        let places = places(4);
        let (slow, other) = (target("slow.example"), target("other.example"));
        let held = all_of(&places, &slow).await;
        assert_eq!(held.len(), 4);
        let begun = Instant::now();
        for _ in 0..1000 {
            assert!(places.enter(&slow).await.is_err());
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "nothing waits for a receiver that is slow");
        assert_eq!(all_of(&places, &other).await.len(), 4);
        drop(held);
        assert_eq!(all_of(&places, &slow).await.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_of_a_quick_receiver_is_waited_for() {
        let (places, quick) = (places(1), target("quick.example"));
        let mut place = places.enter(&quick).await.expect("a place");
        for _ in 0..100 {
            let waiting = places.enter(&quick);
            let called = async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                place.note(true);
                drop(place);
            };
            let (next, ()) = tokio::join!(waiting, called);
            place = next.expect("it comes soon");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_was_given_up_keeps_no_place() {
        let (places, target) = (places(1), target("example.org"));
        let place = places.enter(&target).await.expect("a place");
        let left = timeout(Duration::from_millis(1), places.enter(&target)).await;
        assert!(left.is_err());
        drop(place);
        assert_eq!(all_of(&places, &target).await.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_receiver_has_one_place_until_it_answers() {
        let (places, target) = (places(8), target("silent.example"));
        for _ in 0..SILENT {
            let place = places.enter(&target).await.expect("a place");
            tokio::time::advance(Duration::from_secs(10)).await;
            place.note(false);
        }
        let mut held = all_of(&places, &target).await;
        assert_eq!(held.len(), 1);
        held.remove(0).note(true);
        assert_eq!(all_of(&places, &target).await.len(), 8);
    }

    /// Ten thousand deliveries that arrive at once come back neither at once nor later than a
    /// minute after the receiver is quick again.
    #[tokio::test(start_paused = true)]
    async fn deliveries_come_back_one_after_another() {
        for (each, responded) in [(16, true), (16, false)] {
            let (places, target) = (places(each), target("slow.example"));
            for _ in 0..SILENT {
                let place = places.enter(&target).await.expect("a place");
                tokio::time::advance(Duration::from_secs(2)).await;
                place.note(responded);
            }
            let _held = all_of(&places, &target).await;
            let mut seconds = [0; 61];
            for _ in 0..10_000 {
                let wait = places.enter(&target).await.expect_err("there is no place");
                assert!((Duration::from_secs(2)..=MAX_WAIT).contains(&wait), "{wait:?}");
                seconds[usize::try_from(wait.as_secs()).expect("a minute")] += 1;
            }
            let most = seconds.iter().max().expect("seconds");
            assert!(*most < 1000, "so many come back in one second: {seconds:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_are_remembered_up_to_a_number() {
        let places = places(1);
        let held = places.enter(&target("held.example")).await.expect("a place");
        for number in 0..3 * MAX_REMEMBERED {
            let place = places.enter(&target(&format!("{number}.example"))).await;
            place.expect("a place").note(true);
            assert!(places.lock().len() <= MAX_REMEMBERED + 1);
        }
        assert!(places.enter(&target("held.example")).await.is_err(), "a call in progress counts");
        drop(held);
    }
}
