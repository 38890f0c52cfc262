//! Runtimes whose clocks are paused.

use super::{MS, paused, running};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::time::{self, Instant};

const HOUR: Duration = Duration::from_secs(3600);

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn time_advances_by_itself_from_deadline_to_deadline() {
    paused(async {
        let start = Instant::now();
        let late = tokio::spawn(async move {
            time::sleep(2 * HOUR).await;
            start.elapsed()
        });
        assert!(time::timeout(HOUR, pending::<()>()).await.is_err());
        assert_eq!(start.elapsed(), HOUR, "without a grace, because no socket is real");
        assert_eq!(late.await.unwrap(), 2 * HOUR);
        let mut interval = time::interval(HOUR);
        for _ in 0..3 {
            interval.tick().await;
        }
        assert_eq!(start.elapsed(), 4 * HOUR);
    });
}

/// Both kinds of timers are in one order.
#[test]
fn sleeps_of_tokio_and_of_this_crate_take_turns() {
    paused(async {
        let start = Instant::now();
        for _ in 0..3 {
            time::sleep(HOUR).await;
            tokio::time::sleep(HOUR).await;
        }
        assert_eq!(start.elapsed(), 6 * HOUR);
        let mut slept = pin!(time::sleep(2 * HOUR));
        assert!(tokio::time::timeout(HOUR, slept.as_mut()).await.is_err());
        assert!(tokio::time::timeout(HOUR + MS, slept).await.is_ok());
    });
}

#[test]
fn a_clock_that_is_paused_late_is_followed_at_the_next_poll() {
    running(async {
        let mut before = pin!(time::sleep(HOUR));
        let mut armed = pin!(time::sleep(HOUR));
        assert!(poll(&mut armed).is_pending());
        let mut interval = time::interval_at(Instant::now() + HOUR, HOUR);
        // tokio's own, which this crate does not see.
        tokio::time::pause();
        let start = Instant::now();
        before.as_mut().await;
        armed.as_mut().await;
        interval.tick().await;
        interval.tick().await;
        assert!(start.elapsed() <= 2 * HOUR + MS);
    });
}

#[test]
fn a_clock_that_was_resumed_is_still_its_own() {
    paused(async {
        let start = Instant::now();
        time::advance(HOUR).await;
        time::resume();
        // By the system's clock this would last an hour.
        time::sleep(MS).await;
        time::sleep_until(start + HOUR + MS * 3).await;
        assert!(start.elapsed() >= HOUR + MS * 3 && start.elapsed() < 2 * HOUR);
    });
}

/// Waits for a thread, which the runtime knows nothing of.
async fn another_thread() {
    let mut started = false;
    poll_fn(|context| {
        if std::mem::replace(&mut started, true) {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        thread::spawn(move || waker.wake());
        Poll::Pending
    })
    .await;
}

#[test]
fn time_does_not_advance_for_what_was_cancelled() {
    paused(async {
        let start = Instant::now();
        another_thread().await;
        for limit in [MS, MS * 20, HOUR] {
            let yielding = tokio::task::yield_now();
            assert_eq!(time::timeout(limit, yielding).await, Ok(()));
            another_thread().await;
            let mut dropped = Box::pin(time::sleep(limit));
            assert!(poll(&mut dropped).is_pending());
            tokio::task::yield_now().await;
            drop(dropped);
            another_thread().await;
        }
        let mut queue = time::DelayQueue::new();
        let key = queue.insert("removed", MS * 20);
        assert!(poll_fn(|context| Poll::Ready(queue.poll_expired(context))).await.is_pending());
        tokio::task::yield_now().await;
        queue.remove(&key);
        another_thread().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}

#[test]
fn advancing_wakes_the_sleeps_that_it_passes() {
    paused(async {
        let sleeping = tokio::spawn(time::sleep(HOUR));
        tokio::task::yield_now().await;
        time::advance(HOUR).await;
        assert!(
            sleeping.is_finished() || {
                tokio::task::yield_now().await;
                sleeping.is_finished()
            }
        );
    });
}

#[test]
fn each_runtime_has_its_own_clock() {
    let threads = [1, 2, 3].map(|hours| {
        thread::spawn(move || {
            paused(async {
                let start = Instant::now();
                time::sleep(hours * HOUR).await;
                assert_eq!(start.elapsed(), hours * HOUR);
            });
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let start = Instant::now();
    running(time::sleep(MS));
    assert!(start.elapsed() >= MS && start.elapsed() < HOUR);
}

#[test]
fn a_sleep_continues_after_the_end_of_its_runtime() {
    let mut armed = None;
    paused(async {
        let sleep = armed.insert(Box::pin(time::sleep(MS)));
        assert!(poll(sleep).is_pending());
    });
    let mut armed = armed.unwrap();
    pollster::block_on(armed.as_mut());
    assert!(armed.is_elapsed());
}

/// Another runtime may poll the sleep, and would not notice the end by itself.
#[test]
fn the_end_of_a_runtime_wakes_the_tasks_of_its_sleeps() {
    let woken = std::sync::Arc::new(Woken::default());
    let waker = Waker::from(std::sync::Arc::clone(&woken));
    let mut armed = None;
    paused(async {
        let sleep = armed.insert(Box::pin(time::sleep(HOUR)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        time::advance(MS).await;
        assert!(!woken.0.load(std::sync::atomic::Ordering::Relaxed));
    });
    assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn a_sleep_that_the_clock_has_ended_leaves_no_waker_behind() {
    paused(async {
        let woken = std::sync::Arc::new(Woken::default());
        let waker = Waker::from(std::sync::Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut interval = time::interval(HOUR);
        assert!(interval.poll_tick(&mut context).is_ready());
        assert!(interval.poll_tick(&mut context).is_pending());
        // Before the task that sweeps has its turn.
        let mut advancing = pin!(time::advance(HOUR));
        assert!(poll(&mut advancing).is_pending());
        assert!(interval.poll_tick(&mut context).is_ready());
        advancing.await;
        time::advance(2 * HOUR).await;
        assert!(!woken.0.load(std::sync::atomic::Ordering::Relaxed));
    });
}

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
