//! Timers in a process that is forked without `exec`.

use crate::common::child::in_a_child;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tourbillon::future::{Timer, default_timer};
use tourbillon::{Builder, Refusal};

#[test]
fn a_child_has_a_default_timer_of_its_own() {
    let millisecond = Duration::from_millis(1);
    let sleep = || pollster::block_on(default_timer().sleep(millisecond));
    sleep().unwrap();
    let parents = default_timer();
    in_a_child(|| {
        let (slept, again) = (sleep(), sleep());
        let own = default_timer().wheel().metrics().inserted == 2;
        slept.is_ok() && again.is_ok() && own && parents.wheel().is_closed()
    });
    assert_eq!(sleep(), Ok(()), "the parent goes on");
}

#[test]
fn a_shutdown_in_a_child_ends_the_sleeps_that_the_child_has_copies_of() {
    let timer = Timer::spawn(Builder::new().driver()).unwrap();
    let mut hour = pin!(timer.sleep(Duration::from_secs(3600)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(hour.as_mut().poll(&mut context).is_pending());
    in_a_child(|| {
        timer.shutdown();
        hour.as_mut().poll(&mut context) == Poll::Ready(Err(Refusal::Closed))
    });
    assert_eq!(timer.wheel().len(), 1, "the parent's sleeps on");
}
