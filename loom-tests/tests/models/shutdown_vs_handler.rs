//! The driver. Shutdown runs against handlers, inserts, and another shutdown, and waking runs
//! against resting.
//!
//! The driver parks and waits for condition variables, but loom has no timeouts for that. These
//! models therefore run under shuttle only, which reports a deadlock if all threads wait.

use loom_tests::explorer::sync::Mutex;
use loom_tests::explorer::thread;
use loom_tests::{
    Builder, Driver, DriverBuilder, Executor, ExecutorJob, Expired, Inline, ManualClock, TICK,
    Value, WaitError, beside, random, tiny, v,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The number of random schedules of each model.
const SCHEDULES: usize = 10_000;

/// The values that have been fired or handed back.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Vec<u64>>>);

impl Ended {
    fn add(&self, values: impl IntoIterator<Item = Value>) {
        self.0.lock().unwrap().extend(values.into_iter().map(u64::from));
    }

    fn sorted(&self) -> Vec<u64> {
        let mut ended = self.0.lock().unwrap().clone();
        ended.sort_unstable();
        ended
    }
}

/// Runs each job on a thread of its own.
fn pool(job: ExecutorJob) {
    thread::spawn(job);
}

/// Creates a driver whose handler records the values that fire.
fn driver(
    clock: &ManualClock,
    executor: impl Executor,
    set: impl FnOnce(DriverBuilder) -> DriverBuilder,
) -> (Arc<Driver<Value>>, Ended) {
    let ended = Ended::default();
    let noted = ended.clone();
    let builder = set(tiny(Builder::new(), clock).driver().executor(executor));
    let driver = builder.spawn(move |timer: Expired<Value>| noted.add([timer.value])).unwrap();
    (Arc::new(driver), ended)
}

fn shut_down(driver: &Driver<Value>, ended: &Ended) {
    ended.add(driver.shutdown().into_iter().map(|timer| timer.value));
}

#[test]
fn while_timers_fire() {
    random(SCHEDULES, || {
        let clock = ManualClock::new();
        let (driver, ended) = driver(&clock, pool, |builder| builder.batch(1));
        for number in 1..=3 {
            driver.wheel().insert(v(number), TICK).unwrap();
        }
        let mover = thread::spawn({
            let clock = clock.clone();
            move || clock.advance(TICK)
        });
        shut_down(&driver, &ended);
        driver.wait().unwrap();
        assert_eq!(ended.sorted(), [1, 2, 3]);
        mover.join().unwrap();
        assert!(driver.shutdown().is_empty());
    });
}

#[test]
fn twice_at_once() {
    random(SCHEDULES, || {
        let clock = ManualClock::new();
        let (driver, ended) = driver(&clock, pool, |builder| builder);
        driver.wheel().insert(v(1), TICK).unwrap();
        driver.wheel().insert(v(2), TICK * 9).unwrap();
        clock.advance(TICK);
        let other = thread::spawn({
            let (driver, ended) = (Arc::clone(&driver), ended.clone());
            move || shut_down(&driver, &ended)
        });
        shut_down(&driver, &ended);
        other.join().unwrap();
        driver.wait().unwrap();
        assert_eq!(ended.sorted(), [1, 2]);
    });
}

#[test]
fn against_inserts() {
    random(SCHEDULES, || {
        let clock = ManualClock::new();
        let (driver, ended) = driver(&clock, pool, |builder| builder);
        let inserters = [1, 2].map(|number| {
            beside(driver.wheel(), move |wheel| wheel.insert(v(number), Duration::ZERO).is_ok())
        });
        shut_down(&driver, &ended);
        driver.wait().unwrap();
        let accepted = inserters.map(|inserter| inserter.join().unwrap());
        let expected: Vec<u64> =
            [1, 2].into_iter().zip(accepted).filter(|pair| pair.1).map(|pair| pair.0).collect();
        assert_eq!(ended.sorted(), expected);
    });
}

/// Shuts down from inside a handler, on the tick thread itself and beside it.
fn from_a_handler(executor: impl Executor + Copy) {
    random(SCHEDULES, move || {
        let clock = ManualClock::new();
        let ended = Ended::default();
        let place: Arc<OnceLock<Driver<Value>>> = Arc::default();
        let (inside, noted) = (Arc::downgrade(&place), ended.clone());
        let handler = move |timer: Expired<Value>| {
            noted.add([timer.value]);
            let place = inside.upgrade().unwrap();
            let driver = place.get().unwrap();
            shut_down(driver, &noted);
            assert_eq!(driver.wait(), Err(WaitError::InsideHandler));
        };
        let builder = tiny(Builder::new(), &clock).driver().executor(executor).batch(1);
        assert!(place.set(builder.spawn(handler).unwrap()).is_ok());
        let driver = place.get().unwrap();
        for number in 1..=2 {
            // Refused once a handler has shut the driver down.
            if let Err(refused) = driver.wheel().insert(v(number), Duration::ZERO) {
                ended.add([refused.value]);
            }
        }
        shut_down(driver, &ended);
        driver.wait().unwrap();
        assert_eq!(ended.sorted(), [1, 2]);
    });
}

#[test]
fn from_a_handler_on_the_tick_thread() {
    from_a_handler(Inline);
}

#[test]
fn from_a_handler_on_a_pool() {
    from_a_handler(pool);
}

/// A parked tick thread is woken by an insert, by the clock and by the end of a batch. Otherwise
/// all threads would wait.
#[test]
fn nothing_sleeps_through_a_deadline() {
    random(SCHEDULES, || {
        let clock = ManualClock::new();
        let (send, fired) = shuttle::sync::mpsc::channel();
        let driver = tiny(Builder::new(), &clock)
            .driver()
            .executor(pool)
            .batch(1)
            .max_in_flight(1)
            .spawn(move |timer: Expired<Value>| send.send(u64::from(timer.value)).unwrap())
            .unwrap();
        let later = beside(driver.wheel(), |wheel| wheel.insert(v(1), TICK * 2).unwrap());
        driver.wheel().insert(v(2), TICK).unwrap();
        driver.wheel().insert(v(3), TICK).unwrap();
        clock.advance(TICK * 2);
        let mut values = [fired.recv().unwrap(), fired.recv().unwrap()];
        values.sort_unstable();
        later.join().unwrap();
        clock.advance(TICK * 2);
        let last = fired.recv().unwrap();
        assert_eq!(values.iter().chain([&last]).sum::<u64>(), 6);
        assert!(driver.shutdown().is_empty());
    });
}
