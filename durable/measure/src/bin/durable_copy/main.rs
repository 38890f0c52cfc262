//! Copies of a paused store at full size: from a file to Redis, from there to another number of
//! partitions, and back to a file. Each copy is dropped halfway and repeated. Afterwards the
//! numbers of timers, a sample of records and the index are compared. Prints a table in Markdown.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real time is measured here")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

#[path = "../../../../tests/common/servers.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod servers;

use clap::Parser;
use futures_util::future::try_join_all;
use servers::Server;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{AnyStore, DurableTimers, Embedded, Options, Redis, RedisOptions};

/// The number of timers that are inserted at a time.
const AT_ONCE: usize = 4096;

/// The distance between two timers that are compared.
const SAMPLE: usize = 997;

/// Copies of a paused store, measured.
#[derive(Debug, Parser)]
struct Arguments {
    /// The number of timers.
    #[arg(long, default_value_t = 1_000_000)]
    timers: usize,
    /// The number of bytes of a payload.
    #[arg(long, default_value_t = 32)]
    payload: usize,
    /// The folder of the files.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    folder: PathBuf,
}

/// A file that is removed after the run.
struct TempFile(PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn timers(store: impl Into<AnyStore>) -> DurableTimers {
    DurableTimers::new(store, &Timer::spawn(Builder::new().driver()).unwrap())
}

async fn redis(server: &Server, partitions: u16) -> DurableTimers {
    let name = format!("timers-{partitions}");
    let options = RedisOptions::new(&name).partitions(partitions);
    timers(Redis::connect(&server.url(), options).await.unwrap())
}

fn id(number: usize) -> String {
    format!("timer {number}")
}

async fn fill(timers: &DurableTimers, arguments: &Arguments) {
    let (first, step) = (Duration::from_secs(86_400), Duration::from_millis(100));
    for begin in (0..arguments.timers).step_by(AT_ONCE) {
        let end = arguments.timers.min(begin + AT_ONCE);
        let some =
            (begin..end).map(|number| {
                let options = Options::new().header("number", number.to_string());
                let delay = first + step * u32::try_from(number).unwrap();
                async move {
                    timers.insert(&id(number), vec![7; arguments.payload], delay, options).await
                }
            });
        try_join_all(some).await.unwrap();
    }
}

/// Copies a store, drops the copy halfway, and copies it again. Prints a row.
async fn copy(what: &str, from: &DurableTimers, to: &DurableTimers, count: usize) {
    let half = count as u64 / 2;
    let (halfway, reached) = tokio::sync::oneshot::channel::<()>();
    let mut halfway = Some(halfway);
    let interrupted = from.copy_to(to, |progress| {
        if progress.timers >= half {
            drop(halfway.take());
        }
    });
    tokio::select! {
        biased;
        _ = reached => {}
        copied = interrupted => { copied.unwrap(); }
    }
    let begun = Instant::now();
    let copied = from.copy_to(to, |_| ()).await.unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!((copied.timers, to.len().await.unwrap()), (count as u64, count as u64));
    for number in (0..count).step_by(SAMPLE) {
        let id = id(number);
        assert_eq!(from.get(&id).await.unwrap(), to.get(&id).await.unwrap());
    }
    let report = to.check().await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    println!("| {what} | {seconds:.1} s | {:.0} |", count as f64 / seconds);
}

async fn measure(arguments: &Arguments) {
    let server = Server::start(&["--appendonly", "no"]).expect("redis-server is on the path");
    let file = |name: &str| {
        let name = format!("tourbillon-copy-{}-{name}", std::process::id());
        TempFile(arguments.folder.join(name))
    };
    let (old, new) = (file("old"), file("new"));
    let first = timers(Embedded::open(&old.0).unwrap());
    fill(&first, arguments).await;
    first.pause().await.unwrap();
    let (few, many) = (redis(&server, 16).await, redis(&server, 64).await);
    let last = timers(Embedded::open(&new.0).unwrap());
    println!("| {} timers | took | a second |\n|---|---|---|", arguments.timers);
    copy("file to Redis", &first, &few, arguments.timers).await;
    copy("16 to 64 partitions", &few, &many, arguments.timers).await;
    copy("Redis to file", &many, &last, arguments.timers).await;
}

fn main() {
    let arguments = Arguments::parse();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measure(&arguments));
}
