//! Actions of a waker's clone. A sleep reads the clock, clones its task's waker, and only then is
//! armed. In virtual time, with cached clock readings if the platform has a cached clock.

use crate::common::leased::Leased;
use crate::common::sandbox::{Sandbox, Task};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;
use tourbillon::future::Sleep;
use tourbillon::{Builder, ManualClock, Refusal};

const MS: Duration = Duration::from_millis(1);

thread_local! {
    /// The action of the next clone.
    static ON_CLONE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

fn clone(_: *const ()) -> RawWaker {
    if let Some(act) = ON_CLONE.take() {
        act();
    }
    RawWaker::new(std::ptr::null(), &TABLE)
}

fn nothing(_: *const ()) {}

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);

/// `true` if the platform has a counter, so that clock readings are cached.
const HAS_COUNTER: bool =
    cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)));

/// Polls with a waker whose first clone runs `act`.
fn poll_and(sleep: &mut Sleep, act: impl FnOnce() + 'static) -> Poll<Result<(), Refusal>> {
    ON_CLONE.set(Some(Box::new(act)));
    // SAFETY: the table's functions touch nothing.
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) };
    let polled = Pin::new(sleep).poll(&mut Context::from_waker(&waker));
    assert!(ON_CLONE.take().is_none(), "it was cloned");
    polled
}

/// Creates a sleep that is due at the fifth tick, on a timer with cached clock readings if the
/// platform has them. The 0.1 ms that such a clock adds do not change the tick.
fn leased() -> (Rc<RefCell<Sandbox>>, Sleep) {
    let clock = ManualClock::new();
    let builder = Builder::new().shards(1).clock(Leased(clock.clone())).__term(u64::MAX / 2);
    let (wheel, sweeper) = builder.build().unwrap();
    let sandbox = Sandbox::on(wheel, sweeper, clock);
    // The clock is read, and there are free entries in the magazine.
    let mut first = sandbox.timer.sleep(MS * 100);
    assert!(Task::new().poll(&mut first).is_pending());
    drop(first);
    let sleep = sandbox.timer.sleep(MS * 9 / 2);
    (Rc::new(RefCell::new(sandbox)), sleep)
}

/// Moves the clock on by `step`. Returns the number of timers that fired.
fn advance(sandbox: &RefCell<Sandbox>, step: Duration) -> usize {
    sandbox.borrow_mut().advance(step)
}

#[test]
fn a_clone_that_lasts_beyond_the_deadline_loses_nothing() {
    for late in [MS * 5, MS * 7, MS * 1_000, Duration::from_secs(86_400 * 365 * 3)] {
        let (sandbox, mut sleep) = leased();
        let shared = Rc::clone(&sandbox);
        let polled = poll_and(&mut sleep, move || assert_eq!(advance(&shared, late), 0));
        if polled.is_pending() {
            assert_eq!(advance(&sandbox, MS), 1, "at the next sweep");
        } else {
            // Without a cached reading, the clock is read after the clone.
            assert!(!HAS_COUNTER && matches!(polled, Poll::Ready(Ok(()))), "{polled:?}");
        }
        assert_eq!(sandbox.borrow().armed(), 0);
    }
}

#[test]
fn a_clone_that_uses_the_timer_changes_nothing() {
    let (sandbox, mut sleep) = leased();
    let (shared, kept) = (Rc::clone(&sandbox), Rc::new(RefCell::new(Vec::new())));
    let keeping = Rc::clone(&kept);
    let polled = poll_and(&mut sleep, move || {
        let mut many: Vec<Sleep> = (0..100).map(|_| shared.borrow().timer.sleep(MS * 3)).collect();
        assert!(many.iter_mut().all(|one| Task::new().poll(one).is_pending()));
        many.truncate(1);
        keeping.replace(many);
    });
    assert!(polled.is_pending());
    assert_eq!([MS * 2, MS * 2, MS, MS].map(|step| advance(&sandbox, step)), [0, 1, 1, 0]);
}

#[test]
fn a_wheel_that_is_closed_during_the_clone_refuses() {
    let (sandbox, mut sleep) = leased();
    let wheel = sandbox.borrow().timer.wheel().clone();
    assert!(poll_and(&mut sleep, move || wheel.close()).is_pending(), "the task goes first");
    let closed = Poll::Ready(Err(Refusal::Closed));
    assert_eq!((Task::new().poll(&mut sleep), sandbox.borrow().armed()), (closed, 0));
}

#[test]
fn a_clone_that_panics_leaves_a_sleep_that_can_be_polled() {
    let (sandbox, mut sleep) = leased();
    let panics = || poll_and(&mut sleep, || panic!("a clone"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(sandbox.borrow().armed(), 0);
    assert!(Task::new().poll(&mut sleep).is_pending());
    assert_eq!((advance(&sandbox, MS * 4), advance(&sandbox, MS)), (0, 1));
}
