//! Tokens, and the limits of requests.

use super::bench::{Bench, TOKEN, until};
use serde_json::json;
use timerd::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The hash of `sesame`.
const CONFIG: &str = r#"
    [[token]]
    name = "deploy"
    sha256 = "d0c04f4b1951e4aeaaec8223ed2039e542f3aae805a6fa7f6d794e5afff5d272"

    [limits]
    body_bytes = 1000
    requests_per_second = 1
    burst = 3
"#;

#[tokio::test]
async fn only_tokens_that_are_known_pass() {
    let bench = Bench::with(toml::from_str(CONFIG).unwrap()).await;
    for (token, status) in [("sesame", 200), ("Sesame", 401), ("sesam", 401), ("", 401)] {
        let reply = bench.api.with_token(token).get("/v1/timers").await;
        assert_eq!(reply.status, status, "{token:?}");
        assert_eq!(reply.headers.contains_key("www-authenticate"), status == 401);
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_token_has_a_rate_of_its_own() {
    let bench = Bench::with(toml::from_str(CONFIG).unwrap()).await;
    let statuses = async |token| {
        let api = bench.api.with_token(token);
        let mut statuses = Vec::new();
        for _ in 0..6 {
            let reply = api.get("/v1/timers/a").await;
            assert_eq!(reply.headers.contains_key("retry-after"), reply.status == 429);
            statuses.push(reply.status.as_u16());
        }
        statuses
    };
    // A second may pass in between.
    let of_guesses = statuses("a guess").await;
    assert_eq!(of_guesses[..3], [401; 3]);
    assert!(of_guesses.contains(&429), "{of_guesses:?}");
    let of_the_token = statuses("sesame").await;
    assert_eq!(of_the_token[..3], [404; 3], "guesses take nothing from it");
    assert!(of_the_token.contains(&429), "{of_the_token:?}");
    assert_eq!(bench.api.get("/healthz").await.status, 200);
    bench.stop().await;
}

#[tokio::test]
async fn methods_that_no_route_has_share_a_figure() {
    let bench = Bench::start().await;
    for method in ["BREW", "WHEN"] {
        let reply = bench.api.with_token("a guess").send(method, "/v1/timers", "").await;
        assert_eq!(reply.status, 401);
    }
    let figures = bench.api.get("/metrics").await.text;
    let unknown = "timerd_requests_total{method=\"other\",path=\"/v1/timers\",status=\"401\"}";
    assert!(figures.contains(unknown), "{figures}");
    assert!(!figures.contains("BREW") && !figures.contains("WHEN"), "{figures}");
    bench.stop().await;
}

#[tokio::test]
async fn long_bodies_are_refused() {
    let bench = Bench::with(toml::from_str(CONFIG).unwrap()).await;
    let put = async |id, length| {
        let webhook = json!({ "url": "https://example.org/", "body": "x".repeat(length) });
        let timer = json!({ "webhook": webhook, "schedule": { "after": "1d" } }).to_string();
        bench.api.send("PUT", &format!("/v1/timers/{id}"), &timer).await
    };
    put("a", 800).await.json(201);
    put("b", 1000).await.problem(413);
    bench.stop().await;
}

/// Begins a request whose body does not come.
async fn begin(bench: &Bench, first: &str, kind: &str) -> TcpStream {
    let mut stream = TcpStream::connect(bench.service.address()).await.unwrap();
    let head = format!(
        "{first} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: {kind}\r\ncontent-length: 100\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_awaited() {
    let bench = Bench::with(toml::from_str("limits.timeout = \"100ms\"").unwrap()).await;
    for (first, kind) in [
        ("PUT /v1/timers/a", "application/json"),
        ("POST /login", "application/x-www-form-urlencoded"),
    ] {
        let mut stream = begin(&bench, first, kind).await;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 408", "{first}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn requests_of_the_page_and_the_api_share_a_limit() {
    let bench = Bench::with(toml::from_str("limits.concurrent_requests = 1").unwrap()).await;
    for (first, kind) in [
        ("PUT /v1/timers/a", "application/json"),
        ("POST /login", "application/x-www-form-urlencoded"),
    ] {
        let stream = begin(&bench, first, kind).await;
        for path in ["/", "/v1/timers"] {
            let reply = until("the limit", async || {
                let reply = bench.api.get(path).await;
                (reply.status == 503).then_some(reply)
            })
            .await;
            assert_eq!(reply.problem(503), "too many concurrent requests", "{first}, {path}");
        }
        assert_eq!(bench.api.get("/healthz").await.status, 200);
        drop(stream);
        for path in ["/", "/v1/timers"] {
            until("the end", async || (bench.api.get(path).await.status == 200).then_some(()))
                .await;
        }
    }
    bench.stop().await;
}

#[test]
fn a_configuration_that_is_misspelt_is_refused() {
    let wrong = toml::from_str::<Config>("[limits]\nbody_byte = 3");
    assert!(wrong.unwrap_err().to_string().contains("body_byte"));
    assert!(toml::from_str::<Config>("[limits]\nburst = 0").is_err());
}

#[test]
fn the_configuration_in_the_readme_is_one() {
    let readme = include_str!("../../README.md");
    let toml = readme.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config: Config = toml::from_str(toml).unwrap();
    assert_eq!(config.webhooks.ports, [80, 443]);
}
