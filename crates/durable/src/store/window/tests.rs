//! Tests of the window in virtual time.

#![forbid(unsafe_code)]

use super::*;
use std::sync::Arc;
use std::task::{Poll, Waker};
use tourbillon::future::{DelayQueue, SleepWaker, Timer};
use tourbillon::{Builder, ManualClock, Sweeper};

/// The window of a worker whose store's clock starts at 0.
struct Trial {
    clock: ManualClock,
    queue: DelayQueue<Key>,
    window: Window,
    /// Kept because a timer without a sweeper is closed.
    _sweeper: Sweeper<SleepWaker>,
}

fn key(due: Millis) -> Key {
    (due, Arc::from(format!("{due}")))
}

fn added(due: Millis) -> Change {
    Change { removed: None, added: Some(key(due)) }
}

fn at(store: Millis, local: Instant) -> Reading {
    Reading { store, asked: local, answered: local }
}

fn removed(due: Millis) -> Change {
    Change { removed: Some(key(due)), added: None }
}

impl Trial {
    fn new() -> Self {
        let clock = ManualClock::new();
        let wheel = Builder::new().clock(clock.clone()).build();
        let (wheel, sweeper) = wheel.expect("the builder is in range");
        let queue = DelayQueue::new(&Timer::new(wheel), Builder::new().shards(1));
        let queue = queue.expect("the builder is in range");
        let window = Window::new(queue.handle(), at(0, clock.start()));
        Self { clock, queue, window, _sweeper: sweeper }
    }

    /// Loads a page of these keys, due by `until`, while `changes` arrive.
    fn load(&self, keys: &[Millis], more: bool, until: Millis, changes: &[Change]) {
        let local = self.clock.start() + self.clock.elapsed();
        let (_, from, now) = self.window.state(local);
        self.window.begin_page();
        self.window.notify(changes);
        let keys = keys.iter().copied().map(key).collect();
        self.window.end_page(
            Page { now, until, keys, more, ..Page::default() },
            &from,
            at(now, local),
        );
    }

    /// Returns the keys that fire by that time.
    fn fired(&mut self, by: Millis) -> Vec<Millis> {
        self.clock.advance(Duration::from_millis(by).saturating_sub(self.clock.elapsed()));
        let mut context = Context::from_waker(Waker::noop());
        let (mut fired, mut pending) = (Vec::new(), 0);
        // A queue that has yielded once has more at the next poll.
        while pending < 2 {
            match self.queue.poll_expired(&mut context) {
                Poll::Ready(Some(timer)) => {
                    self.window.fired(&timer.value, timer.id);
                    fired.push(timer.value.0);
                    pending = 0;
                }
                _ => pending += 1,
            }
        }
        fired.sort_unstable();
        fired
    }

    fn low_watermark(&self) -> Key {
        self.window.state(self.clock.start()).1
    }
}

#[test]
fn what_is_before_the_watermark_is_here() {
    let mut trial = Trial::new();
    trial.window.notify(&[added(3)]);
    assert!(trial.fired(5).is_empty(), "nothing has been loaded yet");
    trial.load(&[3, 7, 9], false, 20, &[]);
    trial.window.notify(&[added(20), added(21), removed(9)]);
    assert_eq!(trial.fired(6), [3]);
    assert_eq!(trial.fired(30), [7, 20]);
    assert_eq!(trial.low_watermark(), first_from(21));
}

#[test]
fn changes_are_applied_again_when_the_page_has_come() {
    let mut trial = Trial::new();
    // The page is older than the changes, so it still has 5 and does not yet have 6.
    trial.load(&[5], false, 20, &[removed(5), added(6), added(7), removed(7)]);
    assert_eq!(trial.fired(20), [6]);
}

#[test]
fn a_page_with_more_behind_it_ends_with_its_last_key() {
    let mut trial = Trial::new();
    trial.load(&[5, 6], true, 20, &[]);
    assert_eq!(trial.low_watermark(), (6, Arc::from("6\0")));
    trial.window.notify(&[added(7)]);
    assert_eq!(trial.fired(20), [5, 6]);
    trial.load(&[7], false, 40, &[]);
    assert_eq!(trial.fired(20), [7]);
}

#[test]
fn a_key_that_is_locked_makes_room_and_fires_again() {
    let mut trial = Trial::new();
    let start = trial.clock.start();
    let now = |millis| at(millis, start + Duration::from_millis(millis));
    trial.load(&[1000, 2000], false, 60_000, &[]);
    assert_eq!(trial.fired(1000), [1000]);
    trial.window.defer(key(1000), now(1000), 1);
    // A page or a notice may still have it.
    trial.window.notify(&[added(1000)]);
    assert_eq!(trial.window.state(start).0, 1, "the other key");
    assert_eq!(trial.fired(1005), [0; 0]);
    assert_eq!(trial.fired(1040), [1000]);
    // The longer it has been due, the longer is the wait, up to a second.
    assert_eq!(trial.fired(9000), [2000]);
    trial.window.defer(key(1000), now(9000), 1);
    assert_eq!(trial.fired(9400), [0; 0]);
    assert_eq!(trial.fired(10_100), [1000]);
    trial.window.defer(key(1000), now(10_100), 1);
    trial.window.notify(&[removed(1000)]);
    assert_eq!(trial.fired(30_000), [0; 0], "it has gone");
    // Many deferred keys with slow replies of the store leave the worker time for others.
    let asked = start + Duration::from_millis(29_990);
    let slow = Reading { store: 30_000, asked, answered: start + 30 * Duration::from_secs(1) };
    (0..=1000).for_each(|due| trial.window.defer(key(due), slow, 1));
    let soon = trial.fired(32_000).len();
    assert!(soon < 200, "{soon}");
    assert_eq!(soon + trial.fired(60_100).len(), 1001);
}

#[test]
fn what_is_too_much_is_loaded_later() {
    let mut trial = Trial::new();
    trial.load(&[], false, 100_000, &[]);
    let first = 1000;
    let last = first + MAX_KEYS as Millis;
    let all: Vec<Change> = (first..=last).map(added).collect();
    trial.window.notify(&all);
    assert_eq!(trial.low_watermark(), key(last));
    assert_eq!(trial.window.state(trial.clock.start()).0, MAX_KEYS);
    // A page that was requested before that is discarded.
    trial.window.begin_page();
    let (_, from, now) = trial.window.state(trial.clock.start());
    trial.window.notify(&[added(10)]);
    assert_eq!(trial.low_watermark(), key(last - 1));
    let page = Page { now, until: 200_000, keys: vec![key(last)], more: false, ..Page::default() };
    trial.window.end_page(page, &from, at(now, trial.clock.start()));
    assert_eq!(trial.low_watermark(), key(last - 1));
    assert_eq!(trial.fired(last).len(), MAX_KEYS);
    trial.load(&[last - 1, last], false, 200_000, &[]);
    assert_eq!(trial.fired(last), [last - 1, last]);
}

#[test]
fn everything_is_loaded_anew_when_the_clock_was_set() {
    let mut trial = Trial::new();
    trial.load(&[500], false, 1000, &[]);
    let (_, from, _) = trial.window.state(trial.clock.start());
    trial.window.begin_page();
    let page = Page { now: 400, until: 1000, keys: Vec::new(), more: false, ..Page::default() };
    trial.window.end_page(page, &from, at(400, trial.clock.start()));
    assert_eq!((trial.window.state(trial.clock.start()).0, trial.low_watermark().0), (0, 0));
    trial.window.begin_page();
    let page = Page { now: 400, until: 1000, keys: vec![key(500)], more: false, ..Page::default() };
    trial.window.end_page(page, &trial.low_watermark(), at(400, trial.clock.start()));
    assert_eq!(trial.fired(100), [500]);
}

/// A key that was not due fires by the clock reading of the reply about it.
#[test]
fn a_key_that_was_not_due_comes_again() {
    let mut trial = Trial::new();
    let start = trial.clock.start();
    trial.load(&[10, 500], false, 1000, &[]);
    assert_eq!(trial.fired(10), [10]);
    // The key was moved and is in the wheel already. By a slower clock it fires later.
    trial.window.notify(&[added(20)]);
    trial.window.reinsert(key(20), at(5, start + Duration::from_millis(10)));
    assert!(trial.fired(24).is_empty());
    assert_eq!(trial.fired(25), [20]);
    // The clock of another master does not affect the clock of the pages.
    trial.window.reinsert(key(300), at(90, start + Duration::from_millis(30)));
    assert_eq!(trial.window.state(start).0, 2);
    assert_eq!(trial.fired(240), [300]);
    assert_eq!(trial.fired(500), [500]);
}

#[test]
fn a_page_that_nobody_takes_is_void_in_the_end() {
    let trial = Trial::new();
    let (_, from, now) = trial.window.state(trial.clock.start());
    trial.window.begin_page();
    let change = [added(7), removed(7)];
    for _ in 0..LOG {
        trial.window.notify(&change);
    }
    let page = Page { now, until: 20, keys: vec![key(5)], more: false, ..Page::default() };
    trial.window.end_page(page, &from, at(now, trial.clock.start()));
    assert_eq!((trial.window.state(trial.clock.start()).0, trial.low_watermark().0), (0, 0));
}

#[test]
fn what_could_not_be_read_is_loaded_again() {
    let mut trial = Trial::new();
    let start = trial.clock.start();
    trial.load(&[5, 600], false, 1000, &[]);
    assert_eq!(trial.fired(5), [5]);
    trial.window.plan_reload(start);
    trial.window.plan_reload(start + AGAIN);
    let before = start + AGAIN - Duration::from_millis(1);
    assert_eq!(trial.window.state(before).1.0, 1001);
    let (armed, low_watermark, _) = trial.window.state(start + AGAIN);
    assert_eq!((armed, low_watermark.0), (0, 0));
    trial.load(&[5, 600], false, 1000, &[]);
    assert_eq!(trial.window.state(start + AGAIN * 2).1.0, 1001, "once");
}

#[test]
fn what_a_paused_store_has_refused_is_loaded_again_soon() {
    let mut trial = Trial::new();
    let start = trial.clock.start();
    trial.load(&[5, 600], false, 1000, &[]);
    assert_eq!(trial.fired(5), [5]);
    // Neither an earlier plan nor a further refusal delays it.
    assert!(trial.window.plan_reload(start));
    trial.window.plan_reload_after_pause(start);
    trial.window.plan_reload_after_pause(start + PAUSED / 2);
    assert!(!trial.window.plan_reload(start));
    let before = start + PAUSED - Duration::from_millis(1);
    assert_eq!(trial.window.state(before).1.0, 1001);
    let (armed, low_watermark, _) = trial.window.state(start + PAUSED);
    assert_eq!((armed, low_watermark.0), (0, 0));
}

#[test]
fn what_the_wheel_refuses_is_beyond_the_watermark() {
    let trial = Trial::new();
    trial.load(&[], false, 1000, &[]);
    trial.queue.close();
    trial.window.notify(&[added(7)]);
    assert_eq!((trial.window.state(trial.clock.start()).0, trial.low_watermark()), (0, key(7)));
}

#[test]
fn watchers_are_notified_without_a_lock() {
    let (trial, watchers) = (Trial::new(), Watchers::default());
    let window = Arc::new(trial.window);
    watchers.add(Arc::downgrade(&window));
    watchers.add(Weak::new());
    let notified = std::cell::Cell::new(0);
    watchers.each(|_| {
        assert!(watchers.0.try_lock().is_ok());
        notified.set(notified.get() + 1);
    });
    assert_eq!((notified.get(), watchers.0.lock().unwrap().len()), (1, 1));
}

#[cfg(feature = "redis")]
#[test]
fn a_page_is_void_if_changes_were_missed() {
    let mut trial = Trial::new();
    trial.load(&[5, 6], false, 20, &[]);
    let (_, from, now) = trial.window.state(trial.clock.start());
    trial.window.begin_page();
    trial.window.invalidate();
    assert_eq!((trial.window.state(trial.clock.start()).0, trial.low_watermark().0), (0, 0));
    let page = Page { now, until: 40, keys: vec![key(30)], more: false, ..Page::default() };
    trial.window.end_page(page, &from, at(now, trial.clock.start()));
    assert_eq!(trial.low_watermark().0, 0);
    trial.load(&[6, 30], false, 40, &[]);
    assert_eq!(trial.fired(40), [6, 30]);
}

#[test]
fn a_slow_answer_is_no_set_clock() {
    let start = ManualClock::new().start();
    let after = |millis| start + Duration::from_millis(millis);
    let reading =
        |store, asked, answered| Reading { store, asked: after(asked), answered: after(answered) };
    // Read at any time between the request and the reply.
    for read in [1000, 1300, 1900] {
        let first = reading(read, 1000, 1900);
        for again in [5000, 5500, 6000] {
            assert!(!first.has_step_before(reading(again, 5000, 6000)), "{read} {again}");
        }
        assert!(first.has_step_before(reading(4000, 5000, 6000)));
        assert!(first.has_step_before(reading(7000, 5000, 6000)));
    }
}
