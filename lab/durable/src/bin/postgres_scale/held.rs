//! Timers beside a transaction of another client that stays open, with a snapshot of the time
//! before them.
//!
//! The dead rows of all that happens meanwhile stay where they are. The throughput is the number of
//! timers per second that are inserted, leased and acknowledged, as fast as possible.

use crate::Options;
use crate::postgres_server::PostgresServer;
use crate::report::{Held, Side};
use crate::stream::{Stream, Work};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tourbillon_durable::Options as TimerOptions;
use tourbillon_durable_measure::subject::{PAYLOAD, Subject};

/// The number of timers of a measurement of the throughput.
const BURST: usize = 20_000;

/// Returns the throughput with timers that are due at once.
async fn throughput(subject: &Subject<PostgresServer>, options: &Options, name: &str) -> f64 {
    let work = Work::start(&subject.timers, options.concurrency);
    sleep(Duration::from_secs(1)).await;
    let (begun, timers, name) = (Instant::now(), subject.timers.clone(), name.to_owned());
    let callers = options.callers.first().copied().unwrap_or(256);
    tourbillon_durable_measure::each(callers, BURST, move |number| {
        let (timers, id) = (timers.clone(), format!("{name} {number}"));
        async move {
            let options = TimerOptions::new();
            timers.insert(&id, PAYLOAD, Duration::ZERO, options).await.unwrap();
        }
    })
    .await;
    work.until(BURST).await;
    let throughput = BURST as f64 / begun.elapsed().as_secs_f64();
    work.end().await;
    throughput
}

/// Measures the lateness of the timers of a stream that were due in the last third of the time, and
/// the throughput after it.
async fn side(
    subject: &Subject<PostgresServer>,
    options: &Options,
    seconds: u64,
    name: &str,
) -> Side {
    let work = Work::start(&subject.timers, options.concurrency);
    let stream = Stream { rate: options.held_rate, seconds };
    let late = stream.run(&subject.timers, &work, stream.count() * 2 / 3, name).await;
    work.end().await;
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|q| late.value_at_quantile(q) as f64 / 1000.0);
    let throughput = throughput(subject, options, &format!("{name} burst")).await;
    Side { p50, p99, most, throughput }
}

pub(crate) async fn measure(subject: &Subject<PostgresServer>, options: &Options) -> Held {
    let server = &subject.server;
    let free = side(subject, options, options.held.min(60), "free").await;
    let holder = server.hold_snapshot();
    let held = side(subject, options, options.held, "held").await;
    assert!(server.holds_snapshot(), "it was open all the time");
    let dead = server.order("select sum(n_dead_tup) from pg_stat_user_tables").parse().unwrap();
    server.release_snapshot(holder);
    Held { seconds: options.held, rate: options.held_rate, free, held, dead }
}
