//! The default executor: its first worker, and those that start while the others are busy.

use crate::common::receive;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Driver, DriverBuilder, Expired, ManualClock};

const TICK: Duration = Duration::from_millis(1);

/// Fires one number after the other, and the first handler that the first worker runs keeps it
/// busy. The handlers of the other numbers have to run all the same.
///
/// `arm` builds the timers under test around the work, and returns a function that arms a number.
fn batches_run_while_the_worker_is_busy<A: Fn(u32)>(
    arm: impl FnOnce(DriverBuilder, Arc<dyn Fn(u32) + Send + Sync>) -> A,
) {
    let clock = ManualClock::new();
    let (send, fired) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let work = Arc::new(move |number| {
        let thread = thread::current().name().unwrap_or_default().to_owned();
        let by_first = thread == "tourbillon-worker";
        send.send((number, thread)).unwrap();
        if by_first {
            let _ = released.lock().unwrap().recv();
        }
    });
    let arm = arm(Builder::new().clock(clock.clone()).driver(), work);
    let fire = |number| {
        arm(number);
        clock.advance(TICK);
        let (fired, thread) = receive(&fired, 1).remove(0);
        assert_eq!(fired, number);
        thread
    };
    assert_eq!(fire(0), "tourbillon-worker");
    for number in 1..4 {
        let thread = fire(number);
        assert!(thread.starts_with("tourbillon-worker-"), "{thread}");
    }
    drop(release);
}

#[test]
fn batches_run_while_the_worker_is_held_up() {
    batches_run_while_the_worker_is_busy(|builder, work| {
        let driver = builder.spawn(move |timer: Expired<u32>| work(timer.value)).unwrap();
        move |number| {
            driver.wheel().insert(number, TICK).unwrap();
        }
    });
}

#[test]
fn closures_run_while_the_worker_is_held_up() {
    batches_run_while_the_worker_is_busy(|builder, work| {
        let scheduler = tourbillon::scheduler::Scheduler::spawn(builder).unwrap();
        move |number| {
            let work = Arc::clone(&work);
            drop(scheduler.after(TICK, move || work(number)).unwrap());
        }
    });
}

#[test]
#[cfg(feature = "keyed")]
fn keyed_timers_fire_while_the_worker_is_held_up() {
    batches_run_while_the_worker_is_busy(|builder, work| {
        let handler = move |number: u32, ()| work(number);
        let timers = tourbillon::keyed::KeyedTimers::spawn(builder, handler).unwrap();
        move |number| {
            timers.insert(number, (), TICK).unwrap();
        }
    });
}

/// A driver with a batch for each timer, whose handlers report that they have begun and then wait
/// for a message each, or for the end of the sender.
fn held_up(clock: &ManualClock) -> (Driver<u32>, Receiver<u32>, Sender<()>) {
    let (send, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let builder = Builder::new().clock(clock.clone()).driver().batch(1);
    let driver = builder.spawn(move |timer: Expired<u32>| {
        send.send(timer.value).unwrap();
        let _ = released.lock().unwrap().recv();
    });
    (driver.unwrap(), begun, release)
}

/// At least as many handlers of a driver run side by side.
const SIDE_BY_SIDE: usize = 5;

/// Each of two drivers has handlers that wait. The handlers of the first, which may be more than
/// there are threads, are still waiting when the handlers of the second begin and end.
fn handlers_that_wait_stop_no_other_driver(waiting: u32) {
    let clock = ManualClock::new();
    let (slow, slow_begun, held) = held_up(&clock);
    for number in 0..waiting {
        slow.wheel().insert(number, TICK).unwrap();
    }
    clock.advance(TICK);
    receive(&slow_begun, SIDE_BY_SIDE);
    let (other, begun, release) = held_up(&clock);
    for _ in 0..3 {
        for number in 0..3 {
            other.wheel().insert(number, TICK).unwrap();
        }
        clock.advance(TICK);
        let mut numbers = receive(&begun, 3);
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
        (0..3).for_each(|_| release.send(()).unwrap());
    }
    drop(release);
    other.shutdown();
    other.wait().unwrap();
    // The batches of the first driver run too, once its handlers no longer wait.
    drop(held);
    receive(&slow_begun, waiting as usize - SIDE_BY_SIDE);
}

#[test]
fn five_handlers_that_wait_stop_no_other_driver() {
    handlers_that_wait_stop_no_other_driver(5);
}

#[test]
fn forty_handlers_that_wait_stop_no_other_driver() {
    handlers_that_wait_stop_no_other_driver(40);
}

/// The batches were handed over while no worker was free. The first one that is free takes them.
#[test]
fn a_worker_takes_what_was_handed_over_while_all_were_busy() {
    let clock = ManualClock::new();
    let (driver, begun, release) = held_up(&clock);
    for number in 0..40 {
        driver.wheel().insert(number, TICK).unwrap();
    }
    clock.advance(TICK);
    // One handler ends at a time.
    for _ in 0..40 {
        receive(&begun, 1);
        release.send(()).unwrap();
    }
    drop(release);
    driver.wait().unwrap();
    assert_eq!(driver.metrics().timers_in_flight, 0);
}
