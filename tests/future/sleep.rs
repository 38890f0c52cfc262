//! Readiness and resets of sleeps, in virtual time. Their wakers, ids and ends are tested in
//! `sleep_wakers.rs`.

use crate::common::sandbox::{Sandbox, Task, with_sandboxes};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::Poll;
use std::time::{Duration, Instant};
use tourbillon::future::{Sleep, Timer};
use tourbillon::{Builder, Clock, ManualClock, Refusal};

const MS: Duration = Duration::from_millis(1);
const READY: Poll<Result<(), Refusal>> = Poll::Ready(Ok(()));
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Checks that a future may cross threads, be shared and be moved.
fn goes_anywhere<T: Send + Sync + Unpin + 'static>(_: &T) {}

/// The wheel then has the sleep at the last tick that has passed, which is before its deadline.
#[test]
fn a_reset_to_later_that_has_passed_ends_the_sleep_in_the_same_tick() {
    for polled_between in [false, true] {
        let mut sandbox = Sandbox::new();
        let (task, start) = (Task::new(), sandbox.clock.now());
        sandbox.clock.advance(MS);
        let mut sleep = sandbox.timer.sleep_until(start + MS * 3 / 2);
        (0..3).for_each(|_| assert!(task.poll(&mut sleep).is_pending()));
        sandbox.clock.advance(MS * 9 / 10);
        // By more than half of the time it had, so the wheel is updated.
        sleep.reset(start + MS * 9 / 5);
        assert!(!polled_between || task.poll(&mut sleep).is_pending());
        assert_eq!(sandbox.advance(Duration::ZERO), 1);
        assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
    }
}

/// A clock that passes the deadline while the sleep is inserted into the wheel.
#[test]
fn a_deadline_that_passes_during_the_first_poll_ends_the_sleep_in_the_same_tick() {
    /// A clock that advances by one step with each reading, and then stands still.
    #[derive(Debug)]
    struct Steps(Instant, Mutex<Vec<Duration>>);

    impl Clock for Steps {
        fn now(&self) -> Instant {
            let mut left = self.1.lock().unwrap();
            self.0 + if left.len() > 1 { left.remove(0) } else { left[0] }
        }
    }

    let start = ManualClock::new().now();
    for early in 0..6 {
        let mut readings = vec![Duration::ZERO];
        readings.extend(vec![MS * 14 / 10; early]);
        readings.push(MS * 19 / 10);
        let clock = Steps(start, Mutex::new(readings));
        let (wheel, mut sweeper) = Builder::new().clock(clock).build().unwrap();
        let timer = Timer::new(wheel);
        let (task, mut sleep) = (Task::new(), timer.sleep_until(start + MS * 3 / 2));
        if task.poll(&mut sleep).is_pending() {
            // It may have been armed in time, and is due at its tick.
            let woken = sweeper.sweep(|timer| timer.value.wake()).expired == 1;
            assert_eq!(task.poll(&mut sleep).is_ready(), woken, "after {early} early readings");
        }
    }
}

#[test]
fn no_time_is_ready_at_the_first_poll_and_never_armed() {
    with_sandboxes(|sandbox| {
        let task = Task::new();
        let now = sandbox.clock.now();
        let past = now.checked_sub(sandbox.tick * 3).unwrap_or(now);
        for mut sleep in [
            sandbox.timer.sleep(Duration::ZERO),
            sandbox.timer.sleep_until(now),
            sandbox.timer.sleep_until(past),
        ] {
            goes_anywhere(&sleep);
            assert!(sleep.is_elapsed(), "its time has come, though nobody has polled it");
            assert_eq!(task.poll(&mut sleep), READY);
        }
        assert_eq!((sandbox.inserted(), task.wakes(), task.held()), (0, 0, 0));
    });
}

#[test]
fn a_sleep_is_in_the_wheel_from_its_first_pending_poll_until_it_fires() {
    with_sandboxes(|mut sandbox| {
        let task = Task::new();
        let mut sleep = sandbox.timer.sleep(sandbox.tick * 5);
        assert_eq!((sandbox.armed(), sleep.id()), (0, None));
        assert!(task.poll(&mut sleep).is_pending());
        assert_eq!((sandbox.armed(), task.held()), (1, 1));
        assert_eq!(sandbox.advance(sandbox.tick * 5), 1);
        assert_eq!((sandbox.armed(), task.held(), task.wakes()), (0, 0, 1));
        assert_eq!(task.poll(&mut sleep), READY);
        assert_eq!(sandbox.inserted(), 1);
    });
}

#[test]
fn a_sleep_that_is_first_polled_after_its_time_is_ready() {
    let mut sandbox = Sandbox::new();
    let task = Task::new();
    let mut sleep = sandbox.timer.sleep(MS * 5);
    assert_eq!(sandbox.advance(MS * 5), 0);
    assert!(sleep.is_elapsed());
    assert_eq!(task.poll(&mut sleep), READY);
    assert_eq!(sandbox.inserted(), 0);
}

#[test]
fn it_is_ready_at_its_deadline_and_not_a_nanosecond_early() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        // On a tick, past one, within the first, and across the borders of the wheel's levels.
        for quarters in [1_u32, 4, 5, 27, 28, 252, 256, 260, 4095 * 4, 4096 * 4, 5000 * 4 + 3] {
            let (task, delay) = (Task::new(), tick / 4 * quarters);
            let mut sleep = sandbox.timer.sleep(delay);
            let asked = sandbox.clock.now() + delay;
            assert!(sleep.deadline() >= asked && sleep.deadline() < asked + tick);
            assert!(task.poll(&mut sleep).is_pending());
            let due = sleep.deadline() - sandbox.clock.now();
            sandbox.advance(due - Duration::from_nanos(1));
            assert_eq!((task.wakes(), sleep.is_elapsed()), (0, false), "early: {delay:?}");
            assert!(task.poll(&mut sleep).is_pending());
            // Deadlines are rounded up to ticks.
            sandbox.advance(Duration::from_nanos(1));
            sandbox.advance(tick - Duration::from_nanos(1));
            assert_eq!((task.wakes(), sleep.is_elapsed()), (1, true), "late: {delay:?}");
            assert_eq!(task.poll(&mut sleep), READY);
            sandbox.advance(tick / 4 * (quarters % 4));
        }
    });
}

#[test]
fn a_deadline_on_a_tick_is_met_at_that_tick() {
    with_sandboxes(|mut sandbox| {
        for ticks in [1, 2, 3, 63, 64, 65, 1000] {
            let (task, deadline) = (Task::new(), sandbox.clock.now() + sandbox.tick * ticks);
            let mut sleep = sandbox.timer.sleep_until(deadline);
            assert_eq!(sleep.deadline(), deadline);
            assert!(task.poll(&mut sleep).is_pending());
            sandbox.advance(sandbox.tick * (ticks - 1));
            assert_eq!(task.wakes(), 0);
            sandbox.advance(sandbox.tick);
            assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
        }
    });
}

#[test]
fn sleeps_of_many_lengths_end_in_the_order_of_their_deadlines() {
    with_sandboxes(|mut sandbox| {
        let tasks: Vec<Task> = (0..200).map(|_| Task::new()).collect();
        let delays: Vec<u32> = (0..200).map(|which| which * 7919 % 1009 + 1).collect();
        let mut sleeps: Vec<Sleep> =
            delays.iter().map(|&ticks| sandbox.timer.sleep(sandbox.tick * ticks)).collect();
        for (task, sleep) in tasks.iter().zip(&mut sleeps) {
            assert!(task.poll(sleep).is_pending());
        }
        for now in 1..=1010 {
            sandbox.advance(sandbox.tick);
            for ((task, sleep), &due) in tasks.iter().zip(&mut sleeps).zip(&delays) {
                assert_eq!(task.wakes(), u32::from(now == due));
                assert_eq!(task.poll(sleep).is_ready(), now >= due);
            }
        }
        assert_eq!(sandbox.armed(), 0);
    });
}

/// Polls whenever the task is woken, until the sleep is ready. Returns the number of wakes.
fn sleep_through(sandbox: &mut Sandbox, sleep: &mut Sleep) -> u32 {
    let (task, mut wakes) = (Task::new(), 0);
    while task.poll(sleep).is_pending() {
        while task.held() > 0 {
            assert!(sandbox.clock.now() < sleep.deadline() + sandbox.tick, "overslept");
            sandbox.leap();
        }
        wakes += task.wakes();
    }
    assert!(sandbox.clock.now() >= sleep.deadline(), "early");
    wakes
}

#[test]
fn a_delay_beyond_the_range_is_slept_through_in_hops() {
    let cases = [
        (MS, YEAR * 4, 1),
        (MS, YEAR * 5, 2),
        (MS, YEAR * 10, 3),
        (Duration::from_micros(1), Duration::from_secs(10 * 86_400), 7),
        (Duration::from_millis(250), YEAR * 130, 4),
    ];
    for (tick, delay, hops) in cases {
        let mut sandbox = Sandbox::of(Builder::new().resolution(tick));
        let mut sleep = sandbox.timer.sleep(delay);
        let deadline = sandbox.clock.start() + delay;
        assert_eq!(sleep.deadline(), deadline);
        assert_eq!(sleep_through(&mut sandbox, &mut sleep), hops, "{delay:?} by {tick:?}");
        assert!(sandbox.clock.now() < deadline + tick);
    }
}

#[test]
fn the_longest_delays_count_as_146_years() {
    let longest = Duration::from_nanos(1 << 62);
    for delay in [Duration::MAX, Duration::MAX - MS, Duration::from_secs(u64::MAX / 10), longest] {
        let mut sandbox = Sandbox::new();
        let mut sleep = sandbox.timer.sleep(delay);
        assert_eq!(sandbox.since_start(sleep.deadline()), longest);
        assert_eq!(sleep_through(&mut sandbox, &mut sleep), 34);
        assert!(sandbox.clock.elapsed() < longest + MS);
    }
}

#[test]
fn a_sleep_that_hops_has_no_id_until_its_last_hop() {
    let mut sandbox = Sandbox::new();
    let task = Task::new();
    let mut sleep = sandbox.timer.sleep(YEAR * 6);
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!(sleep.id(), None);
    sandbox.advance(YEAR * 5);
    assert_eq!(task.wakes(), 1);
    assert!(!sleep.is_elapsed());
    assert!(task.poll(&mut sleep).is_pending());
    assert!(sleep.id().is_some());
    sandbox.advance(YEAR);
    assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
}

#[test]
fn a_year_after_a_year_on_one_timer() {
    let mut sandbox = Sandbox::new();
    for _ in 0..12 {
        let mut year = sandbox.timer.sleep(YEAR);
        assert_eq!(sleep_through(&mut sandbox, &mut year), 1);
    }
    let mut decade = sandbox.timer.sleep(YEAR * 10);
    assert_eq!(sleep_through(&mut sandbox, &mut decade), 3);
    assert!(sandbox.clock.elapsed() < YEAR * 22 + MS);
}

/// Creates a sleep of 100 ticks that has been polled, and its task.
fn armed(sandbox: &Sandbox) -> (Task, Sleep) {
    let (task, mut sleep) = (Task::new(), sandbox.timer.sleep(sandbox.tick * 100));
    assert!(task.poll(&mut sleep).is_pending());
    (task, sleep)
}

#[test]
fn a_reset_before_the_first_poll_only_sets_the_deadline() {
    with_sandboxes(|mut sandbox| {
        let (task, tick) = (Task::new(), sandbox.tick);
        for ticks in [50, 150] {
            let mut sleep = sandbox.timer.sleep(tick * 100);
            sleep.reset_after(tick * ticks);
            assert_eq!(sandbox.armed(), 0);
            assert!(task.poll(&mut sleep).is_pending());
            sandbox.advance(tick * (ticks - 1));
            assert_eq!(task.wakes(), 0);
            sandbox.advance(tick);
            assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
        }
        let mut sleep = sandbox.timer.sleep(tick * 100);
        sleep.reset_after(Duration::ZERO);
        assert_eq!(task.poll(&mut sleep), READY);
    });
}

#[test]
fn a_reset_while_armed_is_obeyed_earlier_and_later() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        for (passed, ticks) in [(0, 200), (0, 80), (10, 80), (99, 1), (99, 52), (99, 500)] {
            let (task, mut sleep) = armed(&sandbox);
            sandbox.advance(tick * passed);
            let (deadline, inserted) = (sandbox.clock.now() + tick * ticks, sandbox.inserted());
            sleep.reset(deadline);
            assert_eq!(sleep.deadline(), deadline);
            assert!(!sleep.is_elapsed());
            sandbox.advance(tick * (ticks - 1));
            assert_eq!(task.wakes(), 0, "the old deadline does not wake");
            assert!(task.poll(&mut sleep).is_pending());
            sandbox.advance(tick);
            assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
            assert_eq!(sandbox.inserted(), inserted, "the timer was moved, and no other made");
        }
    });
}

/// The wheel is updated only for a deadline that is later by more than half of the time that was
/// left.
#[test]
fn a_sleep_pushed_back_a_little_is_woken_once_too_early() {
    let mut sandbox = Sandbox::new();
    let tick = sandbox.tick;
    for (polled, by_id) in [(false, false), (true, false), (true, true)] {
        let (task, mut sleep) = armed(&sandbox);
        sandbox.advance(tick * 30);
        let before = sandbox.inserted();
        sleep.reset_after(tick * 110);
        assert!(!polled || task.poll(&mut sleep).is_pending());
        assert!(!by_id || sleep.id().is_some());
        sandbox.advance(tick * 70);
        assert_eq!(task.wakes(), u32::from(!by_id), "at the old deadline");
        assert!(!sleep.is_elapsed());
        assert!(task.poll(&mut sleep).is_pending());
        sandbox.advance(tick * 39);
        assert!(task.wakes() == 0 && task.poll(&mut sleep).is_pending());
        sandbox.advance(tick);
        assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
        assert_eq!(sandbox.inserted() - before, u64::from(!by_id));
    }
}

/// No other timer can take its place between the old deadline and the new one.
#[test]
fn a_sleep_keeps_its_place() {
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).capacity(1).build().unwrap();
    let (timer, task, other) = (Timer::new(wheel), Task::new(), Task::new());
    let mut sleep = timer.sleep(MS * 100);
    assert!(task.poll(&mut sleep).is_pending());
    clock.advance(MS * 40);
    sleep.reset_after(MS * 100);
    clock.advance(MS * 60);
    assert_eq!(sweeper.sweep(|timer| timer.value.wake()).expired, 0);
    let mut second = timer.sleep(MS);
    assert!(other.poll(&mut second).is_pending(), "lets its task go");
    assert!(matches!(other.poll(&mut second), Poll::Ready(Err(Refusal::AtCapacity { .. }))));
    clock.advance(MS * 40);
    assert_eq!(sweeper.sweep(|timer| timer.value.wake()).expired, 1);
    assert_eq!(task.poll(&mut sleep), READY);
}

/// An armed sleep stays armed, and so does one that is reset then.
#[test]
fn a_sleep_pushed_back_on_a_closed_wheel_ends_at_its_time() {
    let mut sandbox = Sandbox::new();
    let (task, mut sleep) = armed(&sandbox);
    sandbox.timer.wheel().close();
    sleep.reset_after(sandbox.tick * 120);
    sandbox.advance(sandbox.tick * 119);
    assert!(task.wakes() == 0 && task.poll(&mut sleep).is_pending());
    sandbox.advance(sandbox.tick);
    assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
}

#[test]
fn a_sleep_whose_id_others_know_tells_the_wheel_of_each_reset() {
    let sandbox = Sandbox::new();
    let (_task, mut sleep) = armed(&sandbox);
    let id = sleep.id().unwrap();
    for ticks in [120, 121] {
        sleep.reset_after(sandbox.tick * ticks);
        assert_eq!(sandbox.timer.wheel().deadline(id), Some(sleep.deadline()));
    }
}

/// A connection with occasional packets updates the wheel while half of its time is still left.
#[test]
fn a_sleep_pushed_back_again_and_again_is_not_woken() {
    let mut sandbox = Sandbox::new();
    let tick = sandbox.tick;
    let (task, mut sleep) = armed(&sandbox);
    let before = sandbox.timer.metrics().reset;
    for _packet in 0..100 {
        sandbox.advance(tick * 7);
        sleep.reset_after(tick * 100);
        assert!(task.poll(&mut sleep).is_pending());
    }
    assert_eq!(task.wakes(), 0);
    let told = sandbox.timer.metrics().reset - before;
    assert!((10..20).contains(&told), "the wheel was told {told} times");
}

#[test]
fn a_reset_to_the_past_while_armed_wakes_at_the_next_sweep() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        for back in [0, 1, 10] {
            let (task, mut sleep) = armed(&sandbox);
            sandbox.advance(tick * 50);
            sleep.reset(sandbox.clock.now() - tick * back);
            assert_eq!(task.wakes(), 0, "a reset wakes nobody itself");
            assert_eq!(sandbox.advance(Duration::ZERO), 1);
            assert_eq!((task.wakes(), sleep.is_elapsed()), (1, true));
            assert_eq!(task.poll(&mut sleep), READY);
        }
    });
}

/// As in tokio: a reset to now ends a wait without a sweep.
#[test]
fn a_reset_to_the_past_while_armed_is_ready_at_the_next_poll() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        let start = sandbox.clock.start();
        let resets: [&dyn Fn(&mut Sleep); 4] = [
            &|sleep| sleep.reset_after(Duration::ZERO),
            &|sleep| sleep.reset(start + tick * 50),
            &|sleep| sleep.reset(start),
            &|sleep| {
                sleep.reset(start);
                sleep.reset(start + tick * 40);
            },
        ];
        sandbox.advance(tick * 50);
        for (reset, named) in resets.iter().flat_map(|reset| [(reset, false), (reset, true)]) {
            let (task, mut sleep) = (Task::new(), sandbox.timer.sleep(tick * 100));
            assert!(task.poll(&mut sleep).is_pending());
            assert!(!named || sleep.id().is_some());
            reset(&mut sleep);
            assert_eq!((sleep.is_elapsed(), task.wakes()), (!named, 0));
            assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
            assert_eq!((sandbox.armed(), task.held()), (0, 0), "it is not swept any more");
            // Moved earlier, but to a time that is still ahead: it is armed for that.
            sleep.reset_after(tick * 100);
            assert!(task.poll(&mut sleep).is_pending());
            sleep.reset_after(tick * 2);
            assert!(!sleep.is_elapsed() && task.poll(&mut sleep).is_pending());
        }
    });
}

/// A later reset through the id counts.
#[test]
fn a_reset_to_the_past_is_undone_by_a_later_one_by_the_id() {
    let mut sandbox = Sandbox::new();
    let (task, mut sleep) = (Task::new(), sandbox.timer.sleep(MS * 100));
    assert!(task.poll(&mut sleep).is_pending());
    let id = sleep.id().unwrap();
    sleep.reset_after(Duration::ZERO);
    assert_eq!(sandbox.timer.wheel().reset(id, MS * 5), Ok(true));
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!((sandbox.advance(MS * 4), sandbox.advance(MS), task.wakes()), (0, 1, 1));
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
}

#[test]
fn a_reset_after_the_wake_and_before_the_poll_arms_it_anew() {
    with_sandboxes(|mut sandbox| {
        let (tick, inserted) = (sandbox.tick, sandbox.inserted());
        let (task, mut sleep) = armed(&sandbox);
        sandbox.advance(tick * 100);
        assert_eq!(task.wakes(), 1);
        sleep.reset_after(tick * 10);
        assert_eq!((sandbox.armed(), sleep.is_elapsed()), (0, false));
        assert!(task.poll(&mut sleep).is_pending());
        assert_eq!((sandbox.armed(), sandbox.inserted() - inserted), (1, 2));
        sandbox.advance(tick * 10);
        assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
    });
}

#[test]
fn a_reset_after_the_end_arms_it_anew() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        let (task, mut sleep) = armed(&sandbox);
        sandbox.advance(tick * 100);
        for ticks in [1, 10, 600] {
            assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
            sleep.reset_after(tick * ticks);
            assert!(!sleep.is_elapsed());
            assert!(task.poll(&mut sleep).is_pending());
            assert!(task.poll(&mut sleep).is_pending());
            sandbox.advance(tick * ticks);
        }
        assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
        sleep.reset_after(Duration::ZERO);
        assert_eq!((task.poll(&mut sleep), sandbox.armed()), (READY, 0));
    });
}

#[test]
fn a_reset_at_the_instant_of_expiry_comes_too_late_for_that_wake_and_is_obeyed() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        let (task, mut sleep) = armed(&sandbox);
        let taken = sandbox.take(tick * 100);
        sleep.reset_after(tick * 10);
        taken.into_iter().for_each(|timer| timer.value.wake());
        assert_eq!(task.wakes(), 1, "the old timer had fired");
        assert!(task.poll(&mut sleep).is_pending());
        sandbox.advance(tick * 9);
        assert!(task.poll(&mut sleep).is_pending());
        sandbox.advance(tick);
        assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
    });
}

#[test]
fn an_idle_time_out_that_is_pushed_back_for_ever_never_fires_and_is_never_inserted_again() {
    with_sandboxes(|mut sandbox| {
        let tick = sandbox.tick;
        let (task, mut sleep) = armed(&sandbox);
        for _ in 0..2000 {
            sandbox.advance(tick * 7);
            sleep.reset_after(tick * 100);
            assert!(task.poll(&mut sleep).is_pending());
        }
        assert_eq!((task.wakes(), sandbox.inserted(), sandbox.armed()), (0, 1, 1));
        sandbox.advance(tick * 100);
        assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
    });
}

#[test]
fn a_reset_beyond_the_range_and_back_is_obeyed() {
    let mut sandbox = Sandbox::new();
    let (task, mut sleep) = armed(&sandbox);
    sleep.reset_after(YEAR * 9);
    assert_eq!((sandbox.armed(), task.held(), task.wakes()), (1, 1, 0));
    assert!(task.poll(&mut sleep).is_pending());
    sandbox.advance(YEAR);
    assert_eq!(task.wakes(), 0);
    sleep.reset_after(MS * 3);
    sandbox.advance(MS * 2);
    assert_eq!(task.wakes(), 0);
    sandbox.advance(MS);
    assert_eq!((task.wakes(), task.poll(&mut sleep)), (1, READY));
    sleep.reset_after(Duration::MAX);
    assert!(sleep_through(&mut sandbox, &mut sleep) > 30);
}

#[test]
fn two_reset_to_one_tick_and_one_dropped_there_do_not_disturb_each_other() {
    with_sandboxes(|mut sandbox| {
        let (task, tick, start) = (Task::new(), sandbox.tick, sandbox.clock.now());
        let mut sleeps: Vec<Sleep> =
            [5, 5, 10].map(|ticks| sandbox.timer.sleep(tick * ticks)).into();
        sleeps.iter_mut().for_each(|sleep| assert!(task.poll(sleep).is_pending()));
        sleeps[1].reset(start + tick * 10);
        assert_eq!(sandbox.advance(tick * 5), 1);
        assert_eq!(task.poll(&mut sleeps[0]), READY);
        drop(sleeps.remove(1));
        assert_eq!((sandbox.advance(tick * 5), task.wakes()), (1, 2));
        assert_eq!(task.poll(&mut sleeps[1]), READY);
        assert_eq!(sandbox.armed(), 0);
    });
}

#[test]
fn a_poll_after_the_end_gives_the_same_answer_again() {
    let mut sandbox = Sandbox::new();
    let (task, mut sleep) = armed(&sandbox);
    assert!(!is_terminated(&sleep));
    sandbox.advance(MS * 100);
    assert!(!is_terminated(&sleep), "woken, and not yet told so");
    for _ in 0..3 {
        assert_eq!(Task::new().poll(&mut sleep), READY);
        assert_eq!(task.poll(&mut sleep), READY);
        assert!(is_terminated(&sleep) && sleep.is_elapsed());
    }
    sleep.reset_after(MS);
    assert!(!is_terminated(&sleep));
}

fn is_terminated(sleep: &Sleep) -> bool {
    futures_core::FusedFuture::is_terminated(sleep)
}

#[test]
fn a_sleep_moves_freely_between_polls() {
    let mut sandbox = Sandbox::new();
    let (task, sleep) = armed(&sandbox);
    let mut boxed = Box::new((1, sleep));
    assert!(task.poll(&mut boxed.1).is_pending());
    let mut moved = boxed.1;
    assert_eq!(sandbox.inserted(), 1);
    sandbox.advance(MS * 100);
    assert_eq!((task.wakes(), task.poll(&mut moved)), (1, READY));
    // A sleep in an async block, pinned, behaves the same.
    let timer = sandbox.timer.clone();
    let mut block = pin!(async move { timer.sleep(MS).await });
    assert!(Pin::new(&mut block).poll(&mut task.context()).is_pending());
    sandbox.advance(MS);
    assert_eq!(block.as_mut().poll(&mut task.context()), READY);
}

#[test]
fn sleeps_of_all_clones_of_a_timer_are_in_one_wheel() {
    let mut sandbox = Sandbox::new();
    let (task, clone) = (Task::new(), sandbox.timer.clone());
    let mut sleeps = [sandbox.timer.sleep(MS), clone.sleep(MS), clone.clone().sleep(MS)];
    drop(clone);
    sleeps.iter_mut().for_each(|sleep| assert!(task.poll(sleep).is_pending()));
    assert_eq!((sandbox.advance(MS), task.wakes()), (3, 3));
    sleeps.iter_mut().for_each(|sleep| assert_eq!(task.poll(sleep), READY));
}

/// A poll does not read the clock.
#[test]
fn a_sleep_has_elapsed_by_the_clock_before_it_is_swept() {
    with_sandboxes(|mut sandbox| {
        let (task, mut sleep) = (Task::new(), sandbox.timer.sleep(sandbox.tick * 100));
        let instant = Duration::from_nanos(1);
        for _ in 0..2 {
            assert!(task.poll(&mut sleep).is_pending());
        }
        sandbox.clock.advance(sandbox.tick * 100 - instant);
        assert!(!sleep.is_elapsed());
        sandbox.clock.advance(instant);
        assert!(sleep.is_elapsed() && task.poll(&mut sleep).is_pending());
        sandbox.advance(Duration::ZERO);
        assert!(sleep.is_elapsed() && task.poll(&mut sleep).is_ready());
    });
}
