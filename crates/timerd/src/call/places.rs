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

/// The number of remembered receivers. Beyond it, the receiver is forgotten that has had no call
/// for the longest time, because timers can name any number of receivers.
pub(crate) const MAX_REMEMBERED: usize = 4096;

/// The number of calls to a receiver whose durations are remembered.
const MAX_DURATIONS: usize = 100;

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
    /// The time of the last call.
    used: Instant,
    calls: u64,
    failures: u64,
    /// The durations of the latest calls in milliseconds, oldest first.
    millis: VecDeque<u32>,
    /// Since when deliveries are held back, and when this was last noticed.
    held: Option<(Instant, Instant)>,
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// The receiver has accepted the delivery.
    Succeeded,
    /// The receiver has refused the delivery or the connection.
    Failed,
    /// The receiver has not responded in time.
    TimedOut,
}

/// The state of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverState {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The number of calls in progress.
    pub(crate) calling: usize,
    /// The number of calls that have ended.
    pub(crate) calls: u64,
    /// The number of calls that were refused or not answered.
    pub(crate) failures: u64,
    /// The duration that 99 of the latest 100 calls do not exceed.
    pub(crate) p99: Option<Duration>,
    /// How long deliveries have been held back, and `true` if the receiver gets one call at a time.
    pub(crate) held: Option<(Duration, bool)>,
    /// The time since the last call began.
    pub(crate) idle: Duration,
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
            receiver.used = Instant::now();
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
            let idle = all.iter().filter(|(_, receiver)| receiver.calling == 0);
            let oldest = idle.min_by_key(|(_, receiver)| receiver.used).map(|(key, _)| key.clone());
            oldest.map(|key| all.remove(&key));
        }
    }

    /// Returns the state of each receiver. Receivers whose deliveries are held back come first, and
    /// then the receivers with the latest calls.
    pub(crate) fn states(&self) -> Vec<ReceiverState> {
        let now = Instant::now();
        let all = self.lock();
        let mut states: Vec<_> =
            all.iter().map(|(key, receiver)| receiver.state(key, now)).collect();
        drop(all);
        states.sort_by_key(|state| (state.held.is_none(), state.idle));
        states
    }

    /// Returns the number of receivers that are remembered, and the number of receivers whose
    /// deliveries are held back.
    pub(crate) fn count(&self) -> [usize; 2] {
        let (all, now) = (self.lock(), Instant::now());
        let held = all.values().filter(|receiver| receiver.held_for(now).is_some()).count();
        [all.len(), held]
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Receiver>> {
        self.receivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn new(places: &Arc<Places>, key: Key) -> Self {
        Self { places: Arc::clone(places), key, begun: Instant::now() }
    }

    /// Records the duration of the call and how it has ended.
    pub(crate) fn note(&self, end: CallEnd) {
        let (took, responded) = (self.begun.elapsed(), end != CallEnd::TimedOut);
        let mut all = self.places.lock();
        let Some(receiver) = all.get_mut(&self.key) else { return };
        let is_first = receiver.average.is_zero() || (responded && receiver.silent >= SILENT);
        receiver.average = if is_first { took } else { (receiver.average * 7 + took) / 8 };
        if !responded && receiver.silent.saturating_add(1) >= SILENT {
            receiver.hold();
        } else if responded && receiver.silent >= SILENT {
            receiver.held = None;
        }
        receiver.silent = if responded { 0 } else { receiver.silent.saturating_add(1) };
        receiver.calls += 1;
        receiver.failures += u64::from(end != CallEnd::Succeeded);
        receiver.millis.push_back(took.as_millis().try_into().unwrap_or(u32::MAX));
        if receiver.millis.len() > MAX_DURATIONS {
            receiver.millis.pop_front();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.leave(&self.key);
    }
}

impl Receiver {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            calling: 0,
            waiting: VecDeque::new(),
            average: Duration::ZERO,
            silent: 0,
            last_return: now,
            used: now,
            calls: 0,
            failures: 0,
            millis: VecDeque::new(),
            held: None,
        }
    }

    /// Returns the maximum number of concurrent calls.
    fn most(&self, each: usize) -> usize {
        if self.silent >= SILENT { 1 } else { each }
    }

    /// Notes that deliveries are held back.
    fn hold(&mut self) {
        let now = Instant::now();
        let since = self.held_for(now).map_or(now, |held| now - held);
        self.held = Some((since, now));
    }

    /// Returns how long deliveries have been held back. A delivery that is held back comes again
    /// within a minute, so a minute without one ends this.
    fn held_for(&self, now: Instant) -> Option<Duration> {
        let (since, last) = self.held?;
        let is_held = self.silent >= SILENT || now - last <= MAX_WAIT;
        is_held.then(|| now - since)
    }

    fn state(&self, (host, port): &Key, now: Instant) -> ReceiverState {
        let mut millis: Vec<u32> = self.millis.iter().copied().collect();
        millis.sort_unstable();
        let p99 = millis.get((millis.len() * 99).div_ceil(100).saturating_sub(1));
        ReceiverState {
            host: host.to_string(),
            port: *port,
            calling: self.calling,
            calls: self.calls,
            failures: self.failures,
            p99: p99.map(|millis| Duration::from_millis((*millis).into())),
            held: self.held_for(now).map(|held| (held, self.silent >= SILENT)),
            idle: now - self.used,
        }
    }

    fn is_quick(&self) -> bool {
        self.average <= MAX_QUICK_WAIT && self.silent < SILENT
    }

    /// Returns the wait of a delivery that is given back. Deliveries come back one after another,
    /// no sooner than a call takes, and within a minute. If more deliveries wait than can be called
    /// in a minute, the rest are spread over the second half of the minute.
    fn wait(&mut self, each: usize) -> Duration {
        self.hold();
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
                place.note(CallEnd::Succeeded);
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
            place.note(CallEnd::TimedOut);
        }
        let mut held = all_of(&places, &target).await;
        assert_eq!(held.len(), 1);
        held.remove(0).note(CallEnd::Succeeded);
        assert_eq!(all_of(&places, &target).await.len(), 8);
    }

    /// Ten thousand deliveries that arrive at once come back neither at once nor later than a
    /// minute after the receiver is quick again.
    #[tokio::test(start_paused = true)]
    async fn deliveries_come_back_one_after_another() {
        for (each, end) in [(16, CallEnd::Succeeded), (16, CallEnd::TimedOut)] {
            let (places, target) = (places(each), target("slow.example"));
            for _ in 0..SILENT {
                let place = places.enter(&target).await.expect("a place");
                tokio::time::advance(Duration::from_secs(2)).await;
                place.note(end);
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
    async fn the_state_of_a_receiver_is_that_of_its_calls() {
        let (places, target) = (places(2), target("example.org"));
        for number in 1..=200 {
            let place = places.enter(&target).await.expect("a place");
            tokio::time::advance(Duration::from_millis(number)).await;
            let is_failure = number % 4 == 0;
            place.note(if is_failure { CallEnd::Failed } else { CallEnd::Succeeded });
        }
        let state = |places: &Places| places.states().remove(0);
        let found = state(&places);
        assert_eq!((&*found.host, found.port, found.calling), ("example.org", 80, 0));
        assert_eq!((found.calls, found.failures), (200, 50));
        assert_eq!(found.p99, Some(Duration::from_millis(199)), "of the latest calls");
        assert_eq!(found.held, None);
        assert_eq!(places.count(), [1, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_is_held_while_its_deliveries_are_put_off() {
        let (places, target) = (places(1), target("example.org"));
        let held = |places: &Places| places.states().remove(0).held;
        let place = places.enter(&target).await.expect("a place");
        places.enter(&target).await.expect_err("there is no place");
        tokio::time::advance(Duration::from_secs(40)).await;
        places.enter(&target).await.expect_err("there is no place");
        let seconds = |places| held(places).map(|(held, is_silent)| (held.as_secs(), is_silent));
        assert_eq!(seconds(&places), Some((40, false)));
        drop(place);
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(seconds(&places), Some((90, false)));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(held(&places), None);
        for _ in 0..SILENT {
            places.enter(&target).await.expect("a place").note(CallEnd::TimedOut);
        }
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(seconds(&places), Some((3600, true)), "until it responds");
        assert_eq!(places.count(), [1, 1]);
        places.enter(&target).await.expect("a place").note(CallEnd::Failed);
        assert_eq!(places.count(), [1, 0], "it has responded");
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_are_remembered_up_to_a_number() {
        let places = places(1);
        let held = places.enter(&target("held.example")).await.expect("a place");
        let latest = MAX_REMEMBERED + 1000;
        for number in 0..=latest {
            let place = places.enter(&target(&format!("{number}.example"))).await;
            place.expect("a place").note(CallEnd::Succeeded);
            assert!(places.lock().len() <= MAX_REMEMBERED + 1);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let hosts: Vec<String> = places.states().into_iter().map(|state| state.host).collect();
        assert_eq!(hosts[0], format!("{latest}.example"));
        assert!(hosts.contains(&format!("{}.example", latest - MAX_REMEMBERED / 2)));
        assert!(!hosts.contains(&"0.example".to_owned()), "the least recently used went");
        assert!(places.enter(&target("held.example")).await.is_err(), "a call in progress counts");
        drop(held);
    }
}
