//! Timeouts on a timer with a driver, and those that notice their end late: their future is polled
//! once more before they expire.

#![allow(clippy::disallowed_methods, reason = "the tests are about a thread and real time")]

use crate::common::asked::Asked;
use crate::common::sandbox::waker;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::future::{Deadline, Timeout, TimeoutError, Timer};
use tourbillon::{Builder, ManualClock};

const MS: Duration = Duration::from_millis(1);
const ELAPSED: Result<(), TimeoutError> = Err(TimeoutError::Elapsed);

fn spawn(builder: Builder) -> Timer {
    Timer::spawn(builder.driver()).unwrap()
}

/// A future that is ready at its third poll, which is the poll after an expiry that the second poll
/// found.
#[derive(Default)]
struct Third(u32);

impl Future for Third {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0 += 1;
        if self.0 < 3 { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// Polls a timeout whenever its task is woken, and calls `at_expiry` before the first poll that
/// finds no armed timer.
fn run<F>(timer: &Timer, timeout: Timeout<F>, at_expiry: impl FnOnce()) -> Result<(), TimeoutError>
where
    F: Future<Output = ()>,
{
    let (mut timeout, this) = (pin!(timeout), thread::current());
    let (task, mut at_expiry) = (waker(move || this.unpark()), Some(at_expiry));
    loop {
        if let Poll::Ready(output) = timeout.as_mut().poll(&mut Context::from_waker(&task)) {
            return output;
        }
        thread::park();
        if timer.wheel().is_empty() {
            at_expiry.take().into_iter().for_each(|at_expiry| at_expiry());
        }
    }
}

#[test]
fn what_a_timeout_limits_is_polled_once_more_after_the_expiry() {
    let timer = spawn(Builder::new());
    assert_eq!(run(&timer, timer.timeout(MS * 5, Third::default()), || ()), Ok(()));
}

#[test]
fn it_is_polled_once_more_also_if_the_first_poll_is_late() {
    let timer = spawn(Builder::new());
    let mut timeout = timer.timeout(MS, Third(1));
    let late = Pin::new(&mut timeout).sleep().deadline() + MS * 5;
    while timer.now() < late {
        thread::yield_now();
    }
    assert_eq!(run(&timer, timeout, || ()), Ok(()));
}

#[test]
fn it_is_polled_once_more_also_after_the_deadline_of_a_request() {
    let timer = spawn(Builder::new());
    let hour = MS * 3_600_000;
    let deadline = || Deadline::at(timer.now() + MS * 5);
    let answers = deadline().run(|| timer.timeout(hour, Third::default()));
    assert_eq!(run(&timer, answers, || ()), Ok(()));
    let silent = deadline().run(|| timer.timeout(hour, pending()));
    assert_eq!(run(&timer, silent, || ()), Err(TimeoutError::Deadline));
}

#[test]
fn an_expiry_is_reported_in_the_end() {
    let timer = spawn(Builder::new());
    for delay in [MS, MS * 5] {
        assert_eq!(run(&timer, timer.timeout(delay, pending()), || ()), ELAPSED);
    }
}

#[test]
fn an_expiry_is_reported_by_a_timer_that_is_shut_down_meanwhile() {
    let timer = spawn(Builder::new());
    let timeout = timer.timeout(MS * 5, pending());
    assert_eq!(run(&timer, timeout, || timer.shutdown()), ELAPSED);
}

#[test]
fn an_expiry_is_reported_by_a_timer_that_has_no_place_left() {
    let timer = spawn(Builder::new().capacity(1));
    let mut hour = timer.sleep(MS * 3_600_000);
    let mut take_the_place = || {
        let polled = Pin::new(&mut hour).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    };
    let timeout = timer.timeout(MS * 5, pending());
    assert_eq!(run(&timer, timeout, &mut take_the_place), ELAPSED);
    assert_eq!(timer.wheel().len(), 1, "the place was taken");
}

#[test]
fn without_a_delay_the_first_poll_reports_the_expiry() {
    // The tick is a minute, so the poll is not late, however slow the machine is.
    let timer = spawn(Builder::new().resolution(MS * 60_000));
    let mut timeout = timer.timeout(Duration::ZERO, Third(1));
    let polled = Pin::new(&mut timeout).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(ELAPSED));
}

#[test]
fn in_virtual_time_an_expiry_is_reported_at_its_tick() {
    let clock = ManualClock::new();
    let timer = spawn(Builder::new().clock(clock.clone()));
    let mut timeout = timer.timeout(MS * 5, Third::default());
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut timeout).poll(&mut context).is_pending());
    clock.advance(MS * 5);
    while !timer.wheel().is_empty() {
        thread::yield_now();
    }
    assert_eq!(Pin::new(&mut timeout).poll(&mut context), Poll::Ready(ELAPSED));
}

/// The coarse timer's clock stands still during the turn, so a turn of that timer would never end.
#[test]
fn a_turn_is_not_rounded_up_to_a_long_tick() {
    let clock = ManualClock::new();
    let (asked, _until) = mpsc::channel();
    let builder = Builder::new().resolution(MS * 500).clock(Asked(clock.clone(), asked));
    let timer = spawn(builder);
    let mut timeout = timer.timeout(MS * 50, pending());
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut timeout).poll(&mut context).is_pending());
    clock.advance(MS * 500);
    while !timer.wheel().is_empty() {
        thread::yield_now();
    }
    assert!(Pin::new(&mut timeout).poll(&mut context).is_pending(), "in its turn");
    assert!(timer.wheel().is_empty(), "the turn is not one of the long ticks");
    let expired = loop {
        match Pin::new(&mut timeout).poll(&mut context) {
            Poll::Ready(expired) => break expired,
            Poll::Pending => thread::yield_now(),
        }
    };
    assert_eq!((expired, clock.elapsed()), (ELAPSED, MS * 500));
}
