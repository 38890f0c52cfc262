//! Uses of other timing wheels, ported to this crate. Each row of `docs/COMING-FROM.md` is a test
//! here, with the name that the row gives.

use crate::common::desk::{Desk, counting};
use crate::common::sandbox::{Sandbox, Task};
use crate::common::{Bench, SMALL, Shape, receive};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};
use tourbillon::future::{DelayQueue, TimeoutError};
use tourbillon::keyed::{KeyedTimer, KeyedTimers, UnfiredKey};
use tourbillon::scheduler::{AfterPanic, Cancel, Ending, JoinError, MissedTickBehavior, Scheduler};
use tourbillon::{Builder, Clock, Expired, Inline, ManualClock, Refusal, WaitError};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A wheel in virtual time with ticks of a millisecond.
fn wheel() -> Bench<&'static str> {
    Bench::new(Shape { tick: MS, shards: 2, geometry: SMALL, first_tick: 0 })
}

#[test]
fn every_row_of_the_table_has_its_test_and_every_test_its_row() {
    let table = include_str!("../../docs/COMING-FROM.md");
    let source = concat!(
        include_str!("coming_from.rs"),
        include_str!("coming_from_others.rs"),
        include_str!("coming_from_schedulers.rs"),
    );
    let of_row = |line: &str| Some(line.strip_prefix("| ")?.rsplit('`').nth(1)?.to_owned());
    let mut rows: Vec<String> = table.lines().filter_map(of_row).collect();
    // These are tests of the service.
    rows.retain(|row| !["xtimer_", "redis_wheel_"].iter().any(|system| row.starts_with(system)));
    let tests = source.lines().filter_map(|line| line.strip_prefix("fn ")?.strip_suffix("() {"));
    let mut tests: Vec<String> =
        tests.filter(|name| !name.starts_with("every_row")).map(str::to_owned).collect();
    rows.sort_unstable();
    tests.sort_unstable();
    assert_eq!(rows, tests);
}

// go-zero's TimingWheel

/// Keyed timers in virtual time, with ticks of a millisecond.
struct Keyed {
    timers: KeyedTimers<&'static str, u32>,
    bench: Bench<KeyedTimer<&'static str>>,
}

impl Keyed {
    fn new() -> Self {
        let bench = Bench::new(Shape { tick: MS, shards: 2, geometry: SMALL, first_tick: 0 });
        Self { timers: KeyedTimers::new(bench.wheel.clone()), bench }
    }

    /// Advances the clock and returns what fires.
    fn advance(&mut self, step: Duration) -> Vec<(&'static str, u32)> {
        self.bench.clock.advance(step);
        let mut fired = Vec::new();
        let _ = self.bench.sweeper.sweep(|timer| fired.extend(self.timers.fire(timer)));
        fired
    }
}

#[test]
fn go_zero_new_timing_wheel() {
    assert!(Builder::new().resolution(Duration::ZERO).build::<KeyedTimer<u32>>().is_err());
    let timers = KeyedTimers::spawn(Builder::new().driver(), |_: u32, _: u32| ()).unwrap();
    assert_eq!(timers.insert(7, 1, SECOND), Ok(None));
}

#[test]
fn go_zero_new_timing_wheel_with_ticker() {
    let mut keyed = Keyed::new();
    keyed.timers.insert("key", 1, SECOND).unwrap();
    assert_eq!(keyed.advance(SECOND), [("key", 1)], "in virtual time, without a ticker");
}

#[test]
fn go_zero_set_timer() {
    let mut keyed = Keyed::new();
    assert_eq!(keyed.timers.insert("key", 1, MS * 5), Ok(None));
    assert_eq!(keyed.timers.insert("key", 2, MS * 9), Ok(Some(1)), "and says what it replaced");
    assert!(keyed.advance(MS * 8).is_empty(), "never early");
    assert_eq!(keyed.advance(MS), [("key", 2)]);
}

#[test]
fn go_zero_move_timer() {
    let mut keyed = Keyed::new();
    keyed.timers.insert("key", 1, MS * 3).unwrap();
    // Beyond a revolution of the wheel, and to less than a tick.
    assert_eq!(keyed.timers.reset("key", MS * 17), Ok(true));
    assert!(keyed.advance(MS * 16).is_empty());
    assert_eq!(keyed.timers.reset("key", Duration::from_micros(10)), Ok(true));
    assert_eq!(keyed.advance(MS), [("key", 1)]);
    assert!(keyed.advance(SECOND).is_empty(), "once");
    assert_eq!(keyed.timers.reset("key", MS), Ok(false), "and says when there is none");
}

#[test]
fn go_zero_remove_timer() {
    let mut keyed = Keyed::new();
    keyed.timers.insert("key", 1, MS * 3).unwrap();
    assert_eq!(keyed.timers.cancel("key"), Some(1), "and says that it was in time");
    assert_eq!(keyed.timers.cancel("key"), None);
    assert!(keyed.advance(SECOND).is_empty());
}

#[test]
fn go_zero_drain() {
    let mut keyed = Keyed::new();
    keyed.timers.insert("key", 1, SECOND).unwrap();
    let again = keyed.timers.clone();
    let drain = keyed.timers.drain(move |key, value| {
        again.insert(key, value + 1, MS * 3).unwrap();
    });
    assert!(keyed.advance(Duration::ZERO).is_empty());
    assert_eq!(drain.wait().keys, 1, "it can be awaited, and may use the timers");
    assert_eq!(keyed.advance(MS * 3), [("key", 2)], "a key set again is not lost");
}

#[test]
fn go_zero_stop() {
    let keyed = Keyed::new();
    keyed.timers.insert("key", 1, SECOND).unwrap();
    let deadline = keyed.bench.clock.start() + SECOND;
    let unfired = UnfiredKey { key: "key", value: 1, deadline };
    assert_eq!(keyed.timers.shutdown(), [unfired], "armed timers are returned");
    assert!(keyed.timers.shutdown().is_empty(), "a second call does no harm");
    assert_eq!(keyed.timers.insert("key", 2, SECOND).unwrap_err().value, 2);
}

#[test]
fn go_zero_has_key() {
    let keyed = Keyed::new();
    keyed.timers.insert("key", 1, SECOND).unwrap();
    assert!(keyed.timers.contains("key") && !keyed.timers.contains("another"));
    assert_eq!((keyed.timers.get("key"), keyed.timers.len()), (Some(1), 1));
}

// RussellLuo/timingwheel

#[test]
fn russell_luo_new_timing_wheel() {
    assert!(Builder::new().resolution(Duration::ZERO).build::<u64>().is_err());
    let (wheel, _sweeper) = Builder::new().resolution(MS * 10).build().unwrap();
    assert!(wheel.insert("as good as any", SECOND).is_ok());
}

#[test]
fn russell_luo_after_func() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let _after = desk.scheduler.after(MS * 10, closure).unwrap();
    desk.advance(MS * 9);
    assert_eq!(count.load(Relaxed), 0, "a bucket's start is no reason to fire");
    desk.advance(MS);
    assert_eq!(count.load(Relaxed), 1);
}

#[test]
fn russell_luo_timer_stop() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let ticking = desk.scheduler.every(SECOND).run(closure).unwrap();
    desk.advance(SECOND);
    assert_eq!(ticking.cancel(), Cancel::Prevented, "one call ends a repetition");
    assert_eq!(ticking.cancel(), Cancel::Ended, "and the next returns too");
    desk.advance(SECOND * 5);
    assert_eq!(count.load(Relaxed), 1);
}

#[test]
fn russell_luo_schedule_func() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let mut left = 3;
    let three_times = move |last: Instant| {
        left -= 1;
        (left >= 0).then(|| last + SECOND)
    };
    let plan = desk.scheduler.by(three_times).run(closure).unwrap();
    (0..9).for_each(|_| desk.advance(SECOND));
    assert_eq!((count.load(Relaxed), plan.ending()), (3, Some(Ending::Done)));
}

#[test]
fn russell_luo_stop() {
    let desk = Desk::new();
    let _armed = desk.scheduler.after(SECOND, || ()).unwrap();
    assert_eq!(desk.scheduler.shutdown().len(), 1, "armed timers are returned");
    assert!(desk.scheduler.shutdown().is_empty(), "a second call does no harm");
    let refused = desk.scheduler.after(SECOND, || "back").unwrap_err();
    assert_eq!((refused.value)(), "back", "nothing is accepted that would never run");
}

// Kafka's SystemTimer

#[test]
fn kafka_system_timer_add() {
    let mut bench = wheel();
    bench.wheel.insert("request", MS * 30).unwrap();
    bench.wheel.insert("expired", Duration::ZERO).unwrap();
    assert_eq!(bench.advance(Duration::ZERO), ["expired"]);
    assert_eq!(bench.advance(MS * 30), ["request"]);
}

#[test]
fn kafka_timer_task_cancel() {
    let bench = wheel();
    let id = bench.wheel.insert("request", MS * 30).unwrap();
    assert_eq!(bench.wheel.cancel(id), Some("request"), "and says that it was in time");
    assert_eq!(bench.wheel.cancel(id), None);
}

#[test]
fn kafka_advance_clock() {
    let mut bench = wheel();
    bench.wheel.insert("first", MS * 3).unwrap();
    bench.wheel.insert("second", MS * 5).unwrap();
    bench.clock.advance(MS * 3);
    let mut fired = Vec::new();
    let swept = bench.sweeper.sweep(|timer| fired.push(timer.value));
    assert_eq!((swept.expired, fired), (1, vec!["first"]));
    assert!(swept.next_deadline.is_some());
}

#[test]
fn kafka_size() {
    let bench = wheel();
    let id = bench.wheel.insert("request", MS * 30).unwrap();
    assert_eq!(bench.wheel.len(), 1);
    bench.wheel.cancel(id);
    assert_eq!(bench.wheel.len(), 0);
}

#[test]
fn kafka_close() {
    let bench = wheel();
    bench.wheel.insert("request", MS * 30).unwrap();
    bench.wheel.close();
    assert_eq!(bench.wheel.drain()[0].value, "request");
    let refused = bench.wheel.insert("late", MS).unwrap_err();
    assert_eq!((refused.reason, refused.value), (Refusal::Closed, "late"));
}

// The JDK's Timer and ScheduledThreadPoolExecutor

#[test]
fn jdk_schedule() {
    let mut desk = Desk::new();
    let answer = desk.scheduler.after(SECOND, || 42).unwrap();
    desk.advance(SECOND);
    assert_eq!(answer.join().unwrap(), 42);
}

#[test]
fn jdk_schedule_at_a_date() {
    let mut desk = Desk::new();
    let at = desk.scheduler.at(desk.clock.start() + SECOND, || ()).unwrap();
    desk.advance(SECOND);
    assert!(at.join().is_ok());
}

#[test]
fn jdk_schedule_at_fixed_rate() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let rate = desk.scheduler.every(SECOND).first_after(MS * 100).run(closure).unwrap();
    desk.advance(MS * 3150);
    (0..5).for_each(|_| desk.advance(Duration::ZERO));
    assert_eq!(count.load(Relaxed), 4, "missed executions are made up for");
    assert_eq!(desk.since_start(rate.next_run()), Some(MS * 4100));
}

#[test]
fn jdk_schedule_with_fixed_delay() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let delayed = desk.scheduler.every(SECOND).fixed_delay().run(closure).unwrap();
    desk.advance(MS * 3150);
    (0..5).for_each(|_| desk.advance(Duration::ZERO));
    assert_eq!(count.load(Relaxed), 1);
    assert_eq!(desk.since_start(delayed.next_run()), Some(MS * 4150));
}

#[test]
fn jdk_future_cancel() {
    let desk = Desk::new();
    let held = Arc::new(());
    let holder = Arc::clone(&held);
    let future = desk.scheduler.after(SECOND, move || drop(holder)).unwrap();
    assert_eq!(future.cancel(), Cancel::Prevented);
    assert_eq!(Arc::strong_count(&held), 1, "removed at once, as by setRemoveOnCancelPolicy");
    assert!(matches!(future.join(), Err(JoinError::NotRun)));
}

#[test]
fn jdk_get_delay() {
    let desk = Desk::new();
    let future = desk.scheduler.after(SECOND, || ()).unwrap();
    let due = future.scheduled().next_run().unwrap();
    assert_eq!(due - desk.clock.now(), SECOND);
}

#[test]
fn jdk_exception_in_a_periodic_task() {
    let mut desk = Desk::new();
    let failing = || panic!("on purpose");
    let stops = desk.scheduler.every(SECOND).run(failing).unwrap();
    catch_unwind(AssertUnwindSafe(|| desk.advance(SECOND))).unwrap_err();
    assert_eq!(stops.ending(), Some(Ending::Panicked), "it stops, and says so");
    let goes_on = desk.scheduler.every(SECOND).after_panic(AfterPanic::GoOn).run(failing).unwrap();
    catch_unwind(AssertUnwindSafe(|| desk.advance(SECOND))).unwrap_err();
    assert_eq!(goes_on.ending(), None);
}

#[test]
fn jdk_shutdown_now() {
    let desk = Desk::new();
    let _once = desk.scheduler.after(SECOND, || ()).unwrap();
    let _again = desk.scheduler.every(SECOND).run(|| ()).unwrap();
    assert_eq!(desk.scheduler.shutdown().len(), 2);
}

#[test]
fn jdk_shutdown_that_runs_what_is_delayed() {
    // At its time.
    let mut desk = Desk::new();
    let answer = desk.scheduler.after(SECOND, || 42).unwrap();
    let (runs, closure) = counting();
    let periodic = desk.scheduler.every(SECOND).run(closure).unwrap();
    desk.scheduler.close();
    assert_eq!(desk.scheduler.after(SECOND, || 43).unwrap_err().reason, Refusal::Closed);
    assert!(answer.try_join().unwrap().is_none());
    desk.advance(SECOND);
    assert_eq!(answer.join().unwrap(), 42);
    assert_eq!((runs.load(Relaxed), periodic.ending()), (1, Some(Ending::ShutDown)));
    // Or at once.
    let desk = Desk::new();
    let answer = desk.scheduler.after(SECOND, || 42).unwrap();
    desk.scheduler.shutdown().into_iter().for_each(tourbillon::scheduler::Unrun::run);
    assert_eq!(answer.join().unwrap(), 42);
}

#[test]
fn jdk_threads_of_a_pool() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::spawn(Builder::new().clock(clock.clone()).driver()).unwrap();
    let (send, sent) = mpsc::channel();
    // The first one waits for the other.
    let waits = scheduler.after(SECOND, move || receive(&sent, 1)).unwrap();
    let sends = scheduler.after(SECOND, move || send.send(42).unwrap()).unwrap();
    clock.advance(SECOND);
    assert_eq!(waits.join().unwrap(), [42]);
    sends.join().unwrap();
}

#[test]
fn jdk_await_termination() {
    let clock = ManualClock::new();
    let (send, begun) = mpsc::channel();
    let (go, going) = mpsc::channel::<()>();
    let scheduler = Scheduler::spawn(Builder::new().clock(clock.clone()).driver()).unwrap();
    let run = scheduler.after(SECOND, move || {
        send.send(()).unwrap();
        going.recv().unwrap();
    });
    let run = run.unwrap();
    clock.advance(SECOND);
    receive(&begun, 1);
    assert!(scheduler.shutdown().is_empty() && run.scheduled().is_running());
    go.send(()).unwrap();
    assert_eq!(run.scheduled().wait(), Ok(()));
    assert!(run.join().is_ok());
}

#[test]
fn jdk_timer_cancel() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::spawn(Builder::new().clock(clock).driver()).unwrap();
    let never = scheduler.after(SECOND, || ()).unwrap();
    drop(scheduler);
    assert!(matches!(never.join(), Err(JoinError::NotRun)), "dropped, and the join reports it");
}

#[test]
fn jdk_timer_purge() {
    let bench = wheel();
    let ids: Vec<_> = (0..100).map(|_| bench.wheel.insert("task", SECOND).unwrap()).collect();
    assert!(ids.into_iter().all(|id| bench.wheel.cancel(id).is_some()));
    assert!(bench.wheel.is_empty(), "a cancelled timer's place is free at once");
}

// Spring

#[test]
#[cfg(feature = "cron")]
fn spring_weekdays() {
    use std::time::SystemTime;
    use tourbillon::scheduler::Calendar;

    // The epoch was a Thursday.
    let days = |expression: &str| {
        let calendar = Calendar::new(expression, "UTC").unwrap();
        let mut time = SystemTime::UNIX_EPOCH;
        let mut day = || {
            time = calendar.next_after(time).unwrap();
            time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 86_400
        };
        [day(), day(), day(), day()]
    };
    assert_eq!(days("0 15 10 ? * MON-FRI"), [0, 1, 4, 5]);
    assert_eq!(days("0 15 10 ? * 1-5"), [0, 1, 4, 5], "Monday is 1");
    assert_eq!(days("0 15 10 ? * 2-6"), [0, 1, 2, 5], "and not Sunday");
    assert_eq!(days("0 30/40 9 * * 1-5"), [0, 1, 4, 5], "a step from a number");
    assert_eq!(days("0 15 10 ? * FRI-SUN"), [1, 2, 3, 8]);
}

/// The expected days are the days that Spring, whose weekdays are 1 to 7, would choose.
#[test]
#[cfg(feature = "cron")]
fn spring_steps_of_weekdays() {
    use std::time::SystemTime;
    use tourbillon::scheduler::Calendar;

    let days = |weekdays: &str| {
        let calendar = Calendar::new(&format!("0 0 12 * * {weekdays}"), "UTC").unwrap();
        // The epoch was a Thursday, and the fourth day after it a Monday.
        let times = calendar.times_after(SystemTime::UNIX_EPOCH + SECOND * 4 * 86_400).take(4);
        let day = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        times.map(|time| day(time).as_secs() / 86_400).collect::<Vec<_>>()
    };
    let spring = [4, 6, 8, 10];
    assert_eq!(days("1-7/2"), spring, "from Monday to Sunday");
    assert_eq!(days("MON-SUN/2"), spring);
    assert_eq!(days("*/2"), [5, 7, 9, 10], "from Sunday to Saturday");
    assert_eq!(days("1-7/3"), [4, 7, 10, 11]);
    // All readers agree about steps that do not come to Sunday.
    assert_eq!(days("2/3"), [5, 8, 12, 15]);
    assert_eq!(days("0/2"), days("*/2"));
}

#[test]
#[cfg(feature = "cron")]
fn spring_steps_from_a_weekday() {
    use tourbillon::scheduler::Calendar;

    for refused in ["1/3", "MON/2", "4/3", "6/1"] {
        let refused = Calendar::new(&format!("0 0 12 * * {refused}"), "UTC").unwrap_err();
        assert!(refused.to_string().contains("use a range such as `1-6/3`"), "{refused}");
    }
}

// Netty's HashedWheelTimer

#[test]
fn netty_new_timeout() {
    let mut bench = wheel();
    bench.wheel.insert("timeout", MS * 30).unwrap();
    assert!(bench.advance(MS * 29).is_empty());
    assert_eq!(bench.advance(MS), ["timeout"]);
}

#[test]
fn netty_timeout_cancel() {
    let mut bench = wheel();
    let id = bench.wheel.insert("timeout", MS * 30).unwrap();
    assert_eq!(bench.wheel.cancel(id), Some("timeout"), "the value is back at once");
    assert!(bench.advance(SECOND).is_empty());
}

#[test]
fn netty_is_expired() {
    let mut bench = wheel();
    let id = bench.wheel.insert("timeout", MS * 30).unwrap();
    assert!(bench.wheel.contains(id));
    bench.advance(MS * 30);
    assert!(!bench.wheel.contains(id));
}

#[test]
fn netty_pending_timeouts() {
    let bench = wheel();
    bench.wheel.insert("timeout", MS * 30).unwrap();
    assert_eq!(bench.wheel.len(), 1);
    assert_eq!(bench.wheel.metrics().inserted, 1);
}

#[test]
fn netty_max_pending_timeouts() {
    let (wheel, _sweeper) = Builder::new().shards(1).capacity(1).build().unwrap();
    wheel.insert("first", SECOND).unwrap();
    let refused = wheel.insert("second", SECOND).unwrap_err();
    assert_eq!(refused.reason, Refusal::AtCapacity { capacity: 1 });
    assert_eq!(refused.value, "second");
}

#[test]
fn netty_task_executor() {
    let clock = ManualClock::new();
    let (send, jobs) = mpsc::channel::<tourbillon::ExecutorJob>();
    let executor = move |job| {
        let _ = send.send(job);
    };
    let builder = Builder::new().clock(clock.clone()).driver().executor(executor);
    let driver = builder.spawn(|_: Expired<&str>| ()).unwrap();
    driver.wheel().insert("never run", SECOND).unwrap();
    clock.advance(SECOND);
    // An executor that rejects loses nothing.
    drop(receive(&jobs, 1));
    assert_eq!(driver.shutdown()[0].value, "never run");
}

#[test]
fn netty_stop() {
    let clock = ManualClock::new();
    let builder = Builder::new().clock(clock).driver().executor(Inline);
    let driver = builder.spawn(|_: Expired<&str>| ()).unwrap();
    driver.wheel().insert("unprocessed", SECOND).unwrap();
    assert_eq!(driver.shutdown()[0].value, "unprocessed");
    assert!(driver.shutdown().is_empty());
    assert_eq!(driver.wait(), Ok::<(), WaitError>(()));
}

// Go's time package

#[test]
fn go_after_func() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    drop(desk.scheduler.after(SECOND, closure).unwrap());
    desk.advance(SECOND);
    assert_eq!(count.load(Relaxed), 1, "even if the handle is dropped");
}

#[test]
fn go_timer_stop() {
    let mut desk = Desk::new();
    let timer = desk.scheduler.after(SECOND, || ()).unwrap();
    assert_eq!(timer.cancel(), Cancel::Prevented);
    let fired = desk.scheduler.after(SECOND, || ()).unwrap();
    desk.advance(SECOND);
    assert_eq!(fired.cancel(), Cancel::Ended);
}

#[test]
fn go_timer_reset() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let timer = desk.scheduler.after(SECOND, closure).unwrap();
    assert_eq!(timer.scheduled().reset(SECOND * 2), Ok(true));
    desk.advance(SECOND);
    assert_eq!(count.load(Relaxed), 0);
    desk.advance(SECOND);
    assert_eq!(count.load(Relaxed), 1);
    assert_eq!(timer.scheduled().reset(SECOND), Ok(false), "one that has run is over");
}

#[test]
fn go_new_ticker() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let every = desk.scheduler.every(SECOND).missed(MissedTickBehavior::Skip);
    let ticker = every.run(closure).unwrap();
    desk.advance(MS * 3500);
    (0..5).for_each(|_| desk.advance(Duration::ZERO));
    assert_eq!(count.load(Relaxed), 1, "ticks without a receiver are skipped");
    assert_eq!(desk.since_start(ticker.next_run()), Some(MS * 4000));
}

#[test]
fn go_ticker_reset() {
    let desk = Desk::new();
    let ticker = desk.scheduler.every(SECOND).run(|| ()).unwrap();
    assert_eq!(ticker.reset(MS * 300), Ok(true));
    assert_eq!(desk.since_start(ticker.next_run()), Some(MS * 300));
}

#[test]
fn go_ticker_stop() {
    let mut desk = Desk::new();
    let (count, closure) = counting();
    let ticker = desk.scheduler.every(SECOND).run(closure).unwrap();
    assert_eq!(ticker.cancel(), Cancel::Prevented);
    desk.advance(SECOND * 3);
    assert_eq!(count.load(Relaxed), 0);
}

// tokio-util's DelayQueue

#[test]
fn tokio_delay_queue_insert() {
    let mut bench = wheel();
    bench.wheel.insert("item", MS * 30).unwrap();
    assert_eq!(bench.advance(MS * 30), ["item"]);
}

#[test]
fn tokio_delay_queue_insert_at() {
    let mut bench = wheel();
    let at = bench.clock.start() + MS * 30;
    let id = bench.wheel.insert_at("item", at).unwrap();
    assert_eq!(bench.wheel.deadline(id), Some(at));
    assert_eq!(bench.advance(MS * 30), ["item"]);
}

#[test]
fn tokio_delay_queue_remove() {
    let bench = wheel();
    let id = bench.wheel.insert("item", MS * 30).unwrap();
    assert_eq!(bench.wheel.cancel(id), Some("item"));
    assert_eq!(bench.wheel.cancel(id), None, "a stale id is answered, and no panic");
}

#[test]
fn tokio_delay_queue_reset() {
    let mut bench = wheel();
    let id = bench.wheel.insert("item", MS * 30).unwrap();
    assert_eq!(bench.wheel.reset(id, MS * 50), Ok(true));
    assert!(bench.advance(MS * 49).is_empty());
    assert_eq!(bench.advance(MS), ["item"]);
    assert_eq!(bench.wheel.reset(id, MS), Ok(false), "a stale id is answered, and no panic");
}

#[test]
fn tokio_delay_queue_poll_expired() {
    let mut bench = wheel();
    bench.wheel.insert("item", MS * 30).unwrap();
    bench.clock.advance(MS * 30);
    let mut expired = Vec::new();
    let _ = bench.sweeper.sweep(|timer| expired.push((timer.value, timer.deadline)));
    assert_eq!(expired, [("item", bench.clock.start() + MS * 30)]);
}

#[test]
fn tokio_delay_queue_peek() {
    let mut bench = wheel();
    bench.wheel.insert("item", MS * 5).unwrap();
    assert_eq!(bench.sweeper.next_deadline(), Some(bench.clock.start() + MS * 5));
    bench.wheel.insert("sooner", MS * 3).unwrap();
    assert_eq!(bench.wheel.snapshot().next, Some(bench.clock.start() + MS * 3));
}

#[test]
fn tokio_delay_queue_len() {
    let bench = wheel();
    assert!(bench.wheel.is_empty());
    bench.wheel.insert("item", MS * 30).unwrap();
    assert_eq!(bench.wheel.len(), 1);
}

#[test]
fn tokio_delay_queue_deadline() {
    let bench = wheel();
    let id = bench.wheel.insert("item", MS * 30).unwrap();
    assert_eq!(bench.wheel.deadline(id), Some(bench.clock.start() + MS * 30));
    bench.wheel.cancel(id);
    assert_eq!(bench.wheel.deadline(id), None, "a stale id is answered, and no panic");
}

#[test]
fn tokio_delay_queue_clear() {
    let bench = wheel();
    bench.wheel.insert("item", MS * 30).unwrap();
    assert_eq!(bench.wheel.drain()[0].value, "item", "cleared items are returned");
    assert!(bench.wheel.is_empty());
}

#[test]
fn tokio_delay_queue_stream() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let mut queue = DelayQueue::new(&sandbox.timer, Builder::new()).unwrap();
    queue.handle().insert("later", MS * 2).unwrap();
    assert!(queue.poll_expired(&mut task.context()).is_pending());
    assert_eq!((sandbox.advance(MS * 2), task.wakes()), (1, 1));
    let expired = queue.poll_expired(&mut task.context());
    assert!(matches!(expired, Poll::Ready(Some(Expired { value: "later", .. }))));
    assert!(matches!(queue.poll_expired(&mut task.context()), Poll::Ready(None)));
}

// tokio's time

#[test]
fn tokio_time_sleep() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let mut sleep = sandbox.timer.sleep(MS * 2);
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!((sandbox.advance(MS), sandbox.advance(MS), task.wakes()), (0, 1, 1));
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
    sandbox.timer.shutdown();
    let mut late = sandbox.timer.sleep_until(sandbox.clock.now() + MS);
    assert_eq!(task.refused(&mut late), Poll::Ready(Err(Refusal::Closed)));
}

#[test]
fn tokio_time_sleep_reset() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let mut sleep = sandbox.timer.sleep(MS * 2);
    assert!(task.poll(&mut sleep).is_pending());
    let id = sleep.id().unwrap();
    assert_eq!(sandbox.timer.wheel().reset(id, MS * 9), Ok(true));
    sleep.reset(sandbox.clock.now());
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
    assert_eq!((sandbox.advance(MS * 9), task.wakes()), (0, 0));
}

#[test]
fn tokio_time_timeout() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let mut answer = sandbox.timer.timeout(Duration::ZERO, std::future::ready(7));
    assert_eq!(task.poll(&mut answer), Poll::Ready(Ok(7)));
    let deadline = sandbox.clock.now() + MS;
    let mut none = sandbox.timer.timeout_at(deadline, std::future::pending::<()>());
    assert!(task.poll(&mut none).is_pending());
    assert_eq!(sandbox.advance(MS), 1);
    assert_eq!(task.poll(&mut none), Poll::Ready(Err(TimeoutError::Elapsed)));
}

#[test]
fn tokio_time_interval() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let start = sandbox.clock.now();
    let mut interval = sandbox.timer.interval(MS * 3).unwrap();
    for tick in 0..5 {
        let due = start + MS * 3 * tick;
        assert_eq!(interval.poll_tick(&mut task.context()), Poll::Ready(Ok(due)));
        assert!(interval.poll_tick(&mut task.context()).is_pending());
        sandbox.advance(MS * 3);
    }
    assert!(sandbox.timer.interval_at(start, Duration::ZERO).is_err());
}
