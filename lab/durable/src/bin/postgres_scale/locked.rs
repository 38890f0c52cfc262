//! A stream of timers while a transaction of a caller holds locks on other timers that are due.
//! Streams with and without such a transaction alternate.

use crate::Options;
use crate::postgres_server::PostgresServer;
use crate::report::Locked;
use crate::stream::{ASIDE, Stream, Work};
use std::process::Child;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tourbillon_durable_measure::subject::Subject;

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// The numbers of timers that a transaction locks.
const ROWS: [usize; 3] = [1, 64, 3000];

/// The rates of a stream in timers per second.
const RATES: [usize; 2] = [100, 1000];

/// Compares both streams for each isolation level, number of locked timers and rate.
pub(crate) async fn measure(subject: &Subject<PostgresServer>, options: &Options) -> Vec<Locked> {
    let rest = subject.timers.len().await.unwrap();
    let mut all = Vec::new();
    for level in LEVELS {
        for rows in ROWS {
            for rate in RATES {
                let mut locked = Locked { level, rows, rate, p99: Vec::new() };
                compare(subject, options, rest, &mut locked).await;
                all.push(locked);
            }
        }
    }
    all
}

async fn compare(
    subject: &Subject<PostgresServer>,
    options: &Options,
    rest: u64,
    locked: &mut Locked,
) {
    let Locked { level, rows, rate, p99 } = locked;
    let stream = Stream { rate: *rate, seconds: options.locked };
    let work = Work::start(&subject.timers, options.concurrency);
    for round in 0..options.rounds {
        let name = |side| format!("{level} {rows} {rate} {round} {side}");
        let free = stream.run(&subject.timers, &work, 0, &name("free")).await;
        let holder = lock(subject, level, *rows).await;
        let beside = stream.run(&subject.timers, &work, 0, &name("locked")).await;
        // The timers of the stream end, and the locked ones stay.
        until_left(subject, rest + *rows as u64).await;
        subject.server.release_snapshot(holder);
        until_left(subject, rest).await;
        p99.push([free, beside].map(|late| late.value_at_quantile(0.99) as f64 / 1000.0));
    }
    work.end().await;
}

/// Waits until so many timers are left.
async fn until_left(subject: &Subject<PostgresServer>, count: u64) {
    let begun = Instant::now();
    loop {
        let left = subject.timers.len().await.unwrap();
        if left == count {
            return;
        }
        let time_is_up = left < count || begun.elapsed() > Duration::from_secs(60);
        assert!(!time_is_up, "{left} timers are left, and not {count}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Begins a transaction that locks timers before they are due, and waits until they are due.
async fn lock(subject: &Subject<PostgresServer>, level: &str, rows: usize) -> Child {
    let server = &subject.server;
    server.order(&format!(
        "select count(timers.insert('{ASIDE}' || number, '', delay => '2 s'))
           from generate_series(1, {rows}) as number"
    ));
    let holder = server.begin(&format!(
        "begin isolation level {level};
         select id from timers.timers where id like '{ASIDE}%' for update;
         select pg_sleep(86400)"
    ));
    let free = format!(
        "select count(*) from (select from timers.timers where id like '{ASIDE}%'
         for update skip locked) as free"
    );
    server.wait_for("the locks", |server| server.order(&free) == "0");
    sleep(Duration::from_secs(2)).await;
    holder
}
