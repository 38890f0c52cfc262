//! Requests to internal addresses, which are not made.

use super::bench::{Bench, Folder, arguments};
use super::calls::allowing;
use super::receiver::Receiver;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use timerd::{Config, Resolver};

/// Addresses that reach a receiver on this machine, and other internal addresses.
const INTERNAL: [&str; 8] = [
    "127.0.0.1",
    "::ffff:127.0.0.1",
    "::1",
    "127.8.9.1",
    "0.0.0.0",
    "::",
    "169.254.169.254",
    "64:ff9b::7f00:1",
];

/// Returns a resolver that takes the addresses in turn, and the number of its calls.
fn by_turns() -> (Resolver, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let resolver: Resolver = Arc::new(move |_| {
        let turn = count.fetch_add(1, Relaxed);
        let addresses: Vec<IpAddr> =
            (0..=turn % 3).map(|more| INTERNAL[(turn + more) % 8].parse().unwrap()).collect();
        Box::pin(async move { Ok(addresses) })
    });
    (resolver, calls)
}

#[tokio::test]
async fn names_that_resolve_to_internal_addresses_are_not_called() {
    let receiver = Receiver::with(&[]).await;
    let mut config = allowing(receiver.port());
    config.webhooks.allow.clear();
    let (resolver, calls) = by_turns();
    let bench = Bench::with_resolver(config, resolver).await;
    for number in 0..100 {
        let url = format!("http://name{number}.example.org:{}/", receiver.port());
        let schedule = json!({ "after": "0s", "attempts": 2, "backoff": "1ms..1ms" });
        bench.api.put(&format!("{number}"), &url, schedule).await.json(201);
    }
    let letters = bench.api.letters(100).await;
    for letter in letters {
        let error = letter["error"].as_str().unwrap();
        assert!(error.contains("has no address that is global or allowed"), "{error}");
        assert_eq!(letter["reason"], "failed", "no attempt can succeed");
    }
    assert_eq!(calls.load(Relaxed), 100, "each attempt resolves");
    assert_eq!(receiver.connections(), 0);
    bench.stop().await;
}

#[tokio::test]
async fn the_same_names_are_called_where_this_is_allowed() {
    let mut receiver = Receiver::with(&[]).await;
    let (resolver, _) = by_turns();
    let bench = Bench::with_resolver(allowing(receiver.port()), resolver).await;
    let url = format!("http://name.example.org:{}/", receiver.port());
    bench.api.put("a", &url, json!({ "after": "0s" })).await.json(201);
    receiver.next().await;
    assert!(receiver.connections() > 0);
    bench.stop().await;
}

#[tokio::test]
async fn literals_and_ports_are_refused_at_once() {
    let receiver = Receiver::with(&[]).await;
    let mut config = allowing(receiver.port());
    config.webhooks.allow.clear();
    let bench = Bench::with(config).await;
    let port = receiver.port();
    for host in [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a00:1]",
        "0.0.0.0",
        "10.1.2.3",
        // Other spellings of an address, and names that are always internal.
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost",
        "LOCALHOST.",
        "web.localhost",
    ] {
        let url = format!("http://{host}:{port}/");
        let problem = bench.api.put("a", &url, json!({ "after": "0s" })).await.problem(400);
        assert!(problem.ends_with("or one port of it with --allow)"), "{problem}");
    }
    let url = "https://example.org:22/";
    let problem = bench.api.put("a", url, json!({ "after": "0s" })).await.problem(400);
    assert!(problem.starts_with("url: port 22 is not allowed (allow it with "), "{problem}");
    assert_eq!(receiver.connections(), 0);
    bench.stop().await;
}

#[tokio::test]
async fn other_spellings_are_called_where_this_is_allowed() {
    let mut receiver = Receiver::with(&[]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    for host in ["127.1", "0x7f000001", "localhost", "[::ffff:127.0.0.1]"] {
        let url = format!("http://{host}:{}?x=1", receiver.port());
        bench.api.put("a", &url, json!({ "after": "0s", "existing": "keep" })).await;
        assert_eq!(receiver.next().await.path, "/?x=1", "{host}");
        bench.api.letters(0).await;
    }
    bench.stop().await;
}

#[tokio::test]
async fn an_argument_allows_one_port_of_an_address() {
    let mut receiver = Receiver::with(&[]).await;
    let port = receiver.port();
    let folder = Folder::new();
    let mut arguments = arguments(folder.join("timers").to_str().unwrap());
    arguments.allow = vec![format!("[::ffff:127.0.0.1]:{port}").parse().unwrap()];
    // A name of a global address, and one of another internal address.
    let resolver: Resolver = Arc::new(|host| {
        let address = if host == "global.example.org" { "1.1.1.1" } else { "127.0.0.2" };
        Box::pin(async move { Ok(vec![address.parse().unwrap()]) })
    });
    let bench = Bench::of(arguments, Config::default(), resolver, folder).await;
    for (id, host) in [("a", "127.0.0.1"), ("b", "[::ffff:127.0.0.1]")] {
        let url = format!("http://{host}:{port}/{id}");
        bench.api.put(id, &url, json!({ "after": "0s" })).await.json(201);
        assert_eq!(receiver.next().await.path, format!("/{id}"));
    }
    for (host, port) in [("127.0.0.1", 80), ("127.0.0.2", port), ("1.1.1.1", port), ("[::1]", port)]
    {
        let url = format!("http://{host}:{port}/");
        bench.api.put("c", &url, json!({ "after": "0s" })).await.problem(400);
    }
    for host in ["global", "internal"] {
        let url = format!("http://{host}.example.org:{port}/");
        bench.api.put(host, &url, json!({ "after": "0s" })).await.json(201);
    }
    for letter in bench.api.letters(2).await {
        let error = letter["error"].as_str().unwrap();
        assert!(error.contains(&format!("port {port} is not allowed")), "{error}");
    }
    bench.stop().await;
}
