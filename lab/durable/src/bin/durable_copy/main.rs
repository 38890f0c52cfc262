//! Copies of a paused store at full size: from a file to Redis, from there to another number of
//! partitions, and back to a file. The store has rules, paused timers and dead letters.
//!
//! Each copy is a process that is killed in the middle of the timers, begun again, killed among the
//! dead letters, and begun again. Afterwards all timers and dead letters of both stores are
//! compared, and the index is checked. Prints a table in Markdown.
//!
//! `contents.rs` fills a store and compares two of them.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real time is measured here")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

mod contents;
#[path = "../../../../../crates/durable/tests/common/servers.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod servers;

use clap::{Parser, Subcommand};
use contents::Contents;
use servers::Server;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{
    AnyStore, CopyProgress, DurableError, DurableTimers, Embedded, Redis, RedisOptions,
};

/// Copies of a paused store, measured.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// The number of timers.
    #[arg(long, default_value_t = 1_000_000)]
    timers: usize,
    /// The number of dead letters.
    #[arg(long, default_value_t = 10_000)]
    letters: usize,
    /// The number of bytes of a payload.
    #[arg(long, default_value_t = 32)]
    payload: usize,
    /// The folder of the files.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    folder: PathBuf,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Copies one store, in a process that can be killed.
    #[command(hide = true)]
    Copy { from: String, to: String },
}

/// A file that is removed after the run.
struct TempFile(PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens a store at a path, or at the address of a server with `#` and a number of partitions.
async fn open(place: &str) -> DurableTimers {
    let store: AnyStore = match place.split_once('#') {
        Some((url, partitions)) => {
            let options = RedisOptions::new(&format!("timers-{partitions}"));
            let options = options.partitions(partitions.parse().unwrap());
            Redis::connect(url, options).await.unwrap().into()
        }
        None => file(place).await.into(),
    };
    DurableTimers::new(store, &Timer::spawn(Builder::new().driver()).unwrap())
}

/// Opens a file, once a process that was killed has left it.
async fn file(path: &str) -> Embedded {
    loop {
        match Embedded::open(path) {
            Err(DurableError::Locked(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
            opened => return opened.unwrap(),
        }
    }
}

/// Copies a store, and prints a line after each page.
async fn copy(from: &str, to: &str) {
    let (from, to) = (open(from).await, open(to).await);
    let show = |progress: &CopyProgress| println!("{} {}", progress.timers, progress.dead_letters);
    from.copy_to(&to, show).await.unwrap();
}

/// A process that copies.
struct Copying {
    child: Child,
    progress: Lines<BufReader<ChildStdout>>,
}

impl Copying {
    fn start(from: &str, to: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.args(["copy", from, to]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let progress = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, progress }
    }

    /// Kills the process once it has copied this many timers and dead letters.
    fn kill_at(mut self, timers: u64, letters: u64) {
        let reached = self.progress.by_ref().map(Result::unwrap).any(|line| {
            let (copied, dead) = line.split_once(' ').unwrap();
            let (copied, dead): (u64, u64) = (copied.parse().unwrap(), dead.parse().unwrap());
            copied >= timers && dead >= letters
        });
        assert!(reached, "the copy ended before it was killed");
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert!(!status.success(), "the copy ended before it was killed");
    }

    /// Waits until the copy is complete.
    fn finish(mut self) {
        let lines = self.progress.by_ref().count();
        assert!(self.child.wait().unwrap().success(), "a copy failed after {lines} pages");
    }
}

/// Copies a store in a process that is killed twice. Prints a row.
async fn measure(what: &str, from: &str, to: &str, arguments: &Arguments) {
    let timers = arguments.timers as u64;
    Copying::start(from, to).kill_at(timers / 2, 0);
    Copying::start(from, to).kill_at(timers, 1);
    let begun = Instant::now();
    Copying::start(from, to).finish();
    let seconds = begun.elapsed().as_secs_f64();
    let (from, to) = (open(from).await, open(to).await);
    let (old, new) = (Contents::of(&from).await, Contents::of(&to).await);
    old.compare(&new);
    assert!(old.timers() >= arguments.timers && old.letters() == arguments.letters);
    let report = to.check().await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    println!("| {what} | {seconds:.1} s | {:.0} |", old.timers() as f64 / seconds);
}

async fn run(arguments: &Arguments) {
    let server = Server::start(&["--appendonly", "no"]).expect("redis-server is on the path");
    let file = |name: &str| {
        let name = format!("tourbillon-copy-{}-{name}", std::process::id());
        TempFile(arguments.folder.join(name))
    };
    let (old, new) = (file("old"), file("new"));
    let place = |file: &TempFile| file.0.to_str().expect("the folder is UTF-8").to_owned();
    let redis = |partitions: u16| format!("{}#{partitions}", server.url());
    let first = open(&place(&old)).await;
    contents::fill(&first, arguments).await;
    first.pause().await.unwrap();
    drop(first);
    println!("| {} timers | took | a second |\n|---|---|---|", arguments.timers);
    measure("file to Redis", &place(&old), &redis(16), arguments).await;
    measure("16 to 64 partitions", &redis(16), &redis(64), arguments).await;
    measure("Redis to file", &redis(64), &place(&new), arguments).await;
}

fn main() {
    let arguments = Arguments::parse();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    match &arguments.role {
        Some(Role::Copy { from, to }) => runtime.block_on(copy(from, to)),
        None => runtime.block_on(run(&arguments)),
    }
}
