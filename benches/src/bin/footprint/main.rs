//! The cost of a wheel apart from its operations: memory, idle time, herds, lateness.
//!
//! Each row is measured in a process of its own (this program again, with `--row`), so that none
//! inherits another's memory. A row prints one line of JSON, and `ci/measure footprint` runs all.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program whose output is its result")]
#![allow(
    clippy::disallowed_methods,
    reason = "it measures real time on threads of its own, and lets time pass"
)]

mod small;

use clap::{Parser, ValueEnum};
use cpu_time::{ProcessTime, ThreadTime};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Driver, DriverBuilder, Expired, Inline, ManualClock};
use tourbillon_benches::delay;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MILLION: u32 = 1_000_000;

/// Memory, idle time, herds and lateness of a wheel.
#[derive(Parser)]
struct Arguments {
    /// Measure this row only, here.
    #[arg(long)]
    row: Option<Row>,
}

/// A measurement.
#[derive(Clone, Copy, ValueEnum)]
enum Row {
    /// Resident bytes per timer, with a million armed over 60 s.
    BytesMillion,
    /// The same with ten million.
    BytesTenMillion,
    /// Resident memory after ten million timers were armed and fired.
    Burst,
    /// Resident memory with 1,000 live timers after 100 million inserts and cancels.
    Churn,
    /// Sweeps and CPU time with ten million timers due in an hour, and no calls.
    Idle,
    /// The same with nothing armed.
    Empty,
    /// Lateness of a million due within a second, while two threads insert and cancel.
    Lateness,
    /// The same with handlers that run on the tick thread.
    LatenessInline,
    /// The time until a million timers due in one tick are all delivered.
    Herd,
    /// Bytes and time to build of a wheel with one shard and one timer, one of many.
    SmallWheel,
    /// The same of a delay queue with one value.
    SmallQueue,
    /// The same of tokio-util's.
    SmallTokioQueue,
    /// CPU time for each occupied tick, with 1, 8 and 64 shards.
    Ticks,
    /// Lateness of a million timers due within two seconds, at 1 µs with 8 shards and handlers that
    /// run on the tick thread.
    Storm,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(row) = Arguments::parse().row {
        let mut line = measure(row);
        line["row"] = name(row).into();
        println!("{line}");
        return Ok(());
    }
    for &row in Row::value_variants() {
        let name = name(row);
        let status = Command::new(std::env::current_exe()?).args(["--row", &name]).status()?;
        if !status.success() {
            return Err(format!("the row {name} failed").into());
        }
    }
    Ok(())
}

/// The name of a row on the command line and in the output.
fn name(row: Row) -> String {
    row.to_possible_value().expect("no row is hidden").get_name().to_owned()
}

fn measure(row: Row) -> Value {
    match row {
        Row::BytesMillion => bytes(MILLION),
        Row::BytesTenMillion => bytes(10 * MILLION),
        Row::Burst => burst(10 * MILLION),
        Row::Churn => churn(),
        Row::Idle => idle(10 * MILLION),
        Row::Empty => idle(0),
        Row::Lateness => lateness(Builder::new().driver()),
        Row::LatenessInline => lateness(Builder::new().driver().executor(Inline)),
        Row::Herd => herd(),
        Row::SmallWheel => small::wheels(),
        Row::SmallQueue => small::queues(),
        Row::SmallTokioQueue => small::tokio_queues(),
        Row::Ticks => ticks(),
        Row::Storm => storm(),
    }
}

/// Resident bytes of this process.
fn resident() -> usize {
    memory_stats::memory_stats().map_or(0, |stats| stats.physical_mem)
}

fn bytes(timers: u32) -> Value {
    let (wheel, _sweeper) = Builder::new().build::<u64>().expect("the defaults are in range");
    let before = resident();
    for n in 0..timers {
        wheel.insert(u64::from(n), delay(n)).expect("the wheel is open");
    }
    let bytes = (resident() - before) as f64 / f64::from(timers);
    json!({"bytes": bytes, "at_most": 44})
}

fn burst(timers: u32) -> Value {
    let clock = ManualClock::new();
    let (wheel, mut sweeper) =
        Builder::new().clock(clock.clone()).build::<u64>().expect("the defaults are in range");
    let before = resident();
    for n in 0..timers {
        wheel.insert(u64::from(n), delay(n)).expect("the wheel is open");
    }
    let most = resident();
    clock.advance(Duration::from_secs(91));
    while sweeper.next_deadline().is_some_and(|next| next <= tourbillon::Clock::now(&clock)) {
        let _ = sweeper.sweep(|_| ());
    }
    assert!(wheel.is_empty());
    json!({"before": before, "most": most, "after": resident(), "counted": wheel.metrics().bytes,
           "at_most": before + before / 10 + (8 << 20)})
}

fn churn() -> Value {
    let (wheel, mut sweeper) = Builder::new().build::<u64>().expect("the defaults are in range");
    let hour = Duration::from_secs(3600);
    let insert = |n| wheel.insert(n, hour).expect("the wheel is open");
    let mut live: Vec<_> = (0..1000).map(insert).collect();
    let mut most = 0;
    for n in 0..100 * u64::from(MILLION) {
        let place = &mut live[(n % 1000) as usize];
        wheel.cancel(*place);
        *place = insert(n);
        if n % 4096 == 0 {
            // As the waker does.
            let _ = sweeper.sweep(|_| ());
        }
        if n % u64::from(MILLION) == 0 {
            most = most.max(resident());
        }
    }
    json!({"bytes": most, "at_most": 32 << 20})
}

fn idle(timers: u32) -> Value {
    let driver = Builder::new().driver().spawn(|_: Expired<u64>| ());
    let driver = driver.expect("the defaults are in range");
    for n in 0..timers {
        let hour = Duration::from_secs(3600) + delay(n);
        driver.wheel().insert(u64::from(n), hour).expect("the wheel is open");
    }
    thread::sleep(Duration::from_secs(1));
    let (sweeps, cpu) = (driver.metrics().sweeps, ProcessTime::now());
    thread::sleep(Duration::from_secs(10));
    let (sweeps, cpu) = (driver.metrics().sweeps - sweeps, cpu.elapsed());
    json!({"sweeps": sweeps, "cpu_ms": cpu.as_secs_f64() * 1e3,
           "at_most": if timers > 0 { 10 } else { 0 }})
}

/// The lateness of each timer in microseconds plus one, by its value. 0 until it fires.
struct Late(Vec<AtomicU32>);

impl Late {
    /// Spawns a driver whose handler stores the lateness of each timer.
    fn driver(builder: DriverBuilder, timers: u32) -> (Driver<u32>, Arc<Self>) {
        let late = Arc::new(Self((0..timers).map(|_| AtomicU32::new(0)).collect()));
        let noted = Arc::clone(&late);
        let driver = builder.spawn(move |timer: Expired<u32>| {
            let micros = u32::try_from(timer.deadline.elapsed().as_micros()).unwrap_or(u32::MAX);
            noted.0[timer.value as usize].store(micros.saturating_add(1), Relaxed);
        });
        (driver.expect("the defaults are in range"), late)
    }

    /// Waits until all timers have fired.
    fn wait(&self) -> Histogram<u64> {
        let mut histogram =
            Histogram::new_with_bounds(1, u64::from(u32::MAX), 3).expect("the bounds are in range");
        for late in &self.0 {
            while late.load(Relaxed) == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            histogram.saturating_record(u64::from(late.load(Relaxed) - 1));
        }
        histogram
    }
}

/// The lateness, in microseconds, of a million timers due within a second while two threads insert
/// and cancel. `churned` is the number of their inserts.
fn lateness(builder: DriverBuilder) -> Value {
    let (driver, late) = Late::driver(builder, MILLION);
    let start = Instant::now() + Duration::from_secs(2);
    for n in 0..MILLION {
        let due = start + Duration::from_micros(u64::from(n));
        driver.wheel().insert_at(n, due).expect("the wheel is open");
    }
    let (done, churned) = (AtomicBool::new(false), AtomicU64::new(0));
    let late = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let hour = Duration::from_secs(3600);
                while !done.load(Relaxed) {
                    let id = driver.wheel().insert(0, hour).expect("the wheel is open");
                    driver.wheel().cancel(id);
                    churned.fetch_add(1, Relaxed);
                }
            });
        }
        let late = late.wait();
        done.store(true, Relaxed);
        late
    });
    json!({"p50": late.value_at_quantile(0.5), "p99": late.value_at_quantile(0.99),
           "p99_at_most": 2000, "max": late.max(), "max_at_most": 20_000,
           "churned": churned.load(Relaxed), "curve": curve(&late)})
}

/// The lateness of a million timers in microseconds, each due in a tick of its own, or nearly so.
fn storm() -> Value {
    let builder = Builder::new().resolution(Duration::from_micros(1)).shards(8);
    let (driver, late) = Late::driver(builder.driver().executor(Inline), MILLION);
    let start = Instant::now() + Duration::from_secs(2);
    let ready = Barrier::new(8);
    thread::scope(|scope| {
        for first in 0..8 {
            let (wheel, ready) = (driver.wheel(), &ready);
            scope.spawn(move || {
                assert!(wheel.is_empty());
                ready.wait();
                for n in (first..MILLION).step_by(8) {
                    let due = start + Duration::from_micros(2 * u64::from(n));
                    wheel.insert_at(n, due).expect("the wheel is open");
                }
                ready.wait();
            });
        }
    });
    let late = late.wait();
    json!({"p50": late.value_at_quantile(0.5), "p99": late.value_at_quantile(0.99),
           "max": late.max(), "max_at_most": 50_000})
}

fn ticks() -> Value {
    let mut row = json!({});
    for shards in [1, 8, 64] {
        row[format!("catching_up_{shards}")] = occupied_ticks(shards, false).into();
        row[format!("resting_{shards}")] = occupied_ticks(shards, true).into();
    }
    row
}

/// CPU time in nanoseconds for each of 4000 timers of all shards, 50 ticks apart. They are due in
/// one sweep, or each in a sweep of its own that is followed by a rest.
fn occupied_ticks(shards: usize, resting: bool) -> f64 {
    const TIMERS: u32 = 4000;
    let (tick, apart) = (Duration::from_millis(1), Duration::from_millis(50));
    let mut least = f64::INFINITY;
    for _ in 0..5 {
        let clock = ManualClock::new();
        let (wheel, mut sweeper) = Builder::new()
            .shards(shards)
            .clock(clock.clone())
            .build::<u32>()
            .expect("the number of shards is in range");
        let ready = Barrier::new(shards);
        thread::scope(|scope| {
            for first in 0..shards {
                let (wheel, ready) = (&wheel, &ready);
                scope.spawn(move || {
                    // Threads that live at the same time are at home in different shards.
                    assert!(wheel.is_empty());
                    ready.wait();
                    for n in (0..TIMERS).skip(first).step_by(shards) {
                        wheel.insert(n, tick + apart * n).expect("the wheel is open");
                    }
                    ready.wait();
                });
            }
        });
        let _ = sweeper.next_deadline();
        let (mut fired, begun) = (0, ThreadTime::now());
        if resting {
            for _ in 0..=TIMERS {
                fired += sweeper.sweep(|_| ()).expired;
                clock.advance(apart);
            }
        } else {
            clock.advance(apart * (TIMERS + 1));
            fired += sweeper.sweep(|_| ()).expired;
        }
        let took = begun.elapsed();
        assert_eq!(fired, TIMERS as usize);
        least = least.min(took.as_nanos() as f64 / f64::from(TIMERS));
    }
    least
}

/// Points of the distribution: a share of all timers, ten shares for each power of ten, and the
/// lateness that it exceeds.
fn curve(late: &Histogram<u64>) -> Vec<(f64, u64)> {
    let shares = (0..=60).map(|step| 10_f64.powf(-f64::from(step) / 10.0));
    let round = |share: f64| (share * 1e9).round() / 1e9;
    shares.map(|share| (round(share), late.value_at_quantile(1.0 - share))).collect()
}

fn herd() -> Value {
    let (driver, late) = Late::driver(Builder::new().driver(), MILLION);
    let due = Instant::now() + Duration::from_secs(2);
    for n in 0..MILLION {
        driver.wheel().insert_at(n, due).expect("the wheel is open");
    }
    let late = late.wait();
    json!({"max": late.max(), "at_most": 60_000})
}
