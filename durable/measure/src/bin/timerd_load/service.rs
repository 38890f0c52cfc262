//! [`Service`], the running program, and [`Client`], a connection to its API.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The token of the API.
const TOKEN: &str = "load";

/// The time that the service has for what is left at the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The running program, which is killed when it is dropped.
pub(crate) struct Service {
    process: Child,
    address: String,
}

/// The counts of the service.
pub(crate) struct Counts {
    pub(crate) acknowledged: usize,
    pub(crate) timers: u64,
    pub(crate) letters: u64,
}

/// A connection to the API.
pub(crate) struct Client {
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
        // After the name in brackets, in Linux's ticks, of which a second has a hundred.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks = |place: usize| fields[place].parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) / 100.0
    }

    /// Waits until a number of deliveries is acknowledged and no timer is left, or returns what
    /// there is after a minute.
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
    pub(crate) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, address: address.to_owned() }
    }

    /// Inserts a timer.
    pub(crate) async fn put(&mut self, path: &str, timer: String) {
        let (status, text) = self.send("PUT", path, timer).await;
        assert_eq!(status, StatusCode::CREATED, "{text}");
    }

    async fn counts(&mut self) -> Counts {
        let (_, figures) = self.send("GET", "/metrics", String::new()).await;
        let is_acknowledged = |line: &&str| {
            line.starts_with("tourbillon_durable_attempts_total{")
                && line.contains("outcome=\"acknowledged\"")
        };
        let line = figures.lines().find(is_acknowledged);
        let acknowledged = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        let (_, stats) = self.send("GET", "/v1/stats", String::new()).await;
        let stats: Value = serde_json::from_str(&stats).unwrap();
        let number = |name: &str| stats[name].as_u64().unwrap();
        let (timers, letters) = (number("timers"), number("dead_letters"));
        Counts { acknowledged: acknowledged.unwrap_or(0), timers, letters }
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
