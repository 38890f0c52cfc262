//! The state of the receivers of webhooks.

use super::bench::{Bench, until};
use super::calls::allowing;
use super::page::Browser;
use super::receiver::{Receiver, status};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn the_state_of_a_receiver_shows_its_calls_and_since_when_it_is_held_back() {
    let receiver = Receiver::start(|number| match number {
        0 => Some(status(200)),
        1 => Some(status(500)),
        _ => None,
    })
    .await;
    let mut config = allowing(receiver.port());
    config.webhooks.timeout = Duration::from_millis(50);
    let bench = Bench::with(config).await;
    let api = &bench.api;
    assert_eq!(api.get("/v1/receivers").await.json(200)["receivers"], json!([]));
    for id in ["a", "b"] {
        let schedule = json!({ "after": "0s", "backoff": "1ms..1ms" });
        api.put(id, &receiver.url("/"), schedule).await.json(201);
    }
    let held = until("a silent receiver", async || {
        let list = api.get("/v1/receivers").await.json(200);
        let found = &list["receivers"][0];
        (found["held"] == "silent").then(|| found.clone())
    })
    .await;
    assert_eq!((&held["host"], &held["port"]), (&json!("127.0.0.1"), &json!(receiver.port())));
    let (calls, failures) = (held["calls"].as_u64().unwrap(), held["failures"].as_u64().unwrap());
    assert!(calls >= 5 && failures == calls - 1, "{held}");
    assert!(held["p99_millis"].as_u64().unwrap() >= 50, "{held}");
    assert!(held["held_since"].is_string(), "{held}");
    let list = api.get("/v1/receivers?limit=0").await.json(200);
    assert_eq!((&list["receivers"], &list["remembered"]), (&json!([]), &json!(1)));
    let figures = api.get("/metrics").await.text;
    assert!(figures.contains("timerd_receivers{state=\"remembered\"}"), "{figures}");
    let page = Browser::log_in(api).await.page("/receivers").await;
    assert!(page.contains(&format!("127.0.0.1:{}", receiver.port())), "{page}");
    assert!(page.contains("as it does not respond"), "{page}");
    let stranger = api.with_token("none").get("/receivers").await.text;
    assert!(stranger.contains("Log in") && !stranger.contains("127.0.0.1"), "{stranger}");
    bench.stop().await;
}
