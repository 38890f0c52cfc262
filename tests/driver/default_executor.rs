//! The default executor: its worker, and the pool for batches that arrive while the worker is busy.

use crate::common::receive;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, DriverBuilder, Expired, ManualClock};

const TICK: Duration = Duration::from_millis(1);

/// Holds every thread of rayon's global pool until the returned sender is dropped.
fn hold_the_global_pool() -> (Sender<()>, MutexGuard<'static, ()>) {
    // Two tests that each hold a part of the pool would wait for each other.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let (send, held) = mpsc::channel();
    rayon::spawn_broadcast(move |_| {
        send.send(()).unwrap();
        let _ = released.lock().unwrap().recv();
    });
    receive(&held, rayon::current_num_threads());
    (release, alone)
}

/// Fires one number after the other, and the first handler that the worker runs keeps it busy.
///
/// The handlers of the other numbers have to run all the same, while the global pool is held. `arm`
/// builds the timers under test around the work, and returns a function that arms a number.
fn batches_run_while_the_worker_is_busy<A: Fn(u32)>(
    arm: impl FnOnce(DriverBuilder, Arc<dyn Fn(u32) + Send + Sync>) -> A,
) {
    let clock = ManualClock::new();
    let (send, fired) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let work = Arc::new(move |number| {
        let thread = thread::current().name().unwrap_or_default().to_owned();
        let by_worker = thread == "tourbillon-worker";
        send.send((number, thread)).unwrap();
        if by_worker {
            let _ = released.lock().unwrap().recv();
        }
    });
    let arm = arm(Builder::new().clock(clock.clone()).driver(), work);
    let held = hold_the_global_pool();
    let fire = |number| {
        arm(number);
        clock.advance(TICK);
        let (fired, thread) = receive(&fired, 1).remove(0);
        assert_eq!(fired, number);
        thread
    };
    // Until the worker waits for batches.
    while fire(0) != "tourbillon-worker" {}
    for number in 1..4 {
        let thread = fire(number);
        assert!(thread.starts_with("tourbillon-pool-"), "{thread}");
    }
    drop((release, held));
}

#[test]
fn batches_run_while_the_worker_and_the_program_are_busy() {
    batches_run_while_the_worker_is_busy(|builder, work| {
        let driver = builder.spawn(move |timer: Expired<u32>| work(timer.value)).unwrap();
        move |number| {
            driver.wheel().insert(number, TICK).unwrap();
        }
    });
}

#[test]
fn closures_run_while_the_worker_and_the_program_are_busy() {
    batches_run_while_the_worker_is_busy(|builder, work| {
        let scheduler = tourbillon::scheduler::Scheduler::spawn(builder).unwrap();
        move |number| {
            let work = Arc::clone(&work);
            drop(scheduler.after(TICK, move || work(number)).unwrap());
        }
    });
}

#[test]
#[cfg(feature = "keyed")]
fn keyed_timers_fire_while_the_worker_and_the_program_are_busy() {
    batches_run_while_the_worker_is_busy(|builder, work| {
        let handler = move |number: u32, ()| work(number);
        let timers = tourbillon::keyed::KeyedTimers::spawn(builder, handler).unwrap();
        move |number| {
            timers.insert(number, (), TICK).unwrap();
        }
    });
}

/// The worker belongs to no pool that would keep the task behind the worker's own loop.
#[test]
fn what_a_handler_spawns_on_rayon_runs() {
    let clock = ManualClock::new();
    let (send, ran) = mpsc::channel();
    let driver = Builder::new().clock(clock.clone()).driver().spawn(move |timer: Expired<u32>| {
        let send = send.clone();
        rayon::spawn(move || send.send(timer.value).unwrap());
    });
    let driver = driver.unwrap();
    let ran: Receiver<u32> = ran;
    for number in 0..3 {
        driver.wheel().insert(number, TICK).unwrap();
        clock.advance(TICK);
        assert_eq!(receive(&ran, 1), [number]);
    }
}
