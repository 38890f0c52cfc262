//! The server, which has workers with their connections and a driver that fires.

use crate::cpu;
use crate::endpoint;
use crate::ledger::{Faults, Ledger, Ticket};
use crate::options::Options;
use crate::pace::Pace;
use cpu_time::ProcessTime;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Driver, Expired, InsertError, Metrics, Pinned, TimerId, Wheel};

/// The result of one run.
pub(crate) struct Outcome {
    pub(crate) metrics: Metrics,
    /// The operations of the measured time.
    pub(crate) operations: Operations,
    /// The measured time.
    pub(crate) played: Duration,
    pub(crate) returned: u64,
    pub(crate) faults: Faults,
    /// Lateness in nanoseconds.
    pub(crate) lateness: Histogram<u64>,
    pub(crate) rates: Vec<Sample>,
    pub(crate) bytes_per_timer: f64,
    /// CPU seconds in the measured time.
    pub(crate) driver_cpu: Option<f64>,
    pub(crate) total_cpu: f64,
}

/// Numbers of operations.
#[derive(Clone, Copy)]
pub(crate) struct Operations {
    pub(crate) inserted: u64,
    pub(crate) reset: u64,
    pub(crate) cancelled: u64,
    pub(crate) fired: u64,
}

/// The state at the instant when figures begin to count.
struct Mark {
    at: Instant,
    operations: Operations,
    driver_cpu: Option<f64>,
    total_cpu: f64,
}

/// Operations per second in one interval.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) at: f64,
    pub(crate) inserts: f64,
    pub(crate) resets: f64,
    pub(crate) cancels: f64,
    pub(crate) fires: f64,
}

/// The deadline of a request.
const REQUEST_DEADLINE: Duration = Duration::from_secs(1);

/// The share of the connections that fall silent per second and are closed by their idle timeout.
const SILENCED_A_SECOND: f64 = 0.02;

/// The number of events that a worker handles under one guard, as an event loop does after one
/// poll.
const BATCH: usize = 64;

const SAMPLE: Duration = Duration::from_millis(250);

/// The time after the opening until a backlog that it left has been fired.
const SETTLING: Duration = Duration::from_millis(500);

const TICK_THREAD: &str = "tick";

/// The number of histograms of lateness.
const HISTOGRAMS: usize = 8;

thread_local! {
    /// The number of this thread among those that have recorded lateness.
    static OWN: usize = {
        static NUMBERED: AtomicUsize = AtomicUsize::new(0);
        NUMBERED.fetch_add(1, Relaxed)
    };
}

/// The state that all threads share.
struct World {
    ledger: Ledger,
    /// Several, so that the driver's workers seldom wait for each other.
    lateness: Vec<Mutex<Histogram<u64>>>,
    /// Set while lateness is recorded.
    measures: AtomicBool,
    stop: AtomicBool,
}

/// Plays the server and audits it.
pub(crate) fn play(options: &Options) -> Result<Outcome, Box<dyn Error>> {
    // Each connection has two records, for its idle timeout and for the request in progress.
    let world = Arc::new(World {
        ledger: Ledger::new(options.connections as usize * 2),
        lateness: (0..HISTOGRAMS).map(|_| Mutex::new(histogram())).collect(),
        measures: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    });
    let driver = start(options, &world)?;
    if let Some(address) = options.watch {
        endpoint::open(driver.wheel().clone(), address)
            .map_err(|error| format!("{address}: {error}"))?;
    }
    let workers = options.workers();
    let opened = Arc::new(Barrier::new(workers as usize + 1));
    let threads: Vec<_> = (0..workers)
        .map(|number| {
            let share = share(options.connections, workers, number);
            let worker = Worker::new(share, options, Arc::clone(&world));
            let (wheel, opened) = (driver.wheel().clone(), Arc::clone(&opened));
            std::thread::spawn(move || worker.run(&wheel, &opened))
        })
        .collect();
    opened.wait();
    if options.load().is_some() {
        std::thread::sleep(SETTLING);
    }
    let began = Mark::now(&driver)?;
    world.measures.store(true, Relaxed);
    let rates = watch(options, &driver);
    world.measures.store(false, Relaxed);
    let ended = Mark::now(&driver)?;
    world.stop.store(true, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a worker panicked")?;
    }
    finish(&world, &driver, (&began, &ended), rates)
}

impl Mark {
    fn now(driver: &Driver<Ticket>) -> Result<Self, Box<dyn Error>> {
        let Metrics { inserted, reset, cancelled, fired, .. } = driver.metrics();
        Ok(Self {
            at: Instant::now(),
            operations: Operations { inserted, reset, cancelled, fired },
            driver_cpu: cpu::seconds_of(TICK_THREAD),
            total_cpu: ProcessTime::try_now()?.as_duration().as_secs_f64(),
        })
    }
}

impl Operations {
    fn since(self, before: Self) -> Self {
        Self {
            inserted: self.inserted - before.inserted,
            reset: self.reset - before.reset,
            cancelled: self.cancelled - before.cancelled,
            fired: self.fired - before.fired,
        }
    }
}

fn start(options: &Options, world: &Arc<World>) -> Result<Driver<Ticket>, Box<dyn Error>> {
    let mut builder = Builder::new().resolution(options.resolution);
    if let Some(shards) = options.shards {
        builder = builder.shards(shards);
    }
    let world = Arc::clone(world);
    let fire = move |timer: Expired<Ticket>| {
        let late = world.ledger.fire(timer.value);
        if !world.measures.load(Relaxed) {
            return;
        }
        let place = OWN.with(|own| own % world.lateness.len());
        let mut histogram = world.lateness[place].lock().unwrap_or_else(PoisonError::into_inner);
        histogram.saturating_record(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX).max(1));
    };
    Ok(builder.driver().thread_name(TICK_THREAD).spawn(fire)?)
}

/// Shows progress until the time is up, and returns the rates over time.
fn watch(options: &Options, driver: &Driver<Ticket>) -> Vec<Sample> {
    let (started, total) = (Instant::now(), Duration::from_secs(options.seconds));
    let bar = ProgressBar::new(total.as_secs() * 10);
    let style = ProgressStyle::with_template("{bar:24} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (mut samples, mut before, mut last) = (Vec::new(), driver.metrics(), started);
    while started.elapsed() < total {
        std::thread::sleep(SAMPLE.min(total.saturating_sub(started.elapsed())));
        let (metrics, now) = (driver.metrics(), Instant::now());
        let span = (now - last).as_secs_f64();
        let rate = |now: u64, before: u64| (now - before) as f64 / span;
        let sample = Sample {
            at: (now - started).as_secs_f64(),
            inserts: rate(metrics.inserted, before.inserted),
            resets: rate(metrics.reset, before.reset),
            cancels: rate(metrics.cancelled, before.cancelled),
            fires: rate(metrics.fired, before.fired),
        };
        bar.set_position(u64::try_from((now - started).as_millis() / 100).unwrap_or(u64::MAX));
        bar.set_message(format!(
            "{} armed | M ops/s: insert {:.2}, reset {:.2}, cancel {:.2}, fire {:.3} | swept late by {:?} (p99)",
            metrics.armed,
            sample.inserts / 1e6,
            sample.resets / 1e6,
            sample.cancels / 1e6,
            sample.fires / 1e6,
            metrics.lateness.quantile(0.99),
        ));
        samples.push(sample);
        (before, last) = (metrics, now);
    }
    bar.finish_and_clear();
    samples
}

fn finish(
    world: &World,
    driver: &Driver<Ticket>,
    (began, ended): (&Mark, &Mark),
    rates: Vec<Sample>,
) -> Result<Outcome, Box<dyn Error>> {
    let steady = driver.metrics();
    let returned = driver.shutdown();
    driver.wait()?;
    for timer in &returned {
        world.ledger.end(timer.value);
    }
    let mut lateness = histogram();
    for part in &world.lateness {
        lateness.add(&*part.lock().unwrap_or_else(PoisonError::into_inner))?;
    }
    Ok(Outcome {
        metrics: driver.metrics(),
        operations: ended.operations.since(began.operations),
        played: ended.at - began.at,
        returned: returned.len() as u64,
        faults: world.ledger.audit(),
        lateness,
        rates,
        bytes_per_timer: steady.bytes as f64 / steady.armed.max(1) as f64,
        driver_cpu: ended.driver_cpu.zip(began.driver_cpu).map(|(end, begin)| end - begin),
        total_cpu: ended.total_cpu - began.total_cpu,
    })
}

/// A histogram of nanoseconds up to an hour, with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are in range")
}

/// The connections of one worker, as the first and their number.
fn share(connections: u32, workers: u32, number: u32) -> (u32, u32) {
    let at = |number: u32| {
        let first = u64::from(connections) * u64::from(number) / u64::from(workers);
        u32::try_from(first).unwrap_or(u32::MAX)
    };
    (at(number), at(number + 1) - at(number))
}

/// One connection, as its worker sees it.
#[derive(Clone, Default)]
struct Connection {
    idle: Option<TimerId>,
    request: Option<TimerId>,
    silent: bool,
}

/// A worker thread. It alone handles its connections, as an event loop does.
struct Worker {
    first: u32,
    connections: Vec<Connection>,
    idle_timeout: Duration,
    load: Option<f64>,
    world: Arc<World>,
    random: fastrand::Rng,
}

type Refused = InsertError<Ticket>;

impl Worker {
    fn new((first, count): (u32, u32), options: &Options, world: Arc<World>) -> Self {
        Self {
            first,
            connections: vec![Connection::default(); count as usize],
            idle_timeout: options.idle_timeout,
            load: options.load(),
            world,
            random: fastrand::Rng::with_seed(u64::from(first) + 1),
        }
    }

    fn run(mut self, wheel: &Wheel<Ticket>, opened: &Barrier) {
        let mut pinned = wheel.pin();
        let mut outcome = Ok(());
        for which in 0..self.connections.len() {
            outcome = outcome.and_then(|()| self.open(&pinned, which));
            if which % BATCH == 0 {
                pinned.repin();
            }
        }
        drop(pinned);
        opened.wait();
        let (started, mut silenced) = (Instant::now(), 0);
        let mut pace = Pace::new(self.load.unwrap_or(1.0), started);
        let mut pinned = wheel.pin();
        while outcome.is_ok() && !self.connections.is_empty() && !self.world.stop.load(Relaxed) {
            pinned.repin();
            let played = (pinned.now() - started).as_secs_f64();
            if played * SILENCED_A_SECOND * self.connections.len() as f64 > f64::from(silenced) {
                silenced += 1;
                let which = self.random.usize(..self.connections.len());
                self.connections[which].silent = true;
            }
            for _ in 0..BATCH {
                let which = self.random.usize(..self.connections.len());
                outcome = outcome.and_then(|()| self.event(&pinned, which));
            }
            if let Some(rest) = pace.rest(pinned.now()) {
                drop(pinned);
                std::thread::sleep(rest);
                pinned = wheel.pin();
                pace.rested(pinned.now());
            }
        }
        assert!(outcome.is_ok(), "an insert was refused: {outcome:?}");
    }

    /// Handles an event on a connection.
    fn event(&mut self, pinned: &Pinned<'_, Ticket>, which: usize) -> Result<(), Refused> {
        if self.connections[which].silent {
            return if self.world.ledger.has_ended(self.idle_record(which)) {
                self.open(pinned, which)
            } else {
                Ok(())
            };
        }
        match self.random.u32(..1000) {
            0..2 => {
                self.close(pinned, which);
                return self.open(pinned, which);
            }
            2..302 => self.request_or_answer(pinned, which)?,
            _ => {}
        }
        self.packet(pinned, which)
    }

    fn open(&mut self, pinned: &Pinned<'_, Ticket>, which: usize) -> Result<(), Refused> {
        let deadline = pinned.now() + self.idle_timeout;
        let ticket = self.world.ledger.begin(self.idle_record(which), deadline);
        let idle = Some(pinned.insert(ticket, self.idle_timeout)?);
        let connection = &mut self.connections[which];
        *connection = Connection { idle, silent: false, ..*connection };
        Ok(())
    }

    /// Handles a packet, which pushes the idle timeout back unless it has just fired.
    fn packet(&mut self, pinned: &Pinned<'_, Ticket>, which: usize) -> Result<(), Refused> {
        let deadline = pinned.now() + self.idle_timeout;
        let record = self.idle_record(which);
        let Some(idle) = self.connections[which].idle else {
            return Ok(());
        };
        self.world.ledger.before_reset(record, deadline);
        if pinned.reset(idle, self.idle_timeout).unwrap_or(false) {
            self.world.ledger.after_reset(record, deadline);
        } else if self.world.ledger.has_ended(record) {
            return self.open(pinned, which);
        }
        Ok(())
    }

    /// Handles a close by the peer, which cancels the idle timeout unless it has just fired.
    fn close(&mut self, pinned: &Pinned<'_, Ticket>, which: usize) {
        if let Some(ticket) = self.connections[which].idle.and_then(|id| pinned.cancel(id)) {
            self.world.ledger.end(ticket);
        }
        while !self.world.ledger.has_ended(self.idle_record(which)) {
            // It is firing on another thread at this moment.
            std::thread::yield_now();
        }
    }

    /// Handles the arrival of a request, or the answer to the last one. One in two hundred is never
    /// answered.
    fn request_or_answer(
        &mut self,
        pinned: &Pinned<'_, Ticket>,
        which: usize,
    ) -> Result<(), Refused> {
        let record = self.idle_record(which) + 1;
        if self.world.ledger.has_ended(record) {
            let ticket = self.world.ledger.begin(record, pinned.now() + REQUEST_DEADLINE);
            self.connections[which].request = Some(pinned.insert(ticket, REQUEST_DEADLINE)?);
        } else if self.random.u32(..200) > 0 {
            let request = self.connections[which].request;
            if let Some(ticket) = request.and_then(|id| pinned.cancel(id)) {
                self.world.ledger.end(ticket);
            }
        }
        Ok(())
    }

    fn idle_record(&self, which: usize) -> u32 {
        let connection = self.first + u32::try_from(which).unwrap_or(u32::MAX);
        connection * 2
    }
}
