//! Connections to receivers, which are reused.

use super::bench::{Bench, Folder, until};
use super::calls::{acceptor, allowing};
use super::certificates::Authority;
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
                    // Each request is short enough to arrive at once.
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

/// The receiver has seen the request, so the request cannot be repeated at once.
#[tokio::test]
async fn a_request_that_was_answered_by_garbage_is_not_repeated_at_once() {
    for garbage in ["garbage\r\n\r\n", "HTTP/1.1 20"] {
        let reply = move |place, number| match (place, number) {
            (0, 0) => Some(EMPTY),
            (0, 1) => Some(garbage),
            (0, _) => None,
            _ => Some(EMPTY),
        };
        let receiver = Raw::start(("127.0.0.1", 0), reply).await;
        let bench = Bench::with(allowing(receiver.port)).await;
        let url = format!("http://127.0.0.1:{}/", receiver.port);
        call(&bench, "a", &url).await;
        let webhook = json!({ "url": url, "timeout": "1s" });
        let timer = json!({ "webhook": webhook, "schedule": { "after": "0s", "attempts": 1 } });
        bench.api.send("PUT", "/v1/timers/b", &timer.to_string()).await.json(201);
        bench.api.letters(1).await;
        assert_eq!(receiver.requests(), [2, 0, 0, 0], "{garbage}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_response_may_have_many_headers() {
    const MANY: &str = "x: yyyyyyyy\r\n";
    let response: &str =
        Box::leak(format!("HTTP/1.1 204 No Content\r\n{}\r\n", MANY.repeat(300)).into_boxed_str());
    let receiver = Raw::start(("127.0.0.1", 0), move |_, _| Some(response)).await;
    let bench = Bench::with(allowing(receiver.port)).await;
    call(&bench, "a", &format!("http://127.0.0.1:{}/", receiver.port)).await;
    bench.stop().await;
}

/// Three addresses accept connections and never answer. A receiver is at the fourth.
#[tokio::test]
async fn an_address_that_hangs_delays_no_other_address_of_its_name() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.4:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut hanging = Vec::new();
    for last in 1..4 {
        hanging.push(
            TcpListener::bind(("127.0.0.".to_owned() + &last.to_string(), port)).await.unwrap(),
        );
    }
    let acceptor = acceptor(&authority.sign_for("name.example.org"));
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        stream.write_all(EMPTY.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let resolver: Resolver = Arc::new(|_| {
        Box::pin(async { Ok((1..5).map(|last| IpAddr::from([127, 0, 0, last])).collect()) })
    });
    let mut config = allowing(port);
    let folder = Folder::new();
    let file = folder.join("authority.pem");
    std::fs::write(&file, &authority.certificate).unwrap();
    config.webhooks.authority = Some(file);
    let bench = Bench::with_resolver(config, resolver).await;
    call(&bench, "a", &format!("https://name.example.org:{port}/")).await;
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

/// A response that is never complete holds its connection for a second after the call.
#[tokio::test]
async fn few_connections_wait_for_the_ends_of_responses() {
    const CALLS: usize = 300;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let calls = Arc::new(AtomicUsize::new(0));
    let counts = [&open, &most, &calls].map(Arc::clone);
    let receiver = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let [open, most, calls] = counts.clone();
            tokio::spawn(async move {
                most.fetch_max(open.fetch_add(1, Relaxed) + 1, Relaxed);
                let mut read = [0; 4096];
                while stream.read(&mut read).await.is_ok_and(|length| length > 0) {
                    calls.fetch_add(1, Relaxed);
                    let endless = b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\nbeginning";
                    let _ = stream.write_all(endless).await;
                }
                open.fetch_sub(1, Relaxed);
            });
        }
    });
    let bench = Bench::with(allowing(port)).await;
    for id in 0..CALLS {
        let url = format!("http://127.0.0.1:{port}/");
        bench.api.put(&id.to_string(), &url, json!({ "after": "3s" })).await.json(201);
    }
    until("the calls", async || (calls.load(Relaxed) >= CALLS).then_some(())).await;
    // A quarter of 128 concurrent calls, and the connections whose responses are read.
    assert!((1..=32 + 64).contains(&most.load(Relaxed)), "{most:?} at once");
    bench.stop().await;
    receiver.abort();
}

#[tokio::test]
async fn a_refusal_whose_body_does_not_end_is_still_that_refusal() {
    let endless = |_, _| Some("HTTP/1.1 422 No\r\ncontent-length: 9999\r\n\r\nno such customer");
    let receiver = Raw::start(("127.0.0.1", 0), endless).await;
    let bench = Bench::with(allowing(receiver.port)).await;
    let url = format!("http://127.0.0.1:{}/", receiver.port);
    // The body would be awaited for longer than the call may take.
    let webhook = json!({ "url": url, "timeout": "500ms" });
    let timer = json!({ "webhook": webhook, "schedule": { "after": "0s" } }).to_string();
    bench.api.send("PUT", "/v1/timers/a", &timer).await.json(201);
    let letter = bench.api.letters(1).await.remove(0);
    let error = letter["error"].as_str().unwrap();
    assert!(error.ends_with("422 Unprocessable Entity: no such customer"), "{error}");
    bench.stop().await;
}
