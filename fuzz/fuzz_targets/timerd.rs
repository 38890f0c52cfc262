//! Sends arbitrary bytes to the API of `timerd`. They are the body that inserts a timer if they
//! begin with a brace, and the query of a list otherwise. A timer that is accepted can be read
//! again, and each refusal is a problem with a status of 4xx.

#![no_main]

use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::cell::RefCell;
use std::num::NonZeroU32;
use timerd::{Arguments, Config, Service};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// A connection to a service whose store is paused. It lies in memory, in files that are removed
/// while they are open.
struct Api {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    _service: Service,
}

impl Api {
    fn new() -> Self {
        let store = format!("/dev/shm/tourbillon-fuzz-{}", std::process::id());
        let words = ["timerd", "--listen", "127.0.0.1:0", "--token", "t", "--store", &store];
        let arguments = Arguments::parse_from(words);
        let mut config = Config::default();
        (config.limits.requests_per_second, config.limits.burst) =
            (NonZeroU32::MAX, NonZeroU32::MAX);
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (service, sender) = runtime.block_on(async {
            let service = Service::start(&arguments, &config).await.expect("it starts");
            let stream = TcpStream::connect(service.address()).await.expect("it listens");
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
            tokio::spawn(connection);
            (service, sender)
        });
        let mut api = Self { runtime, sender, _service: service };
        // The history is created when it is first read or written.
        assert_eq!(api.send("GET", "/v1/runs", b"").0, 200);
        for file in [store.clone(), format!("{store}.history")] {
            std::fs::remove_file(file).expect("it was created");
        }
        assert_eq!(api.send("POST", "/v1/pause", b"").0, 200);
        api
    }

    /// Sends a request, and returns the status and the JSON of the response.
    fn send(&mut self, method: &str, uri: &str, body: &[u8]) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("host", "localhost")
            .header("authorization", "Bearer t")
            .header("content-type", "application/json")
            .body(Full::from(body.to_vec()))
            .expect("a request");
        self.runtime.block_on(async {
            self.sender.ready().await.expect("the connection stays");
            let response = self.sender.send_request(request).await.expect("a response");
            let status = response.status().as_u16();
            let kind = response.headers()["content-type"].clone();
            let expected =
                if status < 400 { "application/json" } else { "application/problem+json" };
            assert_eq!(kind, expected, "{status}");
            let bytes = response.into_body().collect().await.expect("a body").to_bytes();
            (status, serde_json::from_slice(&bytes).expect("JSON"))
        })
    }

    fn insert(&mut self, body: &[u8]) {
        let (status, reply) = self.send("PUT", "/v1/timers/a", body);
        if self.is_refused(status, &reply) {
            return;
        }
        let sent: Value = serde_json::from_slice(body).expect("it was accepted");
        let (status, timer) = self.send("GET", "/v1/timers/a", b"");
        assert_eq!((status, &timer["due"]), (200, &reply["due"]), "{sent}");
        let webhook = &timer["webhook"];
        for (name, value) in sent["webhook"].as_object().expect("a webhook is an object") {
            let is_left_out = webhook.get(name).is_none()
                && (value.is_null() || *value == "" || *value == serde_json::json!({}));
            assert!(is_left_out || webhook[name] == *value, "{name}: {value} became {webhook}");
        }
        let (status, _) = self.send("DELETE", "/v1/timers/a", b"");
        assert_eq!(status, 200, "{sent}");
    }

    fn list(&mut self, query: &str) {
        let (status, reply) = self.send("GET", &format!("/v1/timers?{query}"), b"");
        if !self.is_refused(status, &reply) {
            assert!(reply["timers"].is_array(), "{query}: {reply}");
        }
    }

    /// Returns `true` for a problem, after a check of its status.
    fn is_refused(&self, status: u16, reply: &Value) -> bool {
        let is_refused = !matches!(status, 200 | 201);
        if is_refused {
            assert!((400..500).contains(&status) && reply["status"] == status, "{status}: {reply}");
            assert!(reply["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{reply}");
        }
        is_refused
    }
}

thread_local! {
    static API: RefCell<Api> = RefCell::new(Api::new());
}

fuzz_target!(|bytes: &[u8]| {
    API.with_borrow_mut(|api| {
        if bytes.first() == Some(&b'{') {
            api.insert(bytes);
        } else if let Ok(query) = std::str::from_utf8(bytes)
            && hyper::Uri::try_from(format!("/v1/timers?{query}")).is_ok()
        {
            api.list(query);
        }
    });
});
