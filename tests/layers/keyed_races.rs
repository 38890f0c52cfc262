//! The keyed timers under drivers, and real threads that race for the values of a few keys.
//!
//! Time is virtual; threads are waited for by channels.

use crate::common::{Bench, SMALL, Shape, operations, receive};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::keyed::{Fired, KeyedTimers, UnfiredKey};
use tourbillon::{Builder, Clock, ExecutorJob, Inline, ManualClock, WaitError};

const TICK: Duration = Duration::from_millis(1);

/// A handle that a handler has given away outlives the owner of the timers.
#[test]
fn the_last_handle_drops_unfired_values_despite_inner_handles() {
    let held = Arc::new(());
    let mut inside = None;
    let owner = KeyedTimers::spawn_with(Builder::new().driver(), |timers| {
        inside = Some(timers);
        |_: Fired<u32, Arc<()>>| ()
    });
    let (owner, inside) = (owner.unwrap(), inside.unwrap());
    owner.insert(7, Arc::clone(&held), Duration::from_secs(60)).unwrap();
    drop(owner);
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(!inside.contains(&7) && inside.insert(7, held, Duration::ZERO).is_err());
}

/// A drop may happen under any lock, including one that a handler takes.
#[test]
#[allow(clippy::disallowed_methods, reason = "the drop is another thread's, and may hang")]
fn the_last_handle_may_be_dropped_under_a_lock_that_a_handler_takes() {
    let (clock, lock) = (ManualClock::new(), Arc::new(Mutex::new(())));
    let (send, told) = mpsc::channel();
    let (inside, from_inside) = (Arc::clone(&lock), send.clone());
    let builder = Builder::new().clock(clock.clone()).driver().executor(Inline);
    let timers = KeyedTimers::spawn(builder, move |_: u32, value: &str| {
        from_inside.send("begun").unwrap();
        drop(inside.lock().unwrap());
        from_inside.send(value).unwrap();
    })
    .unwrap();
    timers.insert(7, "fired", TICK).unwrap();
    let held = lock.lock().unwrap();
    clock.advance(TICK);
    assert_eq!(receive(&told, 1), ["begun"]);
    // The lock is held until the drop has ended.
    thread::spawn(move || {
        drop(timers);
        send.send("dropped").unwrap();
    });
    assert_eq!(receive(&told, 1), ["dropped"]);
    drop(held);
    assert_eq!(receive(&told, 1), ["fired"]);
    assert!(told.recv().is_err(), "the handler goes with the tick thread");
}

/// Sends on its channel when it is dropped, and panics.
struct Panics(u32, mpsc::Sender<u32>);

impl Drop for Panics {
    fn drop(&mut self) {
        self.1.send(self.0).unwrap();
        resume_unwind(Box::new("a drop that panics"));
    }
}

#[test]
fn a_value_whose_drop_panics_does_not_affect_others() {
    let (send, dropped) = mpsc::channel();
    let timers = KeyedTimers::spawn(Builder::new().driver(), |_: u32, _: Panics| ()).unwrap();
    for key in 0..9 {
        let set = timers.insert(key, Panics(key, send.clone()), Duration::from_secs(60));
        assert!(set.is_ok_and(|old| old.is_none()));
    }
    drop(timers);
    let mut all = receive(&dropped, 9);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Like a closure that runs once.
#[test]
fn a_value_need_not_be_sync() {
    type Once = Box<dyn FnOnce() -> u32 + Send>;
    let (send, fired) = mpsc::channel();
    let timers = KeyedTimers::spawn(Builder::new().driver(), move |key: u32, value: Once| {
        send.send(key + value()).unwrap();
    });
    let timers = timers.unwrap();
    let set = timers.insert(40, Box::new(|| 2), TICK);
    assert!(set.is_ok_and(|old| old.is_none()));
    assert_eq!(receive(&fired, 1), [42]);
    let counted = KeyedTimers::new(Builder::new().build().unwrap().0);
    counted.insert(7, Cell::new(1), TICK).unwrap_err();
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&counted);
}

#[test]
fn a_driver_fires_and_goes_with_the_last_handle() {
    let (clock, alive) = (ManualClock::new(), Arc::new(()));
    let (send, fired) = mpsc::channel();
    let held = Arc::clone(&alive);
    // On the tick thread, so that no worker holds the handler after it was dropped.
    let builder = Builder::new().clock(clock.clone()).driver().executor(Inline);
    let timers = KeyedTimers::spawn_with(builder, |timers| {
        move |Fired { key, value, .. }: Fired<u32, Arc<()>>| {
            assert!(Arc::ptr_eq(&held, &value) && !timers.contains(&key));
            // Refused after the driver was dropped.
            let _ = timers.insert(key + 1, value, TICK);
            send.send(key).unwrap();
        }
    })
    .unwrap();
    timers.insert(7, Arc::clone(&alive), TICK).unwrap();
    for key in 7..10 {
        clock.advance(TICK);
        assert_eq!(receive(&fired, 1), [key]);
    }
    let (wheel, last) = (timers.wheel().clone(), timers.clone());
    drop(timers);
    assert!(!wheel.is_closed() && last.driver().is_some());
    drop(last);
    assert!(wheel.is_closed());
    // The handler was dropped with its sender and its handle of the timers, and so were the values.
    assert!(fired.recv().is_err());
    while Arc::strong_count(&alive) > 1 {
        // The tick thread drops the handler's fields one after the other.
        thread::yield_now();
    }
    let refused = Builder::new().driver().batch(0);
    assert!(KeyedTimers::spawn(refused, |_: u32, _: u32| ()).is_err());
}

/// A driver whose jobs wait in a queue for the test to run, or to drop.
fn queued(
    clock: &ManualClock,
) -> (KeyedTimers<u32, u32>, mpsc::Receiver<ExecutorJob>, mpsc::Receiver<u32>) {
    let (give, jobs) = mpsc::channel();
    let (send, fired) = mpsc::channel();
    let builder = Builder::new().clock(clock.clone()).driver();
    let builder = builder.executor(move |job| give.send(job).unwrap());
    let timers = KeyedTimers::spawn(builder, move |key, value| send.send(key + value).unwrap());
    (timers.unwrap(), jobs, fired)
}

#[test]
fn a_firing_that_waits_for_the_executor_is_superseded() {
    let clock = ManualClock::new();
    let (timers, jobs, fired) = queued(&clock);
    for key in [10, 20, 30] {
        timers.insert(key, 1, TICK).unwrap();
    }
    clock.advance(TICK);
    let job = receive(&jobs, 1).remove(0);
    assert_eq!(timers.reset(&10, TICK), Ok(true));
    assert_eq!(timers.insert(20, 2, TICK), Ok(Some(1)));
    job();
    assert_eq!(fired.try_iter().collect::<Vec<_>>(), [31]);
    clock.advance(TICK);
    receive(&jobs, 1).remove(0)();
    let mut rest: Vec<u32> = fired.try_iter().collect();
    rest.sort_unstable();
    assert_eq!(rest, [11, 22]);
}

#[test]
fn a_shutdown_returns_what_an_executor_dropped() {
    let clock = ManualClock::new();
    let (timers, jobs, fired) = queued(&clock);
    timers.insert(10, 1, TICK).unwrap();
    timers.insert(20, 2, TICK * 9).unwrap();
    clock.advance(TICK);
    drop(receive(&jobs, 1));
    let mut stopped = timers.shutdown();
    stopped.sort_unstable_by_key(|unfired| unfired.key);
    let due = UnfiredKey { key: 10, value: 1, deadline: clock.now() };
    let later = UnfiredKey { key: 20, value: 2, deadline: clock.start() + TICK * 9 };
    assert_eq!(stopped, [due, later]);
    assert!(timers.shutdown().is_empty() && fired.try_recv().is_err());
    assert_eq!(timers.driver().unwrap().wait(), Ok(()));
    assert_eq!(timers.driver().unwrap().metrics().armed, 0);
}

/// On the tick thread itself, where no other thread could run the parts that it waits for.
#[test]
fn a_handler_can_drain_wait_and_shut_down() {
    let clock = ManualClock::new();
    let (send, told) = mpsc::channel();
    let builder = Builder::new().clock(clock.clone()).driver().executor(Inline);
    let timers = KeyedTimers::spawn_with(builder, |timers| {
        move |_: Fired<u32, u32>| {
            let drained = timers.drain(|_, value| assert_eq!(value, 2)).wait().keys;
            timers.insert(30, 3, TICK).unwrap();
            let stopped = timers.shutdown().len();
            let waited = timers.driver().unwrap().wait();
            send.send((drained, stopped, waited)).unwrap();
        }
    })
    .unwrap();
    timers.insert(20, 2, TICK * 9).unwrap();
    timers.insert(10, 1, TICK).unwrap();
    clock.advance(TICK);
    assert_eq!(receive(&told, 1), [(1, 1, Err(WaitError::InsideHandler))]);
    assert!(timers.shutdown().is_empty());
}

/// The ledger of all values. Each must come out once.
struct Ledger {
    ended: Vec<AtomicUsize>,
    next: AtomicUsize,
}

impl Ledger {
    fn end(&self, value: usize) {
        assert_eq!(self.ended[value].fetch_add(1, Relaxed), 0, "{value} came out twice");
    }

    /// One caller's random operations on a few keys that all callers use.
    fn work(&self, timers: &KeyedTimers<u8, usize>, seed: u64, operations: usize) {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..operations {
            let (key, delay) = (random.u8(..4), TICK / 2 * random.u32(..8));
            match random.u8(..8) {
                0..4 => {
                    let value = self.next.fetch_add(1, Relaxed);
                    let out = timers.insert(key, value, delay);
                    if let Some(old) = out.unwrap_or_else(|refused| Some(refused.value)) {
                        self.end(old);
                    }
                }
                4..6 => drop(timers.reset(&key, delay).unwrap()),
                6 => drop(timers.cancel(&key).map(|value| self.end(value))),
                _ => drop((timers.get(&key), timers.deadline(&key), timers.len())),
            }
        }
    }
}

/// Real threads on few keys, a sweeper or a driver, an occasional drain, and a shutdown in the
/// middle. Every value that was inserted comes out once.
#[allow(clippy::disallowed_methods, reason = "the test is about threads")]
fn race(timers: &KeyedTimers<u8, usize>, ledger: &Arc<Ledger>, mut meanwhile: impl FnMut(bool)) {
    let each = ledger.ended.len() / 4;
    thread::scope(|scope| {
        let callers: Vec<_> =
            (0..4).map(|seed| scope.spawn(move || ledger.work(timers, seed, each))).collect();
        let mut rounds = 0_u32..;
        while !callers.iter().all(thread::ScopedJoinHandle::is_finished) {
            meanwhile(false);
            if rounds.next().is_some_and(|round| round % 16 == 0) {
                let noted = Arc::clone(ledger);
                drop(timers.drain(move |_, value| noted.end(value)));
            }
            if ledger.next.load(Relaxed) > ledger.ended.len() / 3 {
                timers.shutdown().into_iter().for_each(|unfired| ledger.end(unfired.value));
            }
        }
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
    timers.shutdown().into_iter().for_each(|unfired| ledger.end(unfired.value));
    meanwhile(true);
    assert!(timers.is_empty());
    let begun = ledger.next.load(Relaxed);
    let ended = ledger.ended.iter().filter(|ended| ended.load(Relaxed) == 1).count();
    assert_eq!(ended, begun, "lost");
    assert!(begun > ledger.ended.len() / 3, "too little happened");
}

fn ledger() -> Arc<Ledger> {
    let ended = (0..operations()).map(|_| AtomicUsize::new(0)).collect();
    Arc::new(Ledger { ended, next: AtomicUsize::new(0) })
}

#[test]
fn every_value_comes_out_once_beside_a_sweeper() {
    let (ledger, shape) =
        (ledger(), Shape { tick: TICK, shards: 2, geometry: SMALL, first_tick: 0 });
    let Bench { wheel, mut sweeper, clock, .. } = Bench::new(shape);
    let timers = KeyedTimers::new(wheel);
    race(&timers, &ledger, |_| {
        clock.advance(TICK);
        let _ = sweeper.sweep(|timer| {
            if let Some((_, value)) = timers.fire(timer) {
                ledger.end(value);
            }
        });
    });
}

#[test]
fn every_value_comes_out_once_beside_a_driver() {
    let (ledger, clock) = (ledger(), ManualClock::new());
    let noted = Arc::clone(&ledger);
    let builder = Builder::new().clock(clock.clone()).driver().batch(2);
    let timers = KeyedTimers::spawn(builder, move |_, value| noted.end(value)).unwrap();
    race(&timers, &ledger, |last| {
        clock.advance(TICK);
        if last {
            timers.driver().unwrap().wait().unwrap();
        }
    });
}
