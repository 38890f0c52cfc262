//! Uses of xtimer and of a timing wheel in Redis, ported to this service. Each row of their tables
//! in `docs/COMING-FROM.md` is a test of that name.

use super::bench::{Bench, until};
use super::calls::allowing;
use super::receiver::{Receiver, Seen};
use super::servers::Server;
use serde_json::{Value, json};

const URL: &str = "https://example.org/";

#[test]
fn every_row_has_its_test_and_every_test_its_row() {
    let table = include_str!("../pages/COMING-FROM.md");
    let of_row = |line: &str| Some(line.strip_prefix("| ")?.rsplit('`').nth(1)?.to_owned());
    let is_here = |row: &String| row.starts_with("xtimer_") || row.starts_with("redis_wheel_");
    let rows = table.lines().filter_map(of_row).filter(is_here);
    let source = include_str!("coming_from.rs").lines();
    let of_test =
        |line: &str| Some(line.strip_prefix("async fn ")?.strip_suffix("() {")?.to_owned());
    let tests: Vec<String> = source.filter_map(of_test).collect();
    assert_eq!(rows.collect::<Vec<_>>(), tests);
}

#[tokio::test]
async fn xtimer_create() {
    let bench = Bench::start().await;
    let every_second = json!({ "cron": "* * * * * *", "zone": "Asia/Shanghai" });
    bench.api.put("job", URL, every_second.clone()).await.json(201);
    assert_eq!(bench.api.put("job", URL, every_second).await.json(200)["result"], "kept");
    bench.api.put("job", URL, json!({ "every": "1m" })).await.problem(409);
    assert_eq!(bench.api.get("/v1/timers/job").await.json(200)["repeats"]["zone"], "Asia/Shanghai");
    bench.stop().await;
}

#[tokio::test]
async fn xtimer_delete() {
    let bench = Bench::start().await;
    let day = json!({ "every": "1d" });
    bench.api.put("job", URL, day.clone()).await.json(201);
    bench.api.send("DELETE", "/v1/timers/job", "").await.json(200);
    bench.api.put("job", URL, day).await.json(201);
    bench.stop().await;
}

#[tokio::test]
async fn xtimer_update() {
    let bench = Bench::start().await;
    bench.api.put("job", URL, json!({ "every": "1d" })).await.json(201);
    let weekly = json!({ "every": "7d", "existing": "update" });
    assert_eq!(bench.api.put("job", URL, weekly).await.json(200)["result"], "updated");
    assert_eq!(bench.api.get("/v1/timers/job").await.json(200)["repeats"]["every"], "7days");
    bench.stop().await;
}

#[tokio::test]
async fn xtimer_get() {
    let bench = Bench::start().await;
    bench.api.put("job", URL, json!({ "at": "2090-01-01T00:00:00Z" })).await.json(201);
    let timer = bench.api.get("/v1/timers/job").await.json(200);
    assert_eq!((&timer["state"], &timer["attempts"]), (&json!("resting"), &json!(0)));
    assert_eq!(timer["due"], "2090-01-01T00:00:00.000Z");
    bench.stop().await;
}

#[tokio::test]
async fn xtimer_list() {
    let bench = Bench::start().await;
    for (id, after, app) in [("later", "2d", "shop"), ("sooner", "1d", "bank")] {
        let schedule = json!({ "after": after, "labels": [app] });
        bench.api.put(id, URL, schedule).await.json(201);
    }
    let of_app = bench.api.get("/v1/timers?label=shop").await.json(200)["timers"].take();
    assert_eq!((&of_app[0]["id"], of_app.as_array().unwrap().len()), (&json!("later"), 1));
    let timers = bench.api.get("/v1/timers").await.json(200)["timers"].take();
    assert_eq!((&timers[0]["id"], &timers[1]["id"]), (&json!("sooner"), &json!("later")));
    bench.stop().await;
}

#[tokio::test]
async fn xtimer_enable() {
    let mut receiver = Receiver::with(&[]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    bench.api.post("/v1/pause").await.json(200);
    let daily = json!({ "every": "1d", "at": "2020-01-01T00:00:00Z" });
    bench.api.put("job", &receiver.url("/"), daily.clone()).await.json(201);
    let mut skips = daily;
    skips["misfire"] = json!("1ms");
    bench.api.put("skips", &receiver.url("/skips"), skips).await.json(201);
    for id in ["job", "skips"] {
        bench.api.post(&format!("/v1/timers/{id}/pause")).await.json(200);
    }
    bench.api.post("/v1/resume").await.json(200);
    for id in ["skips", "job"] {
        bench.api.post(&format!("/v1/timers/{id}/resume")).await.json(200);
    }
    assert_eq!(receiver.next().await.path, "/");
    for id in ["job", "skips"] {
        until("the next occurrence", async || {
            let timer = bench.api.get(&format!("/v1/timers/{id}")).await.json(200);
            (!timer["due"].as_str()?.starts_with("2020") && timer["state"] == "resting")
                .then_some(())
        })
        .await;
    }
    assert_eq!(receiver.left(), 0, "one for all that were missed, and none for the other");
    bench.stop().await;
}

#[tokio::test]
async fn xtimer_unable() {
    let mut receiver = Receiver::with(&[]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let often = json!({ "every": "1s" });
    for id in ["job", "clock"] {
        bench.api.put(id, &receiver.url(&format!("/{id}")), often.clone()).await.json(201);
    }
    while receiver.next().await.path != "/job" {}
    let paused = bench.api.post("/v1/timers/job/pause").await.json(200);
    assert!(["paused", "pausing"].contains(&paused["result"].as_str().unwrap()), "{paused}");
    until("the end of the running call", async || {
        let timer = bench.api.get("/v1/timers/job").await.json(200);
        (timer["state"] == "paused").then_some(())
    })
    .await;
    // Requests that have already arrived are older than this.
    for _ in 0..receiver.left() {
        receiver.next().await;
    }
    for _ in 0..3 {
        assert_eq!(receiver.next().await.path, "/clock");
    }
    bench.stop().await;
}

#[tokio::test]
async fn xtimer_executor() {
    let mut receiver = Receiver::with(&[500]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let webhook = json!({ "url": receiver.url("/"), "method": "PATCH", "body": "{}" });
    let schedule = json!({ "after": "0s", "backoff": "1ms..1ms" });
    let timer = json!({ "webhook": webhook, "schedule": schedule }).to_string();
    bench.api.send("PUT", "/v1/timers/job", &timer).await.json(201);
    for _ in 0..2 {
        let seen = receiver.next().await;
        assert_eq!((&*seen.method, &*seen.body), ("PATCH", "{}"));
    }
    bench.stop().await;
}

#[tokio::test]
async fn xtimer_records() {
    let mut receiver = Receiver::with(&[400]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    bench.api.put("job", &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
    receiver.next().await;
    let run = until("the run", async || {
        let mut runs = bench.api.get("/v1/runs?id=job").await.json(200);
        runs["runs"].get_mut(0).map(Value::take)
    })
    .await;
    let error = "the receiver responded with 400 Bad Request";
    assert_eq!((&run["outcome"], &run["error"]), (&json!("dead"), &json!(error)));
    bench.stop().await;
}

#[tokio::test]
async fn xtimer_monitor() {
    let bench = Bench::start().await;
    bench.api.put("job", URL, json!({ "every": "1d" })).await.json(201);
    let is_counted =
        |line: &str| line.starts_with("tourbillon_durable_timers{") && line.ends_with(" 1");
    until("the number of timers", async || {
        let figures = bench.api.get("/metrics").await.text;
        figures.lines().any(is_counted).then_some(())
    })
    .await;
    bench.stop().await;
}

#[tokio::test]
async fn redis_wheel_new() {
    const TASKS: usize = 40;
    let Some(server) = Server::start(&[]) else { return };
    let mut receiver = Receiver::with(&[]).await;
    let one = Bench::at(&server.url(), allowing(receiver.port())).await;
    let other = Bench::at(&server.url(), allowing(receiver.port())).await;
    for number in 0..TASKS {
        let api = if number % 2 == 0 { &one.api } else { &other.api };
        let url = receiver.url(&format!("/{number}"));
        api.put(&format!("{number}"), &url, json!({ "after": "100ms" })).await.json(201);
    }
    let mut paths = Vec::new();
    for _ in 0..TASKS {
        paths.push(receiver.next().await.path);
    }
    until("the end of all timers", async || {
        (one.api.get("/v1/stats").await.json(200)["timers"] == 0).then_some(())
    })
    .await;
    paths.sort();
    paths.dedup();
    assert_eq!((paths.len(), receiver.left()), (TASKS, 0), "each is called by one of the services");
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn redis_wheel_add_task() {
    let Some(server) = Server::start(&[]) else { return };
    let mut receiver = Receiver::with(&[]).await;
    let bench = Bench::at(&server.url(), allowing(receiver.port())).await;
    let webhook = json!({
        "url": receiver.url("/callback"), "method": "POST", "body": "{\"a\":1}",
        "headers": { "content-type": "application/json" },
    });
    // The time has passed already.
    let timer = json!({ "webhook": webhook, "schedule": { "at": "2020-01-01T00:00:00Z" } });
    bench.api.send("PUT", "/v1/timers/task", &timer.to_string()).await.json(201);
    let Seen { method, path, headers, body } = receiver.next().await;
    assert_eq!((&*method, &*path, &*body), ("POST", "/callback", "{\"a\":1}"));
    assert_eq!(headers["content-type"], "application/json");
    until("the end of the timer", async || {
        (bench.api.get("/v1/timers/task").await.status == 404).then_some(())
    })
    .await;
    bench.stop().await;
}

#[tokio::test]
async fn redis_wheel_add_task_again() {
    let Some(server) = Server::start(&[]) else { return };
    let mut receiver = Receiver::with(&[]).await;
    let bench = Bench::at(&server.url(), allowing(receiver.port())).await;
    let put = async |path, after| {
        bench.api.put("task", &receiver.url(path), json!({ "after": after })).await
    };
    put("/cancelled", "1d").await.json(201);
    put("/refused", "2d").await.problem(409);
    bench.api.send("DELETE", "/v1/timers/task", "").await.json(200);
    put("/new", "0s").await.json(201);
    assert_eq!(receiver.next().await.path, "/new");
    let left = until("the end of the timer", async || {
        let stats = bench.api.get("/v1/stats").await.json(200);
        (stats["leased"] == 0).then_some(stats["timers"].clone())
    });
    assert_eq!(left.await, 0, "the cancelled one does not come back");
    bench.stop().await;
}

#[tokio::test]
async fn redis_wheel_remove_task() {
    let Some(server) = Server::start(&[]) else { return };
    let mut receiver = Receiver::with(&[]).await;
    let bench = Bench::at(&server.url(), allowing(receiver.port())).await;
    for (id, after) in [("task", "500ms"), ("month", "30d"), ("clock", "1s")] {
        let url = receiver.url(&format!("/{id}"));
        bench.api.put(id, &url, json!({ "after": after })).await.json(201);
    }
    for id in ["task", "month"] {
        let path = format!("/v1/timers/{id}");
        assert_eq!(bench.api.send("DELETE", &path, "").await.json(200)["result"], "removed");
        bench.api.send("DELETE", &path, "").await.problem(404);
        bench.api.get(&path).await.problem(404);
    }
    assert_eq!(receiver.next().await.path, "/clock");
    bench.stop().await;
}

#[tokio::test]
async fn redis_wheel_stop() {
    let Some(server) = Server::start(&[]) else { return };
    let mut receiver = Receiver::with(&[]).await;
    let bench = Bench::at(&server.url(), allowing(receiver.port())).await;
    bench.api.post("/v1/pause").await.json(200);
    bench.api.put("task", &receiver.url("/"), json!({ "after": "0s" })).await.json(201);
    bench.stop().await;
    let next = Bench::at(&server.url(), allowing(receiver.port())).await;
    // Its worker has looked for due timers between two heartbeats.
    let heartbeats = || server.order("ZRANGE {tb:timers}:workers 0 -1 WITHSCORES");
    let none = "*0\r\n".to_owned();
    let first = until("a heartbeat", async || Some(heartbeats()).filter(|beats| *beats != none));
    let first = first.await;
    until("another heartbeat", async || (heartbeats() != first).then_some(())).await;
    assert_eq!(receiver.left(), 0, "the store is still paused");
    next.api.post("/v1/resume").await.json(200);
    receiver.next().await;
    next.stop().await;
}
