//! The default executor while its thread is busy.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::receive;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Expired, ManualClock};

/// Holds the worker, and sees that what is due meanwhile fires elsewhere.
pub(crate) fn batches_run_while_the_worker_is_busy() {
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
