//! Each operation of the API.

use super::bench::Bench;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tourbillon_durable::DurableTimers;

const URL: &str = "https://example.org/hook";

#[tokio::test]
async fn a_timer_is_put_shown_and_cancelled() {
    let bench = Bench::start().await;
    let api = &bench.api;
    let schedule = json!({ "at": "2090-01-01T10:00[Europe/Berlin]", "existing": "keep" });
    let put = api.put("order%207%2Fa", URL, schedule.clone()).await.json(201);
    let due = "2090-01-01T09:00:00.000Z";
    assert_eq!(put, json!({ "id": "order 7/a", "result": "new", "due": due }));
    assert_eq!(api.put("order%207%2Fa", URL, schedule).await.json(200)["result"], "kept");
    let timer = api.get("/v1/timers/order%207%2Fa").await.json(200);
    assert_eq!((&timer["state"], &timer["due"]), (&json!("resting"), &json!(due)));
    assert_eq!(timer["webhook"], json!({ "url": URL, "method": "POST" }));
    assert_eq!(
        api.send("DELETE", "/v1/timers/order%207%2Fa", "").await.json(200)["result"],
        "removed"
    );
    api.get("/v1/timers/order%207%2Fa").await.problem(404);
    api.send("DELETE", "/v1/timers/order%207%2Fa", "").await.problem(404);
    bench.stop().await;
}

#[tokio::test]
async fn rules_are_kept_with_their_misfire_option() {
    let bench = Bench::start().await;
    let api = &bench.api;
    api.put("e", URL, json!({ "every": "1h 30m", "misfire": "10m" })).await.json(201);
    api.put("c", URL, json!({ "cron": "0 9 * * *", "zone": "Asia/Tokyo" })).await.json(201);
    let repeats = async |id| api.get(&format!("/v1/timers/{id}")).await.json(200)["repeats"].take();
    assert_eq!(repeats("e").await, json!({ "every": "1h 30m", "misfire": "10m" }));
    let cron = json!({ "cron": "0 9 * * *", "zone": "Asia/Tokyo", "misfire": "once" });
    assert_eq!(repeats("c").await, cron);
    bench.stop().await;
}

#[tokio::test]
async fn what_cannot_work_is_refused_with_a_reason() {
    let bench = Bench::start().await;
    let api = &bench.api;
    for (url, schedule, reason) in [
        (
            "ftp://example.org/",
            json!({ "after": "1d" }),
            "url: expected http://HOST/… or https://HOST/…",
        ),
        (
            "https://user:secret@example.org/",
            json!({ "after": "1d" }),
            "url: must not contain a user",
        ),
        ("nonsense", json!({ "after": "1d" }), "url: "),
        (URL, json!({}), "time: missing"),
        (
            URL,
            json!({ "after": "1d", "at": "2090-01-01T00:00:00Z" }),
            "at: cannot be combined with after",
        ),
        (URL, json!({ "after": "soon" }), "after: \"soon\""),
        (URL, json!({ "every": "1d", "cron": "0 9 * * *" }), "every: cannot be combined with cron"),
        (URL, json!({ "cron": "0 9 * *" }), "invalid repetition rule"),
        (URL, json!({ "cron": "0 9 * * *", "zone": "Mars" }), "invalid repetition rule"),
        (URL, json!({ "after": "1d", "zone": "UTC" }), "zone: cannot be used without cron"),
        (URL, json!({ "after": "1d", "misfire": "1h" }), "invalid option: a misfire window"),
        (URL, json!({ "after": "1d", "attempts": 0 }), "invalid option: the number of attempts"),
        (URL, json!({ "every": "1h", "misfire": "0s" }), "misfire: expected more than 0"),
        (URL, json!({ "every": "1ms" }), "every: \"1ms\": expected at least 1s"),
        (URL, json!({ "after": "1d", "lease": "1ms" }), "lease: \"1ms\": expected at least 1s"),
        (URL, json!({ "after": "1d", "backoff": "10m..1s" }), "backoff: \"10m..1s\": expected"),
    ] {
        let problem = api.put("a", url, schedule).await.problem(400);
        assert!(problem.starts_with(reason), "{url}: {problem}, not {reason}");
    }
    let misspelt = json!({ "webhook": { "url": URL }, "schedule": { "afterr": "1d" } });
    let problem = api.send("PUT", "/v1/timers/a", &misspelt.to_string()).await.problem(422);
    assert!(problem.contains("unknown field `afterr`"), "{problem}");
    api.get("/v1/timers/a").await.problem(404);

    api.put("b", URL, json!({ "after": "1d" })).await.json(201);
    api.put("b", URL, json!({ "after": "1d" })).await.problem(409);
    let long = "x".repeat(513);
    api.put(&long, URL, json!({ "after": "1d" })).await.problem(400);
    let both = "/v1/timers?state=resting&due_from=2090-01-01T00:00:00Z";
    for path in ["/v1/timers?state=tired", "/v1/timers?after=x", "/v1/timers?due_from=x", both] {
        api.get(path).await.problem(400);
    }
    api.get("/v1/timers?limits=3").await.problem(400);
    api.get("/v1/dead-letters/x").await.problem(400);
    api.get("/nowhere").await.problem(404);
    bench.stop().await;
}

#[tokio::test]
async fn webhooks_that_cannot_be_called_are_refused() {
    let bench = Bench::start().await;
    let api = &bench.api;
    for webhook in [
        json!({ "url": URL, "method": "CONNECT" }),
        json!({ "url": URL, "timeout": "1h" }),
        json!({ "url": URL, "headers": { "Host": "other" } }),
        json!({ "url": URL, "headers": { "webhook-id": "1" } }),
        json!({ "url": URL, "headers": { "x": "line\nbreak" } }),
        json!({ "url": URL, "headers": { "X-A": "1", "x-a": "2" } }),
        json!({ "url": URL, "headers": { "keep-alive": "1" } }),
        json!({ "url": "https://example.org:65536/" }),
        json!({ "url": URL, "secret": "unknown" }),
    ] {
        let timer = json!({ "webhook": webhook, "schedule": { "after": "1d" } }).to_string();
        api.send("PUT", "/v1/timers/a", &timer).await.problem(400);
    }
    api.get("/v1/timers/a").await.problem(404);
    bench.stop().await;
}

#[tokio::test]
async fn lists_go_page_by_page_in_the_order_of_due_times() {
    let bench = Bench::start().await;
    let api = &bench.api;
    // Several are due at the same time.
    for number in 0..12 {
        let at = format!("2090-01-01T00:00:0{}Z", number / 4);
        api.put(&format!("{number:02}"), URL, json!({ "at": at })).await.json(201);
    }
    let ids = |page: &Value| -> Vec<String> {
        let timers = page["timers"].as_array().unwrap();
        timers.iter().map(|timer| timer["id"].as_str().unwrap().to_owned()).collect()
    };
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/v1/timers?limit=3{after}")).await.json(200);
        all.extend(ids(&page));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={}", next.replace(' ', "%20"));
    }
    let expected: Vec<String> = (0..12).map(|number| format!("{number:02}")).collect();
    assert_eq!(all, expected);
    let (from, before) = ("2090-01-01T00:00:01Z", "2090-01-01T00:00:02Z");
    let range = format!("/v1/timers?due_from={from}&due_before={before}");
    assert_eq!(ids(&api.get(&range).await.json(200)), ["04", "05", "06", "07"]);
    for id in ["05", "06", "09"] {
        api.post(&format!("/v1/timers/{id}/pause")).await.json(200);
    }
    let page = api.get("/v1/timers?state=paused&limit=2").await.json(200);
    assert_eq!(ids(&page), ["05", "06"]);
    let next = page["next"].as_str().unwrap().replace(' ', "%20");
    let page = api.get(&format!("/v1/timers?state=paused&limit=2&after={next}")).await.json(200);
    assert_eq!((ids(&page), page["next"].as_str()), (vec!["09".to_owned()], None));
    bench.stop().await;
}

#[tokio::test]
async fn timers_are_found_and_changed_by_label() {
    let bench = Bench::start().await;
    let api = &bench.api;
    for (id, labels) in [("b", &["shop", "eu"][..]), ("a", &["shop"]), ("c", &[])] {
        let schedule = json!({ "at": "2090-01-01T00:00:00Z", "labels": labels });
        api.put(id, URL, schedule.clone()).await.json(201);
        assert_eq!(api.put(id, URL, schedule).await.json(200)["result"], "kept");
    }
    let timer = api.get("/v1/timers/b").await.json(200);
    assert_eq!(timer["labels"], json!(["eu", "shop"]));
    assert_eq!(api.get("/v1/timers/c").await.json(200).get("labels"), None);
    let ids = async |path: &str| {
        let page = api.get(path).await.json(200);
        let ids = page["timers"].as_array().unwrap().iter().map(|timer| timer["id"].clone());
        (ids.collect::<Vec<_>>(), page["next"].clone())
    };
    assert_eq!(ids("/v1/timers?label=shop&limit=1").await, (vec![json!("a")], json!("a")));
    assert_eq!(ids("/v1/timers?label=shop&after=a").await, (vec![json!("b")], Value::Null));
    let counted = json!({ "label": "shop", "timers": 2 });
    assert_eq!(api.get("/v1/labels/shop").await.json(200), counted);
    let post = async |path: &str| api.send("POST", path, "").await.json(200);
    let done =
        |changed: u64, last: Value| json!({ "changed": changed, "unreadable": 0, "last": last });
    assert_eq!(post("/v1/labels/shop/pause?limit=1").await, done(1, json!("a")));
    assert_eq!(post("/v1/labels/shop/pause?after=a").await, done(1, json!("b")));
    assert_eq!(post("/v1/labels/shop/pause?after=b").await, done(0, Value::Null));
    let (paused, _) = ids("/v1/timers?state=paused").await;
    assert_eq!(paused, ["a", "b"]);
    assert_eq!(post("/v1/labels/shop/resume").await, done(2, json!("b")));
    assert_eq!(post("/v1/labels/eu/cancel").await, done(1, json!("b")));
    assert_eq!(ids("/v1/timers").await.0, ["a", "c"]);
    let letters = api.get("/v1/dead-letters?label=shop&order=newest").await.json(200);
    assert_eq!(letters, json!({ "dead_letters": [] }));
    let redriven = post("/v1/dead-letters/redrive?label=shop").await;
    assert_eq!((&redriven["redriven"], &redriven["last"]), (&json!(0), &Value::Null));
    for path in ["/v1/timers?label=shop&state=paused", "/v1/timers?label=", "/v1/labels/a%0Ab"] {
        assert!(api.get(path).await.problem(400).starts_with("label: "), "{path}");
    }
    let wrong = json!({ "after": "1d", "labels": [""] });
    let problem = api.put("d", URL, wrong).await.problem(400);
    assert_eq!(problem, "labels: \"\": a label has 1 to 64 bytes and no control characters");
    let many: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    let problem = api.put("d", URL, json!({ "after": "1d", "labels": many })).await.problem(400);
    assert!(problem.contains("at most 8 labels"), "{problem}");
    bench.stop().await;
}

#[tokio::test]
async fn a_timer_is_moved_without_its_webhook() {
    let bench = Bench::start().await;
    let api = &bench.api;
    api.put("a", URL, json!({ "after": "1d", "attempts": 3 })).await.json(201);
    let before = api.get("/v1/timers/a").await;
    let move_to = async |id: &str, time: Value| {
        api.send("POST", &format!("/v1/timers/{id}/move"), &time.to_string()).await
    };
    let due = "2090-01-01T09:00:00.000Z";
    let moved = move_to("a", json!({ "at": "2090-01-01T10:00[Europe/Berlin]" })).await.json(200);
    assert_eq!(moved, json!({ "id": "a", "result": "resting", "due": due }));
    let after = api.get("/v1/timers/a").await;
    let expected = before.json(200);
    assert_eq!(after.headers["etag"], before.headers["etag"]);
    for (field, value) in after.json(200).as_object().unwrap() {
        let expected =
            if ["due", "planned"].contains(&&**field) { &json!(due) } else { &expected[field] };
        assert_eq!(value, expected, "{field}");
    }
    assert_ne!(move_to("a", json!({ "after": "1h" })).await.json(200)["due"], due);
    move_to("b", json!({ "after": "1h" })).await.problem(404);
    for (time, reason) in [
        (json!({}), "time: missing (expected at or after)"),
        (json!({ "at": due, "after": "1h" }), "at: cannot be combined with after"),
        (json!({ "after": "soon" }), "after: \"soon\""),
        (json!({ "at": "soon" }), "at: "),
    ] {
        let problem = move_to("a", time).await.problem(400);
        assert!(problem.starts_with(reason), "{problem}, not {reason}");
    }
    move_to("a", json!({ "every": "1h" })).await.problem(422);
    bench.stop().await;
}

#[tokio::test]
async fn timers_and_the_store_are_paused_and_resumed() {
    let bench = Bench::start().await;
    let api = &bench.api;
    api.put("a", URL, json!({ "after": "1d" })).await.json(201);
    assert_eq!(api.post("/v1/timers/a/pause").await.json(200)["result"], "paused");
    assert_eq!(api.post("/v1/timers/a/resume").await.json(200)["result"], "resting");
    api.post("/v1/timers/b/pause").await.problem(404);
    api.post("/v1/timers/b/resume").await.problem(404);
    assert_eq!(api.post("/v1/pause").await.json(200)["store"], "paused");
    let stats = api.get("/v1/stats").await.json(200);
    assert_eq!((&stats["timers"], &stats["store_paused"]), (&json!(1), &json!(true)));
    let folder = bench.stop().await;
    let timers = DurableTimers::open(folder.join("timers")).unwrap();
    assert!(timers.is_paused().await.unwrap(), "the pause is in the store");
}

#[tokio::test]
async fn the_document_describes_each_operation() {
    let bench = Bench::start().await;
    let document = bench.api.with_token("none").get("/openapi.json").await.json(200);
    let operations: BTreeSet<String> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
        })
        .collect();
    for operation in [
        "put /v1/timers/{id}",
        "get /v1/timers",
        "post /v1/timers/{id}/pause",
        "post /v1/dead-letters/{number}/redrive",
        "get /healthz",
    ] {
        assert!(operations.contains(operation), "{operation} is not in {operations:?}");
    }
    let mut names = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "two operations are {name}");
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path");
            let declared: BTreeSet<_> =
                in_path.map(|found| found["name"].as_str().unwrap()).collect();
            let parts =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            assert_eq!(declared, parts.collect(), "the parameters of {method} {path}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("503"), "{method} {path}");
            for (status, response) in responses.iter().filter(|(status, _)| *status != "304") {
                let kinds: Vec<_> = response["content"].as_object().unwrap().keys().collect();
                let is_error = status.starts_with(['4', '5']);
                let expected =
                    if is_error { "application/problem+json" } else { "application/json" };
                assert!(
                    kinds == [expected] || name == "get_metrics",
                    "{name}, {status}: {kinds:?}"
                );
            }
        }
    }
    check_references(&document);
    let schedule = &document["components"]["schemas"]["Schedule"]["properties"];
    assert!(schedule["cron"]["description"].is_string(), "{schedule}");
    // Each documented operation has a route, so none of them reaches the fallback.
    for operation in operations {
        let (method, path) = operation.split_once(' ').unwrap();
        let path = path.replace("{id}", "none").replace("{number}", "9");
        let path = path.replace("{label}", "none");
        let reply = bench.api.send(&method.to_uppercase(), &path, "{}").await;
        assert_ne!(reply.status, 405, "{operation}");
        assert!(!reply.text.contains("no such page"), "{operation}: {reply:?}");
    }
    bench.stop().await;
}

/// Each reference leads to a schema.
fn check_references(document: &Value) {
    let text = document.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "there is no schema {name}");
    }
}

/// With `OPENAPI=write` in the environment, the document is written to the file.
#[tokio::test]
async fn the_document_is_the_one_in_the_repository() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let bench = Bench::start().await;
    let served = bench.api.get("/openapi.json").await.json(200);
    bench.stop().await;
    let pretty = |document: &Value| serde_json::to_string_pretty(document).unwrap() + "\n";
    let served = pretty(&served);
    if std::env::var_os("OPENAPI").is_some_and(|wanted| wanted == "write") {
        std::fs::write(file, &served).unwrap();
    }
    let kept = pretty(&serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap());
    let mut lines = kept.lines().zip(served.lines());
    let changed = lines.find(|(kept, served)| kept != served);
    assert!(
        kept == served,
        "the API has changed, at first here: {changed:#?}\n\
         Write the file with OPENAPI=write, and review its difference"
    );
}

#[tokio::test]
async fn lists_show_no_values_of_headers_and_end_at_a_number_of_bytes() {
    const TIMERS: usize = 50;
    let bench = Bench::start().await;
    let api = &bench.api;
    let headers = json!({ "authorization": "Bearer hunter2" });
    let webhook = json!({ "url": URL, "headers": &headers, "body": "x".repeat(250_000) });
    for number in 0..TIMERS {
        let timer = json!({ "webhook": webhook, "schedule": { "after": "1d" } }).to_string();
        api.send("PUT", &format!("/v1/timers/{number}"), &timer).await.json(201);
    }
    let (mut seen, mut after, mut pages) = (BTreeSet::new(), String::new(), 0);
    loop {
        let reply = api.get(&format!("/v1/timers?limit=1000{after}")).await;
        assert!(reply.text.len() < 9_000_000, "{} bytes", reply.text.len());
        assert!(!reply.text.contains("hunter2"), "a credential is in the list");
        let page = reply.json(200);
        let timers = page["timers"].as_array().unwrap();
        assert_eq!(timers[0]["webhook"]["headers"], json!({ "authorization": null }));
        seen.extend(timers.iter().map(|timer| timer["id"].to_string()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={}", next.replace(' ', "%20"));
    }
    assert!(seen.len() == TIMERS && pages > 1, "{} timers on {pages} pages", seen.len());
    let timer = api.get("/v1/timers/0").await.json(200);
    assert_eq!(timer["webhook"]["headers"], headers);
    bench.stop().await;
}

#[tokio::test]
async fn each_error_is_a_problem_and_a_page_for_a_person() {
    let bench = Bench::start().await;
    let api = &bench.api;
    for (method, path, status) in [
        ("PATCH", "/v1/timers", 405),
        ("POST", "/v1/timers/a", 405),
        ("GET", "/v1/pause", 405),
        ("DELETE", "/healthz", 405),
        ("PUT", "/login", 405),
        ("GET", "/v1/timers/%FF", 400),
        ("DELETE", "/v1/timers/%FF", 400),
        ("POST", "/v1/timers/%FF/pause", 400),
        ("GET", "/v1/dead-letters/-1", 400),
        ("GET", "/v1/runs?limit=x", 400),
        ("PUT", "/v1/timers/a", 422),
        ("POST", "/login", 415),
        ("POST", "/pause", 403),
        ("GET", "/nowhere", 404),
    ] {
        let reply = api.send(method, path, "{}").await;
        reply.problem(status);
        assert_eq!(reply.headers.contains_key("allow"), status == 405, "{method} {path}");
        let person = api.send_with(method, path, "{}", "accept", "text/html, */*;q=0.8").await;
        assert_eq!(person.status, status, "{method} {path}");
        let kind = person.headers["content-type"].to_str().unwrap();
        assert_eq!(kind.starts_with("text/html"), !path.starts_with("/v1/"), "{method} {path}");
        if kind.starts_with("text/html") {
            assert!(person.text.contains("</html>"), "{person:?}");
            assert!(person.headers.contains_key("content-security-policy"), "{method} {path}");
        }
    }
    let kind = api.get("/metrics").await.headers["content-type"].clone();
    assert!(kind.to_str().unwrap().contains("version=0.0.4"), "{kind:?}");
    bench.stop().await;
}

#[tokio::test]
async fn a_request_that_is_repeated_inserts_nothing_and_succeeds() {
    let bench = Bench::start().await;
    let api = &bench.api;
    let daily = json!({ "cron": "0 9 * * *", "zone": "Asia/Tokyo", "attempts": 3 });
    for (id, schedule, other) in [
        ("once", json!({ "at": "2090-01-01T10:00Z" }), json!({ "at": "2090-01-01T10:01Z" })),
        ("daily", daily, json!({ "cron": "0 9 * * *", "zone": "Asia/Tokyo", "attempts": 4 })),
    ] {
        let put = async |schedule: &Value, url: &str, trace: &str| {
            let timer = json!({ "webhook": { "url": url }, "schedule": schedule }).to_string();
            api.send_with("PUT", &format!("/v1/timers/{id}"), &timer, "traceparent", trace).await
        };
        let traces = [1, 2].map(|number| format!("00-{number:032}-{number:016}-01"));
        put(&schedule, URL, &traces[0]).await.json(201);
        // The response was lost, and the second request has its own trace.
        assert_eq!(put(&schedule, URL, &traces[1]).await.json(200)["result"], "kept");
        put(&other, URL, &traces[0]).await.problem(409);
        put(&schedule, "https://example.org/other", &traces[0]).await.problem(409);
    }
    bench.stop().await;
}

/// Two writers read the same timer, and each puts its own change.
#[tokio::test]
async fn of_two_writers_with_the_same_tag_one_wins() {
    let bench = Bench::start().await;
    let api = &bench.api;
    let send = async |method: &str, at: &str, name: &str, tag: &str| {
        let schedule = json!({ "at": at });
        let timer = json!({ "webhook": { "url": URL }, "schedule": schedule }).to_string();
        api.send_with(method, "/v1/timers/a", &timer, name, tag).await
    };
    let tag = async || {
        let reply = api.get("/v1/timers/a").await;
        reply.json(200);
        assert_eq!(reply.headers["cache-control"], "no-store");
        reply.headers["etag"].to_str().unwrap().to_owned()
    };
    let times = [1, 2, 3].map(|day| format!("2090-01-0{day}T00:00:00.000Z"));
    for any in ["*", "\"none\""] {
        send("PUT", &times[0], "if-match", any).await.problem(412);
        send("DELETE", "", "if-match", any).await.problem(412);
    }
    send("PUT", &times[0], "if-none-match", "*").await.json(201);
    send("PUT", &times[1], "if-none-match", "*").await.problem(412);
    assert_eq!(send("PUT", &times[0], "if-none-match", "*").await.json(200)["result"], "kept");
    let read = tag().await;
    assert_eq!(send("PUT", &times[1], "if-match", &read).await.json(200)["result"], "updated");
    // The second writer would overwrite the change of the first.
    send("PUT", &times[2], "if-match", &read).await.problem(412);
    send("DELETE", "", "if-match", &read).await.problem(412);
    assert_eq!(api.get("/v1/timers/a").await.json(200)["due"], times[1]);
    // The response to the first writer was lost.
    assert_eq!(send("PUT", &times[1], "if-match", &read).await.json(200)["result"], "kept");
    let newer = tag().await;
    assert_ne!(newer, read);
    let both = format!("{read}, {newer}");
    send("PUT", &times[2], "if-match", &format!("W/{newer}")).await.problem(412);
    assert_eq!(send("PUT", &times[2], "if-match", &both).await.json(200)["result"], "updated");
    for round in 0..20 {
        let (read, years) = (tag().await, [2100 + 2 * round, 2101 + 2 * round]);
        let times = years.map(|year| format!("{year}-01-01T00:00:00Z"));
        let replies = tokio::join!(
            send("PUT", &times[0], "if-match", &read),
            send("PUT", &times[1], "if-match", &read),
        );
        let mut statuses = [replies.0.status.as_u16(), replies.1.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "round {round}");
    }
    assert_eq!(send("DELETE", "", "if-match", &tag().await).await.json(200)["result"], "removed");
    send("PUT", &times[0], "if-match", "*").await.problem(412);
    api.get("/v1/timers/a").await.problem(404);
    bench.stop().await;
}

#[tokio::test]
async fn a_tag_is_of_what_was_put() {
    let bench = Bench::start().await;
    let api = &bench.api;
    api.put("a", URL, json!({ "at": "2090-01-01T00:00Z" })).await.json(201);
    let reply = api.get("/v1/timers/a").await;
    let tag = reply.headers["etag"].to_str().unwrap();
    api.post("/v1/timers/a/pause").await.json(200);
    let get =
        async |known: &str| api.send_with("GET", "/v1/timers/a", "", "if-none-match", known).await;
    let same = get(&format!("\"other\", W/{tag}")).await;
    assert_eq!((same.status.as_u16(), &*same.text), (304, ""));
    assert_eq!(same.headers["etag"], tag);
    assert_eq!(get("\"other\"").await.json(200)["state"], "paused");
    let schedule = json!({ "at": "2090-01-02T00:00Z" });
    let timer = json!({ "webhook": { "url": URL }, "schedule": schedule }).to_string();
    let put = async |name: &str, value: &str| {
        api.send_with("PUT", "/v1/timers/a", &timer, name, value).await
    };
    assert_eq!(put("if-match", tag).await.json(200)["result"], "updated");
    assert_eq!(get(tag).await.json(200)["state"], "paused");
    put("if-none-match", tag).await.problem(400);
    let refuse = json!({ "at": "2090-01-03T00:00Z", "existing": "refuse" });
    let timer = json!({ "webhook": { "url": URL }, "schedule": refuse }).to_string();
    api.send_with("PUT", "/v1/timers/a", &timer, "if-match", "*").await.problem(400);
    let both = [("content-type", "application/json"), ("if-match", tag), ("if-none-match", "*")];
    api.request("PUT", "/v1/timers/a", &timer, &both).await.problem(400);
    api.send_with("DELETE", "/v1/timers/a", "", "if-none-match", "*").await.problem(400);
    api.send_with("DELETE", "/v1/timers/a", "", "if-match", "*").await.json(200);
    let folder = bench.stop().await;
    // A timer that another program has inserted has no tag, and any tag matches it.
    let store = folder.join("timers");
    let timers = DurableTimers::open(&store).unwrap();
    let day = std::time::Duration::from_secs(86_400);
    timers.insert("a", "", day, tourbillon_durable::Options::new()).await.unwrap();
    drop(timers);
    let bench = Bench::at(store.to_str().unwrap(), timerd::Config::default()).await;
    let reply = bench.api.get("/v1/timers/a").await;
    reply.json(200);
    assert!(!reply.headers.contains_key("etag"));
    let cancel =
        async |tag| bench.api.send_with("DELETE", "/v1/timers/a", "", "if-match", tag).await;
    cancel("\"other\"").await.problem(412);
    cancel("*").await.json(200);
    bench.stop().await;
}
