//! Virtual time that jumps by itself.

#![allow(clippy::disallowed_methods, reason = "one of these tests is about a thread")]

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::future::{DelayQueue, TimeoutError};
use tourbillon::testing::{World, block_on};
use tourbillon::{Builder, ManualClock};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn nothing_is_late_and_nothing_waits() {
    let elapsed = block_on(|timer| async move {
        let start = timer.now();
        let mut ticks = timer.interval(HOUR).unwrap();
        for _ in 0..1_000 {
            ticks.tick().await.unwrap();
        }
        timer.now() - start
    });
    assert_eq!(elapsed, HOUR * 999);
}

#[test]
fn tasks_are_interleaved_by_their_times() {
    let mut world = World::new();
    let seen = Rc::new(RefCell::new(Vec::new()));
    for (name, period) in [("two", HOUR * 2), ("three", HOUR * 3)] {
        let (timer, seen) = (world.timer().share(), Rc::clone(&seen));
        world.spawn(async move {
            loop {
                timer.sleep(period).await.unwrap();
                seen.borrow_mut().push(name);
            }
        });
    }
    let end = world.timer().sleep(HOUR * 7);
    world.block_on(end).unwrap();
    let order = seen.borrow().clone();
    assert_eq!(order[..2], ["two", "three"]);
    assert_eq!(order.iter().filter(|&&name| name == "two").count(), 3);
    assert_eq!(order.iter().filter(|&&name| name == "three").count(), 2);
    assert_eq!(world.clock().elapsed(), HOUR * 7);
}

#[test]
fn tasks_are_spawned_from_within_and_go_on_in_the_next_call() {
    let mut world = World::with_builder(Builder::new().resolution(HOUR / 60).shards(2)).unwrap();
    let (spawner, timer, seen) = (world.spawner(), world.timer().share(), Rc::new(RefCell::new(0)));
    let counted = Rc::clone(&seen);
    world.block_on(async move {
        let later = timer.sleep(HOUR);
        spawner.spawn(async move {
            later.await.unwrap();
            *counted.borrow_mut() += 1;
        });
    });
    assert_eq!(*seen.borrow(), 0);
    let more = world.timer().sleep(HOUR * 2);
    world.block_on(more).unwrap();
    assert_eq!(*seen.borrow(), 1);
}

#[test]
fn a_ready_future_moves_no_time() {
    let mut world = World::new();
    let ready = world.timer().timeout(HOUR, async { 7 });
    assert_eq!(world.block_on(ready), Ok::<_, TimeoutError>(7));
    assert_eq!(world.clock().elapsed(), Duration::ZERO);
}

#[test]
#[should_panic(expected = "no timer is armed")]
fn a_future_that_would_wait_for_ever_is_told() {
    block_on(|_| std::future::pending::<()>());
}

#[test]
fn time_stands_still_while_a_task_is_awake() {
    let mut world = World::new();
    let (clock, mut hour) = (world.clock().clone(), world.timer().sleep(HOUR));
    let mut polls = 0;
    world.block_on(poll_fn(move |context| {
        assert!(Pin::new(&mut hour).poll(context).is_pending());
        assert_eq!(clock.elapsed(), Duration::ZERO);
        polls += 1;
        if polls == 3 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }));
}

#[test]
#[should_panic(expected = "different clock")]
fn a_wheel_by_another_clock_is_noticed() {
    let mut world = World::new();
    let (wheel, sweeper) = Builder::new().clock(ManualClock::new()).build().unwrap();
    wheel.insert(7, HOUR).unwrap();
    world.add(sweeper, |_| ());
    world.block_on(std::future::pending::<()>());
}

/// Two wheels beside the world's own. Each fires at its time, in order.
#[test]
fn other_wheels_fire_between_what_the_tasks_wait_for() {
    let mut world = World::new();
    let told = Rc::new(RefCell::new(Vec::new()));
    for (name, minutes) in [("later", 50), ("sooner", 20)] {
        let builder = Builder::new().clock(world.clock().clone());
        let (wheel, sweeper) = builder.build::<&str>().unwrap();
        wheel.insert(name, HOUR / 60 * minutes).unwrap();
        let (told, clock) = (Rc::clone(&told), world.clock().clone());
        world.add(sweeper, move |timer| {
            told.borrow_mut().push((timer.value, clock.elapsed()));
        });
    }
    let sleep = world.timer().sleep(HOUR);
    world.block_on(sleep).unwrap();
    let minute = HOUR / 60;
    assert_eq!(*told.borrow(), [("sooner", 20 * minute), ("later", 50 * minute)]);
    assert_eq!(world.clock().elapsed(), HOUR);
}

#[test]
#[cfg(feature = "cron")]
fn a_calendar_reads_the_time_of_day_of_the_world() {
    use tourbillon::scheduler::Calendar;

    let elapsed = block_on(|timer| async move {
        let start = timer.now();
        let mut ticks = timer.ticks(Calendar::new("30 2 * * *", "UTC").unwrap());
        for _ in 0..2 {
            ticks.tick().await.unwrap().unwrap();
        }
        timer.now() - start
    });
    assert_eq!(elapsed, HOUR * 26 + HOUR / 2, "from midnight");
}

/// Also a calendar that is created before the world runs, and calendars of several worlds.
#[test]
#[cfg(feature = "cron")]
fn calendars_follow_the_world_that_runs() {
    use std::time::SystemTime;
    use tourbillon::scheduler::Calendar;

    let [mut first, mut second] = [World::new(), World::new()];
    let billennium = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    first.clock().set_wall(billennium); // 01:46:40
    for (world, until) in
        [(&mut first, HOUR / 60 * 13 + Duration::from_secs(20)), (&mut second, HOUR * 2)]
    {
        let mut ticks = world.timer().ticks(Calendar::new("0 2 * * *", "UTC").unwrap());
        world.block_on(async move { ticks.tick().await }).unwrap().unwrap();
        assert_eq!(world.clock().elapsed(), until);
    }
}

#[test]
fn tasks_come_from_other_threads_too() {
    let mut world = World::new();
    let (spawner, timer) = (world.remote_spawner(), world.timer().clone());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_by_tasks = Arc::clone(&seen);
    let other = thread::spawn(move || {
        for hours in [3, 1, 2] {
            let (sleep, seen) = (timer.sleep(HOUR * hours), Arc::clone(&seen_by_tasks));
            spawner.spawn(async move {
                sleep.await.unwrap();
                seen.lock().unwrap().push(hours);
            });
        }
    });
    other.join().unwrap();
    let end = world.timer().sleep(HOUR * 4);
    world.block_on(end).unwrap();
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
}

#[test]
fn time_leaps_for_a_queue_on_a_timer_that_is_full() {
    let mut world = World::with_builder(Builder::new().capacity(1)).unwrap();
    let timer = world.timer().share();
    let mut queue = DelayQueue::new(&timer, Builder::new()).unwrap();
    let values = world.block_on(async move {
        queue.insert(1, HOUR).unwrap();
        queue.insert(2, HOUR * 2).unwrap();
        let first = poll_fn(|context| queue.poll_expired(context)).await;
        let mut place = timer.sleep(HOUR * 3);
        assert!(Pin::new(&mut place).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let second = poll_fn(|context| queue.poll_expired(context)).await;
        [first, second].map(|expired| expired.map(|expired| expired.value))
    });
    assert_eq!((values, world.clock().elapsed()), ([Some(1), Some(2)], HOUR * 2));
}
