//! The driver's events, as received by a subscriber. Time is virtual, and events arrive by a
//! channel.

use crate::common::asked::Asked;
use crate::common::moody::Moody;
use crate::common::receive;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;
use tourbillon::{
    Builder, Clock, Driver, DriverBuilder, Executor, ExecutorJob, Expired, Inline, ManualClock,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};

const TICK: Duration = Duration::from_millis(1);

const STUCK: &str = "batches are stuck because a handler blocks or the executor is behind";

const DROPPED: &str = "driver dropped with timers that had not fired";

const OVERLOAD: &str = "overload: the bound on timers in flight is reached";

/// The name of a driver whose subscriber panics.
const CURSED: &str = "cursed";

/// The name of a tick thread where the subscriber's filter panics.
const FILTERED: &str = "filtered";

/// An event: its level and its fields, including the message.
#[derive(Debug)]
struct Event {
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Event {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// The receivers of events by driver. Subscribers are global to the program, so all tests share
/// one.
static TOLD: LazyLock<Mutex<HashMap<String, Sender<Event>>>> = LazyLock::new(Mutex::default);

fn told() -> MutexGuard<'static, HashMap<String, Sender<Event>>> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Router;

impl Subscriber for Router {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // The filter is asked each time.
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        assert!(thread::current().name() != Some(FILTERED), "a filter may panic");
        metadata.target() == "tourbillon"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut seen = Event { level: *event.metadata().level(), fields: BTreeMap::new() };
        event.record(&mut seen);
        let driver = seen.fields.remove("driver").unwrap();
        let told = told();
        if let Some(send) = told.get(&driver) {
            let _ = send.send(seen);
        }
        drop(told);
        assert!(driver != CURSED, "a subscriber may panic");
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Receives the events of the driver of this name, from now on.
fn listen(driver: &str) -> Receiver<Event> {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Router).unwrap());
    let (send, events) = mpsc::channel();
    told().insert(driver.to_owned(), send);
    events
}

/// A driver of numbers in virtual time, which has reported its start, with the receivers of its
/// fired numbers and of its other events.
fn driver(
    name: &str,
    clock: &ManualClock,
    set: impl FnOnce(DriverBuilder) -> DriverBuilder,
) -> (Driver<u32>, Receiver<u32>, Receiver<Event>) {
    let events = listen(name);
    let (send, fired) = mpsc::channel();
    let builder = Builder::new().clock(clock.clone()).shards(2).driver();
    // The clock jumps while batches end.
    let driver = set(builder.thread_name(name).executor(Inline).warn_stuck(Duration::MAX))
        .spawn(move |timer: Expired<u32>| send.send(timer.value).unwrap());
    expect(&events, Level::DEBUG, "driver started", [("shards", "2")]);
    (driver.unwrap(), fired, events)
}

/// An executor that keeps its jobs until the test takes them.
fn queue() -> (impl Executor, Receiver<ExecutorJob>) {
    let (send, jobs) = mpsc::channel();
    (move |job| send.send(job).unwrap(), jobs)
}

/// Checks that the next event is this one, with at least these fields.
#[track_caller]
fn expect<const N: usize>(
    events: &Receiver<Event>,
    level: Level,
    message: &str,
    fields: [(&str, &str); N],
) {
    let event = receive(events, 1).remove(0);
    assert_eq!((event.level, event.fields["message"].as_str()), (level, message), "{event:?}");
    for (name, value) in fields {
        assert_eq!(event.fields[name], value, "{name} in {event:?}");
    }
}

/// Arms a timer, lets it fire late by this much, and waits for that.
fn fire_late(driver: &Driver<u32>, fired: &Receiver<u32>, clock: &ManualClock, late: Duration) {
    driver.wheel().insert(7, TICK).unwrap();
    clock.advance(TICK + late);
    assert_eq!(receive(fired, 1), [7]);
}

#[test]
fn start_and_end_are_told_once() {
    let clock = ManualClock::new();
    let events = listen("ends");
    let builder = Builder::new().clock(clock.clone()).resolution(TICK * 5).shards(3).driver();
    let driver = builder.thread_name("ends").spawn(|_: Expired<u32>| ()).unwrap();
    let fields = [("resolution", "5ms"), ("shards", "3")];
    expect(&events, Level::DEBUG, "driver started", fields);
    for n in 0..4 {
        driver.wheel().insert(n, TICK).unwrap();
    }
    assert_eq!(driver.shutdown().len(), 4);
    let fields = [("handed_back", "4"), ("dropped", "0")];
    expect(&events, Level::DEBUG, "driver stopped", fields);
    assert!(driver.shutdown().is_empty());
    drop(driver);
    assert!(events.try_recv().is_err(), "told again");
}

#[test]
fn what_a_driver_drops_as_it_goes_is_told() {
    let clock = ManualClock::new();
    let (jobs, told) = mpsc::channel();
    let drops = move |job: ExecutorJob| {
        drop(job);
        jobs.send(()).unwrap();
    };
    let (driver, _fired, events) = driver("drops", &clock, |builder| builder.executor(drops));
    driver.wheel().insert(1, TICK).unwrap();
    clock.advance(TICK);
    receive(&told, 1);
    driver.wheel().insert(2, TICK).unwrap();
    driver.wheel().insert(3, TICK).unwrap();
    drop(driver);
    let fields = [("handed_back", "0"), ("dropped", "3")];
    expect(&events, Level::DEBUG, "driver stopped", fields);
    expect(&events, Level::WARN, DROPPED, [("dropped", "3")]);
    assert!(events.try_recv().is_err(), "told again");
}

/// A subscriber may wait for a lock that is held in the parent.
#[test]
#[cfg(all(unix, not(miri)))]
fn a_child_tells_nothing_of_its_parents_driver() {
    let (driver, _fired, events) = driver("forked", &ManualClock::new(), |builder| builder);
    driver.wheel().insert(1, TICK).unwrap();
    crate::common::child::in_a_child(move || {
        drop(driver);
        events.try_recv().is_err()
    });
}

#[test]
fn a_driver_that_drops_nothing_does_not_warn() {
    let (driver, _fired, events) = driver("empty", &ManualClock::new(), |builder| builder);
    let cancelled = driver.wheel().insert(1, TICK).unwrap();
    driver.wheel().cancel(cancelled);
    drop(driver);
    let fields = [("handed_back", "0"), ("dropped", "0")];
    expect(&events, Level::DEBUG, "driver stopped", fields);
    assert!(events.try_recv().is_err());
}

#[test]
fn a_panic_is_told_with_the_timer() {
    let clock = ManualClock::new();
    let events = listen("panics");
    let (send, observed) = mpsc::channel();
    let driver = Builder::new()
        .clock(clock.clone())
        .driver()
        .thread_name("panics")
        .executor(Inline)
        .on_panic(move |id, _| send.send(id).unwrap())
        .spawn(|timer: Expired<u32>| match timer.value {
            1 => panic!("a word"),
            2 => panic!("the number {}", timer.value),
            _ => std::panic::panic_any(timer.value),
        })
        .unwrap();
    expect(&events, Level::DEBUG, "driver started", []);
    for (n, text) in [(1, "a word"), (2, "the number 2"), (3, "a payload without text")] {
        let id = driver.wheel().insert(n, TICK).unwrap();
        clock.advance(TICK);
        let fields = [("timer", &*id.to_string()), ("panic", text)];
        expect(&events, Level::ERROR, "handler panicked", fields);
        assert_eq!(receive(&observed, 1), [id], "the observer is told as ever");
    }
}

#[test]
fn late_timers_are_told_once_a_second() {
    let clock = ManualClock::new();
    let (driver, fired, events) = driver("late", &clock, |builder| builder);
    fire_late(&driver, &fired, &clock, Duration::ZERO);
    fire_late(&driver, &fired, &clock, TICK * 10);
    assert!(events.try_recv().is_err(), "10 ms are tolerated");

    // Of three timers that fire together two are late.
    driver.wheel().insert(1, TICK).unwrap();
    driver.wheel().insert(2, TICK * 11).unwrap();
    driver.wheel().insert(3, TICK * 21).unwrap();
    clock.advance(TICK * 23);
    assert_eq!(receive(&fired, 3), [1, 2, 3]);
    let fields = [("timers", "2"), ("late_by", "22ms"), ("suppressed", "0")];
    expect(&events, Level::WARN, "timers were swept late", fields);

    // In the second after that event none is emitted, but they are counted.
    for _ in 0..3 {
        fire_late(&driver, &fired, &clock, TICK * 332);
    }
    assert!(events.try_recv().is_err());
    fire_late(&driver, &fired, &clock, TICK * 11);
    let fields = [("timers", "1"), ("late_by", "11ms"), ("suppressed", "3")];
    expect(&events, Level::WARN, "timers were swept late", fields);
}

#[test]
fn a_tick_is_tolerated_where_it_is_longer() {
    let clock = ManualClock::new();
    let events = listen("coarse");
    let (send, fired) = mpsc::channel();
    let second = Duration::from_secs(1);
    let driver = Builder::new().clock(clock.clone()).resolution(second).driver();
    let driver = driver.thread_name("coarse").executor(Inline).warn_stuck(Duration::MAX);
    let driver = driver.spawn(move |timer: Expired<u32>| send.send(timer.value).unwrap()).unwrap();
    expect(&events, Level::DEBUG, "driver started", []);
    let fire_late = |late| {
        driver.wheel().insert(7, second).unwrap();
        clock.advance(second + late);
        assert_eq!(receive(&fired, 1), [7]);
    };
    fire_late(second);
    assert!(events.try_recv().is_err());
    fire_late(second * 2);
    let fields = [("timers", "1"), ("late_by", "2s")];
    expect(&events, Level::WARN, "timers were swept late", fields);
}

#[test]
fn what_counts_as_late_is_a_setting() {
    let clock = ManualClock::new();
    let (driver, fired, events) = driver("patient", &clock, |builder| builder.warn_late(TICK * 50));
    fire_late(&driver, &fired, &clock, TICK * 50);
    fire_late(&driver, &fired, &clock, TICK * 51);
    let fields = [("timers", "1"), ("late_by", "51ms"), ("suppressed", "0")];
    expect(&events, Level::WARN, "timers were swept late", fields);
}

#[test]
fn a_batch_that_does_not_end_is_reported_once() {
    let clock = ManualClock::new();
    let events = listen("stuck");
    let (executor, jobs) = queue();
    let builder = Builder::new().clock(clock.clone()).driver().thread_name("stuck");
    let (send, fired) = mpsc::channel();
    let driver = builder
        .executor(executor)
        .spawn(move |timer: Expired<u32>| send.send(timer.value).unwrap())
        .unwrap();
    expect(&events, Level::DEBUG, "driver started", []);
    for n in 0..2 {
        driver.wheel().insert(n, TICK).unwrap();
    }
    clock.advance(TICK);
    let job = receive(&jobs, 1).remove(0);
    clock.advance(TICK * 999);
    assert!(events.try_recv().is_err(), "it may take a second");
    clock.advance(TICK);
    let fields = [("batches", "1"), ("lasts", "1s"), ("suppressed", "0")];
    expect(&events, Level::WARN, STUCK, fields);
    clock.advance(TICK * 5000);
    job();
    expect(&events, Level::INFO, "stuck batch ended", [("lasted", "6s")]);
    assert_eq!(receive(&fired, 2).len(), 2);
    assert!(events.try_recv().is_err());
}

#[test]
fn a_batch_is_reported_though_nothing_else_wakes_the_tick_thread() {
    let (asked, asks) = mpsc::channel();
    let clock = ManualClock::new();
    let events = listen("alone");
    let (executor, jobs) = queue();
    let driver = Builder::new()
        .clock(Asked(clock.clone(), asked))
        .driver()
        .thread_name("alone")
        .warn_stuck(TICK * 50)
        .executor(executor)
        .spawn(|_: Expired<u32>| ())
        .unwrap();
    expect(&events, Level::DEBUG, "driver started", []);
    driver.wheel().insert(7, TICK).unwrap();
    clock.advance(TICK);
    let job = receive(&jobs, 1).remove(0);
    // With no timer left, it rests until the batch has been in flight for that long.
    let until = clock.now() + TICK * 50;
    while receive(&asks, 1) != [until] {}
    drop(job);
}

/// A batch on the tick thread itself is reported when it has ended.
#[test]
fn an_inline_batch_that_took_long_is_reported() {
    let clock = ManualClock::new();
    let events = listen("inline");
    let slow = clock.clone();
    let builder = Builder::new().clock(clock.clone()).driver().thread_name("inline");
    let driver = builder
        .executor(Inline)
        .warn_stuck(TICK * 50)
        .spawn(move |timer: Expired<u32>| slow.advance(TICK * timer.value))
        .unwrap();
    expect(&events, Level::DEBUG, "driver started", []);
    driver.wheel().insert(49, TICK).unwrap();
    driver.wheel().insert(50, TICK * 2).unwrap();
    clock.advance(TICK);
    expect(&events, Level::WARN, "timers were swept late", [("timers", "1")]);
    let fields = [("lasted", "50ms"), ("suppressed", "0")];
    expect(&events, Level::WARN, "batch took long", fields);
}

#[test]
fn overload_is_told_when_it_begins_and_when_it_is_over() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (driver, fired, events) =
        driver("full", &clock, |builder| builder.executor(executor).batch(1).max_in_flight(2));
    for n in 0..5 {
        driver.wheel().insert(n, TICK).unwrap();
    }
    clock.advance(TICK);
    let fields = [("in_flight", "2"), ("suppressed", "0")];
    expect(&events, Level::WARN, OVERLOAD, fields);
    clock.advance(TICK * 7);
    // Each end makes room for a due timer, so there is no event before the last has been handed
    // over.
    for _ in 0..5 {
        receive(&jobs, 1).remove(0)();
    }
    receive(&fired, 5);
    expect(&events, Level::INFO, "overload ended", [("lasted", "7ms")]);
    assert!(events.try_recv().is_err());
}

/// An overload that recurs at once is reported when it has lasted, or with the next.
#[test]
fn overload_is_told_once_a_second() {
    let clock = ManualClock::new();
    let (ask, asked) = mpsc::channel();
    let (executor, jobs) = queue();
    let events = listen("flutters");
    let builder = Builder::new().clock(Asked(clock.clone(), ask)).driver().executor(executor);
    // Batches that take a second do not matter here.
    let builder = builder.warn_stuck(Duration::MAX);
    let driver = builder.max_in_flight(1).thread_name("flutters").spawn(|_: Expired<u32>| ());
    let driver = driver.unwrap();
    expect(&events, Level::DEBUG, "driver started", []);
    let begin = || {
        driver.wheel().insert(1, TICK).unwrap();
        driver.wheel().insert(2, TICK).unwrap();
        clock.advance(TICK);
        receive(&jobs, 1).remove(0)
    };
    let end = |job: ExecutorJob| {
        job();
        receive(&jobs, 1).remove(0)();
    };
    let job = begin();
    expect(&events, Level::WARN, OVERLOAD, [("suppressed", "0")]);
    let _ = asked.try_iter().count();
    let told_again = clock.now() + Duration::from_secs(1);
    end(job);
    expect(&events, Level::INFO, "overload ended", [("lasted", "0ns")]);
    // An overload that is not reported lasts until the tick thread has seen that no timer is due.
    let untold = || while receive(&asked, 1)[0] != told_again {};
    let rests = || while receive(&asked, 1)[0] <= told_again {};
    for _ in 0..2 {
        rests();
        let job = begin();
        untold();
        end(job);
    }
    rests();
    let job = begin();
    untold();
    // Only the pending report wakes the tick thread.
    untold();
    clock.advance(Duration::from_secs(1));
    expect(&events, Level::WARN, OVERLOAD, [("in_flight", "1"), ("suppressed", "2")]);
    end(job);
    expect(&events, Level::WARN, "timers were swept late", [("late_by", "1s")]);
    expect(&events, Level::INFO, "overload ended", [("lasted", "1s")]);
    assert!(events.try_recv().is_err());
}

#[test]
fn a_subscriber_that_panics_stops_no_driver() {
    let clock = ManualClock::new();
    let (driver, fired, events) = driver(CURSED, &clock, |builder| builder);
    fire_late(&driver, &fired, &clock, Duration::from_secs(2));
    expect(&events, Level::WARN, "timers were swept late", []);
    fire_late(&driver, &fired, &clock, Duration::from_secs(2));
    expect(&events, Level::WARN, "timers were swept late", []);
    driver.shutdown();
    expect(&events, Level::DEBUG, "driver stopped", []);
}

/// Each report begins with the question whether the subscriber wants it.
#[test]
fn a_filter_that_panics_stops_no_driver() {
    let clock = ManualClock::new();
    let (executor, jobs) = queue();
    let (driver, fired, events) =
        driver(FILTERED, &clock, |builder| builder.executor(executor).max_in_flight(1));
    for round in 0..3 {
        // The second timer waits for room, which is an overload.
        for number in 0..2 {
            driver.wheel().insert(number, TICK).unwrap();
        }
        clock.advance(Duration::from_secs(2));
        for _ in 0..2 {
            receive(&jobs, 1).remove(0)();
            receive(&fired, 1);
        }
        assert!(!driver.wheel().is_closed(), "in round {round}");
    }
    driver.shutdown();
    expect(&events, Level::DEBUG, "driver stopped", []);
}

#[test]
fn a_panic_that_ends_the_tick_thread_is_told() {
    let clock = Moody::default();
    let events = listen("moody");
    let builder = Builder::new().clock(clock.clone()).shards(2).driver().thread_name("moody");
    let driver = builder.spawn(|_: Expired<u32>| ()).unwrap();
    expect(&events, Level::DEBUG, "driver started", []);
    driver.wheel().insert(7, TICK).unwrap();
    clock.panic_on("moody", 1);
    clock.manual.advance(TICK);
    let message = "tick thread panicked, and no timer fires any more";
    expect(&events, Level::ERROR, message, [("panic", "the clock")]);
    assert!(driver.wheel().is_closed());
    assert_eq!(driver.shutdown().len(), 1);
}
