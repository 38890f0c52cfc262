//! Spans of OpenTelemetry, as a collector receives them by OTLP over HTTP.

use super::bench::{Api, Folder};
use super::program::{Program, allow};
use super::receiver::Receiver;
use serde_json::{Value, json};
use std::process::Stdio;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Returns the value of an attribute.
fn attribute<'a>(of: &'a Value, name: &str) -> &'a Value {
    let attributes = of["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == name);
    &found.unwrap_or_else(|| panic!("no {name}: {of}"))["value"]
}

#[tokio::test]
async fn each_call_is_a_span_in_the_trace_of_its_timer() {
    let (mut collector, mut receiver) = (Receiver::with(&[]).await, Receiver::with(&[500]).await);
    let folder = Folder::new();
    allow(&folder, receiver.port());
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url("")),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
    ];
    let arguments = ["--token", "a long enough token", "--config", "timerd.toml"];
    let program = Program::start_in(&environment, &folder, &arguments, Stdio::null());
    let api = Api::of(&program.address, "a long enough token");
    let schedule = json!({ "after": "0s", "backoff": "10ms..10ms" });
    let timer =
        json!({ "webhook": { "url": receiver.url("/") }, "schedule": schedule }).to_string();
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let put = api.send_with("PUT", "/v1/timers/a", &timer, "traceparent", &traceparent);
    put.await.json(201);
    let calls = [receiver.next().await, receiver.next().await];
    // At its end, the service exports the spans that it has not exported yet.
    program.signal("-TERM");
    program.end();
    let mut spans = Vec::new();
    while spans.len() < calls.len() {
        let seen = collector.next().await;
        assert_eq!(seen.path, "/v1/traces");
        let mut export: Value = serde_json::from_str(&seen.body).unwrap();
        let mut of_service = export["resourceSpans"][0].take();
        let name = attribute(&of_service["resource"], "service.name");
        assert_eq!(name["stringValue"], "timerd");
        let Value::Array(exported) = of_service["scopeSpans"][0]["spans"].take() else {
            panic!("no spans: {of_service}");
        };
        spans.extend(exported);
    }
    for ((span, call), (attempt, status, code)) in
        spans.iter().zip(&calls).zip([("1", "500", json!(2)), ("2", "200", Value::Null)])
    {
        assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(PARENT)));
        let parent = format!("00-{TRACE}-{}-01", span["spanId"].as_str().unwrap());
        assert_eq!(call.headers["traceparent"], parent, "the receiver continues the span");
        assert_eq!(attribute(span, "timer.id")["stringValue"], "a");
        assert_eq!(attribute(span, "timer.attempt")["intValue"], attempt);
        assert_eq!(attribute(span, "http.response.status_code")["intValue"], status);
        let failed = span["status"]["code"].as_i64().unwrap_or_default();
        assert_eq!(failed, code.as_i64().unwrap_or_default(), "{span}");
    }
}
