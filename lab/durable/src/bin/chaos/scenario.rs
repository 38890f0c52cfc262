//! Lasting faults. Each scenario runs alone, while timers are inserted and delivered.
//!
//! - `silent-node`. Each master of three in turn is stopped for a minute. After three seconds the
//!   timers of the other masters are less than a second late (p99), and all are delivered in the
//!   end.
//! - `full-memory`. The worker is restarted after 40 MB are filled. All timers are delivered within
//!   30 s.
//! - `emptied`. `FLUSHALL` under a worker, then a process connects with other options. The worker
//!   gets the error, there is one store, and all timers inserted from then on are delivered.
//! - `seeds-gone`. The only node that was named is killed, and its replica elected. For 70 s after
//!   that timers are less than 1.5 s late (p99).
//! - `long-handler` (`long_handler.rs`). A handler of 30 s under a lease of 3 s. Its worker is
//!   killed, stopped, and cut off in turn, and all servers are silent for 2 s. It is acknowledged
//!   once. On Redis or on Postgres.
//! - `callers.rs` has the scenarios of Postgres alone.

use crate::plan::Sort;
use crate::servers::{Cluster, Server};
use crate::site::Site;
use crate::stream::{Lateness, Seen, Work, stream};
use crate::{Failure, callers, long_handler, worker};
use clap::ValueEnum;
use futures_util::future::join_all;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;
use tokio::time::sleep;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{DurableError, DurableTimers, Options, Redis, RedisOptions};

const NO_SERVER: &str = "redis-server is not on the path";

/// A fault that lasts.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Scenario {
    /// Each master of three in turn is stopped for a minute.
    SilentNode,
    /// Workers are restarted when the memory is full.
    FullMemory,
    /// The server is emptied under a worker.
    Emptied,
    /// The only node that was named is replaced.
    SeedsGone,
    /// The worker of a long handler is killed, stopped and cut off.
    LongHandler,
    /// A transaction of a caller has locked timers for a minute.
    OpenTransaction,
    /// A role without rights holds locks.
    HeldLocks,
    /// A copy by logical replication takes over.
    LogicalPromotion,
    /// The database allows no connections for a while.
    Maintenance,
}

/// Runs a scenario, and returns `true` if its conditions hold.
pub(crate) fn run(scenario: Scenario, servers: Sort) -> Result<bool, Failure> {
    let runtime = Runtime::new()?;
    let of_redis = matches!(
        scenario,
        Scenario::SilentNode | Scenario::FullMemory | Scenario::Emptied | Scenario::SeedsGone
    );
    if matches!(servers, Sort::Postgres) && of_redis {
        return Err("a scenario of Redis alone".into());
    }
    match scenario {
        Scenario::OpenTransaction => runtime.block_on(callers::open_transaction()),
        Scenario::HeldLocks => runtime.block_on(callers::held_locks()),
        Scenario::LogicalPromotion => runtime.block_on(callers::logical_promotion()),
        Scenario::Maintenance => runtime.block_on(callers::maintenance()),
        Scenario::SilentNode => {
            let cluster = Cluster::start().ok_or(NO_SERVER)?;
            runtime.block_on(silent_node(&cluster))
        }
        Scenario::FullMemory => {
            let options = ["--maxmemory", "40mb", "--maxmemory-policy", "noeviction"];
            let server = Server::start(&options).ok_or(NO_SERVER)?;
            runtime.block_on(full_memory(&server))
        }
        Scenario::Emptied => {
            let server = Server::start(&[]).ok_or(NO_SERVER)?;
            runtime.block_on(emptied(&server))
        }
        Scenario::SeedsGone => {
            let cluster = Cluster::with_replicas(&[]).ok_or(NO_SERVER)?;
            runtime.block_on(seeds_gone(&cluster))
        }
        Scenario::LongHandler => {
            let site = Site::start(servers, &vec![0; servers.nodes()])?;
            runtime.block_on(long_handler::run(&site))
        }
    }
}

async fn silent_node(cluster: &Cluster) -> Result<bool, Failure> {
    for node in &cluster.nodes {
        node.order("CONFIG SET cluster-require-full-coverage no");
        node.order("CONFIG SET cluster-node-timeout 600000");
    }
    let urls: Vec<String> = cluster.nodes.iter().map(Server::url).collect();
    let (timers, other) = (worker::connect(&urls).await?, worker::connect(&urls).await?);
    let work = Work::of(&timers);
    let mut holds = true;
    for (number, silent) in cluster.nodes.iter().enumerate() {
        sleep(Duration::from_secs(2)).await;
        silent.pause();
        let begun = SystemTime::now();
        let stream = stream(&other, &format!("{number}"), 12_000, Duration::from_millis(5));
        // The last timers are due a quarter of a second after their insertion.
        sleep(Duration::from_secs(62)).await;
        let mut seen: Vec<Seen> = work.seen.try_iter().collect();
        let late = Lateness::of(&seen, begun + Duration::from_secs(3));
        silent.go_on();
        let scheduled = stream.await?;
        let during = seen.len();
        let all = work.until_all_have_come(&scheduled, &mut seen).await;
        // Two masters of three are a majority.
        let well = all && during > 6_000 && late.p99 < Duration::from_secs(1);
        println!("master {number}: {during} came while it was silent, {late}; all came: {all}");
        holds &= well;
    }
    work.end().await?;
    Ok(holds)
}

async fn full_memory(server: &Server) -> Result<bool, Failure> {
    let timers = connect(server, 16).await?;
    let mut taken = 0;
    'full: loop {
        let some = (0..500).map(|number| {
            let (timers, id) = (timers.clone(), format!("{} {number}", taken / 500));
            async move { timers.insert(&id, vec![7; 400], Duration::ZERO, Options::new()).await }
        });
        for inserted in join_all(some).await {
            match inserted {
                Ok(_) => taken += 1,
                Err(refused) if matches!(refused.reason, DurableError::ReadOnly(_)) => break 'full,
                Err(refused) => return Err(refused.reason.into()),
            }
        }
    }
    drop(timers);
    let timers = connect(server, 16).await?;
    let (work, begun) = (Work::of(&timers), Instant::now());
    while timers.len().await? > 0 && begun.elapsed() < Duration::from_secs(30) {
        sleep(Duration::from_millis(100)).await;
    }
    let (left, took) = (timers.len().await?, begun.elapsed());
    println!("some {taken} taken; {left} left after {:.1} s", took.as_secs_f64());
    work.end().await?;
    Ok(left == 0)
}

async fn emptied(server: &Server) -> Result<bool, Failure> {
    let timers = connect(server, 16).await?;
    timers.insert("gone", "", Duration::from_secs(3600), Options::new()).await.map_err(reason)?;
    let work = Work::of(&timers);
    sleep(Duration::from_secs(1)).await;
    server.order("FLUSHALL");
    let ended = work.run.await?;
    let told = ended == Err(DurableError::Emptied);
    let other = connect(server, 64).await?;
    let work = Work::of(&timers);
    let mut seen = Vec::new();
    let scheduled = stream(&other, "after", 2_000, Duration::from_millis(5)).await?;
    let all = work.until_all_have_come(&scheduled, &mut seen).await;
    println!("told: {told}; {} scheduled by another process, all came: {all}", scheduled.len());
    work.end().await?;
    Ok(told && all && scheduled.len() == 2_000)
}

async fn seeds_gone(cluster: &Cluster) -> Result<bool, Failure> {
    let named = [cluster.nodes[0].url()];
    let (timers, other) = (worker::connect(&named).await?, worker::connect(&named).await?);
    let work = Work::of(&timers);
    sleep(Duration::from_secs(2)).await;
    cluster.nodes[0].kill();
    // The replica is elected by then, and found.
    sleep(Duration::from_secs(10)).await;
    let begun = SystemTime::now();
    let scheduled = stream(&other, "after", 1_400, Duration::from_millis(50)).await?;
    let mut seen = Vec::new();
    let all = work.until_all_have_come(&scheduled, &mut seen).await;
    let late = Lateness::of(&seen, begun);
    println!("{} scheduled, {late}; all came: {all}", scheduled.len());
    work.end().await?;
    Ok(all && scheduled.len() > 1_300 && late.p99 < Duration::from_millis(1_500))
}

fn reason<V>(refused: tourbillon::Refused<DurableError, V>) -> DurableError {
    refused.reason
}

async fn connect(server: &Server, partitions: u16) -> Result<DurableTimers, Failure> {
    let options = RedisOptions::new("timers").partitions(partitions);
    let store = Redis::connect(&server.url(), options).await?;
    Ok(DurableTimers::new(store, &Timer::spawn(Builder::new().driver())?))
}
