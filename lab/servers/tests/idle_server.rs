//! The echo server `idle_server` in this process, with each kind of timers. The tests check which
//! connections it closes and when, and that no end of a connection leaves a timer behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real sockets are on real time")]

#[path = "../src/bin/idle_server/options.rs"]
mod options;
#[path = "../src/bin/idle_server/server/mod.rs"]
mod server;

use clap::Parser;
use options::Options;
use server::{Config, Figures, Kind, Server, Sweeping};
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

/// A timeout that passes in no test.
const NEVER: Duration = Duration::from_secs(600);

/// The time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn echo(read: &[u8], answer: &mut Vec<u8>) {
    answer.extend_from_slice(read);
}

/// Runs a test on servers with each kind of timers.
fn on_each(idle: Duration, test: impl Fn(&Config)) {
    for kind in [Kind::Tourbillon, Kind::Heap] {
        for sweeping in [Sweeping::Own, Sweeping::Shared] {
            let listen = "127.0.0.1:0".parse().unwrap();
            let resolution = Duration::from_millis(1);
            test(&Config { listen, idle, loops: 2, kind, sweeping, resolution });
        }
    }
}

/// Runs a test on echo servers, which have no connection left when they are stopped.
fn on_each_echo(idle: Duration, test: impl Fn(&Server)) {
    on_each(idle, |config| {
        let server = Server::start(config, echo).unwrap();
        test(&server);
        let figures = server.stop().unwrap();
        assert_eq!((figures.live, figures.armed), (0, 0), "{config:?}");
    });
}

fn connect(server: &Server) -> TcpStream {
    let client = TcpStream::connect(server.address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// Sends bytes and reads the same.
fn exchange(client: &mut TcpStream, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    let mut answer = vec![0; bytes.len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, bytes);
}

/// Returns `true` if the server has closed the connection cleanly.
fn is_at_end(client: &mut TcpStream) -> bool {
    client.read(&mut [0]).unwrap() == 0
}

/// Waits until this number of connections are open, each with its timer.
fn settles_at(server: &Server, connections: u64) -> Figures {
    let start = Instant::now();
    loop {
        let figures = server.figures();
        if (figures.live, figures.armed) == (connections, connections) {
            return figures;
        }
        assert!(start.elapsed() < PATIENCE, "not {connections}: {figures:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_idle_client_is_closed_and_not_early() {
    let idle = Duration::from_millis(50);
    on_each_echo(idle, |server| {
        let mut clients = Vec::new();
        for number in 0..40 {
            let (before, mut client) = (Instant::now(), connect(server));
            let before = if number % 4 == 0 {
                before // it never sends
            } else {
                let before = Instant::now();
                client.write_all(b"once").unwrap();
                before
            };
            clients.push((client, before));
        }
        for (mut client, before) in clients {
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert!(before.elapsed() >= idle, "closed after {:?}", before.elapsed());
            assert!(answer.is_empty() || answer == b"once");
        }
        assert_eq!(settles_at(server, 0).closed_idle, 40);
    });
}

#[test]
fn an_active_client_is_not_closed() {
    let idle = Duration::from_millis(250);
    on_each_echo(idle, |server| {
        while !stays_open(server, idle) {
            // This thread was held up for so long that its client was rightly closed.
        }
    });
}

/// Returns `true` if a client that sends regularly stayed open for several idle timeouts.
fn stays_open(server: &Server, idle: Duration) -> bool {
    let (start, mut client) = (Instant::now(), connect(server));
    while start.elapsed() < idle * 4 {
        let (before, mut answer) = (Instant::now(), [0]);
        thread::sleep(idle / 10);
        if client.write_all(b"x").is_err() || !matches!(client.read(&mut answer), Ok(1)) {
            assert!(before.elapsed() >= idle, "closed after {:?}", before.elapsed());
            return false;
        }
    }
    true
}

#[test]
fn a_client_that_resets_leaves_no_timer() {
    on_each_echo(NEVER, |server| {
        let mut stays = connect(server);
        for number in 0..20 {
            let mut client = connect(server);
            exchange(&mut client, b"one whole request");
            if number % 2 == 0 {
                client.write_all(b"and a part of").unwrap();
            }
            SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        }
        settles_at(server, 1);
        exchange(&mut stays, b"still here");
    });
}

#[test]
fn a_client_that_never_reads_is_closed_when_it_is_idle() {
    on_each_echo(Duration::from_millis(100), |server| {
        let mut client = connect(server);
        fill(&mut client);
        assert_eq!(settles_at(server, 0).closed_idle, 1);
    });
}

#[test]
fn a_client_that_reads_late_gets_every_byte() {
    const MORE_THAN_FITS: usize = 6 << 20;
    on_each(NEVER, |config| {
        let server = Server::start(config, |read, answer| {
            answer.extend(bytes(0..MORE_THAN_FITS + 40_000 * usize::from(read[0])));
        })
        .unwrap();
        let mut clients: Vec<_> = (0..3).map(|_| connect(&server)).collect();
        for (number, client) in (0..).zip(&mut clients) {
            SockRef::from(&*client).set_recv_buffer_size(1 << 15).unwrap();
            client.write_all(&[number]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let (mut read, all) = (Vec::new(), MORE_THAN_FITS + 40_000 * number);
            client.read_to_end(&mut read).unwrap();
            assert!(read == bytes(0..all), "of {all} bytes {} came, or others", read.len());
        }
        settles_at(&server, 0);
    });
}

/// Fills all buffers to the server and back, and returns the number of bytes sent.
fn fill(client: &mut TcpStream) -> usize {
    const FAR_MORE_THAN_FITS: usize = 1 << 30;
    client.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut sent = 0;
    while let Ok(length) = client.write(&bytes(sent..sent + (1 << 16))) {
        sent += length;
        assert!(sent < FAR_MORE_THAN_FITS, "the server reads and reads");
    }
    sent
}

/// The bytes that a client sends at these places of its stream.
fn bytes(places: Range<usize>) -> Vec<u8> {
    places.map(|place| (place % 251).to_le_bytes()[0]).collect()
}

#[test]
fn a_client_that_ends_gets_its_answers_and_leaves_no_timer() {
    on_each_echo(NEVER, |server| {
        let mut client = connect(server);
        exchange(&mut client, b"first");
        client.write_all(b"last").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"last");
        settles_at(server, 0);
    });
}

#[test]
fn a_handler_that_panics_closes_its_connection_alone() {
    on_each(NEVER, |config| {
        let server = Server::start(config, |read, answer| {
            assert!(!read.starts_with(b"panic"), "as the test wants");
            echo(read, answer);
        })
        .unwrap();
        let mut others = [connect(&server), connect(&server), connect(&server)];
        for round in 1..=3 {
            let mut client = connect(&server);
            exchange(&mut client, b"at first");
            client.write_all(b"panic").unwrap();
            assert!(is_at_end(&mut client));
            assert_eq!(settles_at(&server, 3).panicked, round);
            for other in &mut others {
                exchange(other, b"still here");
            }
        }
        assert_eq!(server.stop().unwrap().armed, 0);
    });
}

#[test]
fn a_stop_closes_all_connections() {
    on_each(NEVER, |config| {
        let server = Server::start(config, echo).unwrap();
        let mut clients: Vec<_> = (0..30).map(|_| connect(&server)).collect();
        for client in &mut clients {
            exchange(client, b"hello");
        }
        settles_at(&server, 30);
        let figures = server.stop().unwrap();
        assert_eq!((figures.accepted, figures.live, figures.armed), (30, 0, 0));
        assert!(clients.iter_mut().all(is_at_end));
    });
}

#[test]
fn a_port_in_use_is_named() {
    on_each_echo(NEVER, |server| {
        on_each(NEVER, |config| {
            let config = Config { listen: server.address(), ..config.clone() };
            let error = Server::start(&config, echo).err().unwrap().to_string();
            let start = format!("cannot listen on {}: ", server.address());
            assert!(error.starts_with(&start), "{error}");
        });
    });
}

#[test]
fn an_idle_timeout_beyond_the_wheel_is_refused() {
    on_each(Duration::from_secs(86_400 * 300), |config| {
        let config = Config { resolution: Duration::from_micros(1), ..config.clone() };
        let refused = Server::start(&config, echo).err().map(|error| error.to_string());
        let told = refused.is_some_and(|error| error.contains("can be waited"));
        assert_eq!(told, config.kind == Kind::Tourbillon, "only the wheel has a range");
    });
}

#[test]
fn wrong_options_are_told() {
    for (wrong, told) in [
        (&["--idle", "0s"][..], "1ms to 1year is allowed"),
        (&["--idle", "soon"], "--idle"),
        (&["--listen", "127.0.0.1"], "--listen"),
        (&["--workers", "0"], "--workers"),
        (&["--timers", "sundial"], "tourbillon, heap"),
        (&["--sweeper", "nobody"], "own, shared"),
        (&["--sweepers", "own"], "--sweeper"),
    ] {
        let error = Options::try_parse_from([&["idle_server"], wrong].concat()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(told), "{error}");
    }
    let config = Options::parse_from(["idle_server", "--workers", "3"]).config();
    assert_eq!((config.loops, config.kind), (3, Kind::Tourbillon));
}
