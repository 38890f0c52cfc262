//! Timers that are due long before their transaction is committed, as in an import.

use crate::Options;
use crate::postgres_server::PostgresServer;
use crate::report::Late;
use crate::stream::Work;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tourbillon_durable_measure::subject::Subject;

/// Measures how long the delivery of these timers takes, from their commit on.
pub(crate) async fn measure(subject: &Subject<PostgresServer>, options: &Options) -> Late {
    let count = options.late;
    let announced = commit(subject, options, "announced", true).await;
    let found = commit(subject, options, "found", false).await;
    Late { count, announced, found }
}

async fn commit(
    subject: &Subject<PostgresServer>,
    options: &Options,
    name: &str,
    notify: bool,
) -> f64 {
    let work = Work::start(&subject.timers, options.concurrency);
    sleep(Duration::from_secs(2)).await;
    let count = options.late;
    // Both statements are one transaction.
    subject.server.order(&format!(
        "select count(timers.insert('{name} ' || number, '', delay => '1 s', notify => {notify}))
           from generate_series(1, {count}) as number;
         select pg_sleep(2)"
    ));
    let committed = Instant::now();
    work.until(count).await;
    let took = committed.elapsed().as_secs_f64();
    work.end().await;
    took
}
