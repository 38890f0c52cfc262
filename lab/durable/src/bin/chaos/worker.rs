//! A worker in a process of its own, which delivers timers and logs its actions.

use crate::Failure;
use crate::log::{Log, What, millis};
use crate::plan::{Handling, PARTITIONS, Task};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;
use tokio::time::sleep;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{
    AnyStore, Delivery, DurableError, DurableTimers, Event, Outcome, Postgres, Redis, RedisOptions,
    Verdict,
};

/// The number of concurrent handlers of a worker.
const CONCURRENCY: usize = 128;

/// The arguments of a worker.
#[derive(Debug, clap::Args)]
pub(crate) struct Orders {
    /// The file of the log.
    #[arg(long)]
    log: PathBuf,
    /// The addresses of the servers.
    urls: Vec<String>,
}

/// Connects, however long it takes.
pub(crate) async fn connect(urls: &[String]) -> Result<DurableTimers, Failure> {
    let store = loop {
        match connect_once(urls).await {
            Ok(store) => break store,
            Err(DurableError::Unreachable(_)) => sleep(Duration::from_millis(100)).await,
            Err(error) => return Err(error.into()),
        }
    };
    let timer = Timer::spawn(Builder::new().driver())?;
    Ok(DurableTimers::new(store, &timer))
}

async fn connect_once(urls: &[String]) -> Result<AnyStore, DurableError> {
    if let [url] = urls
        && url.starts_with("postgres:")
    {
        return Ok(Postgres::connect(url, "timers").await?.into());
    }
    let options = RedisOptions::new("timers").partitions(PARTITIONS);
    Ok(Redis::connect_cluster(urls.iter().map(String::as_str), options).await?.into())
}

/// Delivers until the standard input ends.
pub(crate) fn run(orders: &Orders) -> Result<(), Failure> {
    let log = Arc::new(Log::create(&orders.log)?);
    let runtime = Runtime::new()?;
    let end = runtime.spawn_blocking(|| drop(std::io::stdin().read(&mut [0])));
    let end = async move { drop(end.await) };
    runtime.block_on(async {
        let timers = connect(&orders.urls).await?;
        let ends = Arc::clone(&log);
        let worker = timers.worker().concurrency(CONCURRENCY).until(end).observe(move |event| {
            let Event::Attempt(event) = event else { return };
            let what = match event.outcome {
                Outcome::Acknowledged => What::Acknowledged,
                Outcome::Dead { .. } => What::Dead,
                Outcome::Retry { .. } => What::Retried,
                Outcome::Again { .. } => What::Snoozed,
                Outcome::Cancelled { .. } => What::Cancelled,
                _ => What::TooLate,
            };
            let leased = Some(event.due + event.lateness);
            note(&ends, what, &event.id, event.planned, leased);
        });
        let cancels = timers.clone();
        let handler = move |delivery: Delivery| {
            note(&log, What::Begun, &delivery.id, delivery.planned, None);
            handle(Arc::clone(&log), cancels.clone(), delivery)
        };
        Ok(worker.run(handler).await?)
    })
}

/// Ends a worker that cannot log, because its run would prove nothing.
fn note(log: &Log, what: What, id: &str, planned: SystemTime, leased: Option<SystemTime>) {
    if let Err(error) = log.write(what, id, planned, leased) {
        eprintln!("a worker's log: {error}");
        std::process::exit(1);
    }
}

async fn handle(
    log: Arc<Log>,
    timers: DurableTimers,
    delivery: Delivery,
) -> Result<Verdict, String> {
    let task = delivery.json::<Task>().map_err(|error| error.to_string())?;
    let handled = attempt(task.handling, &delivery).await;
    let is_retried = match &handled {
        Ok(verdict) => matches!(verdict, Verdict::Again { .. }),
        Err(_) => !matches!(task.handling, Handling::Fails),
    };
    if !is_retried && task.until.is_some_and(|until| millis(delivery.planned) >= until) {
        note(&log, What::Ends, &delivery.id, delivery.planned, None);
        cancel(&timers, &delivery.id).await?;
    }
    if handled == Ok(Verdict::Done) {
        note(&log, What::Well, &delivery.id, delivery.planned, None);
    }
    handled
}

/// Cancels the repetition of a timer whose delivery is running, however long that takes.
async fn cancel(timers: &DurableTimers, id: &str) -> Result<(), String> {
    loop {
        match timers.cancel(id).await {
            Ok(_) => return Ok(()),
            Err(DurableError::Unreachable(_)) => sleep(Duration::from_millis(100)).await,
            Err(error) => return Err(error.to_string()),
        }
    }
}

async fn attempt(handling: Handling, delivery: &Delivery) -> Result<Verdict, String> {
    match handling {
        Handling::Fails => return Err("it always fails".to_owned()),
        Handling::FailsForGood => return Ok(Verdict::Fail("it fails for good".to_owned())),
        Handling::Snoozes(millis) => {
            let end = delivery.planned + Duration::from_millis(millis);
            if let Ok(left) = end.duration_since(SystemTime::now()) {
                return Ok(Verdict::Again { after: left / 2, counted: false });
            }
        }
        Handling::FailsFirst(some) if delivery.attempt <= some => {
            return Err("it fails at first".to_owned());
        }
        Handling::Slow(millis) if delivery.attempt == 1 => {
            sleep(Duration::from_millis(millis)).await;
        }
        Handling::Long(millis) => sleep(Duration::from_millis(millis)).await,
        _ => {}
    }
    Ok(Verdict::Done)
}
