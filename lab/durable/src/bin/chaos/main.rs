//! Durable timers on servers under faults. Each must end acknowledged once, cancelled, or
//! as a dead letter, and none may begin early. Each planned time of a repetition must end like this
//! as well, or be made up for by a late one. Otherwise the program exits with 1.
//!
//! ```text
//!  this process                       servers with their copies,
//!   schedules, cancels, moves ──────►  each write on the disk
//!   makes the faults                        ▲
//!   judges                                  │ a line for each worker, which can be cut
//!     ▲                                     │
//!     └── logs ──── 3 workers, processes ───┘
//! ```
//!
//! `plan.rs` draws the life of each timer and the faults from a seed. `story.rs` executes the lives
//! and keeps the replies, and `trouble.rs` injects the faults. `verdict.rs` compares the stories
//! with the logs of the workers (`log.rs`) and with the final contents of the store. `chain.rs`
//! does it for repetitions, and lists what is audited.
//!
//! The servers are a Redis cluster, or with `--postgres` a primary and its synchronous standby
//! (`site.rs`). They lose nothing here. Replication without waiting can lose acknowledged changes.
//! `docs/LIMITS.md` of the crate has the bounds, which are not tested here.
//!
//! ```text
//! ci/load durable --help
//! ci/load durable --timers 3000 --seed 8 --json faults.json
//! ci/load durable --postgres
//! ci/load durable --scenario silent-node
//! ```

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that reports to a person")]
#![allow(clippy::disallowed_methods, reason = "real processes, threads and time")]

mod callers;
mod chain;
mod crew;
mod line;
mod log;
mod long_handler;
mod plan;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../../../../crates/durable/tests/common/postgres_server.rs"]
mod postgres_server;
mod scenario;
mod seen;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../../../../crates/durable/tests/common/servers.rs"]
mod servers;
mod site;
mod story;
mod stream;
mod trouble;
mod verdict;
mod worker;

use clap::{Parser, Subcommand};
use crew::Crew;
use futures_util::future::try_join_all;
use plan::{Plan, Sort};
use scenario::Scenario;
use seen::Conditions;
use site::Site;
use std::error::Error;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tourbillon_durable::{DurableError, DurableTimers};
use verdict::{Left, Verdict};

/// An error that the program shows before it ends.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The configuration of Redis. The servers lose nothing, take over only on request, and do not
/// report their addresses.
const SERVERS: [&str; 8] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--cluster-replica-no-failover",
    "yes",
    "--cluster-preferred-endpoint-type",
    "unknown-endpoint",
];

/// The maximum number of calls in flight.
const CALLS: usize = 128;

/// The time limit for the remaining timers after the faults.
const PATIENCE: Duration = Duration::from_secs(180);

/// Durable timers on servers under faults.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    /// The seed of the timers' lives, the faults and the clocks of the workers. With an even seed
    /// the clocks of the servers differ, too.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of timers, which determines the duration of a run.
    #[arg(long, default_value_t = 100_000)]
    timers: usize,
    /// Uses a primary of Postgres with a standby instead of a Redis cluster. Of the scenarios only
    /// `long-handler` can use either.
    #[arg(long)]
    postgres: bool,
    /// The file for the counts as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Runs a single lasting fault instead.
    #[arg(long, conflicts_with_all = ["seed", "timers", "json"])]
    scenario: Option<Scenario>,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    Worker(worker::Orders),
}

fn main() -> ExitCode {
    let options = Options::parse();
    let servers = if options.postgres { Sort::Postgres } else { Sort::Redis };
    let done = match (&options.role, options.scenario) {
        (Some(Role::Worker(orders)), _) => worker::run(orders).map(|()| true),
        (None, Some(scenario)) => scenario::run(scenario, servers),
        (None, None) => judge(&options, servers),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs, reports, and returns `true` if everything was as required.
fn judge(options: &Options, servers: Sort) -> Result<bool, Failure> {
    let begun = Instant::now();
    let plan = Plan::draw(options.seed, options.timers, servers);
    let site = Site::start(servers, &plan.clocks.nodes)?;
    let mut verdict = Runtime::new()?.block_on(run(plan, Arc::new(site)))?;
    verdict.seed = options.seed;
    verdict.seconds = begun.elapsed().as_secs();
    print!("{verdict}");
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&verdict)? + "\n")?;
    }
    Ok(verdict.holds())
}

async fn run(plan: Plan, site: Arc<Site>) -> Result<Verdict, Failure> {
    let timers = worker::connect(&site.urls(Ipv4Addr::LOCALHOST)).await?;
    let crew = Arc::new(Crew::start(&site, plan.clocks.workers).await?);
    let start = log::millis(SystemTime::now());
    let calls = Arc::new(Semaphore::new(CALLS));
    let lives = plan.lives.iter().enumerate().map(|(timer, life)| {
        let (timers, life, calls) = (timers.clone(), *life, Arc::clone(&calls));
        let live = async move { story::live(timers, timer, life, start, &calls).await };
        let task = tokio::spawn(live);
        async move { task.await? }
    });
    let lives = tokio::spawn(try_join_all(lives.collect::<Vec<_>>()));
    let rows = plan.faults.map(|row| {
        let (site, crew, timers) = (Arc::clone(&site), Arc::clone(&crew), timers.clone());
        spawn_blocking(move || trouble::make(&row, &site, &crew, &timers))
    });
    let rows = tokio::spawn(try_join_all(rows));
    while !(lives.is_finished() && rows.is_finished()) {
        watch(&timers, &crew, start).await?;
    }
    let (stories, faults) = (lives.await??, rows.await??);
    let end = Instant::now();
    while watch(&timers, &crew, start).await? != Some(0) && end.elapsed() < PATIENCE {}
    let (logs, failed) = spawn_blocking({
        let crew = Arc::clone(&crew);
        move || crew.end()
    })
    .await??;
    let made = faults.into_iter().collect::<Result<Vec<_>, _>>()?;
    let paused = made.iter().flat_map(|made| &made.paused).copied().collect();
    let run = Conditions { clocks: plan.clocks, paused };
    let mut verdict = Verdict::new(&stories, &logs, &left(&timers).await?, &run);
    verdict.workers_failed = failed.len();
    verdict.faults = made.into_iter().flat_map(|made| made.counts).collect();
    Ok(verdict)
}

/// Watches the workers for a second. Returns the number of timers, and prints it from time to time.
async fn watch(timers: &DurableTimers, crew: &Crew, start: u64) -> Result<Option<u64>, Failure> {
    sleep(Duration::from_secs(1)).await;
    for member in &crew.members {
        member.look_after()?;
    }
    let left = match timers.len().await {
        Ok(left) => Some(left),
        Err(DurableError::Unreachable(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let seconds = (log::millis(SystemTime::now()) - start) / 1_000;
    if seconds.is_multiple_of(5) {
        let left = left.map_or_else(|| "no answer".to_owned(), |left| format!("{left} timers"));
        eprintln!("{seconds} s: {left}");
    }
    Ok(left)
}

/// Returns the content of the store at the end.
async fn left(timers: &DurableTimers) -> Result<Left, Failure> {
    let mut left = Left::default();
    let mut last = None;
    loop {
        let page = timers.list(last.as_deref(), 1_000).await?;
        let Some(timer) = page.last() else { break };
        last = Some(timer.id.clone());
        left.timers.extend(page.iter().filter_map(|timer| log::timer(&timer.id)));
    }
    let mut last = None;
    loop {
        let page = timers.dead_letters(last, 1_000).await?;
        let Some(letter) = page.last() else { break };
        last = Some(letter.number);
        left.letters.extend(page);
    }
    Ok(left)
}
