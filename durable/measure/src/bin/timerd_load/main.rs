//! The service `timerd` under load. Its timers are inserted by its API, and call a receiver in this
//! process at a constant rate. The receiver counts the calls of each delivery by their idempotency
//! keys, and measures how late they are.
//!
//! The service is the program beside this one. It runs on a file and on a Redis server of its own,
//! which share the processors of this machine with the receiver. Prints a table in Markdown, and
//! fails if a delivery is lost, early, dead or acknowledged twice.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real time is measured here")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

#[path = "../../../../tests/common/servers.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod servers;
mod service;
mod sink;

use clap::{Parser, ValueEnum};
use serde_json::json;
use servers::Server;
use service::{Client, Service};
use sink::Sink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinSet;

/// The service `timerd` under load.
#[derive(Debug, Parser)]
struct Options {
    /// The stores, one after another.
    #[arg(long, value_delimiter = ',', default_value = "redis,file")]
    stores: Vec<Kind>,
    /// The number of timers that are due per second.
    #[arg(long, default_value_t = 2000)]
    rate: usize,
    /// The number of seconds.
    #[arg(long, default_value_t = 60)]
    seconds: usize,
    /// The number of concurrent calls of the service.
    #[arg(long, default_value_t = 256)]
    concurrency: usize,
    /// The host by which the receiver is called.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The number of callers that insert the timers.
    #[arg(long, default_value_t = 64)]
    callers: usize,
    /// The number of timers that the callers can insert per second, at least. They have so much
    /// time before the first one is due.
    #[arg(long, default_value_t = 2500)]
    inserts: usize,
    /// The program of the service. By default the one beside this program.
    #[arg(long)]
    program: Option<PathBuf>,
    /// The folder of the file.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    folder: PathBuf,
}

impl Options {
    fn program(&self) -> PathBuf {
        let beside = || std::env::current_exe().unwrap().with_file_name("timerd");
        self.program.clone().unwrap_or_else(beside)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Redis,
    File,
}

/// A folder that is removed after the run.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The due times, as one a step from the first one on.
#[derive(Clone, Copy)]
struct Plan {
    first: SystemTime,
    step: Duration,
    count: usize,
}

impl Plan {
    fn new(options: &Options) -> Self {
        let count = options.rate * options.seconds;
        let inserting = Duration::from_secs(2 + (count / options.inserts) as u64);
        let step = Duration::from_secs(1) / u32::try_from(options.rate).unwrap();
        Self { first: SystemTime::now() + inserting, step, count }
    }

    fn due(&self, number: usize) -> SystemTime {
        self.first + self.step * u32::try_from(number).unwrap()
    }

    /// Returns the idempotency key of a delivery, without the number of its insert.
    fn key(&self, number: usize) -> String {
        let since = self.due(number).duration_since(SystemTime::UNIX_EPOCH).unwrap();
        format!("{}:{number}", since.as_millis())
    }

    /// Returns the remaining time until a timer is due.
    fn until(&self, number: usize) -> Duration {
        self.due(number).duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// Inserts all timers, and returns how many there were per second.
async fn insert(plan: Plan, service: &Service, url: &str, callers: usize) -> f64 {
    let (begun, next, mut inserting) =
        (Instant::now(), Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..callers {
        let (next, url) = (Arc::clone(&next), url.to_owned());
        let mut client = Client::connect(service.address()).await;
        inserting.spawn(async move {
            loop {
                // Relaxed: each number is handed out once, and nothing else is needed.
                let number = next.fetch_add(1, Relaxed);
                if number >= plan.count {
                    return;
                }
                let at = humantime::format_rfc3339_millis(plan.due(number)).to_string();
                let webhook = json!({ "url": url, "body": "order 7 is unpaid" });
                let timer = json!({ "webhook": webhook, "schedule": { "at": at } });
                client.put(&format!("/v1/timers/{number}"), timer.to_string()).await;
            }
        });
    }
    inserting.join_all().await;
    plan.count as f64 / begun.elapsed().as_secs_f64()
}

/// Measures the service on a store, and prints a row.
async fn measure(kind: Kind, options: &Options) {
    let folder = Folder(options.folder.join(format!("tourbillon-load-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let server = match kind {
        Kind::Redis => Some(Server::start(&["--appendonly", "no"]).expect("there is a server")),
        Kind::File => None,
    };
    let store = server.as_ref().map_or("timers.db".to_owned(), Server::url);
    let sink = Sink::start(options.rate * options.seconds).await;
    let service =
        Service::start(&options.program(), &folder.0, &store, &config(options, sink.port()));
    let plan = Plan::new(options);
    let url = format!("http://{}:{}/hook", options.host, sink.port());
    let inserts = insert(plan, &service, &url, options.callers).await;
    assert!(!plan.until(0).is_zero(), "the first is due before all are inserted: lower --inserts");

    tokio::time::sleep(plan.until(0)).await;
    let (begun, cpu) = (Instant::now(), service.cpu());
    tokio::time::sleep(plan.until(plan.count)).await;
    let cpu = (service.cpu() - cpu) / begun.elapsed().as_secs_f64();
    let in_time = sink.calls();
    let counts = service.settle(plan.count).await;
    let audit = sink.audit((0..plan.count).map(|number| plan.key(number)));
    let name = match kind {
        Kind::Redis => "Redis",
        Kind::File => "file",
    };
    let rate = in_time as f64 / options.seconds as f64;
    let millis = |quantile| audit.late.value_at_quantile(quantile) as f64 / 1000.0;
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(millis);
    println!(
        "| {name} | {inserts:.0} | {rate:.0} | {} | {} | {} | {} | {p50:.1} | {p99:.1} | {most:.1} | {cpu:.2} |",
        audit.once, audit.more, audit.lost, counts.acknowledged
    );
    assert_eq!((audit.once, audit.more, audit.lost), (plan.count, 0, 0), "each is called once");
    assert_eq!(counts.acknowledged, plan.count, "each is acknowledged once");
    assert_eq!((counts.timers, counts.letters), (0, 0), "nothing is left");
}

fn config(options: &Options, port: u16) -> String {
    format!(
        "[limits]\nrequests_per_second = 1000000\nburst = 1000000\n\
         [webhooks]\nconcurrency = {}\nallow = [\"127.0.0.0/8\", \"::1/128\"]\nports = [{port}]\n",
        options.concurrency
    )
}

fn main() {
    let options = Options::parse();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    println!(
        "| store | inserts per second | webhooks per second | called once | more often | lost \
         | acknowledged | p50, ms | p99, ms | longest, ms | processors |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for kind in &options.stores {
        runtime.block_on(measure(*kind, &options));
    }
}
