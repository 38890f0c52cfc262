//! Operations per second of a store, with a number of calls in flight that share their commits, and
//! of bare rows of the same length with as many in each commit, alternately.

use super::{Arguments, Fallible, TempFile};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redb::{Database, TableDefinition};
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon_durable::{DurableError, DurableTimers, Event, Options, Outcome};
use tourbillon_durable_measure::median;

const IN_FLIGHT: [usize; 4] = [1, 64, 1024, 4096];
const OPERATIONS: [&str; 3] = ["insert", "cancel", "deliver"];
const ROWS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("rows");
const DAY: Duration = Duration::from_secs(86_400);

/// The number of bytes of a record besides its payload.
const HEADER: usize = 77;

/// An operation with a number of calls in flight. The figures are medians of the rounds.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) operation: &'static str,
    pub(super) in_flight: usize,
    pub(super) ours: f64,
    pub(super) bare: f64,
    pub(super) ratio: f64,
    ours_rounds: Vec<f64>,
    bare_rounds: Vec<f64>,
}

/// Rates of the three operations.
type Rates = [f64; 3];

pub(super) fn measure(arguments: &Arguments) -> Fallible<Vec<Row>> {
    let [ours, bare] = ["store", "bare"].map(|name| TempFile::new(arguments, name));
    let timers = DurableTimers::open(&ours.0)?;
    let bare = Bare::open(&bare, arguments)?;
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    for some in ids(&mut random, arguments.resting).chunks(4096) {
        schedule(&timers, some, some.len(), DAY, arguments.payload)?;
        bare.insert(some)?;
    }
    let mut rows = Vec::new();
    for in_flight in IN_FLIGHT {
        let count = if in_flight == 1 { arguments.single } else { arguments.timers };
        let (mut our_rounds, mut bare_rounds) = (Vec::new(), Vec::new());
        for round in 0..arguments.rounds {
            let ids = ids(&mut random, count);
            // The order alternates from round to round.
            for turn in [round, round + 1] {
                match turn % 2 {
                    0 => our_rounds.push(of_store(&timers, &ids, in_flight, arguments)?),
                    _ => bare_rounds.push(bare.rates(&ids, in_flight)?),
                }
            }
        }
        rows.extend(
            (0..OPERATIONS.len())
                .map(|operation| row(operation, in_flight, &our_rounds, &bare_rounds)),
        );
    }
    rows.sort_by_key(|row| OPERATIONS.iter().position(|operation| *operation == row.operation));
    Ok(rows)
}

fn row(operation: usize, in_flight: usize, ours: &[Rates], bare: &[Rates]) -> Row {
    let of = |rounds: &[Rates]| rounds.iter().map(|rates| rates[operation]).collect::<Vec<_>>();
    let (ours_rounds, bare_rounds) = (of(ours), of(bare));
    let (ours, bare) = (median(ours_rounds.iter().copied()), median(bare_rounds.iter().copied()));
    let operation = OPERATIONS[operation];
    Row { operation, in_flight, ours, bare, ratio: ours / bare, ours_rounds, bare_rounds }
}

/// Returns ids in random order, like the ids of users.
fn ids(random: &mut fastrand::Rng, count: usize) -> Vec<String> {
    (0..count).map(|_| format!("{:016x}", random.u64(..))).collect()
}

/// Returns the number per second.
fn rate(count: usize, begin: Instant) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / begin.elapsed().as_secs_f64()
}

fn of_store(
    timers: &DurableTimers,
    ids: &[String],
    in_flight: usize,
    arguments: &Arguments,
) -> Fallible<Rates> {
    let payload = arguments.payload;
    let begin = Instant::now();
    schedule(timers, ids, in_flight, DAY, payload)?;
    let scheduled = rate(ids.len(), begin);

    let begin = Instant::now();
    each(ids, in_flight, |id| timers.cancel(id))?;
    let cancelled = rate(ids.len(), begin);

    schedule(timers, ids, ids.len(), Duration::ZERO, payload)?;
    let begin = Instant::now();
    deliver(timers, ids.len(), in_flight, arguments.workers)?;
    Ok([scheduled, cancelled, rate(ids.len(), begin)])
}

fn schedule(
    timers: &DurableTimers,
    ids: &[String],
    in_flight: usize,
    delay: Duration,
    payload: usize,
) -> Fallible<()> {
    let payload = vec![7; payload];
    each(ids, in_flight, |id| async {
        timers.insert(id, &payload[..], delay, Options::new()).await.map_err(DurableError::from)
    })
}

/// Calls an operation with each id, with a number of calls in flight.
fn each<'a, T, F: Future<Output = Result<T, DurableError>>>(
    ids: &'a [String],
    in_flight: usize,
    operation: impl Fn(&'a str) -> F,
) -> Fallible<()> {
    let mut calls = FuturesUnordered::new();
    let mut ids = ids.iter();
    pollster::block_on(async {
        loop {
            calls.extend(ids.by_ref().take(in_flight - calls.len()).map(|id| operation(id)));
            match calls.next().await {
                Some(done) => drop(done?),
                None => return Ok(()),
            }
        }
    })
}

/// Delivers `count` due timers with some workers.
fn deliver(timers: &DurableTimers, count: usize, in_flight: usize, workers: usize) -> Fallible<()> {
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    let (end, ends) = (Arc::new(Mutex::new(Some(end))), ends.shared());
    let done = Arc::new(AtomicUsize::new(0));
    let work = || {
        let (end, ends, done) = (Arc::clone(&end), ends.clone(), Arc::clone(&done));
        let worker = timers.worker().concurrency(in_flight).until(ends.map(drop));
        let worker = worker.observe(move |event| {
            let Event::Attempt(event) = event else { return };
            let acknowledged = usize::from(event.outcome == Outcome::Acknowledged);
            if done.fetch_add(acknowledged, Relaxed) + acknowledged == count {
                drop(end.lock().map(|mut end| end.take()));
            }
        });
        pollster::block_on(worker.run(|_| async { Ok::<(), DurableError>(()) }))
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        runs.into_iter().try_for_each(|run| Ok(run.join().map_err(|_| "a worker panicked")??))
    })
}

/// Bare rows with an id, and as many bytes as a record.
struct Bare {
    database: Database,
    row: Vec<u8>,
}

impl Bare {
    fn open(file: &TempFile, arguments: &Arguments) -> Fallible<Self> {
        let row = vec![7; HEADER + arguments.payload];
        Ok(Self { database: Database::create(&file.0)?, row })
    }

    fn insert(&self, ids: &[String]) -> Fallible<()> {
        let transaction = self.database.begin_write()?;
        {
            let mut rows = transaction.open_table(ROWS)?;
            for id in ids {
                rows.insert(&**id, &self.row[..])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn remove(&self, ids: &[String]) -> Fallible<()> {
        let transaction = self.database.begin_write()?;
        {
            let mut rows = transaction.open_table(ROWS)?;
            for id in ids {
                rows.remove(&**id)?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// Inserts and removes rows. Where a store leases and acknowledges, writes them again and
    /// removes them.
    fn rates(&self, ids: &[String], in_flight: usize) -> Fallible<Rates> {
        let timed = |work: &dyn Fn(&[String]) -> Fallible<()>| -> Fallible<f64> {
            let begin = Instant::now();
            ids.chunks(in_flight).try_for_each(work)?;
            Ok(rate(ids.len(), begin))
        };
        let inserted = timed(&|some| self.insert(some))?;
        let removed = timed(&|some| self.remove(some))?;
        self.insert(ids)?;
        let delivered = timed(&|some| {
            self.insert(some)?;
            self.remove(some)
        })?;
        Ok([inserted, removed, delivered])
    }
}
