//! The driver: shutdowns from all threads, the bound on timers in flight, and all kinds of
//! executors. Time is virtual, and the tests wait for threads by channels.

use crate::common::asked::Asked;
use crate::common::moody::Moody;
use crate::common::receive;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tourbillon::{
    BuildError, Builder, Clock, Driver, DriverBuilder, Executor, ExecutorJob, Expired, Inline,
    Lateness, ManualClock, Metrics, Refusal, WaitError,
};

const TICK: Duration = Duration::from_millis(1);

/// A driver of numbers in virtual time, whose handler sends them.
fn reporting(
    clock: &ManualClock,
    set: impl FnOnce(DriverBuilder) -> DriverBuilder,
) -> (Driver<u32>, Receiver<u32>) {
    let (send, fired) = mpsc::channel();
    let builder = set(Builder::new().clock(clock.clone()).driver());
    let driver = builder.spawn(move |timer: Expired<u32>| send.send(timer.value).unwrap());
    (driver.unwrap(), fired)
}

/// An executor that keeps its jobs until the test takes them.
fn queue() -> (impl Executor, Receiver<ExecutorJob>) {
    let (send, jobs) = mpsc::channel();
    (move |job| send.send(job).unwrap(), jobs)
}

/// This holds however far ahead the next timer is, because inserts would be refused if the sweep
/// fell behind by more.
#[test]
fn a_tick_thread_rests_no_longer_than_the_wheel_can_do_without_a_sweep() {
    let clock = ManualClock::new();
    let (ask, asked) = mpsc::channel();
    let builder = Builder::new().shards(1).clock(Asked(clock.clone(), ask)).driver();
    let driver = builder.spawn(|_: Expired<u32>| ()).unwrap();
    driver.wheel().insert(1, driver.wheel().longest_delay()).unwrap();
    let before = driver.wheel().metrics().sweeps;
    let mut until = Vec::new();
    // The second sweep from now begins after the insert.
    while driver.wheel().metrics().sweeps < before + 3 {
        until.extend(receive(&asked, 1));
    }
    until.extend(asked.try_iter());
    // 2^33 ticks.
    let latest = clock.now() + TICK * (1 << 31) * 4;
    assert!(until.iter().all(|&until| until <= latest), "{until:?}");
}

#[test]
fn timers_fire_on_the_default_executor() {
    let clock = ManualClock::new();
    let (driver, fired) = reporting(&clock, |builder| builder);
    for n in 0..1000 {
        driver.wheel().insert(n, TICK * (n % 10)).unwrap();
    }
    clock.advance(TICK * 10);
    let all: HashSet<u32> = receive(&fired, 1000).into_iter().collect();
    assert_eq!(all.len(), 1000);
    assert!(driver.shutdown().is_empty());
    driver.wait().unwrap();
    let metrics = driver.metrics();
    assert_eq!((metrics.inserted, metrics.fired, metrics.timers_in_flight), (1000, 1000, 0));
}

#[test]
fn a_late_wake_up_sweeps_what_was_missed_in_order() {
    let clock = ManualClock::new();
    let (driver, fired) = reporting(&clock, |builder| builder.executor(Inline));
    for n in (0..500).rev() {
        driver.wheel().insert(n, Duration::from_secs(60) * (n + 1)).unwrap();
    }
    // The machine was suspended for a month.
    clock.advance(Duration::from_secs(30 * 86_400));
    assert_eq!(receive(&fired, 500), (0..500).collect::<Vec<_>>());
}

#[test]
fn shutdown_hands_back_what_had_not_fired() {
    let clock = ManualClock::new();
    let (driver, fired) = reporting(&clock, |builder| builder.executor(Inline));
    for n in 0..100 {
        driver.wheel().insert(n, TICK * (n + 1)).unwrap();
    }
    clock.advance(TICK * 40);
    assert_eq!(receive(&fired, 40).into_iter().max(), Some(39));
    let mut returned: Vec<u32> = driver.shutdown().into_iter().map(|timer| timer.value).collect();
    returned.sort_unstable();
    assert_eq!(returned, (40..100).collect::<Vec<_>>());
    assert!(driver.shutdown().is_empty(), "idempotent");
    let refused = driver.wheel().insert(7, TICK).unwrap_err();
    assert_eq!((refused.reason, refused.value), (Refusal::Closed, 7));
    assert_eq!(driver.metrics().returned, 60);
}

#[test]
fn dropping_the_driver_stops_the_thread_and_drops_the_values() {
    let alive = Arc::new(());
    let clock = ManualClock::new();
    let driver = Builder::new().clock(clock).driver().spawn(|_| ()).unwrap();
    let wheel = driver.wheel().clone();
    wheel.insert(Arc::clone(&alive), TICK).unwrap();
    drop(driver);
    assert!(wheel.is_closed());
    assert_eq!(Arc::strong_count(&alive), 1, "though a handle of the wheel lives on");
}

/// A handler shuts its own driver down, waits, and sends the returned timers.
fn shutdown_from_a_handler(executor: impl Executor) {
    let clock = ManualClock::new();
    let place: Arc<OnceLock<Driver<u32>>> = Arc::new(OnceLock::new());
    let (send, told) = mpsc::channel();
    // Weak: the driver owns the handler, and would own itself.
    let inside = Arc::downgrade(&place);
    let driver = Builder::new()
        .clock(clock.clone())
        .driver()
        .executor(executor)
        .spawn(move |_: Expired<u32>| {
            let place = inside.upgrade().unwrap();
            let driver = place.get().unwrap();
            send.send((driver.shutdown().len(), driver.wait())).unwrap();
        })
        .unwrap();
    driver.wheel().insert(1, TICK).unwrap();
    driver.wheel().insert(2, TICK * 9).unwrap();
    assert!(place.set(driver).is_ok());
    clock.advance(TICK * 2);
    assert_eq!(receive(&told, 1).remove(0), (1, Err(WaitError::InsideHandler)));
    let driver = place.get().unwrap();
    assert!(driver.shutdown().is_empty());
    driver.wait().unwrap();
}

#[test]
fn shutdown_from_an_inline_handler() {
    shutdown_from_a_handler(Inline);
}

#[test]
#[cfg(feature = "rayon")]
fn shutdown_from_a_handler_on_a_pool_of_one() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    shutdown_from_a_handler(Arc::new(pool));
}

/// A pool of one thread that joins its worker when it is dropped.
struct Joining(Option<Sender<ExecutorJob>>, Option<JoinHandle<()>>);

impl Joining {
    #[allow(clippy::disallowed_methods, reason = "a pool has threads")]
    fn new() -> Self {
        let (send, jobs) = mpsc::channel::<ExecutorJob>();
        Self(Some(send), Some(std::thread::spawn(move || jobs.into_iter().for_each(|job| job()))))
    }
}

impl Executor for Joining {
    fn execute(&self, job: ExecutorJob) {
        self.0.as_ref().unwrap().send(job).unwrap();
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        drop(self.0.take());
        self.1.take().unwrap().join().unwrap();
    }
}

#[test]
fn shutdown_from_a_handler_on_a_pool_that_waits_for_its_workers() {
    shutdown_from_a_handler(Joining::new());
}

#[test]
fn a_pool_that_is_behind_bounds_what_is_in_flight() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (driver, fired) =
        reporting(&clock, |builder| builder.executor(executor).batch(10).max_in_flight(25));
    let ids: Vec<_> = (0..100).map(|n| driver.wheel().insert(n, TICK).unwrap()).collect();
    // Nothing but the end of the others' flight wakes the tick thread for this one.
    driver.wheel().insert(100, 2 * TICK).unwrap();
    clock.advance(2 * TICK);
    // Two and a half batches are handed over. Then the tick thread holds back.
    let held: Vec<ExecutorJob> = receive(&jobs, 3);
    let metrics = driver.metrics();
    assert_eq!((metrics.timers_in_flight, metrics.batches_in_flight), (25, 3));
    assert!(jobs.try_recv().is_err());
    // Due timers that are held back can still be cancelled.
    let cancelled = ids.iter().filter(|&&id| driver.wheel().cancel(id).is_some()).count();
    assert_eq!(cancelled, 75);
    held.into_iter().for_each(|job| job());
    receive(&jobs, 1).remove(0)();
    assert_eq!(receive(&fired, 26).into_iter().filter(|&n| n == 100).count(), 1);
    assert_eq!(driver.metrics().timers_in_flight, 0);
}

/// A handler that waits until the test releases it, and reports that it has begun.
fn held_handlers(
    clock: &ManualClock,
    set: impl FnOnce(DriverBuilder) -> DriverBuilder,
) -> (Driver<u32>, Receiver<u32>, Sender<()>) {
    let (send, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let builder = set(Builder::new().clock(clock.clone()).driver());
    let driver = builder.spawn(move |timer: Expired<u32>| {
        send.send(timer.value).unwrap();
        let _ = released.lock().unwrap().recv();
    });
    (driver.unwrap(), begun, release)
}

#[test]
fn room_that_comes_in_the_middle_of_a_batch_is_used() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (driver, begun, release) =
        held_handlers(&clock, |builder| builder.executor(executor).max_in_flight(3));
    for n in 0..4 {
        driver.wheel().insert(n, TICK).unwrap();
    }
    clock.advance(TICK);
    let batch = receive(&jobs, 1).remove(0);
    // Moves `release` into the closure, so that a failure lets the handlers end.
    std::thread::scope(move |scope| {
        scope.spawn(batch);
        receive(&begun, 1);
        release.send(()).unwrap();
        // Two handlers of the first batch have not ended.
        let next = receive(&jobs, 1).remove(0);
        scope.spawn(next);
        (0..3).for_each(|_| release.send(()).unwrap());
    });
    assert_eq!(driver.metrics().timers_in_flight, 0);
}

#[test]
fn a_timer_is_in_flight_until_its_own_handler_has_ended() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (driver, begun, release) = held_handlers(&clock, |builder| builder.executor(executor));
    for n in 0..3 {
        driver.wheel().insert(n, TICK).unwrap();
    }
    clock.advance(TICK);
    let job = receive(&jobs, 1).remove(0);
    assert_eq!(driver.metrics().timers_in_flight, 3);
    let metrics = || driver.metrics();
    // Moves `release` into the closure, so that a failure lets the handlers end.
    std::thread::scope(move |scope| {
        scope.spawn(job);
        for in_flight in [3, 2, 1] {
            receive(&begun, 1);
            let metrics = metrics();
            assert_eq!((metrics.timers_in_flight, metrics.batches_in_flight), (in_flight, 1));
            release.send(()).unwrap();
        }
    });
    assert_eq!(driver.metrics().timers_in_flight, 0);
}

/// The other handlers of its batch make room, though the batch has not ended.
#[test]
fn a_handler_that_hangs_takes_one_place_of_those_in_flight() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let set = |builder: DriverBuilder| builder.executor(executor).batch(2).max_in_flight(2);
    let (driver, begun, release) = held_handlers(&clock, set);
    for n in 0..3 {
        driver.wheel().insert(n, TICK * (n + 1)).unwrap();
    }
    clock.advance(TICK * 3);
    let job = receive(&jobs, 1).remove(0);
    let begun = &begun;
    // As above.
    std::thread::scope(move |scope| {
        scope.spawn(job);
        assert_eq!(receive(begun, 1), [0]);
        assert!(jobs.try_recv().is_err(), "there is no room");
        release.send(()).unwrap();
        // The second handler has begun and does not end.
        assert_eq!(receive(begun, 1), [1]);
        let next = receive(&jobs, 1).remove(0);
        release.send(()).unwrap();
        release.send(()).unwrap();
        next();
    });
    assert_eq!(receive(begun, 1), [2]);
}

/// With a bound, each handler of a long batch makes room when it ends, however quick it was.
#[test]
fn a_quick_handler_makes_room_at_its_end() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let set = |builder: DriverBuilder| builder.executor(executor).max_in_flight(40);
    let (driver, begun, release) = held_handlers(&clock, set);
    for n in 0..40 {
        driver.wheel().insert(n, TICK).unwrap();
    }
    clock.advance(TICK);
    let job = receive(&jobs, 1).remove(0);
    (0..19).for_each(|_| release.send(()).unwrap());
    // As above.
    std::thread::scope(|scope| {
        let release = release;
        scope.spawn(job);
        receive(&begun, 20);
        assert_eq!(driver.metrics().timers_in_flight, 21);
        (0..21).for_each(|_| release.send(()).unwrap());
    });
    assert_eq!(driver.metrics().timers_in_flight, 0);
}

/// Handlers that panic among quick ones end no other, and their timers are in flight no longer.
#[test]
fn a_panic_among_quick_handlers_ends_no_other() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (send, ran) = mpsc::channel();
    let builder = Builder::new().clock(clock.clone()).driver().executor(executor);
    let driver = builder.spawn(move |timer: Expired<u32>| {
        send.send(timer.value).unwrap();
        assert!(timer.value % 7 != 5, "one of eight");
    });
    let driver = driver.unwrap();
    for n in 0..60 {
        driver.wheel().insert(n, TICK).unwrap();
    }
    clock.advance(TICK);
    receive(&jobs, 1).remove(0)();
    let mut ran: Vec<_> = ran.try_iter().collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..60).collect::<Vec<_>>());
    let metrics = driver.metrics();
    assert_eq!((metrics.handler_panics, metrics.timers_in_flight), (8, 0));
    let counted: u64 = metrics.handler_lateness.buckets().map(|(_, handlers)| handlers).sum();
    assert_eq!(counted, 60);
}

/// The clock is not read for each of many quick handlers. If one of them is slow, those behind it
/// are late nevertheless.
#[test]
fn handlers_behind_a_slow_one_among_quick_ones_begin_late() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (slow, ended) = (clock.clone(), AtomicUsize::new(0));
    let builder = Builder::new().clock(clock.clone()).driver().executor(executor);
    let driver = builder.spawn(move |_: Expired<u32>| {
        if ended.fetch_add(1, Relaxed) == 19 {
            slow.advance(TICK * 100);
        }
    });
    let driver = driver.unwrap();
    for n in 0..40 {
        driver.wheel().insert(n, TICK).unwrap();
    }
    clock.advance(TICK);
    receive(&jobs, 1).remove(0)();
    let lateness = driver.metrics().handler_lateness;
    let (late, all) = lateness.buckets().fold((0, 0), |(late, all), (bound, handlers)| {
        (if bound > TICK * 100 { late + handlers } else { late }, all + handlers)
    });
    assert!(all == 40 && (20..=24).contains(&late), "{late} of {all}");
}

#[test]
fn handlers_tell_how_late_they_begin() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let slow = clock.clone();
    let builder = Builder::new().clock(clock.clone()).driver().executor(executor);
    let driver = builder.spawn(move |_: Expired<u32>| slow.advance(TICK * 100)).unwrap();
    driver.wheel().insert(1, TICK).unwrap();
    driver.wheel().insert(2, TICK).unwrap();
    clock.advance(TICK);
    let job = receive(&jobs, 1).remove(0);
    assert_eq!(driver.metrics().handler_lateness.quantile(1.0), Duration::ZERO, "none has begun");
    // The batch waits for the executor, and the second timer for the first one's handler.
    clock.advance(TICK * 10);
    job();
    let Metrics { lateness, handler_lateness, .. } = driver.metrics();
    let counts = |lateness: &Lateness| -> Vec<_> {
        lateness.buckets().filter(|&(_, timers)| timers > 0).collect()
    };
    let micros = Duration::from_micros;
    assert_eq!(counts(&lateness), [(micros(1), 2)], "they were swept in time");
    // 10 ms and 110 ms.
    assert_eq!(counts(&handler_lateness), [(micros(1 << 14), 1), (micros(1 << 17), 1)]);
}

#[test]
fn an_executor_that_drops_its_jobs_loses_nothing() {
    let clock = ManualClock::new();
    let (tell, told) = mpsc::channel();
    let (driver, fired) = reporting(&clock, |builder| {
        builder.batch(10).executor(move |job: ExecutorJob| {
            drop(job);
            tell.send(()).unwrap();
        })
    });
    for n in 0..30 {
        driver.wheel().insert(n, TICK).unwrap();
    }
    clock.advance(TICK);
    receive(&told, 3);
    let metrics = driver.metrics();
    assert_eq!((metrics.timers_in_flight, metrics.batches_in_flight), (0, 0));
    let mut returned: Vec<u32> = driver.shutdown().into_iter().map(|timer| timer.value).collect();
    returned.sort_unstable();
    assert_eq!(returned, (0..30).collect::<Vec<_>>());
    assert!(fired.try_recv().is_err());
}

#[test]
fn an_executor_that_panics_loses_nothing() {
    let clock = ManualClock::new();
    let (tell, told): (Sender<()>, _) = mpsc::channel();
    let tell = Mutex::new(tell);
    let (driver, _fired) = reporting(&clock, |builder| {
        builder.executor(move |_: ExecutorJob| {
            tell.lock().unwrap_or_else(std::sync::PoisonError::into_inner).send(()).unwrap();
            panic!("no room")
        })
    });
    driver.wheel().insert(1, TICK).unwrap();
    clock.advance(TICK);
    receive(&told, 1).remove(0);
    driver.wheel().insert(2, TICK).unwrap();
    clock.advance(TICK);
    receive(&told, 1).remove(0);
    let returned: HashSet<u32> = driver.shutdown().into_iter().map(|timer| timer.value).collect();
    assert_eq!(returned, HashSet::from([1, 2]));
}

/// A value that a handler has captured. It panics when it is dropped.
struct Grudge(Sender<()>);

impl Drop for Grudge {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
        panic!("dropped");
    }
}

/// Lets a batch be the last owner of a handler whose captured value panics when it is dropped, and
/// ends the batch by `end`. The panic does not leave the job.
fn the_last_owner_is_a_job(end: impl FnOnce(ExecutorJob)) {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (send, dropped) = mpsc::channel();
    let grudge = Grudge(send);
    let driver = Builder::new().clock(clock.clone()).driver().executor(executor);
    let driver = driver
        .spawn(move |_: Expired<u32>| {
            let _captured = &grudge;
        })
        .unwrap();
    driver.wheel().insert(1, TICK).unwrap();
    clock.advance(TICK);
    let job = receive(&jobs, 1).remove(0);
    drop(driver);
    // When the tick thread has dropped its part too, the executor is gone.
    assert!(jobs.recv().is_err());
    assert!(dropped.try_recv().is_err());
    end(job);
    assert_eq!(dropped.try_recv(), Ok(()));
}

#[test]
fn no_panic_leaves_a_job_that_runs_as_the_last_owner_of_its_handler() {
    the_last_owner_is_a_job(|job| job());
}

#[test]
fn no_panic_leaves_a_job_that_is_dropped_as_the_last_owner_of_its_handler() {
    the_last_owner_is_a_job(drop);
}

#[test]
fn a_clock_that_panics_in_a_job_loses_nothing() {
    let clock = Moody::default();
    let (executor, jobs) = queue();
    let builder = Builder::new().clock(clock.clone()).driver().executor(executor);
    let driver = builder.spawn(|_: Expired<u32>| ()).unwrap();
    driver.wheel().insert(1, TICK).unwrap();
    clock.manual.advance(TICK);
    let job = receive(&jobs, 1).remove(0);
    clock.panic_on(std::thread::current().name().unwrap(), 1);
    job();
    let metrics = driver.metrics();
    assert_eq!((metrics.timers_in_flight, metrics.batches_in_flight), (0, 0));
    driver.wait().unwrap();
    assert_eq!(driver.shutdown().len(), 1);
}

/// At each place where the tick thread reads the clock.
#[test]
fn a_clock_that_panics_on_the_tick_thread_loses_nothing() {
    let mut ended = 0;
    for reading in 1..20 {
        let clock = Moody::default();
        let (send, fired) = mpsc::channel();
        let builder = Builder::new().clock(clock.clone()).driver().batch(2);
        let driver = builder.executor(Inline).thread_name("moody-tick");
        let driver = driver.spawn(move |timer: Expired<u32>| send.send(timer.value).unwrap());
        let driver = driver.unwrap();
        for number in 0..5 {
            driver.wheel().insert(number, TICK).unwrap();
        }
        clock.panic_on("moody-tick", reading);
        clock.manual.advance(TICK);
        while driver.metrics().armed > 0 && !driver.wheel().is_closed() {
            std::thread::yield_now();
        }
        let returned: Vec<u32> = driver.shutdown().into_iter().map(|timer| timer.value).collect();
        driver.wait().unwrap();
        ended += u32::from(!returned.is_empty());
        let mut all: Vec<u32> = fired.try_iter().chain(returned).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4], "at reading {reading}");
    }
    assert!(ended > 0);
}

/// On a thread that has run handlers, after its record of them has gone.
#[test]
#[allow(clippy::disallowed_methods, reason = "a thread-local of the thread itself is dropped")]
fn a_driver_can_be_waited_for_in_the_destructor_of_a_thread_local() {
    struct Last(Arc<Driver<u32>>, Sender<Result<(), WaitError>>);

    impl Drop for Last {
        fn drop(&mut self) {
            self.1.send(self.0.wait()).unwrap();
        }
    }

    std::thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });

    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (driver, _fired) = reporting(&clock, |builder| builder.executor(executor));
    let driver = Arc::new(driver);
    driver.wheel().insert(1, TICK).unwrap();
    clock.advance(TICK);
    let (send, waited) = mpsc::channel();
    let last = Last(Arc::clone(&driver), send);
    let thread = std::thread::spawn(move || {
        // Created before the record, and so destroyed after it.
        LAST.with(|place| *place.borrow_mut() = Some(last));
        receive(&jobs, 1).remove(0)();
    });
    thread.join().unwrap();
    assert_eq!(waited.try_recv(), Ok(Ok(())));
}

#[test]
fn a_shutdown_while_a_batch_runs_waits_for_it_when_asked() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (driver, fired) = reporting(&clock, |builder| builder.executor(executor));
    driver.wheel().insert(1, TICK).unwrap();
    clock.advance(TICK);
    let job = receive(&jobs, 1).remove(0);
    // The batch has left the wheel, so it is not returned and will fire.
    assert!(driver.shutdown().is_empty());
    assert_eq!(driver.metrics().batches_in_flight, 1);
    job();
    driver.wait().unwrap();
    assert_eq!(fired.try_recv(), Ok(1));
}

#[test]
fn nonsense_is_refused() {
    let refused = |builder: DriverBuilder| builder.spawn(|_: Expired<()>| ()).unwrap_err();
    assert!(matches!(refused(Builder::new().driver().batch(0)), BuildError::Batch));
    assert!(matches!(refused(Builder::new().driver().max_in_flight(0)), BuildError::InFlight));
    let name = refused(Builder::new().driver().thread_name("zero\0byte"));
    assert!(matches!(name, BuildError::Thread(_)));
    let shards = refused(Builder::new().shards(0).driver());
    assert!(matches!(shards, BuildError::Shards(0)));
    for (builder, expected) in [
        (
            Builder::new().resolution(Duration::ZERO),
            "invalid resolution 0ns: must be between 1 µs and 1 h",
        ),
        (Builder::new().resolution(Duration::MAX), "must be between 1 µs and 1 h"),
        (Builder::new().shards(257), "invalid number of shards 257: must be between 1 and 256"),
        (Builder::new().capacity(0), "invalid capacity 0: must be between 1 and"),
        (Builder::new().shards(1).capacity(1 << 30), "between 1 and 1073741568"),
    ] {
        let message = builder.build::<()>().unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
