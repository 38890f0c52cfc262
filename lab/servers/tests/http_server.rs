//! The program `http_server` in this process. Every timeout is tested in virtual time over
//! connections in memory, and both timers over sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../src/bin/http_server/activity.rs"]
mod activity;
#[path = "../../integrations/tests/common/mod.rs"]
mod common;
#[path = "../src/bin/http_server/server.rs"]
mod server;
#[path = "../src/bin/http_server/service.rs"]
mod service;
#[path = "../src/bin/http_server/shared.rs"]
mod shared;
#[path = "../src/bin/http_server/stall.rs"]
mod stall;
#[path = "../src/bin/http_server/tally.rs"]
mod tally;
#[path = "../src/bin/http_server/timers.rs"]
mod timers;

use common::{MS, SECOND, Time, settle};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use server::Server;
use shared::Limits;
use std::time::Instant;
use timers::{Timers, Tokio};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tourbillon::Builder;
use tourbillon::future::Timer;

const LIMITS: Limits = Limits {
    idle: SECOND.saturating_mul(5),
    request: SECOND.saturating_mul(10),
    body: SECOND.saturating_mul(3),
    ping: SECOND.saturating_mul(20),
};

/// The server in virtual time.
struct Bench {
    time: Time,
    server: Server<Timer>,
}

impl Bench {
    fn new() -> Self {
        let time = Time::new();
        let server = Server::new(LIMITS, time.timer.clone());
        Self { time, server }
    }

    fn connect(&self) -> DuplexStream {
        let (client, server) = duplex(1024);
        self.server.serve(server);
        client
    }

    async fn pass(&mut self, seconds: u32, less: u32) {
        self.time.pass(SECOND * seconds - MS * less).await;
    }

    /// The number of open connections, and of timeouts that have fired.
    fn live_and_fired(&self) -> (u64, u64) {
        (self.server.tally().live(), self.server.tally().fired())
    }

    /// Asserts that all connections have ended and no timer is left.
    async fn nothing_is_left(&mut self) {
        settle().await;
        assert_eq!(self.live_and_fired().0, 0);
        assert_eq!(self.server.close().await, Some(0));
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: here\r\n\r\n")
}

fn post(length: usize) -> String {
    format!("POST /echo HTTP/1.1\r\nhost: here\r\ncontent-length: {length}\r\n\r\n")
}

/// Reads an answer with this end, and returns its status.
async fn status(client: &mut (impl AsyncReadExt + Unpin), end: &str) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        assert!(client.read_buf(&mut answer).await.unwrap() > 0, "closed after {answer:?}");
    }
    String::from_utf8(answer[9..12].to_vec()).unwrap()
}

async fn ask(client: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) {
    client.write_all(get("/").as_bytes()).await.unwrap();
    assert_eq!(status(client, "hello\n").await, "200");
}

async fn http2(bench: &Bench) -> SendRequest<Empty<Bytes>> {
    let io = TokioIo::new(bench.connect());
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (requests, connection) = builder.handshake(io).await.unwrap();
    tokio::spawn(connection);
    requests
}

async fn ask_http2(requests: &mut SendRequest<Empty<Bytes>>, path: &str) -> StatusCode {
    let uri = format!("http://here{path}");
    let request = Request::get(uri).body(Empty::new()).unwrap();
    let answer = requests.send_request(request).await.unwrap();
    let status = answer.status();
    answer.into_body().collect().await.unwrap();
    status
}

/// An idle connection is closed when its timeout has passed since its last answer.
#[tokio::test]
async fn an_idle_connection_is_closed_at_its_time() {
    let mut bench = Bench::new();
    let mut client = bench.connect();
    for _ in 0..4 {
        bench.pass(5, 1).await;
        ask(&mut client).await;
    }
    // The same holds if the response took its time.
    client.write_all(get("/slow?ms=9000").as_bytes()).await.unwrap();
    bench.pass(9, 0).await;
    assert_eq!(status(&mut client, "slow\n").await, "200");
    bench.pass(5, 1).await;
    assert_eq!(bench.live_and_fired(), (1, 0));
    bench.time.pass(MS).await;
    assert_eq!(bench.live_and_fired(), (0, 1));
    assert_eq!(bench.server.tally().requests(), 5);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    bench.nothing_is_left().await;
}

/// A client that sends nothing, or an incomplete head, or begins late, is closed.
#[tokio::test]
async fn a_connection_without_a_request_is_closed_at_its_time() {
    let mut bench = Bench::new();
    let mut clients = [bench.connect(), bench.connect(), bench.connect(), bench.connect()];
    clients[1].write_all(b"P").await.unwrap();
    clients[2].write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    bench.pass(5, 1).await;
    clients[3].write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    settle().await;
    assert_eq!(bench.live_and_fired(), (4, 0));
    bench.time.pass(MS).await;
    assert_eq!(bench.live_and_fired(), (0, 4));
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn an_idle_connection_of_http2_is_closed_at_its_time() {
    let mut bench = Bench::new();
    let mut requests = http2(&bench).await;
    for _ in 0..4 {
        bench.pass(5, 1).await;
        assert_eq!(ask_http2(&mut requests, "/").await, StatusCode::OK);
    }
    // It is not idle while a request is in progress.
    let mut others = requests.clone();
    let slow = tokio::spawn(async move { ask_http2(&mut others, "/slow?ms=9000").await });
    bench.pass(5, 0).await;
    bench.pass(4, 0).await;
    assert_eq!(slow.await.unwrap(), StatusCode::OK);
    bench.pass(5, 1).await;
    assert_eq!(bench.live_and_fired(), (1, 0));
    bench.time.pass(MS).await;
    assert_eq!(bench.live_and_fired(), (0, 1));
    assert!(requests.is_closed());
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered_504() {
    let mut bench = Bench::new();
    let mut client = bench.connect();
    client.write_all(get("/slow?ms=10001").as_bytes()).await.unwrap();
    let mut requests = http2(&bench).await;
    let slow = tokio::spawn(async move { ask_http2(&mut requests, "/slow?ms=10001").await });
    bench.pass(10, 1).await;
    assert_eq!(bench.live_and_fired(), (2, 0));
    bench.time.pass(MS).await;
    assert_eq!(bench.server.tally().fired(), 2);
    assert_eq!(status(&mut client, "504").await, "504");
    assert_eq!(slow.await.unwrap(), StatusCode::GATEWAY_TIMEOUT);
    // The connection stays open.
    ask(&mut client).await;
    drop(client);
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn a_handler_that_panics_harms_only_its_request() {
    let mut bench = Bench::new();
    let (mut client, mut other) = (bench.connect(), bench.connect());
    other.write_all(get("/slow?ms=1000").as_bytes()).await.unwrap();
    let mut requests = http2(&bench).await;
    client.write_all(get("/panic").as_bytes()).await.unwrap();
    assert_eq!(status(&mut client, "500").await, "500");
    assert_eq!(ask_http2(&mut requests, "/panic").await, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(ask_http2(&mut requests, "/").await, StatusCode::OK);
    ask(&mut client).await;
    bench.pass(1, 0).await;
    assert_eq!(status(&mut other, "slow\n").await, "200");
    drop((client, other, requests));
    bench.nothing_is_left().await;
}

/// A client that stops in the middle of its body is closed, and one that continues in time is not.
#[tokio::test]
async fn a_body_that_stands_still_is_answered_408() {
    let mut bench = Bench::new();
    let (mut client, mut good) = (bench.connect(), bench.connect());
    for stream in [&mut client, &mut good] {
        stream.write_all(post(4).as_bytes()).await.unwrap();
        stream.write_all(b"a").await.unwrap();
    }
    bench.pass(3, 1).await;
    good.write_all(b"b").await.unwrap();
    settle().await;
    assert_eq!(bench.live_and_fired(), (2, 0));
    bench.time.pass(MS).await;
    assert_eq!(bench.server.tally().fired(), 1);
    assert_eq!(status(&mut client, "408").await, "408");
    bench.pass(2, 0).await;
    good.write_all(b"cd").await.unwrap();
    assert_eq!(status(&mut good, "abcd").await, "200");
    drop((client, good));
    bench.nothing_is_left().await;
}

/// A client that does not read its answer is closed, and one that reads it slowly is not.
#[tokio::test]
async fn an_answer_that_is_not_read_ends_the_connection() {
    let mut bench = Bench::new();
    let (mut client, mut good) = (bench.connect(), bench.connect());
    let body = vec![b'x'; 8192];
    for stream in [&mut client, &mut good] {
        stream.write_all(post(body.len()).as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
    }
    let mut bytes = [0; 2048];
    bench.pass(3, 1).await;
    good.read_exact(&mut bytes).await.unwrap();
    settle().await;
    assert_eq!(bench.live_and_fired(), (2, 0));
    bench.time.pass(MS).await;
    assert_eq!(bench.live_and_fired(), (1, 1));
    for _ in 0..3 {
        bench.pass(2, 0).await;
        good.read_exact(&mut bytes).await.unwrap();
    }
    assert_eq!(bench.live_and_fired(), (1, 1));
    drop((client, good));
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_midst_leaves_nothing() {
    let mut bench = Bench::new();
    let mut clients = [bench.connect(), bench.connect(), bench.connect()];
    clients[0].write_all(get("/slow?ms=60000").as_bytes()).await.unwrap();
    clients[1].write_all(&post(4).as_bytes()[..20]).await.unwrap();
    clients[2].write_all(post(4).as_bytes()).await.unwrap();
    let mut requests = http2(&bench).await;
    let slow = tokio::spawn(async move { ask_http2(&mut requests, "/slow?ms=60000").await });
    bench.pass(1, 0).await;
    assert_eq!(bench.live_and_fired(), (4, 0));
    assert!(bench.time.armed() >= 8);
    slow.abort();
    drop(clients);
    bench.nothing_is_left().await;
}

/// Idle connections end at once. Those with a request end after its answer, or at its time limit.
#[tokio::test]
async fn closing_waits_for_what_is_under_way() {
    let mut bench = Bench::new();
    let (mut idle, mut slow, silent) = (bench.connect(), bench.connect(), bench.connect());
    ask(&mut idle).await;
    slow.write_all(get("/slow?ms=4000").as_bytes()).await.unwrap();
    bench.pass(1, 0).await;
    let Bench { mut time, server } = bench;
    let closed = tokio::spawn(async move {
        let left = server.close().await;
        (server.tally().live(), left)
    });
    settle().await;
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    assert!(!closed.is_finished());
    time.pass(SECOND * 3).await;
    assert_eq!(status(&mut slow, "slow\n").await, "200");
    assert_eq!(closed.await.unwrap(), (0, Some(0)));
    drop(silent);
}

/// A shutdown does not wait for a request beyond its time limit.
#[tokio::test]
async fn closing_does_not_wait_for_ever() {
    let mut bench = Bench::new();
    let mut client = bench.connect();
    let body = vec![b'x'; 8192];
    client.write_all(post(body.len()).as_bytes()).await.unwrap();
    client.write_all(&body).await.unwrap();
    bench.pass(1, 0).await;
    let Bench { mut time, server } = bench;
    let closed = tokio::spawn(async move { server.close().await });
    for _ in 0..6 {
        // It continues to read, just fast enough.
        time.pass(SECOND * 2 - MS).await;
        client.read_exact(&mut [0; 100]).await.unwrap();
        if closed.is_finished() {
            break;
        }
    }
    assert!(closed.is_finished());
    assert_eq!(closed.await.unwrap(), Some(0));
}

/// Runs the server over sockets in real time. No connection is closed early, each ends, a client
/// that resets its connection harms no other, and no timer is left.
async fn over_sockets<T: Timers>(timers: T) -> Option<usize> {
    let limits = Limits { idle: 40 * MS, request: 40 * MS, body: 40 * MS, ping: SECOND };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(limits, timers);
    server.accept(listener);

    let mut resets = TcpStream::connect(address).await.unwrap();
    resets.write_all(get("/slow?ms=20").as_bytes()).await.unwrap();
    resets.set_zero_linger().unwrap();
    drop(resets);

    let mut client = TcpStream::connect(address).await.unwrap();
    #[allow(clippy::disallowed_methods, reason = "real time is what is tested")]
    let now = Instant::now;
    let asked = now();
    client.write_all(get("/slow?ms=60000").as_bytes()).await.unwrap();
    assert_eq!(status(&mut client, "504").await, "504");
    assert!(now() - asked >= limits.request);
    let asked = now();
    ask(&mut client).await;
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert!(now() - asked >= limits.idle);

    let left = server.close().await;
    let tally = server.tally();
    assert_eq!((tally.accepted(), tally.live()), (2, 0));
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_wheel_over_sockets() {
    let timer = Timer::spawn(Builder::new().driver()).unwrap();
    assert_eq!(over_sockets(timer).await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_tokios_timer_over_sockets() {
    assert_eq!(over_sockets(Tokio).await, None);
}
