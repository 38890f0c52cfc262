//! [`Service`], the running program, and [`Planned`], a timer that it has.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The token of the API.
pub(crate) const TOKEN: &str = "load";

/// The time that the service has for what is left at the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The running program, which is killed when it is dropped.
pub(crate) struct Service {
    process: Child,
    address: String,
}

/// A timer that calls a receiver.
pub(crate) struct Planned {
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) due: SystemTime,
}

/// The counts of the service.
pub(crate) struct Counts {
    pub(crate) acknowledged: usize,
    pub(crate) timers: u64,
    pub(crate) letters: u64,
    /// The connections of strangers that had to go.
    pub(crate) evicted: usize,
    /// The calls that their receivers had no place for.
    pub(crate) put_off: usize,
    /// The calls whose hosts could not be resolved.
    pub(crate) unresolved: usize,
}

/// A connection to the API.
struct Client {
    sender: SendRequest<Full<Bytes>>,
    address: String,
}

impl Service {
    /// Starts the program in a folder, with this configuration.
    pub(crate) fn start(program: &Path, folder: &Path, store: &str, config: &str) -> Self {
        std::fs::write(folder.join("timerd.toml"), config).unwrap();
        let arguments = ["--listen", "127.0.0.1:0", "--token", TOKEN, "--config", "timerd.toml"];
        let mut process = Command::new(program)
            .args(arguments)
            .args(["--store", store])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("timerd listens on http://").unwrap();
        Self { process, address: address.to_owned() }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the processor time that the program has used, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        // After the name in brackets, in Linux's ticks, a hundred per second.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks = |place: usize| fields[place].parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) / 100.0
    }

    /// Returns the number of files that the program has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }

    /// Inserts all timers, and returns how many there were per second.
    pub(crate) async fn insert(&self, timers: Vec<Planned>, callers: usize) -> f64 {
        let (begun, count) = (Instant::now(), timers.len());
        let (timers, next) = (Arc::new(timers), Arc::new(AtomicUsize::new(0)));
        let mut inserting = JoinSet::new();
        for _ in 0..callers {
            let (timers, next) = (Arc::clone(&timers), Arc::clone(&next));
            let mut client = Client::connect(&self.address).await;
            inserting.spawn(async move {
                // Relaxed: each number is handed out once, and nothing else is needed.
                while let Some(timer) = timers.get(next.fetch_add(1, Relaxed)) {
                    client.put(timer).await;
                }
            });
        }
        inserting.join_all().await;
        count as f64 / begun.elapsed().as_secs_f64()
    }

    /// Returns the counts of the service.
    pub(crate) async fn counts(&self) -> Counts {
        Client::connect(&self.address).await.counts().await
    }

    /// Waits until a number of deliveries is acknowledged and no timer is left, but at most a
    /// minute, and returns the counts.
    pub(crate) async fn settle(&self, count: usize) -> Counts {
        let (begun, mut client) = (Instant::now(), Client::connect(&self.address).await);
        loop {
            let counts = client.counts().await;
            let is_settled = counts.acknowledged >= count && counts.timers == 0;
            if is_settled || begun.elapsed() > PATIENCE {
                return counts;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Client {
    async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, address: address.to_owned() }
    }

    /// Inserts a timer.
    async fn put(&mut self, Planned { id, url, due }: &Planned) {
        let at = humantime::format_rfc3339_millis(*due).to_string();
        let webhook = json!({ "url": url, "body": "order 7 is unpaid" });
        let timer = json!({ "webhook": webhook, "schedule": { "at": at } }).to_string();
        let (status, text) = self.send("PUT", &format!("/v1/timers/{id}"), timer).await;
        assert_eq!(status, StatusCode::CREATED, "{text}");
    }

    async fn counts(&mut self) -> Counts {
        let (_, figures) = self.send("GET", "/metrics", String::new()).await;
        let figure = |name: &str, label: &str| {
            let is_it = |line: &&str| line.starts_with(name) && line.contains(label);
            let line = figures.lines().find(is_it);
            line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
        };
        let (_, stats) = self.send("GET", "/v1/stats", String::new()).await;
        let stats: Value = serde_json::from_str(&stats).unwrap();
        let number = |name: &str| stats[name].as_u64().unwrap();
        Counts {
            acknowledged: figure("tourbillon_durable_attempts_total", "outcome=\"acknowledged\""),
            timers: number("timers"),
            letters: number("dead_letters"),
            evicted: figure("timerd_connections_evicted_total", ""),
            put_off: figure("timerd_calls_not_made_total", "reason=\"places\""),
            unresolved: figure("timerd_calls_not_made_total", "reason=\"resolver\""),
        }
    }

    async fn send(&mut self, method: &str, path: &str, body: String) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.address)
            .header("authorization", format!("Bearer {TOKEN}"))
            .header("content-type", "application/json")
            .body(Full::from(body))
            .unwrap();
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }
}

impl Planned {
    /// Returns the idempotency key of the delivery, without the number of its insert.
    pub(crate) fn key(&self) -> String {
        let since = self.due.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        format!("{}:{}", since.as_millis(), self.id)
    }
}
