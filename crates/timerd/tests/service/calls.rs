//! Calls of webhooks, as their receivers get them.

#![allow(clippy::disallowed_methods, reason = "a wait that a receiver asks for is measured")]

use super::bench::{Api, Bench, Folder, Reply, until};
use super::certificates::{Authority, Signed};
use super::receiver::{Receiver, status};
use axum::response::IntoResponse;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use timerd::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tourbillon_durable::{DurableTimers, Options};

pub(crate) const SECRET: &str = "whsec_Tm90IGEgc2VjcmV0LCBidXQgdGhhdCBvZiBhIHRlc3Q=";

/// Returns a configuration that allows calls to a port of this machine.
pub(crate) fn allowing(port: u16) -> Config {
    let text = format!(
        "[webhooks]\nallow = [\"127.0.0.0/8\"]\nports = [{port}]\n[secrets]\ndefault = \"{SECRET}\""
    );
    toml::from_str(&text).unwrap()
}

/// Returns the TLS acceptor of a receiver with this certificate.
pub(crate) fn acceptor(signed: &Signed) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(signed.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn put(api: &Api, id: &str, webhook: Value, schedule: Value) -> Reply {
    let timer = json!({ "webhook": webhook, "schedule": schedule }).to_string();
    api.send("PUT", &format!("/v1/timers/{id}"), &timer).await
}

/// Waits until a timer is gone, that is, acknowledged.
async fn gone(api: &Api, id: &str) {
    until("the end of a timer", async || {
        (api.get(&format!("/v1/timers/{id}")).await.status == 404).then_some(())
    })
    .await;
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

#[tokio::test]
async fn each_attempt_is_signed_and_has_the_same_key() {
    let mut receiver = Receiver::start(|number| {
        Some(match number {
            0 => status(500),
            1 => (StatusCode::FOUND, [("location", "/elsewhere")]).into_response(),
            _ => status(200),
        })
    })
    .await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let webhook = json!({
        "url": receiver.url("/hook?a=b"), "method": "PUT", "body": "{\"a\":\"ü\"}",
        "headers": { "content-type": "application/json", "x-tenant": "blue" },
    });
    let schedule = json!({ "at": "2020-01-01T00:00:00.5Z", "backoff": "10ms..10ms" });
    put(&bench.api, "order.%207", webhook, schedule).await.json(201);
    let reference = standardwebhooks::Webhook::new(SECRET).unwrap();
    let mut keys = BTreeSet::new();
    for attempt in ["1", "2", "3"] {
        let seen = receiver.next().await;
        assert_eq!(text(&seen.headers, "webhook-attempt"), attempt);
        assert_eq!((&*seen.method, &*seen.path), ("PUT", "/hook?a=b"));
        assert_eq!(seen.body, "{\"a\":\"ü\"}");
        assert_eq!(text(&seen.headers, "x-tenant"), "blue");
        assert_eq!(text(&seen.headers, "content-type"), "application/json");
        assert_eq!(text(&seen.headers, "host"), format!("127.0.0.1:{}", receiver.port()));
        let key = text(&seen.headers, "idempotency-key");
        assert!(key.starts_with("1577836800500:order%2E%207:"), "{key}");
        assert_eq!(text(&seen.headers, "webhook-id"), key);
        keys.insert(key.to_owned());
        reference.verify(seen.body.as_bytes(), &seen.headers).unwrap();
    }
    gone(&bench.api, "order.%207").await;
    assert_eq!(keys.len(), 1);
    assert_eq!(receiver.left(), 0, "the redirect was not followed");
    bench.stop().await;
}

#[tokio::test]
async fn a_busy_receiver_is_called_again_when_it_asks_for_it() {
    let mut receiver = Receiver::start(|number| {
        let mut response = status(if number == 0 { 429 } else { 200 });
        response.headers_mut().insert("retry-after", "2".parse().unwrap());
        Some(response)
    })
    .await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let schedule = json!({ "after": "0s", "attempts": 1 });
    put(&bench.api, "a", json!({ "url": receiver.url("/") }), schedule).await.json(201);
    receiver.next().await;
    let begun = Instant::now();
    let timer = until("the verdict", async || {
        let timer = bench.api.get("/v1/timers/a").await.json(200);
        (timer["state"] == "resting").then_some(timer)
    })
    .await;
    assert_eq!(timer["attempts"], 0, "the attempt does not count");
    receiver.next().await;
    let waited = begun.elapsed();
    assert!(waited > Duration::from_millis(1900), "again after {waited:?}");
    gone(&bench.api, "a").await;
    bench.stop().await;
}

#[tokio::test]
async fn a_refusal_is_final_until_it_is_redriven() {
    let mut receiver = Receiver::with(&[410]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let webhook = json!({ "url": receiver.url("/") });
    put(&bench.api, "a", webhook, json!({ "after": "0s" })).await.json(201);
    let key = text(&receiver.next().await.headers, "idempotency-key").to_owned();
    let dead = bench.api.letters(1).await.remove(0);
    assert_eq!((&dead["reason"], &dead["attempts"]), (&json!("failed"), &json!(1)));
    assert_eq!(dead["error"], "the receiver responded with 410 Gone");
    let number = &dead["number"];
    let shown = bench.api.get(&format!("/v1/dead-letters/{number}")).await.json(200);
    assert_eq!([&shown["number"], &shown["id"]], [number, &dead["id"]]);
    bench.api.post(&format!("/v1/dead-letters/{number}/redrive")).await.json(200);
    assert_eq!(text(&receiver.next().await.headers, "idempotency-key"), key);
    gone(&bench.api, "a").await;
    bench.api.post(&format!("/v1/dead-letters/{number}/redrive")).await.problem(404);
    bench.stop().await;
}

#[tokio::test]
async fn dead_letters_are_redriven_in_bulk_and_under_other_ids() {
    let mut receiver = Receiver::with(&[400, 400, 400]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let api = &bench.api;
    for id in ["a", "b", "c"] {
        let webhook = json!({ "url": receiver.url("/") });
        put(api, id, webhook, json!({ "after": "0s" })).await.json(201);
        receiver.next().await;
    }
    let letters = api.letters(3).await;
    let (number, id) = (&letters[0]["number"], letters[0]["id"].as_str().unwrap());
    put(api, id, json!({ "url": receiver.url("/") }), json!({ "after": "1d" })).await.json(201);
    api.post(&format!("/v1/dead-letters/{number}/redrive")).await.problem(409);
    let bulk = api.post("/v1/dead-letters/redrive?limit=2").await.json(200);
    assert_eq!((&bulk["redriven"], &bulk["existing"]), (&json!(1), &json!(1)));
    receiver.next().await;
    api.post(&format!("/v1/dead-letters/{number}/redrive?as=again")).await.json(200);
    assert!(text(&receiver.next().await.headers, "webhook-id").contains(":again:"));
    let last = &letters[2]["number"];
    api.send("DELETE", &format!("/v1/dead-letters/{last}"), "").await.json(200);
    api.send("DELETE", &format!("/v1/dead-letters/{last}"), "").await.problem(404);
    bench.stop().await;
}

#[tokio::test]
async fn dead_letters_have_bounds_and_can_be_trimmed() {
    let mut receiver = Receiver::start(|_| Some(status(400))).await;
    let mut config = allowing(receiver.port());
    config.dead_letters.most = 3;
    let bench = Bench::with(config).await;
    let api = &bench.api;
    for id in ["0", "1", "2", "3", "4"] {
        api.put(id, &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
        receiver.next().await;
        until("a dead letter", async || {
            let letters = api.get("/v1/dead-letters").await.json(200)["dead_letters"].take();
            letters.as_array().unwrap().last().is_some_and(|last| last["id"] == id).then_some(())
        })
        .await;
    }
    let letters = api.letters(3).await;
    assert_eq!(letters.iter().map(|letter| &letter["id"]).collect::<Vec<_>>(), ["2", "3", "4"]);
    for path in ["", "?age=soon", "?most=-1", "?least=1"] {
        api.send("DELETE", &format!("/v1/dead-letters{path}"), "").await.problem(400);
    }
    let deleted = async |path: &str| {
        let reply = api.send("DELETE", &format!("/v1/dead-letters{path}"), "").await;
        reply.json(200)["deleted"].take()
    };
    assert_eq!(deleted("?age=1h").await, 0);
    assert_eq!(deleted("?most=1").await, 2);
    assert_eq!(api.letters(1).await[0]["id"], "4");
    assert_eq!(deleted("?most=0").await, 1);
    api.letters(0).await;
    bench.stop().await;
}

/// Both deliveries are for the same id and time.
#[tokio::test]
async fn a_timer_that_is_inserted_again_has_another_key() {
    let mut receiver = Receiver::with(&[200, 410]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let mut keys = BTreeSet::new();
    for body in ["first", "second"] {
        let webhook = json!({ "url": receiver.url("/"), "body": body });
        let schedule = json!({ "at": "2020-01-01T00:00:00Z" });
        until("the end of the former timer", async || {
            let put = put(&bench.api, "again", webhook.clone(), schedule.clone()).await;
            (put.status == 201).then_some(())
        })
        .await;
        let seen = receiver.next().await;
        assert_eq!(seen.body, body);
        keys.insert(text(&seen.headers, "idempotency-key").to_owned());
    }
    assert_eq!(keys.len(), 2, "{keys:?}");
    let number = bench.api.letters(1).await[0]["number"].take();
    bench.api.post(&format!("/v1/dead-letters/{number}/redrive")).await.json(200);
    keys.insert(text(&receiver.next().await.headers, "idempotency-key").to_owned());
    assert_eq!(keys.len(), 2, "a letter that is redriven keeps its key");
    bench.stop().await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_ends_a_repetition() {
    let mut receiver = Receiver::with(&[200, 410]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let schedule = json!({ "every": "1s" });
    put(&bench.api, "a", json!({ "url": receiver.url("/") }), schedule).await.json(201);
    receiver.next().await;
    receiver.next().await;
    bench.api.letters(1).await;
    bench.api.get("/v1/timers/a").await.problem(404);
    bench.stop().await;
}

#[tokio::test]
async fn final_statuses_and_attempts_are_settings() {
    let mut receiver = Receiver::with(&[404, 404, 400, 503]).await;
    let mut config = allowing(receiver.port());
    let text = "webhooks = { attempts = 2, backoff = \"1ms..1ms\", final_statuses = [503] }";
    let settings: Config = toml::from_str(text).unwrap();
    config.webhooks.attempts = settings.webhooks.attempts;
    config.webhooks.backoff = settings.webhooks.backoff;
    config.webhooks.final_statuses = settings.webhooks.final_statuses;
    let bench = Bench::with(config).await;
    for (count, (id, attempts, reason)) in
        [("a", 2, "attempts"), ("b", 2, "failed")].into_iter().enumerate()
    {
        put(&bench.api, id, json!({ "url": receiver.url("/") }), json!({ "after": "0s" }))
            .await
            .json(201);
        for _ in 0..attempts {
            receiver.next().await;
        }
        let letter = bench.api.letters(count + 1).await.remove(count);
        assert_eq!((&letter["reason"], &letter["attempts"]), (&json!(reason), &json!(attempts)));
    }
    for wrong in ["final_statuses = [200]", "attempts = 0", "backoff = \"10m..1s\""] {
        assert!(toml::from_str::<Config>(&format!("[webhooks]\n{wrong}")).is_err(), "{wrong}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_webhook_is_called_at_once_and_keeps_its_plan() {
    let mut receiver = Receiver::start(|number| (number != 1).then(|| status(204))).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let webhook = json!({ "url": receiver.url("/"), "timeout": "2s" });
    put(&bench.api, "a", webhook, json!({ "every": "1d", "attempts": 1 })).await.json(201);
    let shown = async || bench.api.get("/v1/timers/a").await;
    let before = shown().await;
    let run = async || bench.api.post("/v1/timers/a/run").await;
    assert_eq!(run().await.json(200)["id"], "a");
    let first = receiver.next().await;
    until("the plan", async || (shown().await.text == before.text).then_some(())).await;
    assert_eq!(shown().await.headers["etag"], before.headers["etag"]);
    // The second call is left open.
    run().await.json(200);
    let second = receiver.next().await;
    let keys = [&first, &second].map(|seen| text(&seen.headers, "idempotency-key"));
    assert_ne!(keys[0], keys[1]);
    assert!(run().await.problem(409).contains("is running"));
    let time = json!({ "after": "1d" }).to_string();
    bench.api.send("POST", "/v1/timers/a/move", &time).await.problem(409);
    bench.api.post("/v1/timers/b/run").await.problem(404);
    assert_eq!(bench.api.letters(1).await[0]["id"], "a");
    assert_eq!(shown().await.text, before.text);
    bench.stop().await;
    assert_eq!(receiver.left(), 0);
}

#[tokio::test]
async fn a_call_that_has_failed_is_listed_and_retried_at_once() {
    let mut receiver = Receiver::with(&[500]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let schedule = json!({ "after": "0s", "backoff": "1h..1h" });
    put(&bench.api, "a", json!({ "url": receiver.url("/") }), schedule).await.json(201);
    receiver.next().await;
    let failed = until("the failed call", async || {
        let page = bench.api.get("/v1/timers?state=retrying").await.json(200);
        page["timers"].get(0).cloned()
    })
    .await;
    assert_eq!((&failed["id"], &failed["attempts"]), (&json!("a"), &json!(1)));
    let run = bench.api.post("/v1/timers/a/run").await.json(200);
    assert_ne!(run["due"], failed["due"]);
    assert_eq!(text(&receiver.next().await.headers, "webhook-attempt"), "2");
    gone(&bench.api, "a").await;
    bench.stop().await;
}

#[tokio::test]
async fn a_call_has_a_time_limit() {
    let mut receiver = Receiver::start(|number| (number > 0).then(|| status(204))).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let webhook = json!({ "url": receiver.url("/"), "timeout": "100ms" });
    let schedule = json!({ "after": "0s", "backoff": "1s..1s" });
    put(&bench.api, "a", webhook, schedule).await.json(201);
    receiver.next().await;
    let timer = until("the end of the first attempt", async || {
        let timer = bench.api.get("/v1/timers/a").await;
        let timer: Value = serde_json::from_str(&timer.text).unwrap();
        timer["error"].is_string().then_some(timer)
    })
    .await;
    assert_eq!(timer["error"], "no response from the receiver within 100ms");
    receiver.next().await;
    gone(&bench.api, "a").await;
    bench.stop().await;
}

#[tokio::test]
async fn the_trace_of_the_request_goes_on_in_the_call() {
    let mut receiver = Receiver::with(&[]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let timer = json!({ "webhook": { "url": receiver.url("/") }, "schedule": { "after": "0s" } });
    let timer = timer.to_string();
    let sent = bench.api.send_with("PUT", "/v1/timers/a", &timer, "traceparent", trace);
    sent.await.json(201);
    assert_eq!(text(&receiver.next().await.headers, "traceparent"), trace);
    let sent =
        bench.api.send_with("PUT", "/v1/timers/b", &timer, "traceparent", "not a trace; DROP");
    sent.await.json(201);
    assert!(!receiver.next().await.headers.contains_key("traceparent"));
    bench.stop().await;
}

#[tokio::test]
async fn headers_replace_each_other_and_none_of_the_service() {
    let mut receiver = Receiver::with(&[]).await;
    let folder = Folder::new();
    let store = folder.join("timers");
    let payload = json!({
        "version": "1", "url": receiver.url("/"), "body": "abc",
        "headers": { "user-agent": "mine", "traceparent": "the webhook's" },
    });
    // Written by another program.
    let options = Options::new()
        .header("host", "internal")
        .header("content-length", "1")
        .header("webhook-id", "forged")
        .header("traceparent", "the timer's")
        .header("x-tenant", "blue");
    let timers = DurableTimers::open(&store).unwrap();
    let inserted = timers.insert("a", payload.to_string(), Duration::ZERO, options).await;
    drop(timers);
    inserted.unwrap();
    let bench = Bench::at(store.to_str().unwrap(), allowing(receiver.port())).await;
    let seen = receiver.next().await;
    assert_eq!(seen.body, "abc");
    assert_eq!(text(&seen.headers, "host"), format!("127.0.0.1:{}", receiver.port()));
    assert!(text(&seen.headers, "webhook-id").ends_with(":a"));
    assert_eq!(text(&seen.headers, "x-tenant"), "blue");
    for (name, value) in [("user-agent", "mine"), ("traceparent", "the webhook's")] {
        let sent: Vec<_> = seen.headers.get_all(name).iter().collect();
        assert_eq!(sent, [value], "{name}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_receiver_by_tls_must_have_a_certificate_that_is_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    for (signs, is_trusted) in [(&authority, true), (&other, false)] {
        let signed = signs.sign();
        let acceptor = acceptor(&signed);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepting = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return String::new();
            };
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap_or(0);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            String::from_utf8(request[..length].to_vec()).unwrap()
        });
        let mut config = allowing(port);
        let folder = Folder::new();
        let file = folder.join("authority.pem");
        std::fs::write(&file, &authority.certificate).unwrap();
        config.webhooks.authority = Some(file);
        let bench = Bench::with(config).await;
        let webhook = json!({ "url": format!("https://127.0.0.1:{port}/hook") });
        put(&bench.api, "a", webhook, json!({ "after": "0s", "attempts": 1 })).await.json(201);
        if is_trusted {
            gone(&bench.api, "a").await;
        } else {
            let error = bench.api.letters(1).await[0]["error"].take();
            assert!(error.as_str().unwrap().contains("invalid peer certificate"), "{error}");
        }
        assert_eq!(accepting.await.unwrap().starts_with("POST /hook HTTP/1.1"), is_trusted);
        bench.stop().await;
    }
}

#[tokio::test]
async fn the_beginning_of_a_refusal_is_recorded() {
    let long = || "no such customer\n".repeat(10_000);
    let receiver = Receiver::start(move |_| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Some((status, long()).into_response())
    })
    .await;
    let bench = Bench::with(allowing(receiver.port())).await;
    bench.api.put("a", &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
    let letter = bench.api.letters(1).await.remove(0);
    let beginning =
        "the receiver responded with 422 Unprocessable Entity: no such customer no such";
    for error in [&letter["error"], &run_of(&bench.api, "a").await["error"]] {
        let error = error.as_str().unwrap();
        assert!(error.starts_with(beginning) && error.len() <= 1100, "{error}");
    }
    bench.stop().await;
}

/// Waits for the run of a timer.
async fn run_of(api: &Api, id: &str) -> Value {
    until("the run", async || {
        let mut runs = api.get(&format!("/v1/runs?id={id}")).await.json(200);
        runs["runs"].get_mut(0).map(Value::take)
    })
    .await
}
