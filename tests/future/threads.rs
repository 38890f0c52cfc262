//! Real threads with sleeps and delay queues, with a driver on the real clock.
//!
//! Sleeps are awaited, reset by their owners and by other threads, passed from task to task and
//! dropped, many of them around the instant of their expiry. None completes early by the clock, and
//! each awaited one completes, because a lost wake-up would show as an endless wait.
//! `TOURBILLON_STRESS_OPS` sets the length of a run.

#![allow(clippy::disallowed_methods, reason = "the test is about threads")]

use crate::common::operations;
use crate::common::sandbox::{Task, waker};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::future::{DelayQueue, DelayQueueHandle, Sleep, TimeoutError, Timer};
use tourbillon::{Builder, TimerId};

const TICK: Duration = Duration::from_micros(250);

fn timer() -> Timer {
    let builder = Builder::new().resolution(TICK).shards(2);
    Timer::spawn(builder.driver()).unwrap()
}

/// Returns four times the number of cores.
fn threads() -> usize {
    4 * thread::available_parallelism().map_or(2, usize::from)
}

/// Waits for a future, with a limit so that a broken build does not hang.
fn block_on<F: Future>(future: F) -> F::Output {
    let (wake, woken) = mpsc::channel();
    let wake = Mutex::new(wake);
    let waker = waker(move || {
        let _ = wake.lock().unwrap().send(());
    });
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        woken.recv_timeout(Duration::from_secs(60)).expect("no wake-up is lost");
    }
}

/// One thread's random sleeps.
struct Sleeper<'a> {
    timer: Timer,
    /// Ids of sleeps of all threads, to be reset.
    shared: &'a [AtomicU64],
    random: fastrand::Rng,
}

impl Sleeper<'_> {
    fn run(&mut self, sleeps: usize) {
        for _ in 0..sleeps {
            match self.random.u32(..8) {
                0..2 => self.awaited(),
                2 => self.reset_while_awaited(),
                3 => self.reset_by_others(),
                4 => self.handed_on(),
                5 => self.timed_out(),
                6 => self.dropped_around_its_deadline(),
                _ => (0..16).for_each(|_| self.given_up()),
            }
        }
    }

    fn delay(&mut self) -> Duration {
        TICK / 8 * self.random.u32(..40)
    }

    fn sleep(&mut self) -> Sleep {
        let delay = self.delay();
        self.timer.sleep(delay)
    }

    /// Awaits a sleep and checks that it does not complete early.
    fn end(&self, mut sleep: Sleep) {
        assert_eq!(block_on(&mut sleep), Ok(()));
        assert!(self.timer.now() >= sleep.deadline(), "early");
    }

    fn awaited(&mut self) {
        let sleep = self.sleep();
        self.end(sleep);
    }

    fn reset_while_awaited(&mut self) {
        let mut sleep = self.sleep();
        let mut resets = self.random.u32(1..6);
        assert_eq!(
            block_on(poll_fn(|context| {
                let polled = Pin::new(&mut sleep).poll(context);
                if resets == 0 {
                    return polled;
                }
                resets -= 1;
                sleep.reset_after(self.delay());
                Pin::new(&mut sleep).poll(context)
            })),
            Ok(())
        );
        assert!(self.timer.now() >= sleep.deadline(), "early");
    }

    /// Other threads may move the sleep, and it completes at some time.
    fn reset_by_others(&mut self) {
        let mut sleep = self.sleep();
        let place = self.random.usize(..self.shared.len());
        assert_eq!(
            block_on(poll_fn(|context| {
                let polled = Pin::new(&mut sleep).poll(context);
                let id = sleep.id().map_or(0, TimerId::to_bits);
                self.shared[place].store(id, Relaxed);
                for _ in 0..3 {
                    let delay = self.delay();
                    let other = self.random.usize(..self.shared.len());
                    if let Some(other) = TimerId::from_bits(self.shared[other].load(Relaxed)) {
                        let _ = self.timer.wheel().reset(other, delay).unwrap();
                    }
                }
                polled
            })),
            Ok(())
        );
    }

    /// A different task polls first, and the one that waits takes over.
    fn handed_on(&mut self) {
        let mut sleep = self.sleep();
        let tasks = [Task::new(), Task::new()];
        for _ in 0..self.random.u32(..6) {
            let _ = self.random.choice(&tasks).unwrap().poll(&mut sleep);
        }
        self.end(sleep);
        let wakes: u32 = tasks.iter().map(Task::wakes).sum();
        assert!(wakes <= 1, "woken {wakes} times by one sleep");
    }

    fn timed_out(&mut self) {
        let (short, long) = (self.delay(), self.delay());
        let inner = self.timer.sleep(long);
        match block_on(self.timer.timeout(short, inner)) {
            Ok(slept) => assert_eq!(slept, Ok(())),
            Err(error) => assert_eq!(error, TimeoutError::Elapsed),
        }
    }

    fn dropped_around_its_deadline(&mut self) {
        let (task, mut sleep) = (Task::new(), self.sleep());
        let _ = task.poll(&mut sleep);
        let late = TICK / 8 * self.random.u32(..16);
        while self.timer.now() + TICK < sleep.deadline() + late {
            thread::yield_now();
        }
        if self.random.bool() {
            sleep.reset_after(TICK);
        }
        drop(sleep);
        assert!(task.wakes() <= 1);
    }

    fn given_up(&mut self) {
        let mut sleep = self.timer.sleep(TICK * 40_000);
        let task = Task::new();
        assert!(task.poll(&mut sleep).is_pending());
        sleep.reset_after(TICK * 50_000);
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(sleep);
        assert_eq!((task.wakes(), task.held()), (0, 0));
    }
}

#[test]
fn sleeps_of_many_threads_all_end_and_none_early() {
    let (timer, threads) = (timer(), threads());
    let sleeps = (operations() / 4 / threads).max(10);
    let shared: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for seed in 0..threads as u64 {
            let (timer, shared) = (timer.clone(), &shared[..]);
            let random = fastrand::Rng::with_seed(seed);
            scope.spawn(move || Sleeper { timer, shared, random }.run(sleeps));
        }
    });
    assert_eq!(timer.wheel().len(), 0);
    let metrics = timer.wheel().metrics();
    assert_eq!(metrics.inserted, metrics.fired + metrics.cancelled);
    assert_eq!(timer.driver().unwrap().metrics().handler_panics, 0);
}

#[test]
fn a_shutdown_in_the_midst_of_it_wakes_every_sleep() {
    for round in 0..20_u64 {
        let (timer, ended) = (timer(), AtomicUsize::new(0));
        let threads = threads();
        thread::scope(|scope| {
            for which in 0..threads {
                let (timer, ended) = (timer.clone(), &ended);
                scope.spawn(move || {
                    let far = timer.sleep(TICK * 400_000);
                    let near = timer.sleep(TICK / 4 * u32::try_from(which).unwrap_or(0));
                    let _ = block_on(near);
                    assert!(block_on(far).is_err(), "only the shutdown ends it");
                    ended.fetch_add(1, Relaxed);
                });
            }
            while timer.wheel().metrics().inserted < round % 8 {
                thread::yield_now();
            }
            timer.shutdown();
        });
        assert_eq!((ended.load(Relaxed), timer.wheel().len()), (threads, 0));
    }
}

/// The fate of each value of a queue.
struct Ledger(Vec<AtomicU32>);

impl Ledger {
    fn end(&self, value: usize) {
        assert_eq!(self.0[value].fetch_add(1, Relaxed), 0, "value {value} came twice");
    }
}

/// Inserts values, and cancels and resets the values of all producers.
fn produce(
    timer: &Timer,
    queue: &DelayQueueHandle<usize>,
    values: std::ops::Range<usize>,
    shared: &[AtomicU64],
    ledger: &Ledger,
) {
    let mut random = fastrand::Rng::with_seed(values.start as u64);
    for value in values {
        if value % 64 == 0 {
            assert_eq!(block_on(timer.sleep(TICK)), Ok(()));
        }
        let delay = TICK / 8 * random.u32(..80);
        let id = queue.insert(value, delay).unwrap();
        shared[random.usize(..shared.len())].store(id.to_bits(), Relaxed);
        let other = shared[random.usize(..shared.len())].load(Relaxed);
        let Some(other) = TimerId::from_bits(other) else { continue };
        match random.u32(..4) {
            0 => queue.cancel(other).into_iter().for_each(|value| ledger.end(value)),
            1 => {
                let _ = queue.reset(other, delay).unwrap();
            }
            2 if random.u32(..500) == 0 => {
                queue.drain().into_iter().for_each(|armed| ledger.end(armed.value));
            }
            _ if random.u32(..20) == 0 => thread::yield_now(),
            _ => (),
        }
    }
}

/// Producers that come and go, and one consumer. The stream ends with the last of them.
#[test]
fn each_value_of_a_queue_comes_out_once_and_none_early() {
    let (timer, threads) = (timer(), threads());
    let each = operations() * 2 / threads;
    let ledger = Arc::new(Ledger((0..each * threads).map(|_| AtomicU32::new(0)).collect()));
    let builder = Builder::new().resolution(TICK).shards(2);
    let mut queue = DelayQueue::new(&timer, builder).unwrap();
    let shared: Vec<AtomicU64> = (0..32).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for producer in 0..threads {
            let (timer, handle) = (&timer, queue.handle());
            let (shared, ledger) = (&shared[..], &ledger);
            let values = producer * each..(producer + 1) * each;
            scope.spawn(move || produce(timer, &handle, values, shared, ledger));
        }
        let came = scope.spawn(|| {
            let mut came = 0;
            while let Some(expired) = block_on(poll_fn(|context| queue.poll_expired(context))) {
                assert!(timer.now() >= expired.deadline, "early");
                ledger.end(expired.value);
                came += 1;
            }
            came
        });
        assert!(came.join().unwrap() > each, "too little came out");
    });
    assert!(queue.is_empty());
    assert!(ledger.0.iter().all(|ended| ended.load(Relaxed) == 1), "lost");
}

/// The stream is woken for its end by the last handle's drop, its removal, or a close.
#[test]
fn a_queue_whose_handles_all_go_ends() {
    let timer = timer();
    for round in 0..300 {
        let timer = &timer;
        let mut queue = DelayQueue::new(timer, Builder::new().shards(1)).unwrap();
        thread::scope(|scope| {
            for which in 0..3 {
                let handle = queue.handle();
                scope.spawn(move || {
                    if let Ok(id) = handle.insert(which, TICK * 400_000) {
                        assert!(handle.cancel(id).is_some());
                    }
                    if round % 3 == 0 {
                        handle.close();
                    }
                });
            }
            assert!(block_on(poll_fn(|context| queue.poll_expired(context))).is_none());
        });
    }
}
