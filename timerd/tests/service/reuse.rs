//! Connections to receivers, which are used again.

use super::bench::{Bench, until};
use super::calls::allowing;
use super::receiver::Receiver;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use timerd::Resolver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const EMPTY: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// A receiver that writes the bytes of its responses itself.
struct Raw {
    port: u16,
    /// The number of requests on each connection.
    requests: Arc<[AtomicUsize; 4]>,
    _serving: JoinSet<()>,
}

impl Raw {
    /// Starts a receiver. `reply` gets the numbers of the connection and of the request on it, and
    /// the connection ends after `None`.
    async fn start(
        address: (&str, u16),
        reply: impl Fn(usize, usize) -> Option<&'static str> + Copy + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<[AtomicUsize; 4]> = Arc::default();
        let (counts, mut serving) = (Arc::clone(&requests), JoinSet::new());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            for place in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let counts = Arc::clone(&counts);
                connections.spawn(async move {
                    let mut request = [0; 4096];
                    // Each request is so short that it comes at once.
                    while stream.read(&mut request).await.is_ok_and(|length| length > 0) {
                        let number = counts[place].fetch_add(1, Relaxed);
                        let Some(response) = reply(place, number) else { return };
                        stream.write_all(response.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Self { port, requests, _serving: serving }
    }

    fn requests(&self) -> [usize; 4] {
        [0, 1, 2, 3].map(|place| self.requests[place].load(Relaxed))
    }
}

/// Makes a call that must succeed at the first attempt.
async fn call(bench: &Bench, id: &str, url: &str) {
    bench.api.put(id, url, json!({ "after": "0s", "attempts": 1 })).await.json(201);
    until("the end of a timer", async || {
        (bench.api.get(&format!("/v1/timers/{id}")).await.status == 404).then_some(())
    })
    .await;
    bench.api.letters(0).await;
}

#[tokio::test]
async fn calls_share_connections() {
    const CALLS: usize = 20;
    let receiver = Receiver::with(&[]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    for number in 0..CALLS {
        call(&bench, &format!("{number}"), &receiver.url("/")).await;
    }
    assert_eq!(receiver.left(), CALLS);
    assert!(receiver.connections() < CALLS / 2, "{} connections", receiver.connections());
    bench.stop().await;
}

#[tokio::test]
async fn a_connection_that_ends_under_a_request_is_replaced() {
    let ends = |place, number| (place > 0 || number == 0).then_some(EMPTY);
    let receiver = Raw::start(("127.0.0.1", 0), ends).await;
    let bench = Bench::with(allowing(receiver.port)).await;
    for id in ["a", "b"] {
        call(&bench, id, &format!("http://127.0.0.1:{}/", receiver.port)).await;
    }
    assert_eq!(receiver.requests(), [2, 1, 0, 0]);
    bench.stop().await;
}

#[tokio::test]
async fn a_name_that_moves_is_called_at_its_new_address() {
    let old = Raw::start(("127.0.0.1", 0), |_, _| Some(EMPTY)).await;
    let new = Raw::start(("127.0.0.2", old.port), |_, _| Some(EMPTY)).await;
    let moved = Arc::new(AtomicUsize::new(1));
    let place = Arc::clone(&moved);
    let resolver: Resolver = Arc::new(move |_| {
        let address = IpAddr::from([127, 0, 0, u8::try_from(place.load(Relaxed)).unwrap()]);
        Box::pin(async move { Ok(vec![address]) })
    });
    let bench = Bench::with_resolver(allowing(old.port), resolver).await;
    let url = format!("http://name.example.org:{}/", old.port);
    call(&bench, "a", &url).await;
    moved.store(2, Relaxed);
    call(&bench, "b", &url).await;
    assert_eq!((old.requests(), new.requests()), ([1, 0, 0, 0], [1, 0, 0, 0]));
    bench.stop().await;
}

#[tokio::test]
async fn hosts_share_no_connections() {
    let receiver = Raw::start(("127.0.0.1", 0), |_, _| Some(EMPTY)).await;
    let resolver: Resolver =
        Arc::new(|_| Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) }));
    let bench = Bench::with_resolver(allowing(receiver.port), resolver).await;
    for host in ["one", "two"] {
        call(&bench, host, &format!("http://{host}.example.org:{}/", receiver.port)).await;
    }
    assert_eq!(receiver.requests(), [1, 1, 0, 0]);
    bench.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_end_is_not_awaited() {
    let endless = |_, _| Some("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\nbeginning");
    let receiver = Raw::start(("127.0.0.1", 0), endless).await;
    let bench = Bench::with(allowing(receiver.port)).await;
    for id in ["a", "b"] {
        call(&bench, id, &format!("http://127.0.0.1:{}/", receiver.port)).await;
    }
    assert_eq!(receiver.requests(), [1, 1, 0, 0]);
    bench.stop().await;
}
