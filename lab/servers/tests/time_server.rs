//! The program `time_server` in this process, in virtual time. Each test runs on `tokio::time` and
//! on `tourbillon::time`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../src/bin/time_server/audit.rs"]
mod audit;
#[allow(dead_code, reason = "the tests do not listen")]
#[path = "../src/bin/time_server/modules.rs"]
mod modules;
#[allow(dead_code, reason = "the tests parse no command line")]
#[path = "../src/bin/time_server/options.rs"]
mod options;

use audit::Audit;
use clap::CommandFactory;
use futures_util::{SinkExt, StreamExt};
use modules::{on_tokio, on_tourbillon};
use options::{Module, Options, Protocol};
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v4::{Codec, Connect, Packet, PubAck, Publish, Subscribe};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_util::codec::Framed;
use tourbillon_servers::datagrams::{Datagram, LENGTH};

const MS: Duration = Duration::from_millis(1);

const IDLE: Duration = MS.saturating_mul(1500);

/// The greatest lateness, by the ticks of both modules and of the test's own sleeps.
const LATEST: Duration = MS.saturating_mul(3);

/// A server on one of the modules.
struct Bench {
    module: Module,
    audit: Arc<Audit>,
}

/// Runs a test on each module, in virtual time.
fn on_both(test: impl AsyncFn(Bench)) {
    for module in [Module::Tokio, Module::Tourbillon] {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        let audit = Arc::new(Audit::new().unwrap());
        runtime.block_on(test(Bench { module, audit }));
    }
}

impl Bench {
    /// Opens a connection to a server of its own.
    fn connect(&self, protocol: Protocol) -> DuplexStream {
        let (client, stream) = duplex(4096);
        let audit = Arc::clone(&self.audit);
        drop(match self.module {
            Module::Tokio => {
                on_tokio::protocols::Servers::start(IDLE, audit).spawn(protocol, stream)
            }
            Module::Tourbillon => {
                on_tourbillon::protocols::Servers::start(IDLE, audit).spawn(protocol, stream)
            }
        });
        client
    }

    /// Asserts that this many timers have fired, all of them in time.
    fn has_fired(&self, count: u64) {
        let report = self.audit.report();
        assert_eq!(report["fired"], count, "on {:?}", self.module);
        assert_eq!(report["early"], 0, "on {:?}", self.module);
        let latest = Duration::from_micros(report["late_max_us"].as_u64().unwrap());
        assert!(latest <= LATEST, "{latest:?} late on {:?}", self.module);
    }

    /// Asserts that a time has passed since an instant, and little more.
    fn has_passed(&self, since: Instant, time: Duration) {
        let passed = since.elapsed();
        assert!((time..=time + LATEST).contains(&passed), "{passed:?} on {:?}", self.module);
    }
}

#[test]
fn the_command_line_is_valid() {
    Options::command().debug_assert();
}

#[test]
fn each_request_of_http_pushes_the_idle_timeout_back() {
    on_both(async |bench| {
        let mut client = bench.connect(Protocol::Http);
        let mut answer = [0; 256];
        for _ in 0..3 {
            sleep(IDLE - MS * 5).await;
            client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
            let length = client.read(&mut answer).await.unwrap();
            assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "on {:?}", bench.module);
        }
        bench.has_fired(0);
        let last = Instant::now();
        assert_eq!(client.read(&mut answer).await.unwrap(), 0);
        bench.has_passed(last, IDLE);
        bench.has_fired(1);
    });
}

#[test]
fn a_web_socket_whose_peer_answers_pings_stays_open() {
    on_both(async |bench| {
        let stream = bench.connect(Protocol::WebSocket);
        let (mut client, _) = client_async("ws://here/", stream).await.unwrap();
        client.send(Message::Binary(Bytes::from_static(b"hello"))).await.unwrap();
        let echo = client.next().await.unwrap().unwrap();
        assert_eq!(echo, Message::Binary(Bytes::from_static(b"hello")));
        let mut last = Instant::now();
        for _ in 0..5 {
            // Reading the next message sends the pong of this one.
            assert!(client.next().await.unwrap().unwrap().is_ping());
            bench.has_passed(last, IDLE / 2);
            last = Instant::now();
        }
        client.flush().await.unwrap();
        let mut stream = client.into_inner();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
        bench.has_passed(last, IDLE);
        // Two pings came in this time, or one if the end was first.
        let fired = bench.audit.report()["fired"].as_u64().unwrap();
        assert!((7..=8).contains(&fired), "{fired} on {:?}", bench.module);
        bench.has_fired(fired);
    });
}

#[test]
fn a_message_of_mqtt_is_repeated_until_it_is_acknowledged() {
    on_both(async |bench| {
        let codec = Codec { max_incoming_size: 1024, max_outgoing_size: 1024 };
        let mut client = Framed::new(bench.connect(Protocol::Mqtt), codec);
        let mut send = async |packet| client.send(packet).await.unwrap();
        send(Packet::Connect(Connect { keep_alive: 2, ..Connect::new("here") })).await;
        send(Packet::Subscribe(Subscribe { pkid: 1, ..Subscribe::new("a", QoS::AtLeastOnce) }))
            .await;
        send(Packet::Publish(Publish { pkid: 2, ..Publish::new("a", QoS::AtLeastOnce, "b") }))
            .await;
        let asked = Instant::now();
        let mut delivered = Vec::new();
        while delivered.len() < 3 {
            if let Packet::Publish(publish) = client.next().await.unwrap().unwrap() {
                delivered.push((publish.dup, asked.elapsed().as_millis() / 10));
            }
        }
        assert_eq!(delivered, [(false, 0), (true, 50), (true, 100)], "on {:?}", bench.module);
        client.send(Packet::PubAck(PubAck::new(1))).await.unwrap();
        let last = Instant::now();
        assert!(client.next().await.is_none(), "on {:?}", bench.module);
        bench.has_passed(last, MS * 3000);
        bench.has_fired(3);
    });
}

#[test]
fn a_key_expires_at_the_end_of_its_last_life() {
    on_both(async |bench| {
        let mut client = bench.connect(Protocol::Keys);
        let mut ask = async |command: &str, expected: &str| {
            let words: Vec<_> = command.split(' ').collect();
            let words: String =
                words.iter().map(|it| format!("${}\r\n{it}\r\n", it.len())).collect();
            let count = command.split(' ').count();
            client.write_all(format!("*{count}\r\n{words}").as_bytes()).await.unwrap();
            let mut answer = [0; 64];
            let length = client.read(&mut answer).await.unwrap();
            let answer = std::str::from_utf8(&answer[..length]).unwrap();
            assert_eq!(answer, expected, "on {:?}", bench.module);
        };
        ask("SET a 1 PX 100", "+OK\r\n").await;
        ask("SET b 2 PX 100", "+OK\r\n").await;
        ask("PEXPIRE a 200", ":1\r\n").await;
        sleep(MS * 99).await;
        ask("GET b", "$1\r\n2\r\n").await;
        sleep(MS * 50).await;
        ask("GET b", "$-1\r\n").await;
        ask("GET a", "$1\r\n1\r\n").await;
        sleep(MS * 100).await;
        ask("DBSIZE", ":0\r\n").await;
        bench.has_fired(2);
    });
}

#[test]
fn a_segment_is_repeated_until_it_is_acknowledged() {
    on_both(async |bench| {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(socket.local_addr().unwrap()).await.unwrap();
        let audit = Arc::clone(&bench.audit);
        let server = match bench.module {
            Module::Tokio => {
                use on_tokio::protocols::{Servers, datagrams};
                tokio::spawn(datagrams::serve(Servers::start(IDLE, audit).server(), socket))
            }
            Module::Tourbillon => {
                use on_tourbillon::protocols::{Servers, datagrams};
                tokio::spawn(datagrams::serve(Servers::start(IDLE, audit).server(), socket))
            }
        };
        let mut buffer = [0; LENGTH];
        let acknowledge = async |segment| {
            let datagram = Datagram { flow: 7, segment, timeout: 0 };
            client.send(&datagram.bytes()).await.unwrap();
        };
        let mut receive = async || {
            client.recv(&mut buffer).await.unwrap();
            Datagram::parse(&buffer).unwrap()
        };
        acknowledge(0).await;
        for repetition in 0..3 {
            let sent = Instant::now();
            let received = receive().await;
            assert_eq!((received.flow, received.segment), (7, 1));
            assert_eq!(received.timeout(), IDLE * 4 * (1 << repetition));
            let last = if repetition == 0 { Duration::ZERO } else { received.timeout() / 2 };
            bench.has_passed(sent, last);
        }
        bench.has_fired(2);
        acknowledge(1).await;
        assert_eq!(receive().await.segment, 2);
        // Its round trip is the first that is known, and short.
        acknowledge(2).await;
        assert_eq!(receive().await.timeout(), IDLE, "on {:?}", bench.module);
        bench.has_fired(2);
        server.abort();
    });
}
