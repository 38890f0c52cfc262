//! Several workers share one store. The program shows which worker delivers which order, and the
//! handover when a worker dies or stops.
//!
//! ```text
//! cargo run -p tourbillon-durable --features redis --example workers
//! cargo run -p tourbillon-durable --features redis --example workers -- --store redis://127.0.0.1/
//! ```
//!
//! The workers share a file. With Redis, start the program several times at once, so that the
//! workers of all these programs share the timers. Kill one of them at any time. When the leases of
//! its workers have expired, the other programs deliver the orders that it had begun.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use clap::Parser;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{
    AnyStore, Backoff, DurableError, DurableTimers, Embedded, Event, Existing, Options, Outcome,
    Redis,
};

/// Several workers share one store.
#[derive(Parser)]
struct Arguments {
    /// The file of the store.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("tourbillon-workers"))]
    file: PathBuf,
    /// A Redis to use instead, such as `redis://127.0.0.1/`.
    #[arg(long)]
    store: Option<String>,
    /// The number of workers, at least three, because one dies and one stops.
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// The number of orders, which become due one after the other.
    #[arg(long, default_value_t = 12)]
    orders: u32,
    /// The duration of an order in milliseconds. The next one is due after a third of it.
    #[arg(long, default_value_t = 400)]
    millis: u64,
}

/// The lease of an order. Longer than any order takes.
const LEASE: Duration = Duration::from_secs(3);

/// The number of the worker and the order, for each delivery.
type Delivered = Arc<Mutex<Vec<(usize, String)>>>;

/// A worker that runs as a task.
struct Running {
    stop: oneshot::Sender<()>,
    /// Receives the orders that the worker has begun.
    begun: mpsc::UnboundedReceiver<String>,
    task: JoinHandle<Result<(), DurableError>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let delivered = tokio::runtime::Runtime::new()?.block_on(share(&Arguments::parse()))?;
    println!("{} orders were delivered by this program", delivered.len());
    Ok(())
}

async fn share(arguments: &Arguments) -> Result<Vec<(usize, String)>, Box<dyn Error>> {
    let timer = Timer::spawn(Builder::new().driver())?;
    let store: AnyStore = match &arguments.store {
        Some(url) => Redis::connect(url, "workers").await?.into(),
        None => Embedded::open(&arguments.file)?.into(),
    };
    let timers = DurableTimers::new(store, &timer);
    let takes = Duration::from_millis(arguments.millis);
    let soon = Backoff::new(takes, takes);
    for number in 1..=arguments.orders {
        let options = Options::new().existing(Existing::Keep).lease(LEASE).backoff(soon);
        timers.insert(&format!("order {number}"), "tea", takes / 3 * number, options).await?;
    }

    let delivered = Delivered::default();
    let start = |number| start(&timers, &timer, number, takes, &delivered);
    let mut dies = start(1);
    let begun = dies.begun.next().await.ok_or("worker 1 has gone")?;
    dies.task.abort();
    println!("worker 1 has died in the midst of {begun}: somebody tries again after its lease");

    let mut workers: Vec<_> = (2..=arguments.workers.max(3)).map(start).collect();
    timer.sleep(takes * 2).await?;
    let stops = workers.remove(0);
    stops.stop.send(()).map_err(|()| "worker 2 has gone")?;
    stops.task.await??;
    println!("worker 2 has ended in peace: what it had begun is delivered");

    while !timers.is_empty().await? {
        timer.sleep(takes / 4).await?;
    }
    for left in workers {
        left.stop.send(()).map_err(|()| "a worker has gone")?;
        left.task.await??;
    }
    Ok(std::mem::take(&mut *delivered.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn start(
    timers: &DurableTimers,
    timer: &Timer,
    number: usize,
    takes: Duration,
    delivered: &Delivered,
) -> Running {
    let ((stop, stopped), (begins, begun)) = (oneshot::channel(), mpsc::unbounded());
    let worker = timers.worker().concurrency(1).until(async {
        let _: Result<(), _> = stopped.await;
    });
    let delivered = Arc::clone(delivered);
    let worker = worker.observe(move |event| match event {
        Event::Attempt(attempt) if attempt.outcome == Outcome::Acknowledged => {
            println!("worker {number}: {} is done, attempt {}", attempt.id, attempt.attempt);
            let mut delivered = delivered.lock().unwrap_or_else(PoisonError::into_inner);
            delivered.push((number, attempt.id.clone()));
        }
        event => println!("worker {number}: {event:?}"),
    });
    let timer = timer.clone();
    let run = worker.run(move |order| {
        // The receiver may be gone.
        let _ = begins.unbounded_send(order.id);
        let handled = timer.sleep(takes);
        async move { handled.await.map_err(|refusal| refusal.to_string()) }
    });
    Running { stop, begun, task: tokio::spawn(run) }
}

#[cfg(test)]
mod tests {
    use super::{Arguments, share};
    use clap::Parser;
    use std::collections::BTreeSet;
    use std::error::Error;

    #[test]
    fn each_order_is_delivered_once() -> Result<(), Box<dyn Error>> {
        let file = std::env::temp_dir().join(format!("workers-{}", std::process::id()));
        let mut arguments = Arguments::parse_from(["workers", "--orders=8", "--millis=20"]);
        arguments.file.clone_from(&file);
        let delivered = tokio::runtime::Runtime::new()?.block_on(share(&arguments));
        std::fs::remove_file(file)?;
        let ids: Vec<String> = delivered?.into_iter().map(|(_, id)| id).collect();
        let different: BTreeSet<&String> = ids.iter().collect();
        assert_eq!((ids.len(), different.len()), (8, 8));
        Ok(())
    }
}
