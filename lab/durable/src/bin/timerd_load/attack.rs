//! The service beside strangers, a receiver and a resolver that do harm.
//!
//! Each [`Harm`] has a run of its own, and then all of them have a long one together. Runs in peace
//! come between them. Each run has a service of its own, which calls one receiver by its address
//! and another one by its name. Meanwhile the owner lists timers, looks at the page and logs in,
//! each time on a new connection.
//!
//! A run breaks a bound if a webhook is lost, called twice or dead, if a request of the owner is
//! refused, or if the webhooks that are called by an address are more than twice as late as in the
//! worst of the runs in peace. The runs in peace come between the others, so that they see how busy
//! the machine is. Webhooks that are called by a name wait for the resolver.

use super::service::{Planned, Service, TOKEN};
use super::sink::{Audit, Sink};
use super::{Options, Plan, first, until_first};
use clap::ValueEnum;
use hdrhistogram::Histogram;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, SET_COOKIE};
use hyper::http::request;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// The number of webhooks of the receiver that never answers. They are due at the
/// same rate as the other webhooks, because a burst to any receiver would delay other webhooks.
const HELD: usize = 10_000;

/// The number of strangers that hold connections.
const IDLE: usize = 1100;

/// How long a stranger waits before it renews its connection.
const RENEWAL: Duration = Duration::from_secs(10);

/// The number of logins that are begun.
const LOGINS: u32 = 10_000;

/// How long all logins take to begin, and how long the resolver is away. Both take less in a short
/// run.
const MINUTE: Duration = Duration::from_secs(60);

/// The number of webhooks in a second that are called by a name.
const NAMED: usize = 10;

/// The time between two requests of the owner.
const STEP: Duration = Duration::from_millis(50);

/// How long a request of the owner may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for webhooks after the end of a run, in seconds.
const AFTER: usize = 60;

/// How much later webhooks may be in any case, in milliseconds. The programs that do harm share the
/// processors with the service, each for some time slices of the scheduler.
const NOISE: f64 = 20.0;

/// A kind of attack or failure during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Harm {
    /// Strangers hold connections, send nothing, and renew them.
    Idle,
    /// Strangers begin a form, send one byte of it, and wait.
    Logins,
    /// A receiver accepts connections and never answers.
    Hanging,
    /// The resolver is away for a third of the run.
    Away,
}

/// The outcome of a run.
struct Run {
    name: String,
    calls: Audit,
    calls_by_name: Audit,
    seen: Seen,
    letters: u64,
    evicted: usize,
    /// The largest number of files that the service had open.
    descriptors: usize,
    /// The harms that did not come about.
    absent: Vec<Harm>,
}

/// The results of the owner's requests.
#[derive(Default)]
struct Seen {
    asked: usize,
    refused: Vec<String>,
    slowest: Duration,
}

/// Runs the load in peace and under attack by turns, and prints a row for each run. Fails if a
/// bound is broken.
pub(super) async fn compare(options: &Options, folder: &Path) -> ExitCode {
    // The service has less, of its own accord.
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    println!(
        "| run | webhooks | p50, ms | p99, ms | longest, ms | by name: longest, ms | dead letters \
         | requests of the owner | refused | slowest, ms | evicted | descriptors |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let long = options.seconds.unwrap_or(600);
    let short = (long / 20).max(10);
    let mut plan: Vec<(&[Harm], usize)> = vec![(&[], short)];
    for harm in &options.harms {
        plan.extend([(std::slice::from_ref(harm), short), (&[], short)]);
    }
    plan.extend([(&options.harms[..], long), (&[][..], short)]);
    let mut runs: Vec<Run> = Vec::new();
    for (harms, seconds) in plan {
        let folder = folder.join(runs.len().to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let run = run(options, folder, harms, seconds).await;
        println!("{run}");
        runs.push(run);
    }
    let mut broken: Vec<String> = runs.iter().flat_map(Run::broken).collect();
    let peace: Vec<&Run> = runs.iter().step_by(2).collect();
    broken.extend(runs.iter().skip(1).step_by(2).flat_map(|run| run.later(&peace)));
    broken.iter().for_each(|bound| println!("\n{bound}"));
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(options: &Options, folder: PathBuf, harms: &[Harm], seconds: usize) -> Run {
    let rate = options.rate.unwrap_or(100);
    let (count, named) = (rate * seconds, NAMED * seconds);
    let held = if harms.contains(&Harm::Hanging) { count.min(HELD) } else { 0 };
    let (sink, by_name) = (Sink::start(count).await, Sink::start(named).await);
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ports = [sink.port(), by_name.port(), hanging.local_addr().unwrap().port()];
    let program = options.program("timerd_attacked");
    let service = Service::start(&program, &folder, "timers.db", &config(ports));

    let hosts = ["127.0.0.1", "receiver.example", "127.0.0.1"];
    let [url, url_of_name, url_of_held] =
        [0, 1, 2].map(|place| format!("http://{}:{}/", hosts[place], ports[place]));
    let first = first(options, count + named + held);
    let mut timers: Vec<_> = Plan::new(first, rate, count).timers("", &url).collect();
    timers.extend(Plan::new(first, NAMED, named).timers("named", &url_of_name));
    let keys: Vec<_> = timers.iter().map(Planned::key).collect();
    timers.extend(Plan::new(first, rate, held).timers("held", &url_of_held));
    service.insert(timers, options.callers).await;
    let owner = Owner::log_in(service.address()).await.unwrap();
    until_first(first).await;

    // They take no time from the receivers, which measure it.
    let strangers =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let strangers = strangers.unwrap();
    let attack = Attack {
        address: service.address().to_owned(),
        away: folder.join("away"),
        length: Duration::from_secs(seconds as u64),
    };
    strangers.spawn(hang(hanging));
    harms.iter().for_each(|harm| drop(strangers.spawn(attack.clone().run(*harm))));
    let asking = tokio::spawn(Arc::new(owner).ask_for(attack.length));
    let is_called = || sink.calls() >= count as u64 && by_name.calls() >= named as u64;
    let descriptors = watch(&service, seconds, is_called).await;
    strangers.shutdown_background();
    let (counts, seen) = (service.counts().await, asking.await.unwrap());
    let (keys, keys_of_name) = keys.split_at(count);
    let is_absent = |harm: &&Harm| match harm {
        Harm::Idle | Harm::Logins => counts.evicted == 0,
        Harm::Hanging => counts.put_off == 0,
        Harm::Away => counts.unresolved == 0,
    };
    Run {
        name: name(harms),
        calls: sink.audit(keys.iter().cloned()),
        calls_by_name: by_name.audit(keys_of_name.iter().cloned()),
        seen,
        letters: counts.letters,
        evicted: counts.evicted,
        descriptors,
        absent: harms.iter().filter(is_absent).copied().collect(),
    }
}

/// Waits for the end of a run and for its webhooks, and returns the largest number of open files.
async fn watch(service: &Service, seconds: usize, is_called: impl Fn() -> bool) -> usize {
    let (mut descriptors, mut ticks) = (0, interval(Duration::from_secs(1)));
    for second in 0..seconds + AFTER {
        ticks.tick().await;
        descriptors = descriptors.max(service.descriptors());
        if second >= seconds && is_called() {
            break;
        }
    }
    descriptors
}

fn name(harms: &[Harm]) -> String {
    match harms {
        [] => "peace".to_owned(),
        [harm] => format!("{harm:?}").to_lowercase(),
        _ => "all".to_owned(),
    }
}

/// Returns a quantile in milliseconds.
fn quantile(late: &Histogram<u64>, at: f64) -> f64 {
    late.value_at_quantile(at) as f64 / 1000.0
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, calls, calls_by_name, seen, letters, evicted, descriptors, .. } = self;
        let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|at| quantile(&calls.late, at));
        let by_name = quantile(&calls_by_name.late, 1.0);
        let Seen { asked, refused, slowest } = seen;
        write!(f, "| {name} | {} ", calls.once + calls_by_name.once)?;
        write!(f, "| {p50:.1} | {p99:.1} | {longest:.1} | {by_name:.1} | {letters} ")?;
        write!(f, "| {asked} | {} | {} ", refused.len(), slowest.as_millis())?;
        write!(f, "| {evicted} | {descriptors} |")
    }
}

impl Run {
    /// Returns the bounds that the run has broken by itself.
    fn broken(&self) -> Vec<String> {
        let Self { name, calls, calls_by_name, seen, letters, absent, .. } = self;
        let (lost, more) = (calls.lost + calls_by_name.lost, calls.more + calls_by_name.more);
        let mut broken = Vec::new();
        if (lost, more, *letters) != (0, 0, 0) {
            broken.push(format!("{name}: {lost} lost, {more} called again, {letters} dead"));
        }
        if !seen.refused.is_empty() {
            let first = &seen.refused[..seen.refused.len().min(5)];
            broken.push(format!("{name}: {} refused: {first:?}", seen.refused.len()));
        }
        broken.extend(absent.iter().map(|harm| format!("{name}: no harm was done by {harm:?}")));
        broken
    }

    /// Returns the quantiles that are much later than in the worst of the runs in peace.
    fn later(&self, peace: &[&Self]) -> Vec<String> {
        let mut later = Vec::new();
        for (what, at) in [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)] {
            let worst = peace.iter().map(|run| quantile(&run.calls.late, at)).fold(0.0, f64::max);
            let (late, most) = (quantile(&self.calls.late, at), 2.0 * worst + NOISE);
            if late > most {
                later.push(format!("{}: {what} is {late:.1} ms, above {most:.1} ms", self.name));
            }
        }
        later
    }
}

fn config(ports: [u16; 3]) -> String {
    format!(
        "[limits]\nrequests_per_second = 1000000\nburst = 1000000\n\
         [webhooks]\nallow = [\"127.0.0.0/8\"]\nports = {ports:?}\n"
    )
}

/// The owner, with a session of the page.
struct Owner {
    address: String,
    cookie: String,
}

impl Owner {
    async fn log_in(address: &str) -> Result<Self, String> {
        let request =
            Request::post("/login").header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let response = send(address, request, format!("token={TOKEN}")).await?;
        let cookie = response.headers().get(SET_COOKIE).and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.and_then(|cookie| cookie.split(';').next());
        let cookie = cookie.ok_or_else(|| format!("login: {}", response.status()))?;
        Ok(Self { address: address.to_owned(), cookie: cookie.to_owned() })
    }

    /// Asks again and again, and returns once all is answered.
    async fn ask_for(self: Arc<Self>, length: Duration) -> Seen {
        let (begun, mut ticks, mut asking) = (Instant::now(), interval(STEP), JoinSet::new());
        let mut seen = Seen::default();
        while begun.elapsed() < length {
            ticks.tick().await;
            let (owner, number) = (Arc::clone(&self), seen.asked);
            asking.spawn(async move {
                let begun = Instant::now();
                let asked = timeout(PATIENCE, owner.ask(number)).await;
                (begun.elapsed(), asked.unwrap_or_else(|_| Err("no response".to_owned())))
            });
            seen.asked += 1;
        }
        for (took, asked) in asking.join_all().await {
            seen.slowest = seen.slowest.max(took);
            seen.refused.extend(asked.err());
        }
        seen
    }

    /// Sends one of three requests.
    async fn ask(&self, number: usize) -> Result<(), String> {
        let (what, response, mark) = match number % 3 {
            0 => return Self::log_in(&self.address).await.map(drop),
            1 => {
                let request = Request::get("/v1/timers?limit=1");
                let request = request.header(AUTHORIZATION, format!("Bearer {TOKEN}"));
                ("list", send(&self.address, request, String::new()).await, "timers")
            }
            _ => {
                let request = Request::get("/overview").header(COOKIE, &self.cookie);
                // Without a session it is the form for the token.
                ("page", send(&self.address, request, String::new()).await, "Log out")
            }
        };
        let response = response.map_err(|error| format!("{what}: {error}"))?;
        match response.status() {
            StatusCode::OK if response.body().contains(mark) => Ok(()),
            status => Err(format!("{what}: {status} {}", response.body())),
        }
    }
}

/// Sends a request on a new connection.
async fn send(
    address: &str,
    request: request::Builder,
    body: String,
) -> Result<Response<String>, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let failed = |error: hyper::Error| format!("{error:?}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let _serving = tokio::spawn(connection);
    let request = request.header(HOST, address).body(body).unwrap();
    let (head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
    let bytes = body.collect().await.map_err(failed)?.to_bytes();
    Ok(Response::from_parts(head, String::from_utf8_lossy(&bytes).into_owned()))
}

/// The programs that do harm.
#[derive(Clone)]
struct Attack {
    /// The address of the service.
    address: String,
    /// The file that takes the resolver away.
    away: PathBuf,
    /// The length of the run.
    length: Duration,
}

impl Attack {
    async fn run(self, harm: Harm) {
        match harm {
            Harm::Idle => (0..IDLE).for_each(|_| drop(tokio::spawn(self.clone().be_idle()))),
            Harm::Logins => self.log_in().await,
            // It hangs in any case, and is called only if it has webhooks.
            Harm::Hanging => {}
            Harm::Away => self.take_away().await,
        }
    }

    /// Holds a connection until the service closes it, again and again.
    async fn be_idle(self) {
        loop {
            if let Ok(mut stream) = TcpStream::connect(&self.address).await {
                let _ = stream.read(&mut [0; 64]).await;
            }
            sleep(RENEWAL).await;
        }
    }

    /// Begins logins one after another, and completes none.
    async fn log_in(self) {
        let mut ticks = interval(self.length.min(MINUTE) / LOGINS);
        for _ in 0..LOGINS {
            ticks.tick().await;
            let address = self.address.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = TcpStream::connect(address).await else { return };
                let head = "POST /login HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\
                            content-type: application/x-www-form-urlencoded\r\n\r\nt";
                if stream.write_all(head.as_bytes()).await.is_ok() {
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            });
        }
    }

    /// Takes the resolver away for a time, after that time.
    async fn take_away(self) {
        let third = (self.length / 3).min(MINUTE);
        sleep(third).await;
        std::fs::write(&self.away, "").unwrap();
        sleep(third).await;
        std::fs::remove_file(&self.away).unwrap();
    }
}

/// Accepts connections and keeps them.
async fn hang(listener: TcpListener) {
    let mut kept = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        kept.push(stream);
    }
}
