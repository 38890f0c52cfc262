//! Wakers of sleeps, and the other ways for sleeps to end: a different task polls, the sleep is
//! dropped, reset by its id, refused or shut down, or a waker misbehaves. In virtual time, some
//! with a driver.

#![allow(clippy::disallowed_methods, reason = "some of these tests are about threads")]

use crate::common::receive;
use crate::common::sandbox::{Sandbox, Task, waker, with_sandboxes};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::future::{Sleep, Timer};
use tourbillon::{Builder, Clock, ManualClock, Refusal};

const MS: Duration = Duration::from_millis(1);
const READY: Poll<Result<(), Refusal>> = Poll::Ready(Ok(()));
const CLOSED: Poll<Result<(), Refusal>> = Poll::Ready(Err(Refusal::Closed));

/// Creates a sleep of 100 ticks that has been polled, and its task.
fn armed(sandbox: &Sandbox) -> (Task, Sleep) {
    let (task, mut sleep) = (Task::new(), sandbox.timer.sleep(sandbox.tick * 100));
    assert!(task.poll(&mut sleep).is_pending());
    // And a poll has confirmed it.
    assert!(task.poll(&mut sleep).is_pending());
    (task, sleep)
}

/// Polls with a waker that does not belong to a `Task`.
fn poll_with(waker: &Waker, sleep: &mut Sleep) -> Poll<Result<(), Refusal>> {
    Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

#[test]
fn only_the_last_task_that_polled_is_woken_and_once() {
    with_sandboxes(|mut sandbox| {
        let (first, mut sleep) = armed(&sandbox);
        let (second, third) = (Task::new(), Task::new());
        for task in [&second, &first, &third, &second, &second] {
            assert!(task.poll(&mut sleep).is_pending());
            assert_eq!((sandbox.armed(), task.held()), (1, 1));
        }
        assert_eq!((first.held(), third.held()), (0, 0), "let go of at once");
        sandbox.advance(sandbox.tick * 100);
        assert_eq!((first.wakes(), second.wakes(), third.wakes()), (0, 1, 0));
        assert_eq!(third.poll(&mut sleep), READY, "anybody may ask");
    });
}

#[test]
fn polls_by_the_same_task_insert_nothing() {
    let mut sandbox = Sandbox::new();
    let (task, mut sleep) = armed(&sandbox);
    for _ in 0..100 {
        // A clone is the same waker.
        let clone = task.context().waker().clone();
        assert!(poll_with(&clone, &mut sleep).is_pending());
    }
    assert_eq!((sandbox.inserted(), task.held()), (1, 1));
    assert_eq!((sandbox.advance(MS * 100), task.wakes()), (1, 1));
    assert_eq!(sandbox.timer.wheel().metrics().cancelled, 0);
}

/// Creates a waker that refers to a place which holds a handle of a task, as some executors do. Its
/// clones are clones of the handle.
fn by_reference(place: &Waker) -> ManuallyDrop<Waker> {
    fn clone(place: *const ()) -> RawWaker {
        // SAFETY: a waker of this table is used only while the place that it refers to lives.
        let handle = ManuallyDrop::new(unsafe { &*place.cast::<Waker>() }.clone());
        RawWaker::new(handle.data(), handle.vtable())
    }
    fn nothing(_: *const ()) {}
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    let waker = RawWaker::new(std::ptr::from_ref(place).cast(), &TABLE);
    // SAFETY: the table does what a waker must do, as long as the place lives.
    ManuallyDrop::new(unsafe { Waker::from_raw(waker) })
}

#[test]
fn two_tasks_whose_wakers_come_from_one_place_are_told_apart() {
    let mut sandbox = Sandbox::new();
    let (first, second) = (Task::new(), Task::new());
    let mut sleep = sandbox.timer.sleep(MS * 5);
    let mut place = first.context().waker().clone();
    assert!(poll_with(&by_reference(&place), &mut sleep).is_pending());
    assert_eq!(first.held(), 2);
    // The wheel has a clone. The place itself is used for the next task.
    place.clone_from(second.context().waker());
    assert!(poll_with(&by_reference(&place), &mut sleep).is_pending());
    sandbox.advance(MS * 5);
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
}

#[test]
fn another_task_at_the_instant_of_expiry_finds_it_ready() {
    with_sandboxes(|mut sandbox| {
        let (first, mut sleep) = armed(&sandbox);
        let second = Task::new();
        let taken = sandbox.take(sandbox.tick * 100);
        assert!(sleep.is_elapsed());
        assert_eq!(second.poll(&mut sleep), READY);
        taken.into_iter().for_each(|timer| timer.value.wake());
        assert_eq!((first.wakes(), second.wakes(), second.held()), (1, 0, 0));
    });
}

#[test]
fn a_task_that_takes_over_after_the_deadline_and_before_the_sweep_is_woken_by_it() {
    let mut sandbox = Sandbox::new();
    let (first, mut sleep) = armed(&sandbox);
    let second = Task::new();
    sandbox.clock.advance(MS * 100);
    let _ = second.poll(&mut sleep);
    sandbox.advance(Duration::ZERO);
    assert_eq!((first.wakes(), second.poll(&mut sleep)), (0, READY));
}

#[test]
fn what_is_dropped_wakes_nobody_and_leaves_nothing() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        drop(sandbox.timer.sleep(tick));
        let (task, sleep) = armed(&sandbox);
        drop(sleep);
        assert_eq!((sandbox.armed(), task.held()), (0, 0), "at once");
        let (fired, sleep) = armed(&sandbox);
        sandbox.advance(tick * 100);
        drop(sleep);
        let (ended, mut sleep) = armed(&sandbox);
        sandbox.advance(tick * 100);
        assert_eq!(ended.poll(&mut sleep), READY);
        drop(sleep);
        sandbox.advance(tick * 500);
        assert_eq!((task.wakes(), fired.wakes(), ended.wakes()), (0, 1, 1));
        assert_eq!((sandbox.armed(), fired.held(), ended.held()), (0, 0, 0));
    });
}

#[test]
fn what_is_dropped_at_the_instant_of_expiry_wakes_once_and_spares_its_successor() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        let (task, sleep) = armed(&sandbox);
        let taken = sandbox.take(tick * 100);
        // The next sleep has the entry of the one that fires.
        let (next, mut successor) = armed(&sandbox);
        drop(sleep);
        assert_eq!((sandbox.armed(), next.held()), (1, 1));
        taken.into_iter().for_each(|timer| timer.value.wake());
        assert_eq!((task.wakes(), task.held(), next.wakes()), (1, 0, 0));
        sandbox.advance(tick * 100);
        assert_eq!((next.wakes(), next.poll(&mut successor)), (1, READY));
    });
}

#[test]
fn a_reset_by_id_from_another_thread_is_obeyed_earlier_and_later() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        for ticks in [5_u32, 300] {
            let (task, mut sleep) = armed(&sandbox);
            let (id, timer) = (sleep.id().unwrap(), sandbox.timer.clone());
            let reset = thread::spawn(move || timer.wheel().reset(id, tick * ticks));
            assert_eq!(reset.join().unwrap(), Ok(true));
            sandbox.advance(tick * (ticks - 1));
            assert_eq!(task.wakes(), 0);
            assert!(!sleep.is_elapsed() && task.poll(&mut sleep).is_pending());
            sandbox.advance(tick);
            assert_eq!((task.wakes(), sleep.is_elapsed()), (1, true));
            assert_eq!(task.poll(&mut sleep), READY);
            assert_eq!(sandbox.timer.wheel().reset(id, tick), Ok(false), "it has ended");
        }
    });
}

#[test]
fn an_id_is_stale_once_another_task_has_polled_and_its_reset_is_kept() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        let (first, mut sleep) = armed(&sandbox);
        let (id, now) = (sleep.id().unwrap(), sandbox.clock.now());
        assert_eq!(sandbox.timer.wheel().reset(id, tick * 40), Ok(true));
        let second = Task::new();
        assert!(second.poll(&mut sleep).is_pending());
        assert_eq!(sleep.deadline(), now + tick * 40);
        assert_eq!(sandbox.timer.wheel().reset(id, tick), Ok(false));
        let next = sleep.id().unwrap();
        assert_ne!(next, id);
        assert_eq!(sandbox.timer.wheel().reset(next, tick * 30), Ok(true));
        sandbox.advance(tick * 29);
        assert!(second.poll(&mut sleep).is_pending());
        sandbox.advance(tick);
        assert_eq!((first.wakes(), second.wakes()), (0, 1));
        assert_eq!(second.poll(&mut sleep), READY);
    });
}

#[test]
fn the_owners_reset_keeps_the_id_and_the_last_reset_counts() {
    let mut sandbox = Sandbox::new();
    let (task, mut sleep) = armed(&sandbox);
    let id = sleep.id().unwrap();
    let wheel = sandbox.timer.wheel().clone();
    assert_eq!(wheel.reset(id, MS * 10), Ok(true));
    sleep.reset_after(MS * 50);
    assert_eq!(sleep.id(), Some(id));
    assert_eq!(wheel.reset(id, MS * 20), Ok(true));
    sandbox.advance(MS * 19);
    assert_eq!(task.wakes(), 0);
    sandbox.advance(MS);
    assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
    assert_eq!((sleep.id(), sandbox.inserted()), (None, 1));
    sleep.reset_after(MS);
    assert!(task.poll(&mut sleep).is_pending());
    assert_ne!(sleep.id(), Some(id));
}

#[test]
fn an_id_is_stale_after_a_reset_beyond_the_range() {
    let mut sandbox = Sandbox::new();
    let (task, mut sleep) = armed(&sandbox);
    let id = sleep.id().unwrap();
    sleep.reset_after(Duration::MAX);
    assert_eq!(sandbox.timer.wheel().reset(id, MS), Ok(false));
    assert_eq!((sleep.id(), sandbox.advance(MS * 200)), (None, 0));
    assert!(task.poll(&mut sleep).is_pending());
}

#[test]
fn a_timer_that_another_cancels_is_armed_anew_or_ended_if_by_its_id() {
    let mut sandbox = Sandbox::new();
    let (task, mut sleep) = armed(&sandbox);
    drop(sandbox.timer.wheel().drain());
    assert_eq!((task.wakes(), sleep.is_elapsed()), (1, false));
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!(sandbox.armed(), 1);
    let id = sleep.id().unwrap();
    drop(sandbox.timer.wheel().cancel(id));
    assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
    assert_eq!(sandbox.advance(MS * 100), 0);
}

/// On a wheel that was never drained.
#[test]
fn a_sleep_that_another_ends_or_moves_by_its_id_looks_at_its_timer() {
    let mut sandbox = Sandbox::new();
    let ((task, mut cancelled), (other, mut moved)) = (armed(&sandbox), armed(&sandbox));
    let ids = [&mut cancelled, &mut moved].map(|sleep| sleep.id().unwrap());
    drop(sandbox.timer.wheel().cancel(ids[0]));
    assert_eq!((task.wakes(), task.poll(&mut cancelled)), (1, READY));
    let due = moved.deadline();
    assert_eq!(sandbox.timer.wheel().reset(ids[1], MS), Ok(true));
    sandbox.advance(MS * 2);
    assert!(sandbox.timer.now() < due);
    assert_eq!((other.wakes(), other.poll(&mut moved)), (1, READY));
}

#[test]
fn a_shutdown_wakes_each_armed_sleep_which_answers_that_the_wheel_is_closed() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        let (fired, mut was_fired) = armed(&sandbox);
        sandbox.advance(tick * 100);
        let mut sleeps: Vec<(Task, Sleep)> = (0..50).map(|_| armed(&sandbox)).collect();
        let (shared, mut handed_out) = armed(&sandbox);
        assert!(handed_out.id().is_some());
        let mut idle = sandbox.timer.sleep(tick);
        (0..2).for_each(|_| sandbox.timer.shutdown());
        assert_eq!(sandbox.armed(), 0);
        for (task, sleep) in &mut sleeps {
            assert_eq!((task.wakes(), task.held(), sleep.is_elapsed()), (1, 0, false));
            assert_eq!((task.poll(sleep), task.poll(sleep)), (CLOSED, CLOSED));
            assert!(futures_core::FusedFuture::is_terminated(sleep) && !sleep.is_elapsed());
            sleep.reset_after(tick);
            assert_eq!(task.refused(sleep), CLOSED, "for ever");
        }
        assert_eq!((shared.wakes(), shared.poll(&mut handed_out)), (1, CLOSED));
        assert_eq!((fired.wakes(), fired.poll(&mut was_fired)), (1, READY), "its time had come");
        let mut new = sandbox.timer.sleep(tick);
        assert_eq!((fired.refused(&mut idle), fired.refused(&mut new)), (CLOSED, CLOSED));
        assert_eq!(fired.poll(&mut sandbox.timer.sleep(Duration::ZERO)), READY);
    });
}

#[test]
fn a_wheel_that_is_closed_and_still_swept_ends_what_is_armed_at_its_time() {
    let mut sandbox = Sandbox::new();
    let (task, mut sleep) = armed(&sandbox);
    sandbox.timer.wheel().close();
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!(task.refused(&mut sandbox.timer.sleep(MS)), CLOSED);
    assert_eq!((sandbox.advance(MS * 100), task.wakes()), (1, 1));
    assert_eq!(task.poll(&mut sleep), READY);
}

#[test]
fn a_full_timer_says_so_and_a_reset_tries_again() {
    let mut sandbox = Sandbox::of(Builder::new().capacity(2));
    let full = Poll::Ready(Err(Refusal::AtCapacity { capacity: 2 }));
    let (first, mut sleep) = armed(&sandbox);
    let (_second, other) = armed(&sandbox);
    let (task, mut third) = (Task::new(), sandbox.timer.sleep(MS * 7));
    assert_eq!((task.refused(&mut third), task.held()), (full, 0));
    drop(other);
    assert_eq!(task.poll(&mut third), full, "an answer stays");
    third.reset_after(MS * 7);
    assert!(task.poll(&mut third).is_pending());
    // A different task takes the place of the previous one, though no other place is free.
    let heir = Task::new();
    assert!(heir.poll(&mut sleep).is_pending());
    assert_eq!((sandbox.armed(), first.held()), (2, 0));
    sandbox.advance(MS * 100);
    assert_eq!((task.wakes(), heir.wakes()), (1, 1));
}

#[test]
fn a_waker_may_use_the_timer_and_drop_sleeps_also_those_that_fire_with_it() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        let sleeps = Arc::new(Mutex::new(Vec::<Sleep>::new()));
        let (dropped, timer) = (Arc::clone(&sleeps), sandbox.timer.clone());
        let busy = waker(move || {
            let gone = std::mem::take(&mut *dropped.lock().unwrap());
            drop(gone);
            let task = Task::new();
            let mut sleep = timer.sleep(tick * 9);
            assert!(task.poll(&mut sleep).is_pending());
            sleep.reset_after(tick * 19);
            let _ = timer.wheel().reset(sleep.id().unwrap(), tick * 3).unwrap();
            assert!(Task::new().poll(&mut sleep).is_pending());
        });
        for which in 0..100 {
            let mut sleep = sandbox.timer.sleep(tick * (10 + which % 2));
            assert!(poll_with(&busy, &mut sleep).is_pending());
            sleeps.lock().unwrap().push(sleep);
        }
        sandbox.advance(tick * 11);
        assert!(sleeps.lock().unwrap().is_empty());
        assert_eq!(sandbox.armed(), 0);
    });
}

#[test]
fn a_task_that_goes_with_its_last_waker_takes_the_sleeps_it_owns_with_it() {
    /// A task that owns a sleep; wakers keep it alive.
    struct Owner(#[allow(dead_code, reason = "it is dropped")] Sleep);
    let sandbox = Sandbox::new();
    let (inner_task, inner) = armed(&sandbox);
    let owner = Owner(inner);
    let last = waker(move || {
        let _ = &owner;
    });
    let mut sleep = sandbox.timer.sleep(MS);
    assert!(poll_with(&last, &mut sleep).is_pending());
    drop(last);
    assert_eq!((sandbox.armed(), inner_task.held()), (2, 1));
    drop(sleep);
    assert_eq!((sandbox.armed(), inner_task.held(), inner_task.wakes()), (0, 0, 0));
}

/// A waker that panics, without a message on the screen.
fn panicking() -> Waker {
    waker(|| resume_unwind(Box::new("a waker")))
}

#[test]
fn a_waker_that_panics_in_a_sweep_by_hand_harms_no_other() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        let mut others: Vec<(Task, Sleep)> = Vec::new();
        let mut bad: Vec<Sleep> = Vec::new();
        for which in 0..40 {
            others.push(armed(&sandbox));
            if which % 10 == 5 {
                bad.push(sandbox.timer.sleep(tick * 100));
                assert!(poll_with(&panicking(), bad.last_mut().unwrap()).is_pending());
            }
        }
        sandbox.clock.advance(tick * 100);
        let mut panics = 0;
        while catch_unwind(AssertUnwindSafe(|| sandbox.advance(Duration::ZERO))).is_err() {
            panics += 1;
        }
        assert_eq!((panics, sandbox.armed()), (4, 0));
        for (task, sleep) in &mut others {
            assert_eq!((task.wakes(), task.poll(sleep)), (1, READY));
        }
        bad.iter_mut().for_each(|sleep| assert_eq!(others[0].0.poll(sleep), READY));
    });
}

#[test]
fn a_waker_that_panics_in_a_shutdown_harms_no_other() {
    let sandbox = Sandbox::new();
    let mut sleeps: Vec<(Task, Sleep)> = (0..20).map(|_| armed(&sandbox)).collect();
    let mut bad = [sandbox.timer.sleep(MS), sandbox.timer.sleep(MS * 300)];
    bad.iter_mut().for_each(|sleep| assert!(poll_with(&panicking(), sleep).is_pending()));
    sleeps.extend((0..20).map(|_| armed(&sandbox)));
    sandbox.timer.shutdown();
    for (task, sleep) in &mut sleeps {
        assert_eq!((task.wakes(), task.poll(sleep)), (1, CLOSED));
    }
    bad.iter_mut().for_each(|sleep| assert_eq!(poll_with(&panicking(), sleep), CLOSED));
}

/// A timer with a driver in virtual time, whose wakers run on the tick thread.
fn driven() -> (ManualClock, Timer) {
    let clock = ManualClock::new();
    let driver = Builder::new().clock(clock.clone()).driver();
    (clock, Timer::spawn(driver).unwrap())
}

/// A waker that sends on a channel.
fn telling() -> (Waker, mpsc::Receiver<()>) {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let tell = move || {
        let _ = tell.lock().unwrap().send(());
    };
    (waker(tell), told)
}

#[test]
fn a_waker_that_panics_under_a_driver_harms_no_other_and_is_counted() {
    let (clock, timer) = driven();
    let (told_waker, told) = telling();
    let mut sleeps = Vec::new();
    for which in 0..30 {
        let mut sleep = timer.sleep(MS * (1 + which % 3));
        let waker = if which % 5 == 0 { panicking() } else { told_waker.clone() };
        assert!(poll_with(&waker, &mut sleep).is_pending());
        sleeps.push(sleep);
    }
    (0..3).for_each(|_| clock.advance(MS));
    receive(&told, 24);
    timer.shutdown();
    timer.driver().unwrap().wait().unwrap();
    assert_eq!(timer.wheel().len(), 0);
    assert_eq!(timer.driver().unwrap().metrics().handler_panics, 6);
    sleeps.iter_mut().for_each(|sleep| assert_eq!(poll_with(&told_waker, sleep), READY));
    assert!(told.try_recv().is_err(), "each was woken once");
}

#[test]
fn the_last_sleep_may_be_dropped_by_its_own_waker_on_the_tick_thread() {
    let (clock, timer) = driven();
    let place = Arc::new(Mutex::new(None::<Sleep>));
    let (own, (told_waker, told)) = (Arc::clone(&place), telling());
    let dropping = waker(move || {
        let sleep = own.lock().unwrap().take();
        drop(sleep); // with it goes the driver
        told_waker.wake_by_ref();
    });
    let mut sleep = timer.sleep(MS);
    assert!(poll_with(&dropping, &mut sleep).is_pending());
    *place.lock().unwrap() = Some(sleep);
    drop(timer);
    clock.advance(MS);
    receive(&told, 1);
    assert!(place.lock().unwrap().is_none());
}

#[test]
fn a_sleep_keeps_its_driver_and_ends_without_its_timer() {
    let (clock, timer) = driven();
    let (waker, told) = telling();
    let mut sleep = timer.sleep(MS * 3);
    drop(timer);
    assert!(poll_with(&waker, &mut sleep).is_pending());
    clock.advance(MS * 3);
    receive(&told, 1);
    assert_eq!(poll_with(&waker, &mut sleep), READY);
}

#[test]
fn a_shutdown_by_a_waker_ends_the_others() {
    let (clock, timer) = driven();
    let (told_waker, told) = telling();
    let stopper = timer.clone();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let stopping = waker(move || {
        stopper.shutdown();
        counted.fetch_add(1, Relaxed);
    });
    let (mut first, mut hour) = (timer.sleep(MS), timer.sleep(MS * 3_600_000));
    assert!(poll_with(&stopping, &mut first).is_pending());
    assert!(poll_with(&told_waker, &mut hour).is_pending());
    clock.advance(MS);
    receive(&told, 1);
    assert_eq!(poll_with(&told_waker, &mut hour), CLOSED);
    timer.driver().unwrap().wait().unwrap();
    assert_eq!(runs.load(Relaxed), 1);
    assert_eq!(poll_with(&told_waker, &mut first), READY, "it had fired");
}

#[test]
fn a_reset_that_comes_too_late_is_obeyed_also_if_the_id_was_handed_out() {
    with_sandboxes(|mut sandbox| {
        let (task, mut sleep) = (Task::new(), sandbox.timer.sleep(sandbox.tick));
        assert!(task.poll(&mut sleep).is_pending());
        assert!(sleep.id().is_some());
        assert_eq!(sandbox.advance(sandbox.tick), 1);
        sleep.reset_after(sandbox.tick * 2);
        assert!(task.poll(&mut sleep).is_pending());
        assert_eq!(sandbox.advance(sandbox.tick), 0);
        assert!(task.poll(&mut sleep).is_pending());
        assert_eq!(sandbox.advance(sandbox.tick), 1);
        assert!(task.poll(&mut sleep).is_ready());
    });
}
