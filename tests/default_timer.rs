//! The timer of the process. One test alone, since there is one process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the test is about threads")]

#[cfg(all(target_os = "linux", not(miri)))]
#[path = "common/child.rs"]
mod child;

use std::time::Duration;
use tourbillon::future::{Timer, default_timer, set_default_timer};
use tourbillon::{Builder, Refusal};

/// A child has none of the threads that sweep a timer which its parent has set, whatever they are.
#[cfg(all(target_os = "linux", not(miri)))]
fn a_child_does_not_use_what_its_parent_has_set() {
    child::in_a_child(|| {
        let coarse = Builder::new().resolution(Duration::from_millis(3));
        let (wheel, _sweeper) = coarse.build().unwrap();
        set_default_timer(Timer::new(wheel)).unwrap();
        let resolution = || default_timer().wheel().resolution();
        assert_eq!(resolution(), Duration::from_millis(3));
        child::in_a_child(|| resolution() == Duration::from_millis(1));
        resolution() == Duration::from_millis(3)
    });
}

#[test]
fn it_is_set_once_and_shared_by_all_threads() {
    #[cfg(all(target_os = "linux", not(miri)))]
    a_child_does_not_use_what_its_parent_has_set();
    let millisecond = Duration::from_millis(1);
    let coarse = Builder::new().resolution(millisecond * 2).driver();
    let owner = Timer::spawn(coarse).unwrap();
    set_default_timer(owner.clone()).unwrap();
    let other = Timer::spawn(Builder::new().driver()).unwrap();
    assert!(set_default_timer(other).is_err(), "there is one already");
    assert_eq!(default_timer().wheel().resolution(), millisecond * 2);

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                pollster::block_on(async {
                    default_timer().sleep(millisecond).await.unwrap();
                    let now = default_timer().now();
                    default_timer().sleep_until(now + millisecond).await.unwrap();
                });
            });
        }
    });
    assert_eq!(default_timer().wheel().metrics().inserted, default_timer().metrics().inserted);
    assert!(default_timer().wheel().metrics().inserted >= 8, "all on one wheel");
    assert!(default_timer().wheel().is_empty());

    // Neither its handle nor a clone of that can end it.
    for handle in [default_timer(), default_timer().clone(), default_timer().share()] {
        handle.shutdown();
        assert!(handle.driver().is_none());
    }
    assert_eq!(pollster::block_on(default_timer().sleep(millisecond)), Ok(()));
    assert_eq!(default_timer().wheel().resolution(), millisecond * 2);

    // Its owner can end it. Other code of the process then has another timer.
    owner.shutdown();
    for _ in 0..2 {
        assert_eq!(pollster::block_on(default_timer().sleep(millisecond)), Ok(()));
        assert_eq!(default_timer().wheel().resolution(), millisecond);
    }
    let (armed, here) = (pollster::block_on(owner.sleep(millisecond)), default_timer());
    assert_eq!(armed, Err(Refusal::Closed));
    std::thread::scope(|scope| {
        let there = scope.spawn(|| default_timer().wheel().metrics().inserted);
        assert_eq!(there.join().unwrap(), here.wheel().metrics().inserted, "one for all threads");
    });
}
