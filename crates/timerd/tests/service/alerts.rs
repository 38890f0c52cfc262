//! Alerts, as the operator's own webhook gets them.

use super::bench::{Api, Bench, Folder, TOKEN, arguments, until};
use super::calls::{SECRET, allowing};
use super::receiver::{Receiver, Seen, status};
use super::servers::Server;
use serde_json::{Value, json};
use std::num::NonZeroU16;
use std::time::Duration;
use timerd::{Config, Service, StartError};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// Returns a configuration that allows calls to these ports, and sends alerts.
pub(crate) fn alerting(ports: &[u16], url: &str, more: &str) -> Config {
    let mut config = allowing(1);
    let ports = ports.iter().map(|port| NonZeroU16::new(*port).unwrap()).collect::<Vec<_>>();
    config.webhooks.ports = ports.try_into().unwrap();
    let alerts = format!("[alerts]\nurl = \"{url}\"\n{more}");
    config.alerts = toml::from_str::<Config>(&alerts).unwrap().alerts;
    config
}

/// Starts a service that calls one receiver and tells the other.
async fn bench(receiver: &Receiver, operator: &Receiver, more: &str) -> Bench {
    let ports = [receiver.port(), operator.port()];
    Bench::with(alerting(&ports, &operator.url("/hook"), more)).await
}

pub(crate) fn alert(seen: &Seen) -> Value {
    serde_json::from_str(&seen.body).unwrap()
}

/// Returns a schedule that is due at once and fails without a pause.
fn failing(attempts: u32) -> Value {
    json!({ "after": "0s", "attempts": attempts, "backoff": "1ms..1ms" })
}

/// A rule whose first run was planned long ago.
fn repeating() -> Value {
    json!({ "at": "2020-01-01T00:00:00Z", "every": "1d", "backoff": "1h..1h" })
}

/// Returns the value of a counter, or 0.
async fn figure(api: &Api, name: &str) -> u64 {
    let figures = api.get("/metrics").await.text;
    let line = figures.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

#[tokio::test]
async fn a_dead_letter_is_told_once_and_signed() {
    let (receiver, mut operator) = (Receiver::with(&[500; 9]).await, Receiver::with(&[500]).await);
    let bench = bench(&receiver, &operator, "").await;
    bench.api.put("nightly", &receiver.url("/"), failing(2)).await.json(201);
    let (first, second) = (operator.next().await, operator.next().await);
    assert_eq!((&*first.method, &*first.path), ("POST", "/hook"));
    let key = &first.headers["webhook-id"];
    assert_eq!(key, &first.headers["idempotency-key"]);
    assert_eq!(key, &second.headers["webhook-id"], "a repetition has the same key");
    assert_eq!(
        (&*first.body, &second.headers["webhook-attempt"]),
        (&*second.body, &"2".parse().unwrap())
    );
    let secret = standardwebhooks::Webhook::new(SECRET).unwrap();
    secret.verify(second.body.as_bytes(), &second.headers).unwrap();
    let alert = alert(&first);
    assert_eq!(first.headers["content-type"], "application/json");
    assert_eq!((&alert["alert"], &alert["id"]), (&json!("dead_letter"), &json!("nightly")));
    assert_eq!((&alert["attempts"], &alert["reason"]), (&json!(2), &json!("attempts")));
    assert_eq!((&alert["left_out"], &alert["link"]), (&json!(0), &Value::Null));
    let text = alert["text"].as_str().unwrap();
    assert!(text.contains("`nightly`") && text.contains("500 Internal Server Error"), "{text}");
    // A letter that dies again is another event.
    bench.api.post("/v1/dead-letters/redrive").await.json(200);
    let third = operator.next().await;
    assert_ne!(&third.headers["webhook-id"], key);
    bench.stop().await;
    assert_eq!(operator.left(), 0);
}

#[tokio::test]
async fn an_alert_leads_to_its_letter_or_its_timer() {
    let (receiver, mut operator) = (Receiver::with(&[500; 9]).await, Receiver::with(&[]).await);
    let more = "failures = 1\npage = \"https://timers.example.org/ops/\"";
    let bench = bench(&receiver, &operator, more).await;
    bench.api.put("a", &receiver.url("/"), failing(1)).await.json(201);
    bench.api.letters(1).await;
    let slow = json!({ "after": "0s", "backoff": "1h..1h" });
    bench.api.put("b%2Fc", &receiver.url("/"), slow).await.json(201);
    let dead = alert(&operator.next().await);
    let letter = bench.api.letters(1).await.remove(0);
    assert_eq!((&dead["alert"], &dead["number"]), (&json!("dead_letter"), &letter["number"]));
    let link = format!("https://timers.example.org/ops/dead-letters/{}", letter["number"]);
    assert_eq!(dead["link"], link);
    assert!(dead["text"].as_str().unwrap().ends_with(&format!(" {link}")), "{dead}");
    let tried = alert(&operator.next().await);
    assert_eq!((&tried["alert"], &tried["number"]), (&json!("failing"), &Value::Null));
    assert_eq!(tried["link"], "https://timers.example.org/ops/timers/b%2Fc");
    bench.stop().await;
}

#[tokio::test]
async fn failures_in_a_row_are_told_when_their_number_is_reached() {
    let receiver = Receiver::with(&[500; 5]).await;
    let mut operator = Receiver::with(&[]).await;
    let more = "kinds = [\"failing\"]\nfailures = 3";
    let bench = bench(&receiver, &operator, more).await;
    bench.api.put("a", &receiver.url("/"), failing(9)).await.json(201);
    let told = alert(&operator.next().await);
    assert_eq!((&told["alert"], &told["attempts"]), (&json!("failing"), &json!(3)));
    until("a success", async || (receiver.left() == 6).then_some(())).await;
    bench.stop().await;
    assert_eq!(operator.left(), 0, "further failures are not told");
}

#[tokio::test]
async fn a_run_that_is_missed_is_told() {
    let receiver = Receiver::by_path(|path| status(if path == "/good" { 200 } else { 500 })).await;
    let mut operator = Receiver::with(&[]).await;
    let bench = bench(&receiver, &operator, "kinds = [\"missed_run\"]\ngrace = \"1s\"").await;
    let api = &bench.api;
    api.put("late", &receiver.url("/"), repeating()).await.json(201);
    api.put("good", &receiver.url("/good"), repeating()).await.json(201);
    api.put("paused", &receiver.url("/"), json!({ "after": "500ms", "every": "1d" }))
        .await
        .json(201);
    api.post("/v1/timers/paused/pause").await.json(200);
    api.put("once", &receiver.url("/"), failing(1)).await.json(201);
    let told = alert(&operator.next().await);
    assert_eq!((&told["alert"], &told["id"]), (&json!("missed_run"), &json!("late")));
    assert_eq!(told["planned"], "2020-01-01T00:00:00.000Z");
    bench.stop().await;
    assert_eq!(operator.left(), 0);
}

#[tokio::test]
async fn one_of_several_instances_tells_of_a_missed_run() {
    let Some(server) = Server::start(&[]) else { return };
    let (receiver, mut operator) = (Receiver::with(&[500; 99]).await, Receiver::with(&[]).await);
    let ports = [receiver.port(), operator.port()];
    let more = "kinds = [\"missed_run\"]\ngrace = \"1s\"";
    let config = alerting(&ports, &operator.url("/"), more);
    let one = Bench::at(&server.url(), config.clone()).await;
    let other = Bench::at(&server.url(), config).await;
    let mut timers = Vec::new();
    for number in 0..10 {
        let id = format!("timer{number}");
        one.api.put(&id, &receiver.url("/"), repeating()).await.json(201);
        timers.push(id);
    }
    let mut told = Vec::new();
    for _ in 0..10 {
        told.push(alert(&operator.next().await)["id"].as_str().unwrap().to_owned());
    }
    told.sort();
    assert_eq!(told, timers);
    tokio::join!(one.stop(), other.stop());
    assert_eq!(operator.left(), 0);
}

/// The service answers its own alert with 401, and that is all.
#[tokio::test]
async fn an_alert_that_leads_to_the_service_itself_leads_nowhere() {
    let receiver = Receiver::with(&[500; 9]).await;
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let folder = Folder::new();
    let mut arguments = arguments(folder.join("timers").to_str().unwrap());
    arguments.listen = format!("127.0.0.1:{port}");
    let url = format!("http://127.0.0.1:{port}/v1/pause");
    let config = alerting(&[receiver.port(), port], &url, "");
    let service = Service::start(&arguments, &config).await.unwrap();
    let api = Api::of(&service.address().to_string(), TOKEN);
    api.put("a", &receiver.url("/"), failing(1)).await.json(201);
    let refused = "timerd_requests_total{method=\"POST\",path=\"/v1/pause\",status=\"401\"}";
    until("two attempts", async || (figure(&api, refused).await >= 2).then_some(())).await;
    api.letters(1).await;
    let stats = api.get("/v1/stats").await.json(200);
    assert_eq!((&stats["dead_letters"], &stats["store_paused"]), (&json!(1), &json!(false)));
    assert_eq!(stats["overdue"], 0);
    service.stop().await;
}

#[tokio::test]
async fn an_operator_who_hangs_delays_neither_webhooks_nor_the_end() {
    let (mut receiver, operator) =
        (Receiver::with(&[400; 300]).await, Receiver::start(|_| None).await);
    let bench = bench(&receiver, &operator, "kinds = [\"dead_letter\"]").await;
    for number in 0..200 {
        bench.api.put(&number.to_string(), &receiver.url("/"), failing(1)).await.json(201);
    }
    for _ in 0..200 {
        receiver.next().await;
    }
    bench.api.letters(100).await;
    let left_out = "timerd_alerts_total{outcome=\"left_out\"}";
    assert!(figure(&bench.api, left_out).await >= 90);
    timeout(Duration::from_secs(4), bench.stop()).await.expect("the service stops soon");
}

#[tokio::test]
async fn alerts_that_wait_are_sent_before_the_end() {
    let (receiver, mut operator) = (Receiver::with(&[400; 9]).await, Receiver::with(&[]).await);
    let bench = bench(&receiver, &operator, "kinds = [\"dead_letter\"]").await;
    for number in 0..5 {
        bench.api.put(&number.to_string(), &receiver.url("/"), failing(1)).await.json(201);
    }
    bench.api.letters(5).await;
    bench.stop().await;
    for _ in 0..5 {
        operator.next().await;
    }
}

#[tokio::test]
async fn alerts_that_cannot_be_sent_are_refused_at_the_start() {
    let folder = Folder::new();
    let arguments = arguments(folder.join("timers").to_str().unwrap());
    for (url, more, why) in [
        ("http://127.0.0.1:9/", "", "webhooks.ports"),
        ("http://10.0.0.1/", "", "webhooks.allow"),
        ("hooks.example.org", "", "expected http://"),
        ("http://u:hunter2@example.org/", "", "must not contain"),
        ("https://example.org/hunter2", "secret = \"other\"", "no secret \"other\""),
        ("https://example.org/hunter2", "page = \"timers\"", "page: \"timers\" (expected https://"),
    ] {
        let config = alerting(&[80, 443], url, more);
        assert!(!format!("{config:?}").contains("hunter2"));
        match Service::start(&arguments, &config).await {
            Err(StartError::Alert(error)) => {
                let error = error.to_string();
                assert!(error.starts_with("alerts: ") && error.contains(why), "{error}");
                assert!(!error.contains("hunter2"), "{error}");
            }
            other => panic!("{url}: {other:?}"),
        }
    }
}
