//! The timer of the process. One test alone, since there is one process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the test is about threads")]

use std::time::Duration;
use tourbillon::Builder;
use tourbillon::future::{
    Timer, default_timer, interval, set_default_timer, sleep, sleep_until, timeout, timeout_at,
};

#[test]
fn it_is_set_once_and_shared_by_all_threads() {
    let millisecond = Duration::from_millis(1);
    let coarse = Builder::new().resolution(millisecond * 2).driver();
    set_default_timer(Timer::spawn(coarse).unwrap()).unwrap();
    let other = Timer::spawn(Builder::new().driver()).unwrap();
    assert!(set_default_timer(other).is_err(), "there is one already");
    assert_eq!(default_timer().wheel().resolution(), millisecond * 2);

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                pollster::block_on(async {
                    sleep(millisecond).await.unwrap();
                    let now = default_timer().now();
                    sleep_until(now + millisecond).await.unwrap();
                    assert_eq!(timeout(millisecond * 60_000, async { 1 }).await, Ok(1));
                    assert_eq!(timeout_at(now, std::future::ready(2)).await, Ok(2));
                    assert!(interval(millisecond).unwrap().tick().await.is_ok());
                });
            });
        }
    });
    assert_eq!(default_timer().wheel().metrics().inserted, default_timer().metrics().inserted);
    assert!(default_timer().wheel().metrics().inserted >= 8, "all on one wheel");
    assert!(default_timer().wheel().is_empty());
}
