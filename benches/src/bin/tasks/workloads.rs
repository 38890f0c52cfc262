//! The workloads, on the module `time` of the parent.

use super::time::{self, DelayQueue, Instant};
use crate::Figures;
use cpu_time::ProcessTime;
use fastrand::Rng;
use futures_util::StreamExt;
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;
use tourbillon_benches::now;

type Done = Result<Figures, Box<dyn Error + Send + Sync>>;

/// Tasks sleep until one instant, and another task until a millisecond after it.
pub(crate) async fn herd(tasks: u32) -> Done {
    let at = Instant::now() + Duration::from_secs(2);
    let wait = async move |until| {
        time::sleep_until(until).await;
        until.elapsed()
    };
    let herd: Vec<_> = (0..tasks).map(|_| tokio::spawn(wait(at))).collect();
    let behind = tokio::spawn(wait(at + Duration::from_millis(1)));
    // All of them have been polled, and wait.
    tokio::time::sleep_until(at - Duration::from_millis(500)).await;
    let start = ProcessTime::now();
    let behind = behind.await?;
    let mut last = Duration::ZERO;
    for task in herd {
        last = last.max(task.await?);
    }
    let cpu = start.elapsed();
    Ok(vec![
        ("the one behind, late by (ms)", millis(behind)),
        ("the last one, late by (ms)", millis(last)),
        ("CPU per task (µs)", cpu.as_secs_f64() * 1e6 / f64::from(tasks)),
    ])
}

/// Tasks, each with a queue of its own. A task sends a message ten times per second. It inserts the
/// message into the queue, to be repeated, and removes the message before the last.
pub(crate) async fn queues(tasks: u32, length: Duration) -> Done {
    let (start, end) = (ProcessTime::now(), Instant::now() + length);
    let sessions: Vec<_> = (0..tasks).map(|seed| tokio::spawn(session(seed.into(), end))).collect();
    let mut messages = 0;
    for session in sessions {
        messages += session.await?;
    }
    let cpu = start.elapsed();
    Ok(vec![("CPU per message (µs)", cpu.as_secs_f64() * 1e6 / messages as f64)])
}

/// Sends messages until `end`. Returns their number.
async fn session(seed: u64, end: Instant) -> u64 {
    let (mut queue, mut sent, mut random) =
        (DelayQueue::new(), VecDeque::new(), Rng::with_seed(seed));
    let mut messages = 0_u64;
    let mut message = pin!(tokio::time::sleep(Duration::from_millis(random.u64(..100))));
    while Instant::now() < end {
        tokio::select! {
            () = message.as_mut() => {
                messages += 1;
                sent.push_back(queue.insert(messages, Duration::from_millis(random.u64(300..500))));
                if sent.len() > 2 {
                    sent.pop_front().and_then(|key| queue.try_remove(&key));
                }
                message.as_mut().reset(Instant::now() + Duration::from_millis(random.u64(50..150)));
            }
            Some(_repeated) = queue.next() => {}
        }
    }
    messages
}

/// Tasks that wait for 100 ms on average and compute for `work`, again and again.
pub(crate) async fn paced(tasks: u32, work: Duration, length: Duration) -> Done {
    let (start, begun, end) = (ProcessTime::now(), now(), Instant::now() + length);
    let tasks: Vec<_> = (0..tasks).map(|seed| tokio::spawn(pace(seed.into(), work, end))).collect();
    let mut late = Histogram::<u64>::new(3)?;
    for task in tasks {
        late.add(task.await??)?;
    }
    let cores = std::thread::available_parallelism()?.get() as f64;
    let load = start.elapsed().as_secs_f64() / begun.elapsed().as_secs_f64() / cores;
    let quantile = |quantile| late.value_at_quantile(quantile) as f64 / 1e3;
    Ok(vec![
        ("load (%)", load * 100.0),
        ("late by, median (ms)", quantile(0.5)),
        ("99 % (ms)", quantile(0.99)),
        ("99.9 % (ms)", quantile(0.999)),
        ("longest (ms)", late.max() as f64 / 1e3),
    ])
}

/// Sleeps and computes until `end`. Returns how late it woke each time, in microseconds.
async fn pace(
    seed: u64,
    work: Duration,
    end: Instant,
) -> Result<Histogram<u64>, Box<dyn Error + Send + Sync>> {
    let (mut late, mut random) = (Histogram::<u64>::new(3)?, Rng::with_seed(seed));
    let mut deadline = Instant::now() + Duration::from_millis(random.u64(..100));
    let mut sleep = pin!(time::sleep_until(deadline));
    loop {
        sleep.as_mut().await;
        let at = Instant::now();
        late.record(u64::try_from(at.duration_since(deadline).as_micros())?)?;
        if at > end {
            return Ok(late);
        }
        while at.elapsed() < work {
            std::hint::spin_loop();
        }
        deadline = Instant::now() + Duration::from_micros(random.u64(50_000..150_000));
        sleep.as_mut().reset(deadline);
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
