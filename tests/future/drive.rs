//! Timers that a future sweeps, in virtual time.

use crate::common::sandbox::{Sandbox, Task};
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tourbillon::future::{Drive, Sleep, TimeoutError, Timer, drive, undriven};
use tourbillon::{Builder, Clock, ManualClock, Refusal};

const MS: Duration = Duration::from_millis(1);
const READY: Poll<Result<(), Refusal>> = Poll::Ready(Ok(()));

/// The runtime's clock, which runs by itself and notifies no subscriber.
#[derive(Debug)]
struct Running(ManualClock);

impl Clock for Running {
    fn now(&self) -> Instant {
        self.0.now()
    }
}

type Driven<F> = (Timer, Drive<F, Sleep>);

/// Creates a timer that sleeps on the timer of a sandbox, and uses its clock.
fn driven_timer(sandbox: &Sandbox) -> Driven<impl FnMut(Duration) -> Sleep + use<>> {
    let runtime = sandbox.timer.share();
    let builder = Builder::new().clock(Running(sandbox.clock.clone()));
    drive(builder, move |delay| runtime.sleep(delay)).unwrap()
}

#[test]
fn sleeps_end_when_the_runtime_has_slept() {
    let mut sandbox = Sandbox::new();
    let (timer, mut driving) = driven_timer(&sandbox);
    let (sweeping, task) = (Task::new(), Task::new());
    assert!(sweeping.poll(&mut driving).is_pending());
    let mut sleep = timer.sleep(MS * 5);
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!(sweeping.wakes(), 1, "for the earlier deadline");
    assert!(sweeping.poll(&mut driving).is_pending());
    assert_eq!(sandbox.armed(), 1, "one sleep of the runtime's");
    for (step, woken) in [(MS * 4, 0), (MS, 1)] {
        sandbox.advance(step);
        assert_eq!(sweeping.wakes(), woken);
    }
    assert!(sweeping.poll(&mut driving).is_pending());
    assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
}

#[test]
fn a_later_timer_wakes_nobody_and_an_earlier_one_does() {
    let sandbox = Sandbox::new();
    let (timer, mut driving) = driven_timer(&sandbox);
    let (sweeping, task) = (Task::new(), Task::new());
    let [mut soon, mut later, mut sooner, mut soonest] =
        [50, 90, 20, 10].map(|delay| timer.sleep(MS * delay));
    assert!(task.poll(&mut soon).is_pending());
    assert!(sweeping.poll(&mut driving).is_pending());
    assert!(task.poll(&mut later).is_pending());
    assert_eq!(sweeping.wakes(), 0);
    assert!(task.poll(&mut sooner).is_pending());
    assert_eq!(sweeping.wakes(), 1);
    assert!(sweeping.poll(&mut driving).is_pending());
    assert!(task.poll(&mut soonest).is_pending());
    assert_eq!(sweeping.wakes(), 1, "each time");
}

#[test]
fn a_clock_that_is_moved_by_hand_is_followed() {
    let clock = ManualClock::new();
    let sleep = |_| std::future::pending::<()>();
    let (timer, mut driving) = drive(Builder::new().clock(clock.clone()), sleep).unwrap();
    let (sweeping, task, mut pause) = (Task::new(), Task::new(), timer.sleep(MS * 5));
    assert!(task.poll(&mut pause).is_pending());
    assert!(sweeping.poll(&mut driving).is_pending());
    clock.advance(MS * 5);
    assert_eq!(sweeping.wakes(), 1);
    assert!(sweeping.poll(&mut driving).is_pending());
    assert_eq!(task.poll(&mut pause), READY);
}

#[test]
fn it_ends_with_the_last_clone_and_not_while_something_sleeps() {
    let sandbox = Sandbox::new();
    let (timer, mut driving) = driven_timer(&sandbox);
    let (sweeping, task) = (Task::new(), Task::new());
    let (clone, mut sleep) = (timer.clone(), timer.sleep(MS * 5));
    assert!(task.poll(&mut sleep).is_pending());
    drop(timer);
    assert!(sweeping.poll(&mut driving).is_pending());
    drop(sleep);
    assert!(sweeping.poll(&mut driving).is_pending());
    // It may have requested another poll itself, for upkeep.
    let _asked = sweeping.wakes();
    drop(clone);
    assert!(sweeping.wakes() > 0);
    assert_eq!(sweeping.poll(&mut driving), Poll::Ready(()));
    assert_eq!(sweeping.poll(&mut driving), Poll::Ready(()), "and stays so");
}

#[test]
fn it_ends_when_the_timer_is_shut_down() {
    let sandbox = Sandbox::new();
    let (timer, mut driving) = driven_timer(&sandbox);
    let (sweeping, task, mut sleep) = (Task::new(), Task::new(), timer.sleep(MS * 5));
    assert!(task.poll(&mut sleep).is_pending());
    assert!(sweeping.poll(&mut driving).is_pending());
    timer.shutdown();
    assert!(sweeping.wakes() > 0);
    assert_eq!(sweeping.poll(&mut driving), Poll::Ready(()));
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Err(Refusal::Closed)));
}

type PollLimited<'p> = &'p mut dyn FnMut() -> Poll<Result<(), TimeoutError>>;

/// Polls a timeout of 300 ms whose future reads a socket, and then runs `steps`. They can poll it
/// again, with the sweeping future, and set the flag that the runtime has collected the event of
/// the socket.
fn with_limited(steps: impl FnOnce(&mut Sandbox, PollLimited<'_>, &Cell<bool>)) {
    let mut sandbox = Sandbox::new();
    let (timer, mut driving) = driven_timer(&sandbox);
    let (sweeping, task, collected) = (Task::new(), Task::new(), Cell::new(false));
    let read = poll_fn(|_| if collected.get() { Poll::Ready(()) } else { Poll::Pending });
    let mut timeout = timer.timeout(MS * 300, read);
    let mut poll = || {
        assert!(sweeping.poll(&mut driving).is_pending());
        let polled = task.poll(&mut timeout);
        assert!(sweeping.poll(&mut driving).is_pending());
        polled
    };
    assert!(poll().is_pending());
    steps(&mut sandbox, &mut poll, &collected);
}

/// The process was stopped. Its runtime returns from a wait without events, sweeps the timer, and
/// collects the bytes of live clients afterwards.
#[test]
fn a_limit_whose_end_is_noticed_late_polls_its_future_once_more() {
    with_limited(|sandbox, poll, collected| {
        sandbox.advance(MS * 580);
        assert!(poll().is_pending(), "the runtime has not polled its sockets since");
        collected.set(true);
        assert_eq!(poll(), Poll::Ready(Ok(())));
    });
}

#[test]
fn a_limit_whose_end_is_noticed_late_is_reported_in_the_end() {
    with_limited(|sandbox, poll, _collected| {
        sandbox.advance(MS * 580);
        assert!(poll().is_pending());
        sandbox.advance(MS);
        assert_eq!(poll(), Poll::Ready(Err(TimeoutError::Elapsed)));
    });
}

#[test]
fn a_limit_whose_end_is_noticed_in_time_is_reported_at_once() {
    with_limited(|sandbox, poll, _collected| {
        sandbox.advance(MS * 300);
        assert_eq!(poll(), Poll::Ready(Err(TimeoutError::Elapsed)));
    });
}

#[test]
fn a_closed_wheel_is_swept_until_nothing_is_armed() {
    let mut sandbox = Sandbox::new();
    let (timer, mut driving) = driven_timer(&sandbox);
    let (sweeping, task, mut sleep) = (Task::new(), Task::new(), timer.sleep(MS * 5));
    assert!(task.poll(&mut sleep).is_pending());
    timer.wheel().close();
    assert!(sweeping.poll(&mut driving).is_pending());
    sandbox.advance(MS * 5);
    assert_eq!(sweeping.poll(&mut driving), Poll::Ready(()));
    assert_eq!(task.wakes(), 1);
}

#[test]
fn nobody_waits_for_one_that_was_dropped() {
    let sandbox = Sandbox::new();
    let (timer, driving) = driven_timer(&sandbox);
    let (task, mut sleep) = (Task::new(), timer.sleep(MS * 5));
    assert!(task.poll(&mut sleep).is_pending());
    drop(driving);
    assert_eq!(task.wakes(), 1);
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Err(Refusal::Closed)));
}

#[test]
fn many_that_are_due_are_woken_in_shares() {
    let mut sandbox = Sandbox::new();
    let (timer, mut driving) = driven_timer(&sandbox);
    let (sweeping, task) = (Task::new(), Task::new());
    let mut sleeps: Vec<Sleep> = (0..1_000).map(|_| timer.sleep(MS)).collect();
    assert!(sleeps.iter_mut().all(|sleep| task.poll(sleep).is_pending()));
    sandbox.advance(MS);
    let mut shares = Vec::new();
    while !timer.wheel().is_empty() {
        assert!(sweeping.poll(&mut driving).is_pending());
        shares.push(task.wakes());
        assert!(timer.wheel().is_empty() || sweeping.wakes() > 0, "it goes on by itself");
    }
    assert_eq!(shares.iter().sum::<u32>(), 1_000);
    assert!(shares.iter().all(|&share| share <= 256), "{shares:?}");
}

#[test]
fn a_runtime_whose_sleeps_are_over_at_once_has_its_turn() {
    let (clock, mut made) = (Running(ManualClock::new()), 0);
    let (timer, mut driving) = drive(Builder::new().clock(clock), move |_delay| {
        made += 1;
        assert!(made < 100, "it sleeps on and on");
        std::future::ready(())
    })
    .unwrap();
    let (sweeping, task, mut sleep) = (Task::new(), Task::new(), timer.sleep(MS * 5));
    assert!(task.poll(&mut sleep).is_pending());
    for _ in 0..3 {
        assert!(sweeping.poll(&mut driving).is_pending());
        assert!(sweeping.wakes() > 0, "it goes on by itself");
    }
}

#[test]
fn a_poll_keeps_what_is_slept_if_that_ends_in_time() {
    let sandbox = Sandbox::new();
    let (runtime, made) = (sandbox.timer.share(), Rc::new(Cell::new(0)));
    let (builder, making) = (Builder::new(), Rc::clone(&made));
    let (timer, mut driving) = drive(builder.clock(Running(sandbox.clock.clone())), move |delay| {
        making.set(making.get() + 1);
        runtime.sleep(delay)
    })
    .unwrap();
    let (sweeping, task, mut sleep) = (Task::new(), Task::new(), timer.sleep(MS * 50));
    for (step, expected) in [(MS, 1), (MS, 1), (MS, 2), (MS, 2)] {
        assert!(sweeping.poll(&mut driving).is_pending());
        assert_eq!(made.get(), expected);
        sandbox.clock.advance(step);
        if sandbox.clock.elapsed() == MS * 2 {
            assert!(task.poll(&mut sleep).is_pending());
        }
    }
}

/// Values that may be dropped with the wheel.
#[test]
fn another_wheel_fires_what_is_due_though_its_handler_panics() {
    let mut sandbox = Sandbox::new();
    let (fired, runtime) = (Rc::new(Cell::new(0)), sandbox.timer.share());
    let builder = Builder::new().clock(Running(sandbox.clock.clone()));
    let (wheel, undriven) = undriven(builder).unwrap();
    let count = Rc::clone(&fired);
    let mut driving = undriven.drive_by(
        move |delay| runtime.sleep(delay),
        move |timer| {
            count.set(count.get() + timer.value);
            assert!(timer.value > 1, "on purpose");
        },
    );
    let sweeping = Task::new();
    assert!(sweeping.poll(&mut driving).is_pending());
    for (value, delay) in [(1, MS), (10, MS), (100, MS * 5)] {
        wheel.insert(value, delay).unwrap();
    }
    assert!(sweeping.wakes() > 0, "for the earlier deadline");
    sandbox.advance(MS);
    assert!(sweeping.poll(&mut driving).is_pending());
    assert_eq!(fired.get(), 11);
    wheel.close();
    assert!(sweeping.poll(&mut driving).is_pending(), "one is still armed");
    sandbox.advance(MS * 4);
    assert_eq!((sweeping.poll(&mut driving), fired.get()), (Poll::Ready(()), 111));
}

/// The future has seen that the wheel is closed, and not yet that no timer is armed any more.
#[test]
fn it_is_told_that_a_closed_wheel_was_drained() {
    let sandbox = Sandbox::new();
    let runtime = sandbox.timer.share();
    let (wheel, undriven) = undriven(Builder::new().clock(Running(sandbox.clock.clone()))).unwrap();
    let mut driving = undriven.drive_by(move |delay| runtime.sleep(delay), |_| ());
    let sweeping = Task::new();
    wheel.insert(7, MS * 1000).unwrap();
    wheel.close();
    assert!(sweeping.poll(&mut driving).is_pending());
    let _closed = sweeping.wakes();
    assert_eq!(wheel.drain().len(), 1);
    assert!(sweeping.wakes() > 0);
    assert_eq!(sweeping.poll(&mut driving), Poll::Ready(()));
}

#[test]
fn a_future_that_is_dropped_closes_its_wheel_and_drops_what_is_armed() {
    let (wheel, undriven) = undriven(Builder::new()).unwrap();
    let value = Arc::new(());
    wheel.insert(Arc::clone(&value), MS * 1000).unwrap();
    drop(undriven.drive_by(|_| std::future::pending::<()>(), |_| ()));
    assert!(wheel.is_closed());
    assert_eq!(Arc::strong_count(&value), 1);
}
