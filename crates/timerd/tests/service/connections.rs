//! Connections of strangers that wait, write or read slowly, beside peers with a token.

#![allow(clippy::disallowed_methods, reason = "the log of the service is read")]

use super::bench::{Bench, TOKEN, until};
use super::calls::allowing;
use super::receiver::Receiver;
use serde_json::json;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use timerd::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The time limit of each wait. It keeps a broken build from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to the service.
pub(crate) struct Peer(TcpStream);

impl Peer {
    pub(crate) async fn connect(bench: &Bench) -> Self {
        Self(TcpStream::connect(bench.service.address()).await.unwrap())
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Begins a request without sending its body.
    pub(crate) async fn begin(&mut self, first: &str, token: &str) {
        let kind = match first.contains("/v1/") {
            true => "application/json",
            false => "application/x-www-form-urlencoded",
        };
        let head = format!(
            "{first} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-type: {kind}\r\ncontent-length: 100\r\n\r\n"
        );
        self.send(&head).await;
    }

    /// Sends a request without a body, and reads the status of its response.
    async fn get(&mut self, path: &str, token: &str) -> u16 {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        self.send(&head).await;
        self.status().await
    }

    /// Reads the status of a response.
    pub(crate) async fn status(&mut self) -> u16 {
        let mut start = [0; 12];
        timeout(PATIENCE, self.0.read_exact(&mut start)).await.expect("a response").unwrap();
        assert!(start.starts_with(b"HTTP/1.1 "), "{start:?}");
        std::str::from_utf8(&start[9..]).unwrap().parse().unwrap()
    }

    /// Reads until the service ends the connection, and returns the number of bytes.
    async fn rest(&mut self) -> usize {
        let mut read = Vec::new();
        // A reset is an end, too.
        let _ = timeout(PATIENCE, self.0.read_to_end(&mut read)).await.expect("an end");
        read.len()
    }
}

fn connections(most: usize) -> NonZeroUsize {
    NonZeroUsize::new(most).unwrap()
}

#[tokio::test]
async fn strangers_keep_nobody_out_and_hold_up_no_call() {
    const MOST: usize = 8;
    let mut receiver = Receiver::with(&[]).await;
    let mut config = allowing(receiver.port());
    config.limits.connections = connections(MOST);
    let bench = Bench::with(config).await;
    let mut own = Peer::connect(&bench).await;
    assert_eq!(own.get("/v1/stats", TOKEN).await, 200);
    bench.api.put("a", &receiver.url("/"), json!({ "after": "1s" })).await.json(201);
    let mut strangers = Vec::new();
    for number in 0..5 * MOST {
        let mut stranger = Peer::connect(&bench).await;
        match number % 4 {
            0 => {}
            1 => stranger.send("GET / HTTP/1.1\r\nhost: loc").await,
            2 => assert_eq!(stranger.get("/healthz", "").await, 200),
            _ => stranger.begin("POST /login", "a guess").await,
        }
        strangers.push(stranger);
    }
    // The first strangers were disconnected, long before their time limit.
    for stranger in &mut strangers[..MOST] {
        stranger.rest().await;
    }
    receiver.next().await;
    // A connection with a token stays, and a new connection is accepted.
    own.send("GET /v1/stats HTTP/1.1\r\nhost: localhost\r\n").await;
    own.send(&format!("connection: close\r\nauthorization: Bearer {TOKEN}\r\n\r\n")).await;
    assert!(own.rest().await > 0);
    assert_eq!(Peer::connect(&bench).await.get("/v1/stats", TOKEN).await, 200);
    let figures = bench.api.get("/metrics").await.text;
    assert!(figures.contains("timerd_connections_evicted_total"), "{figures}");
    bench.stop().await;
}

/// The holder of a token may open as many connections as the service allows, and then lose its
/// token.
#[tokio::test]
async fn idle_connections_keep_nobody_out() {
    const MOST: usize = 4;
    let mut config = Config::default();
    config.limits.connections = connections(MOST);
    let bench = Bench::with(config).await;
    let mut idle = Vec::new();
    for _ in 0..MOST {
        let mut peer = Peer::connect(&bench).await;
        assert_eq!(peer.get("/v1/stats", TOKEN).await, 200);
        idle.push(peer);
    }
    let mut begun = idle.remove(1);
    begun.begin("PUT /v1/timers/a", TOKEN).await;
    // Each connection replaces the connection that has been idle longest.
    for _ in 0..MOST {
        let mut peer = Peer::connect(&bench).await;
        assert_eq!(peer.get("/v1/stats", TOKEN).await, 200);
        idle.push(peer);
    }
    for peer in &mut idle[..MOST] {
        peer.rest().await;
    }
    for peer in [&mut begun, &mut idle[MOST]] {
        let ended = timeout(Duration::from_millis(100), peer.rest()).await;
        assert!(ended.is_err(), "the others stay");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_burst_of_strangers_pushes_out_no_request_on_its_way() {
    const MOST: usize = 8;
    let mut config = Config::default();
    config.limits.connections = connections(MOST);
    let bench = Bench::with(config).await;
    bench.api.get("/v1/stats").await.json(200);
    // A busy machine may take longer than the grace for one of the bursts, but not for all.
    for _ in 0..10 {
        let mut own = Peer::connect(&bench).await;
        let mut strangers = Vec::new();
        for _ in 0..MOST {
            strangers.push(Peer::connect(&bench).await);
        }
        // Gives the service time to accept all of them.
        for _ in 0..3 {
            bench.api.get("/v1/stats").await.json(200);
        }
        let head = format!("authorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n");
        let head = format!("GET /v1/stats HTTP/1.1\r\nhost: localhost\r\n{head}");
        // It fails if the connection has ended.
        let _ = own.0.write_all(head.as_bytes()).await;
        if own.rest().await > 0 {
            bench.stop().await;
            return;
        }
    }
    panic!("each burst has ended the connection");
}

#[tokio::test]
async fn a_stranger_that_sends_no_whole_head_is_disconnected() {
    let bench = Bench::start().await;
    let (mut silent, mut half) = (Peer::connect(&bench).await, Peer::connect(&bench).await);
    half.send("GET / HTTP/1.1\r\nhost: localhost\r\nx: ").await;
    assert_eq!([silent.rest().await, half.rest().await], [0, 0]);
    bench.stop().await;
}

#[tokio::test]
async fn a_half_head_does_not_delay_the_end() {
    let bench = Bench::start().await;
    let (silent, mut half) = (Peer::connect(&bench).await, Peer::connect(&bench).await);
    half.send("GET / HTTP/1.1\r\nhost: localhost\r\nx: ").await;
    let mut begun = Peer::connect(&bench).await;
    begun.begin("PUT /v1/timers/a", TOKEN).await;
    // All three are accepted once a later connection is served.
    assert_eq!(Peer::connect(&bench).await.get("/healthz", "").await, 200);
    let stopping = tokio::spawn(bench.stop());
    // A request that has begun is answered, and the service waits for nothing else.
    let webhook =
        json!({ "webhook": { "url": "https://example.org/" }, "schedule": { "after": "1d" } });
    let body = webhook.to_string();
    begun.send(&format!("{body}{}", " ".repeat(100 - body.len()))).await;
    assert_eq!(begun.status().await, 201);
    timeout(Duration::from_secs(8), stopping).await.expect("the end").unwrap();
    drop((silent, half));
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_response_is_disconnected() {
    // One connection for the client of the test, one for the peer.
    let config = "limits.timeout = \"2s\"\nlimits.concurrent_requests = 1\nlimits.connections = 2";
    let bench = Bench::with(toml::from_str(config).unwrap()).await;
    // The system buffers a part of the response.
    for number in 0..50 {
        let webhook = json!({ "url": "https://example.org/", "body": "x".repeat(250_000) });
        let timer = json!({ "webhook": webhook, "schedule": { "after": "1d" } }).to_string();
        bench.api.send("PUT", &format!("/v1/timers/{number}"), &timer).await.json(201);
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut peer = Peer(socket.connect(bench.service.address()).await.unwrap());
    assert_eq!(peer.get("/v1/timers?limit=1000", TOKEN).await, 200);
    // The peer keeps its place, and its response in memory, only for a limited time.
    assert_eq!(bench.api.get("/v1/stats").await.status, 503);
    until("the place", async || (bench.api.get("/v1/stats").await.status == 200).then_some(()))
        .await;
    // Its connection ends too, so another connection is accepted.
    assert_eq!(Peer::connect(&bench).await.get("/healthz", "").await, 200);
    let read = peer.rest().await;
    assert!(read < 5_000_000, "{read} bytes of the response");
    bench.stop().await;
}

/// The log of this thread, which runs the service of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn wrong_tokens_are_slowed_counted_and_logged_and_keep_nobody_out() {
    const WRONG: usize = 300;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let bench = Bench::with(Config::default()).await;
    for door in ["page", "api"] {
        let mut refused = 0;
        for _ in 0..WRONG {
            let reply = match door {
                "page" => bench.api.post_form("/login", "token=guess", "").await,
                _ => bench.api.with_token("a guess").get("/v1/timers").await,
            };
            match reply.status.as_u16() {
                401 => {}
                429 => refused += 1,
                status => panic!("{status}"),
            }
        }
        assert!(refused > WRONG / 2, "{refused} of {WRONG} were slowed");
        assert_eq!(bench.api.get("/v1/timers").await.status, 200, "the owner's token passes");
        assert_eq!(
            bench.api.post_form("/login", "token=the+token+of+the+tests", "").await.status,
            303
        );
        let figures = bench.api.get("/metrics").await.text;
        let label = format!("timerd_wrong_tokens_total{{door=\"{door}\"}} ");
        let counted = figures.lines().find_map(|line| line.strip_prefix(&label)).unwrap();
        assert!(counted.parse::<usize>().unwrap() >= WRONG, "{counted}");
    }
    assert!(bench.api.get("/metrics").await.text.contains("path=\"/login\",status=\"429\""));
    bench.stop().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines = log.lines().filter(|line| line.contains("wrong tokens")).count();
    assert!((1..=20).contains(&lines), "{lines} lines: {log}");
    assert!(log.contains("WARN") && log.contains("127.0.0.1:"), "{log}");
}
