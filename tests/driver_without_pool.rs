//! A driver in a process whose global pool cannot be built, as where no thread can be started: a
//! process of its own, since that cannot be undone.

#![cfg(feature = "rayon")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::receive;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Expired, ManualClock};

#[test]
fn batches_run_while_the_worker_is_busy_also_without_a_pool() {
    let none = rayon::ThreadPoolBuilder::new()
        .spawn_handler(|_| Err(std::io::ErrorKind::OutOfMemory.into()))
        .build_global();
    assert!(none.is_err());

    let tick = Duration::from_millis(1);
    let clock = ManualClock::new();
    let (send, fired) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let driver = Builder::new().clock(clock.clone()).driver().spawn(move |timer: Expired<u32>| {
        let by_worker = thread::current().name() == Some("tourbillon-worker");
        send.send((timer.value, by_worker)).unwrap();
        if by_worker {
            let _ = released.lock().unwrap().recv();
        }
    });
    let driver = driver.unwrap();
    let fire = |n| {
        driver.wheel().insert(n, tick).unwrap();
        clock.advance(tick);
        let (value, by_worker) = receive(&fired, 1).remove(0);
        assert_eq!(value, n);
        by_worker
    };
    // Until the worker has come so far as to wait for batches.
    while !fire(0) {}
    // Now it is busy.
    (1..4).for_each(|n| assert!(!fire(n)));
    drop(release);
    assert!(driver.shutdown().is_empty());
    driver.wait().unwrap();
}
