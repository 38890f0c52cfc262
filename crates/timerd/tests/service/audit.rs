//! The record of changes.

use super::bench::{Api, Bench, until};
use super::roles::{config, log_in, submit, token};
use serde_json::{Value, json};

/// Returns the changes with these fields, oldest first.
async fn changes(api: &Api, fields: &[&str]) -> Vec<Vec<Value>> {
    let reply = api.get("/v1/audit").await.json(200);
    let changes = reply["changes"].as_array().unwrap().iter().rev();
    changes.map(|change| fields.iter().map(|field| change[field].clone()).collect()).collect()
}

#[tokio::test]
async fn changes_are_recorded_with_their_token_and_outcome() {
    let bench = Bench::with(config()).await;
    let (api, read) = (&bench.api, bench.api.with_token(&token("read")));
    let secret = "hunter2";
    let webhook = json!({ "url": "https://example.org/", "headers": { "authorization": secret } });
    let timer = json!({ "webhook": webhook, "schedule": { "after": "1d" } }).to_string();
    api.send("PUT", "/v1/timers/a%20b?token=hunter2", &timer).await;
    api.post("/v1/timers/a%20b/pause").await.json(200);
    read.post("/v1/pause").await.problem(403);
    api.send("DELETE", "/v1/dead-letters?most=5&age=1d", "").await.json(200);
    api.post("/v1/dead-letters/redrive?limit=7").await.json(200);
    api.post("/v1/dead-letters/redrive?label=shop").await.json(200);
    let cookie = log_in(api, &token("operate")).await;
    submit(api, &cookie, "/pause", "").await;
    submit(api, &cookie, "/letters", "do=delete&sure=yes&number=3&number=4").await;
    submit(api, &cookie, "/letters", "do=delete&number=3").await;
    submit(api, &cookie, "/pause-label?label=shop", "").await;
    let fields = ["token", "door", "operation", "subject", "status", "count"];
    let found = until("the changes", async || {
        let found = changes(&read, &fields).await;
        (found.len() == 9).then_some(found)
    })
    .await;
    let expected = [
        json!(["TIMERD_TOKEN", "api", "PUT /v1/timers/{id}", "a b", 201, null]),
        json!(["TIMERD_TOKEN", "api", "POST /v1/timers/{id}/pause", "a b", 200, null]),
        json!(["read", "api", "POST /v1/pause", "", 403, null]),
        json!(["TIMERD_TOKEN", "api", "DELETE /v1/dead-letters", "most=5 age=1d", 200, 0]),
        json!(["TIMERD_TOKEN", "api", "POST /v1/dead-letters/redrive", "limit=7", 200, 0]),
        json!(["TIMERD_TOKEN", "api", "POST /v1/dead-letters/redrive", "label=shop", 200, 0]),
        json!(["operate", "page", "POST /pause", "", 303, null]),
        json!(["operate", "page", "POST /letters", "do=delete number=3 number=4", 303, 0]),
        json!(["operate", "page", "POST /pause-label", "label=shop", 303, 0]),
    ];
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(json!(found), *expected);
    }
    let text = api.get("/v1/audit?limit=1000").await.text;
    assert!(!text.contains(secret) && text.contains("\"peer\":\"127.0.0.1:"), "{text}");
    bench.stop().await;
}
