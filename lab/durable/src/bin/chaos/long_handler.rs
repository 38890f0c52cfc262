//! A handler that takes ten leases, while its worker is killed, stopped and cut off in turn, and
//! then all servers are silent for most of a lease.

use crate::Failure;
use crate::crew::{Crew, Member};
use crate::line::State;
use crate::log::{self, What};
use crate::plan::{Handling, Task, WORKERS};
use crate::site::Site;
use crate::worker;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tourbillon_durable::{Backoff, DurableTimers, Options};

const LEASE: Duration = Duration::from_secs(3);

/// The duration of the handler in milliseconds.
const TAKES: u64 = 30_000;

/// The time that a worker is stopped or cut off, longer than its lease.
const AWAY: Duration = Duration::from_secs(6);

/// The time that the servers are silent, shorter than the lease.
const SILENT: Duration = Duration::from_secs(2);

/// The time limit for each step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns `true` if the handler was acknowledged once.
pub(crate) async fn run(site: &Site) -> Result<bool, Failure> {
    let timers = worker::connect(&site.urls(Ipv4Addr::LOCALHOST)).await?;
    let crew = Crew::start(site, [0; WORKERS]).await?;
    sleep(LEASE).await;
    insert(&timers).await?;
    trouble(&crew, site).await?;
    let asked = Instant::now();
    while !timers.is_empty().await? && asked.elapsed() < 2 * PATIENCE {
        sleep(Duration::from_millis(100)).await;
    }
    let left = timers.len().await?;
    let (logs, failed) = tokio::task::spawn_blocking(move || crew.end()).await??;
    let count = |what| logs.iter().flatten().filter(|entry| entry.what == what).count();
    let (attempts, acknowledged) = (count(What::Begun), count(What::Acknowledged));
    println!("{attempts} attempts, {acknowledged} acknowledged, {left} left, {failed:?}");
    Ok(acknowledged == 1 && left == 0 && failed.is_empty() && (4..=5).contains(&attempts))
}

async fn insert(timers: &DurableTimers) -> Result<(), Failure> {
    let payload = serde_json::to_vec(&Task { handling: Handling::Long(TAKES), until: None })?;
    let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
    let options = Options::new().lease(LEASE).backoff(backoff).attempts(20);
    timers.insert(&log::id(0), payload, Duration::ZERO, options).await.map_err(|it| it.reason)?;
    Ok(())
}

/// Kills, stops and cuts off the worker that has the handler, and silences the servers.
async fn trouble(crew: &Crew, site: &Site) -> Result<(), Failure> {
    let killed = begun(crew, 1).await?;
    // Some renewals later.
    sleep(2 * LEASE).await;
    killed.kill()?;
    sleep(Duration::from_millis(200)).await;
    killed.start()?;
    let stopped = begun(crew, 2).await?;
    sleep(2 * LEASE).await;
    stopped.pause(true)?;
    sleep(AWAY).await;
    stopped.pause(false)?;
    let cut = begun(crew, 3).await?;
    sleep(2 * LEASE).await;
    cut.set_line(State::Cut);
    sleep(AWAY).await;
    cut.set_line(State::Open);
    begun(crew, 4).await?;
    sleep(2 * LEASE).await;
    site.pause();
    sleep(SILENT).await;
    site.go_on();
    Ok(())
}

/// Waits until this many attempts have begun. Returns the member with the last of them.
async fn begun(crew: &Crew, count: usize) -> Result<&Member, Failure> {
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE {
        let (mut all, mut last) = (0, None);
        for member in &crew.members {
            let entries = member.entries()?;
            let begun = entries.iter().filter(|entry| entry.what == What::Begun);
            all += begun.clone().count();
            last = last.max(begun.map(|entry| entry.at).max().map(|at| (at, member.number)));
        }
        if let Some((_, number)) = last
            && all >= count
        {
            println!("attempt {all} has begun, by worker {number}");
            return Ok(&crew.members[number]);
        }
        sleep(Duration::from_millis(50)).await;
    }
    Err(format!("attempt {count} has not begun").into())
}
