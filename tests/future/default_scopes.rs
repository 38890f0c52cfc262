//! The default timer of a scope, a thread and a future.

#![allow(clippy::disallowed_methods, reason = "some of these tests are about threads")]

use crate::common::sandbox::{Sandbox, Task};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;
use tourbillon::Builder;
use tourbillon::future::{default_timer, with_default_timer};

const MS: Duration = Duration::from_millis(1);

/// Creates a timer that is recognised by its resolution.
fn of_ticks(millis: u32) -> Sandbox {
    Sandbox::of(Builder::new().resolution(MS * millis))
}

fn default_ticks() -> Duration {
    default_timer().wheel().resolution()
}

#[test]
fn the_innermost_scope_counts_and_ends() {
    let (two, three) = (of_ticks(2), of_ticks(3));
    with_default_timer(&two.timer, || {
        assert_eq!(default_ticks(), MS * 2);
        with_default_timer(&three.timer, || assert_eq!(default_ticks(), MS * 3));
        let panics = AssertUnwindSafe(|| with_default_timer(&three.timer, || panic!("in a scope")));
        assert!(catch_unwind(panics).is_err());
        assert_eq!(default_ticks(), MS * 2);
        let elsewhere = thread::spawn(default_ticks).join().unwrap();
        assert_eq!(elsewhere, MS, "another thread is in no scope");
    });
    assert_eq!(default_ticks(), MS);
}

#[test]
fn a_guard_lasts_until_it_is_dropped_or_stays() {
    let (two, three) = (of_ticks(2), of_ticks(3));
    let staying = three.timer.clone();
    let worker = thread::spawn(move || {
        let entered = two.timer.enter();
        assert_eq!(default_ticks(), MS * 2);
        drop(entered);
        assert_eq!(default_ticks(), MS);
        staying.enter().stay();
        default_ticks()
    });
    assert_eq!(worker.join().unwrap(), MS * 3);
}

#[test]
fn a_future_keeps_its_timer_from_poll_to_poll_on_any_thread() {
    let mut sandbox = of_ticks(2);
    let mut work = Box::pin(sandbox.timer.scope(async {
        for _ in 0..3 {
            default_timer().sleep(MS * 10).await.unwrap();
        }
        default_ticks()
    }));
    for _ in 0..3 {
        work = thread::scope(|scope| {
            let polled = scope.spawn(move || {
                assert!(Task::new().poll(&mut work).is_pending());
                assert_eq!(default_ticks(), MS);
                work
            });
            polled.join().unwrap()
        });
        assert_eq!(sandbox.armed(), 1);
        sandbox.advance(MS * 12);
    }
    assert_eq!(Task::new().poll(&mut work), Poll::Ready(MS * 2));
}

#[test]
fn a_timer_that_was_shut_down_is_passed_over() {
    let two = of_ticks(2);
    with_default_timer(&two.timer, || {
        default_timer().shutdown();
        assert_eq!(default_ticks(), MS * 2, "it cannot be ended by code in the scope");
        let task = Task::new();
        let mut hour = pin!(default_timer().sleep(MS * 3_600_000));
        assert!(task.poll(&mut hour).is_pending());
        two.timer.shutdown();
        assert!(matches!(task.poll(&mut hour), Poll::Ready(Err(_))));
        for _ in 0..2 {
            assert_eq!(default_ticks(), MS);
            let slept = pollster::block_on(default_timer().sleep(MS));
            assert_eq!(slept, Ok(()), "a loop over sleeps does not spin");
        }
    });
}
