//! Faults of this machine, which cost no attempts, and faults of receivers, which do.

use super::bench::{Api, Bench, Folder, until};
use super::calls::allowing;
use super::receiver::Receiver;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use timerd::{ResolveError, Resolver};
use tourbillon_durable::{DurableTimers, Options};

/// Returns a schedule with one attempt, which is due at once.
fn last_attempt() -> Value {
    json!({ "after": "0s", "attempts": 1 })
}

/// Waits until a timer was given back with an error, and checks that no attempt counts.
async fn given_back(api: &Api, id: &str, error: &str) {
    let timer = until("the return of a delivery", async || {
        let timer = api.get(&format!("/v1/timers/{id}")).await.json(200);
        (timer["error"].is_string() && timer["state"] == "resting").then_some(timer)
    })
    .await;
    assert_eq!((&timer["attempts"], &timer["error"]), (&json!(0), &json!(error)));
    api.letters(0).await;
}

/// Returns a resolver whose first `times` lookups fail with this error, and the number of its
/// lookups.
fn failing(error: ResolveError, times: usize) -> (Resolver, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let resolver: Resolver = Arc::new(move |_| {
        let is_failing = count.fetch_add(1, Relaxed) < times;
        let found = match is_failing {
            true => Err(error.clone()),
            false => Ok(vec![IpAddr::from([127, 0, 0, 1])]),
        };
        Box::pin(async move { found })
    });
    (resolver, asked)
}

#[tokio::test]
async fn a_resolver_that_is_away_costs_no_attempt() {
    let mut receiver = Receiver::with(&[]).await;
    let (resolver, asked) = failing(ResolveError::Away("no answer".to_owned()), 3);
    let bench = Bench::with_resolver(allowing(receiver.port()), resolver).await;
    let url = format!("http://name.example.org:{}/", receiver.port());
    bench.api.put("a", &url, last_attempt()).await.json(201);
    given_back(&bench.api, "a", "could not resolve name.example.org: no answer").await;
    receiver.next().await;
    assert_eq!(asked.load(Relaxed), 4);
    let figures = bench.api.get("/metrics").await.text;
    let count = figures.lines().find(|line| line.starts_with("timerd_calls_not_made_total{"));
    assert!(count.is_some(), "{figures}");
    bench.api.letters(0).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_resolver_that_does_not_answer_costs_no_attempt() {
    let resolver: Resolver = Arc::new(|_| Box::pin(std::future::pending()));
    let bench = Bench::with_resolver(allowing(80), resolver).await;
    let webhook = json!({ "url": "http://name.example.org/", "timeout": "50ms" });
    let timer = json!({ "webhook": webhook, "schedule": last_attempt() }).to_string();
    bench.api.send("PUT", "/v1/timers/a", &timer).await.json(201);
    let error = "could not resolve name.example.org: no answer within 50ms";
    given_back(&bench.api, "a", error).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_name_that_does_not_exist_costs_attempts() {
    let (resolver, asked) = failing(ResolveError::NoSuchName, 9);
    let bench = Bench::with_resolver(allowing(80), resolver).await;
    let schedule = json!({ "after": "0s", "attempts": 2, "backoff": "1ms..1ms" });
    bench.api.put("a", "http://name.example.org/", schedule).await.json(201);
    let dead = bench.api.letters(1).await.remove(0);
    assert_eq!(dead["error"], "there is no host name.example.org");
    assert_eq!((&dead["reason"], asked.load(Relaxed)), (&json!("attempts"), 2));
    bench.stop().await;
}

/// No connection to a broadcast address is possible.
#[tokio::test]
async fn a_network_without_a_route_costs_no_attempt() {
    let mut config = allowing(80);
    config.webhooks.allow.push("255.255.255.255/32".parse().unwrap());
    let bench = Bench::with(config).await;
    bench.api.put("a", "http://255.255.255.255/", last_attempt()).await.json(201);
    let error = "could not connect to 255.255.255.255: Network is unreachable (os error 101)";
    given_back(&bench.api, "a", error).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_receiver_that_refuses_connections_costs_attempts() {
    let port = Receiver::with(&[]).await.port();
    let bench = Bench::with(allowing(port)).await;
    bench.api.put("a", &format!("http://127.0.0.1:{port}/"), last_attempt()).await.json(201);
    let dead = bench.api.letters(1).await.remove(0);
    let error = dead["error"].as_str().unwrap();
    assert!(error.starts_with("could not connect to 127.0.0.1: "), "{error}");
    bench.stop().await;
}

/// A receiver that never responds holds a thousand deliveries, far longer than the test runs.
#[tokio::test]
async fn a_receiver_that_hangs_delays_no_other() {
    const HELD: usize = 1000;
    let (hanging, mut other) = (Receiver::start(|_| None).await, Receiver::with(&[]).await);
    let mut config = allowing(hanging.port());
    let ports = [hanging.port(), other.port()].map(|port| NonZeroU16::new(port).unwrap());
    config.webhooks.ports = ports.to_vec().try_into().unwrap();
    config.webhooks.concurrency = NonZeroUsize::new(16).unwrap();
    config.webhooks.timeout = Duration::from_secs(600);
    let bench = Bench::with(config).await;
    let api = &bench.api;
    let puts =
        (0..HELD).map(|number| {
            let (api, url) = (api.clone(), hanging.url("/"));
            async move {
                api.put(&format!("held{number}"), &url, json!({ "after": "0s" })).await.json(201)
            }
        });
    stream::iter(puts).buffer_unordered(64).collect::<Vec<_>>().await;
    until("the calls that hang", async || (hanging.left() == 4).then_some(())).await;
    for number in 0..20 {
        api.put(&format!("{number}"), &other.url("/"), json!({ "after": "0s" })).await.json(201);
    }
    for _ in 0..20 {
        other.next().await;
    }
    assert_eq!(hanging.left(), 4, "a quarter of the calls leads there");
    let stats = until("the others", async || {
        let stats = api.get("/v1/stats").await.json(200);
        (stats["timers"] == HELD).then_some(stats)
    })
    .await;
    assert_eq!(stats["dead_letters"], 0);
    // The calls end with their connections, and the service does not wait for them.
    drop(hanging);
    bench.stop().await;
}

/// The secret may come with the next configuration.
#[tokio::test]
async fn a_secret_that_the_configuration_has_lost_costs_no_attempt() {
    let receiver = Receiver::with(&[]).await;
    let folder = Folder::new();
    let store = folder.join("timers");
    let payload = json!({ "version": "1", "url": receiver.url("/"), "secret": "unknown" });
    let timers = DurableTimers::open(&store).unwrap();
    let once = Options::new().attempts(1);
    let inserted = timers.insert("a", payload.to_string(), Duration::ZERO, once).await;
    drop(timers);
    inserted.unwrap();
    let bench = Bench::at(store.to_str().unwrap(), allowing(receiver.port())).await;
    given_back(&bench.api, "a", "secret: the configuration has no secret \"unknown\"").await;
    assert_eq!(receiver.connections(), 0);
    bench.stop().await;
}
