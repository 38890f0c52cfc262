//! Forks in the middle of operations of other threads. This is the only test of its program,
//! because a thread of another test that starts at a fork would hold a lock of the standard
//! library, and threads of the child could not start.

#![cfg(all(unix, not(miri)))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the test is about threads")]

#[path = "common/child.rs"]
mod child;

use child::in_a_child;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::future::{Timer, default_timer};
use tourbillon::{Builder, Driver, Expired, Refusal, Wheel};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn no_operation_hangs_in_a_child_whatever_other_threads_did_at_the_fork() {
    for round in 0..100 {
        // Each of these processes starts its default timer for the first time.
        in_a_child(move || {
            fork_beside_busy_threads(round);
            true
        });
    }
}

/// Forks while other threads do the same again and again, until the process ends. The children wait
/// for no thread of their own either, because that could be unable to start.
fn fork_beside_busy_threads(round: u32) {
    let (shared, left) = (Arc::new(driver()), wheel_with_leftovers());
    let begin = Arc::new(Barrier::new(5));
    let repeat = |mut work: Box<dyn FnMut() + Send>| {
        let begin = Arc::clone(&begin);
        thread::spawn(move || {
            begin.wait();
            loop {
                work();
            }
        });
    };
    repeat(Box::new(|| drop(default_timer())));
    repeat(Box::new(|| drop(default_timer())));
    repeat(Box::new(|| {
        let (wheel, mut sweeper) = Builder::new().build().unwrap();
        wheel.insert((), Duration::ZERO).unwrap();
        let _ = sweeper.sweep(|_| ());
        drop(driver());
    }));
    let (drained, ended) = (left.clone(), Arc::clone(&shared));
    repeat(Box::new(move || {
        drained.drain();
        ended.shutdown_detached();
    }));
    begin.wait();
    // The first fork of each process comes at another moment of the start of its default timer.
    (0..round * 100).for_each(|_| std::hint::spin_loop());
    for _ in 0..4 {
        let (own, timer) = (driver(), Timer::spawn(Builder::new().driver()).unwrap());
        let armed = own.wheel().insert(1, HOUR).unwrap();
        in_a_child(|| {
            let refused = own.wheel().insert(2, HOUR).unwrap_err();
            assert_eq!(refused.reason, Refusal::Closed);
            assert_eq!(own.wheel().cancel(armed), Some(1));
            drop((shared.shutdown(), left.drain()));
            shared.wait().unwrap();
            timer.shutdown();
            drop((own, timer));
            driver().detach();
            let fresh = default_timer();
            let sleep = pin!(fresh.sleep(HOUR));
            sleep.poll(&mut Context::from_waker(Waker::noop())).is_pending()
        });
    }
}

/// A wheel whose sweeper has gone by a panic. One of its timers is left for a drain.
fn wheel_with_leftovers() -> Wheel<u32> {
    let (wheel, mut sweeper) = Builder::new().shards(1).build().unwrap();
    wheel.insert(1, Duration::ZERO).unwrap();
    wheel.insert(2, Duration::ZERO).unwrap();
    let swept = AssertUnwindSafe(move || sweeper.sweep(|_| resume_unwind(Box::new(()))));
    assert!(catch_unwind(swept).is_err());
    assert_eq!(wheel.len(), 1);
    wheel
}

fn driver() -> Driver<u32> {
    Builder::new().driver().spawn(|_: Expired<u32>| ()).unwrap()
}
