//! Sleeps that end with their timer: drivers that are dropped, executors that drop jobs, wakers
//! that panic or take locks.

#![allow(clippy::disallowed_methods, reason = "some of these tests are about threads")]

use crate::common::sandbox::{Sandbox, Task, waker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::future::{Sleep, Timer};
use tourbillon::{Builder, ExecutorJob, ManualClock, Refusal};

const MS: Duration = Duration::from_millis(1);

fn poll_by(waker: &Waker, sleep: &mut Sleep) -> Poll<Result<(), Refusal>> {
    Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

/// Creates a waker that sends when it is woken.
fn sender() -> (Waker, mpsc::Receiver<()>) {
    let (send, woken) = mpsc::channel();
    let send = Mutex::new(send);
    (waker(move || send.lock().unwrap().send(()).unwrap_or_default()), woken)
}

#[test]
fn a_batch_that_the_executor_drops_wakes_its_sleeps() {
    let clock = ManualClock::new();
    let driver =
        Builder::new().clock(clock.clone()).driver().executor(|job: ExecutorJob| drop(job));
    let timer = Timer::spawn(driver).unwrap();
    let (panics, (wakes, woken)) = (waker(|| panic!("a waker")), sender());
    let mut sleeps = [timer.sleep(MS), timer.sleep(MS)];
    assert!(poll_by(&panics, &mut sleeps[0]).is_pending());
    assert!(poll_by(&wakes, &mut sleeps[1]).is_pending());
    clock.advance(MS);
    woken.recv().unwrap();
    assert_eq!(poll_by(&wakes, &mut sleeps[1]), Poll::Ready(Ok(())));
}

#[test]
fn a_batch_that_the_executor_drops_after_the_shutdown_wakes_its_sleeps() {
    let (hand, jobs) = mpsc::channel::<ExecutorJob>();
    let clock = ManualClock::new();
    let executor = move |job| drop(hand.send(job));
    let timer =
        Timer::spawn(Builder::new().clock(clock.clone()).driver().executor(executor)).unwrap();
    let (wakes, woken) = sender();
    let mut sleep = timer.sleep(MS);
    assert!(poll_by(&wakes, &mut sleep).is_pending());
    clock.advance(MS);
    let job = jobs.recv().unwrap();
    timer.shutdown();
    drop(job);
    woken.recv().unwrap();
    assert_eq!(poll_by(&wakes, &mut sleep), Poll::Ready(Ok(())));
}

#[test]
fn wakers_run_on_the_tick_thread_unless_an_executor_was_given() {
    let own = |job: ExecutorJob| drop(thread::Builder::new().name("own".into()).spawn(job));
    let driver = || Builder::new().driver().thread_name("ticks");
    for (driver, expected) in [(driver(), "ticks"), (driver().executor(own), "own")] {
        let timer = Timer::spawn(driver).unwrap();
        let (send, names) = mpsc::channel();
        let send = Mutex::new(send);
        let names_its_thread = waker(move || {
            let name = thread::current().name().map(String::from);
            send.lock().unwrap().send(name).unwrap_or_default();
        });
        let mut sleep = timer.sleep(MS);
        if poll_by(&names_its_thread, &mut sleep).is_pending() {
            assert_eq!(names.recv().unwrap().as_deref(), Some(expected));
        }
    }
}

/// An executor may drop the last sleep under the lock that its wakers take.
#[test]
fn the_last_sleep_may_be_dropped_under_a_lock_that_wakers_take() {
    let lock = Arc::new(Mutex::new(()));
    let (inside, timer) = (Arc::new(Barrier::new(2)), Timer::spawn(Builder::new().driver()));
    let timer = timer.unwrap();
    let takes = {
        let (lock, inside) = (Arc::clone(&lock), Arc::clone(&inside));
        waker(move || {
            inside.wait();
            drop(lock.lock());
        })
    };
    let mut sleep = timer.sleep(MS);
    drop(timer);
    assert!(poll_by(&takes, &mut sleep).is_pending());
    let held = lock.lock().unwrap();
    inside.wait(); // the tick thread is in the waker
    drop(sleep);
    drop(held);
}

#[test]
fn a_driver_of_ones_own_that_is_dropped_wakes_all_though_some_panic() {
    let driver = Builder::new().driver().spawn(|timer: tourbillon::Expired<_>| {
        tourbillon::future::SleepWaker::wake(timer.value);
    });
    let driver = driver.unwrap();
    let timer = Timer::new(driver.wheel().clone());
    let (hour, count) = (Duration::from_secs(3600), Arc::new(AtomicU32::new(0)));
    let mut sleeps: Vec<_> = (0..9).map(|_| timer.sleep(hour)).collect();
    for (number, sleep) in sleeps.iter_mut().enumerate() {
        let count = Arc::clone(&count);
        let waker = waker(move || {
            count.fetch_add(1, Relaxed);
            assert!(number % 3 > 0, "a waker");
        });
        assert!(poll_by(&waker, sleep).is_pending());
    }
    drop(driver);
    assert_eq!(count.load(Relaxed), 9);
    assert!(timer.wheel().is_empty());
    assert_eq!(poll_by(Waker::noop(), &mut sleeps[0]), Poll::Ready(Err(Refusal::Closed)));
}

#[test]
fn wakers_that_panic_together_end_no_program() {
    let sandbox = Sandbox::new();
    let mut sleeps: Vec<_> = (0..3).map(|_| sandbox.timer.sleep(MS)).collect();
    for sleep in &mut sleeps {
        assert!(poll_by(&waker(|| panic!("a waker")), sleep).is_pending());
    }
    let drained = sandbox.timer.wheel().drain();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(drained))).is_err());
}

/// A panic whose payload panics when it is dropped.
#[test]
fn a_shutdown_wakes_all_whatever_they_panic_with() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("a payload");
            }
        }
    }
    let sandbox = Sandbox::new();
    let (task, mut last) = (Task::new(), sandbox.timer.sleep(MS));
    let mut first = sandbox.timer.sleep(MS);
    let throws = waker(|| std::panic::panic_any(Payload));
    assert!(poll_by(&throws, &mut first).is_pending());
    assert!(task.poll(&mut last).is_pending());
    sandbox.timer.shutdown();
    assert_eq!((task.wakes(), task.poll(&mut last)), (1, Poll::Ready(Err(Refusal::Closed))));
}

#[test]
fn a_detached_driver_drops_what_it_had_not_fired() {
    let clock = ManualClock::new();
    let (begun, inside) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let driver = Builder::new().clock(clock.clone()).driver();
    let driver = driver.batch(1).spawn(move |timer: tourbillon::Expired<Arc<()>>| {
        begun.send(()).unwrap();
        let _ = gate.lock().unwrap().recv();
        drop(timer);
    });
    let (driver, value) = (driver.unwrap(), Arc::new(()));
    let wheel = driver.wheel().clone();
    for _ in 0..5 {
        wheel.insert(Arc::clone(&value), MS).unwrap();
    }
    clock.advance(MS);
    inside.recv().unwrap();
    driver.detach(); // the tick thread is in the handler
    assert!(wheel.is_closed());
    drop(go);
    while Arc::strong_count(&value) > 1 {
        thread::yield_now();
    }
    assert!(wheel.is_empty());
}
