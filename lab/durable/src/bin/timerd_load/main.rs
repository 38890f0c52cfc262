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

mod attack;
#[path = "../../../../../crates/durable/tests/common/servers.rs"]
#[allow(dead_code, reason = "it serves the tests too")]
mod servers;
mod service;
mod sink;

use clap::{Parser, ValueEnum};
use servers::Server;
use service::{Planned, Service};
use sink::Sink;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// The service `timerd` under load.
#[derive(Debug, Parser)]
struct Options {
    /// The stores, one after another.
    #[arg(long, value_delimiter = ',', default_value = "redis,file")]
    stores: Vec<Kind>,
    /// The number of timers that are due per second. By default 2,000, and 100 under attack.
    #[arg(long)]
    rate: Option<usize>,
    /// The number of seconds. By default 60, and 600 for the attack by all at once.
    #[arg(long)]
    seconds: Option<usize>,
    /// The number of concurrent calls of the service.
    #[arg(long, default_value_t = 256)]
    concurrency: usize,
    /// Runs the service on a file, beside strangers, a receiver and a resolver that do harm: each
    /// for a twentieth of the time, then all at once, with runs in peace between them. Fails if
    /// this makes a webhook to another receiver much later, lost or dead, or if it costs the owner
    /// a request. Takes 17 minutes, and three with `--seconds 30`.
    #[arg(long)]
    attack: bool,
    /// The harms of an attack.
    #[arg(long, value_delimiter = ',', default_value = "idle,logins,hanging,away")]
    harms: Vec<attack::Harm>,
    /// The host name for calls of the receiver.
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
    /// Returns the program of the service.
    fn program(&self, name: &str) -> PathBuf {
        let beside = || std::env::current_exe().unwrap().with_file_name(name);
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

/// The due times, one per step from the first one on.
#[derive(Clone, Copy)]
struct Plan {
    first: SystemTime,
    step: Duration,
    count: usize,
}

impl Plan {
    fn new(first: SystemTime, rate: usize, count: usize) -> Self {
        Self { first, step: Duration::from_secs(1) / u32::try_from(rate).unwrap(), count }
    }

    fn due(&self, number: usize) -> SystemTime {
        self.first + self.step * u32::try_from(number).unwrap()
    }

    /// Returns the timers, whose ids begin with a name.
    fn timers(&self, name: &str, url: &str) -> impl Iterator<Item = Planned> {
        (0..self.count).map(move |number| Planned {
            id: format!("{name}{number}"),
            url: url.to_owned(),
            due: self.due(number),
        })
    }
}

/// Returns when the first timer is due, late enough to insert `count` timers before.
fn first(options: &Options, count: usize) -> SystemTime {
    SystemTime::now() + Duration::from_secs(2 + (count / options.inserts) as u64)
}

/// Waits until the first timer is due.
async fn until_first(first: SystemTime) {
    let left = first.duration_since(SystemTime::now());
    let late = "the first is due before all are inserted: lower --inserts";
    tokio::time::sleep(left.expect(late)).await;
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
    let (rate, seconds) = (options.rate.unwrap_or(2000), options.seconds.unwrap_or(60));
    let count = rate * seconds;
    let sink = Sink::start(count).await;
    let config = config(options, sink.port());
    let service = Service::start(&options.program("timerd"), &folder.0, &store, &config);
    let plan = Plan::new(first(options, count), rate, count);
    let url = format!("http://{}:{}/hook", options.host, sink.port());
    let timers: Vec<_> = plan.timers("", &url).collect();
    let keys: Vec<_> = timers.iter().map(Planned::key).collect();
    let inserts = service.insert(timers, options.callers).await;

    until_first(plan.first).await;
    let (begun, cpu) = (Instant::now(), service.cpu());
    tokio::time::sleep(plan.step * u32::try_from(count).unwrap()).await;
    let cpu = (service.cpu() - cpu) / begun.elapsed().as_secs_f64();
    let in_time = sink.calls();
    let counts = service.settle(count).await;
    let audit = sink.audit(keys.into_iter());
    let name = match kind {
        Kind::Redis => "Redis",
        Kind::File => "file",
    };
    let rate = in_time as f64 / seconds as f64;
    let millis = |quantile| audit.late.value_at_quantile(quantile) as f64 / 1000.0;
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(millis);
    println!(
        "| {name} | {inserts:.0} | {rate:.0} | {} | {} | {} | {} | {p50:.1} | {p99:.1} | {most:.1} | {cpu:.2} |",
        audit.once, audit.more, audit.lost, counts.acknowledged
    );
    assert_eq!((audit.once, audit.more, audit.lost), (count, 0, 0), "each is called once");
    assert_eq!(counts.acknowledged, count, "each is acknowledged once");
    assert_eq!((counts.timers, counts.letters), (0, 0), "nothing is left");
}

fn config(options: &Options, port: u16) -> String {
    format!(
        "[limits]\nrequests_per_second = 1000000\nburst = 1000000\n\
         [webhooks]\nconcurrency = {0}\nper_receiver = {0}\n\
         allow = [\"127.0.0.0/8\", \"::1/128\"]\nports = [{port}]\n",
        options.concurrency
    )
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    if options.attack {
        let folder = Folder(options.folder.join(format!("tourbillon-load-{}", std::process::id())));
        return runtime.block_on(attack::compare(&options, &folder.0));
    }
    println!(
        "| store | inserts per second | webhooks per second | called once | more often | lost \
         | acknowledged | p50, ms | p99, ms | longest, ms | processors |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for kind in &options.stores {
        runtime.block_on(measure(*kind, &options));
    }
    ExitCode::SUCCESS
}
