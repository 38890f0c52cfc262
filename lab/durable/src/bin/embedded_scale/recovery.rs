//! A store whose process is killed while it writes. Measures the time to open it and the time until
//! timers are delivered again, and checks that nothing acknowledged is lost.
//!
//! The program runs itself as a child, which inserts the timers 0, 1, 2, … and prints a number. All
//! timers below it are acknowledged.

use super::{Arguments, Fallible, TempFile};
use futures_util::stream::{FuturesOrdered, StreamExt};
use serde::Serialize;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tourbillon_durable::{DurableError, DurableTimers, Event, Options, Outcome};

/// The number of calls that the child has in flight.
const IN_FLIGHT: usize = 4096;

/// The maximum time from the required number of acknowledged timers to the kill.
const LATEST_KILL: Duration = Duration::from_millis(1000);

/// The recovery of a store, in seconds.
#[derive(Serialize)]
pub(super) struct Recovery {
    pub(super) acknowledged: u64,
    pub(super) found: u64,
    pub(super) bytes: u64,
    pub(super) open: f64,
    pub(super) first: f64,
    pub(super) due: usize,
    pub(super) all: f64,
    pub(super) lost: usize,
}

/// Returns `true` if the timer with that number is due at once.
fn is_due(number: u64, arguments: &Arguments) -> bool {
    let every = arguments.recovered / arguments.due.clamp(1, arguments.recovered);
    arguments.due > 0 && number.is_multiple_of(every)
}

/// Runs the child.
pub(super) fn write_for_ever(file: &Path, arguments: &Arguments) -> Fallible<()> {
    let timers = DurableTimers::open(file)?;
    let payload = vec![7; arguments.payload];
    let mut calls = FuturesOrdered::new();
    let mut out = std::io::stdout().lock();
    pollster::block_on(async {
        for number in 0_u64.. {
            let (timers, payload) = (&timers, &payload[..]);
            let delay = Duration::from_secs(if is_due(number, arguments) { 0 } else { 86_400 });
            calls.push_back(async move {
                timers.insert(&number.to_string(), payload, delay, Options::new()).await
            });
            if calls.len() == IN_FLIGHT {
                calls.next().await.transpose()?;
                // All before the oldest call in flight.
                writeln!(out, "{}", number + 2 - IN_FLIGHT as u64)?;
            }
        }
        Ok(())
    })
}

pub(super) fn measure(arguments: &Arguments) -> Fallible<Recovery> {
    let file = TempFile::new(arguments, "killed");
    let acknowledged = write_and_kill(&file, arguments)?;
    let begin = Instant::now();
    let timers = DurableTimers::open(&file.0)?;
    let open = begin.elapsed().as_secs_f64();
    let due = (0..acknowledged).filter(|number| is_due(*number, arguments)).count();
    let (mut ids, first, all) = deliver(&timers, due)?;
    let mut last: Option<String> = None;
    loop {
        let page = pollster::block_on(timers.list(last.as_deref(), 1000))?;
        let Some(timer) = page.last() else { break };
        last = Some(timer.id.clone());
        ids.extend(page.into_iter().map(|timer| timer.id));
    }
    let lost = (0..acknowledged).filter(|number| !ids.contains(&number.to_string())).count();
    let (found, bytes) = (ids.len() as u64, std::fs::metadata(&file.0)?.len());
    Ok(Recovery { acknowledged, found, bytes, open, first, due, all, lost })
}

/// Returns the number of timers that were acknowledged before the kill.
fn write_and_kill(file: &TempFile, arguments: &Arguments) -> Fallible<u64> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--child")
        .arg(&file.0)
        .args(["--recovered", &arguments.recovered.to_string()])
        .args(["--due", &arguments.due.to_string()])
        .args(["--payload", &arguments.payload.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let heard = child.stdout.take().map(|out| {
        let acknowledged = Arc::clone(&acknowledged);
        std::thread::spawn(move || {
            // The last line may have been cut off by the kill.
            let mut line = String::new();
            let mut out = BufReader::new(out);
            while out.read_line(&mut line).is_ok_and(|length| length > 0) && line.ends_with('\n') {
                let number = line.trim().parse().unwrap_or(0);
                acknowledged.store(number, Relaxed);
                line.clear();
            }
        })
    });
    let killed = kill_when(&mut child, &acknowledged, arguments);
    let _ = child.kill();
    child.wait()?;
    killed?;
    drop(heard.map(std::thread::JoinHandle::join));
    Ok(acknowledged.load(Relaxed))
}

/// Waits for the time of the kill.
fn kill_when(child: &mut Child, acknowledged: &AtomicU64, arguments: &Arguments) -> Fallible<()> {
    while acknowledged.load(Relaxed) < arguments.recovered {
        if let Some(status) = child.try_wait()? {
            return Err(format!("the child has ended: {status}").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    std::thread::sleep(LATEST_KILL.mul_f64(random.f64()));
    Ok(())
}

/// The time without a delivery before the rest counts as lost.
const IDLE: Duration = Duration::from_secs(5);

/// Delivers until `due` timers are acknowledged or none follows. Returns their ids, and the times
/// of the first and the last.
fn deliver(timers: &DurableTimers, due: usize) -> Fallible<(HashSet<String>, f64, f64)> {
    let begin = Instant::now();
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    let delivered = Arc::new(Mutex::new((HashSet::new(), 0.0, 0.0, Some(end))));
    let seen = Arc::clone(&delivered);
    let worker = timers.worker().until(async {
        let _ = ends.await;
    });
    let worker = worker.observe(move |event| {
        let Event::Attempt(event) = event else { return };
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (ids, first, all, end) = &mut *seen;
        if event.outcome == Outcome::Acknowledged && ids.insert(event.id.clone()) {
            let now = begin.elapsed().as_secs_f64();
            if ids.len() == 1 {
                *first = now;
            }
            if ids.len() == due {
                *all = now;
                *end = None;
            }
        }
    });
    let idle = Arc::clone(&delivered);
    std::thread::spawn(move || {
        let (mut before, mut waits) = (0, true);
        while waits {
            std::thread::sleep(IDLE);
            let mut now = idle.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::replace(&mut before, now.0.len()) == now.0.len() {
                now.3 = None;
            }
            waits = now.3.is_some();
        }
    });
    if due > 0 {
        pollster::block_on(worker.run(|_| async { Ok::<(), DurableError>(()) }))?;
    }
    let mut delivered = delivered.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((std::mem::take(&mut delivered.0), delivered.1, delivered.2))
}
