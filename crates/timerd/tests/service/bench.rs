//! A service on a file, and a client of its API.

use clap::Parser;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use timerd::{Arguments, Config, Resolver, Service};

pub(crate) const TOKEN: &str = "the token of the tests";

/// A service and its client.
pub(crate) struct Bench {
    pub(crate) service: Service,
    pub(crate) api: Api,
    folder: Folder,
}

/// A client of the API of a service.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client<HttpConnector, Full<axum::body::Bytes>>,
    base: String,
    token: String,
}

/// A response with its body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

/// A folder that is removed at the end of its test.
pub(crate) struct Folder(PathBuf);

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        Self::with_resolver(config, timerd::system_resolver()).await
    }

    pub(crate) async fn with_resolver(config: Config, resolver: Resolver) -> Self {
        let folder = Folder::new();
        let store = folder.join("timers");
        Self::of(arguments(store.to_str().unwrap()), config, resolver, folder).await
    }

    /// Starts a service on another store.
    pub(crate) async fn at(store: &str, config: Config) -> Self {
        Self::of(arguments(store), config, timerd::system_resolver(), Folder::new()).await
    }

    /// Starts a service on a store that is reached by TLS, and trusts this authority.
    pub(crate) async fn by_tls(store: &str, authority: &str, config: Config) -> Self {
        let (folder, mut arguments) = (Folder::new(), arguments(store));
        let file = folder.join("authority");
        std::fs::write(&file, authority).unwrap();
        arguments.store.tls_authority = Some(file);
        Self::of(arguments, config, timerd::system_resolver(), folder).await
    }

    /// Starts a service on a store in PostgreSQL that belongs to another role.
    pub(crate) async fn owned_by(role: &str, store: &str, config: Config) -> Self {
        let mut arguments = arguments(store);
        arguments.store.owner = Some(role.to_owned());
        Self::of(arguments, config, timerd::system_resolver(), Folder::new()).await
    }

    pub(crate) async fn of(
        arguments: Arguments,
        config: Config,
        resolver: Resolver,
        folder: Folder,
    ) -> Self {
        let service = Service::start_with(&arguments, &config, resolver).await.unwrap();
        let api = Api::of(&service.address().to_string(), TOKEN);
        Self { service, api, folder }
    }

    /// Stops the service. Its folder stays.
    pub(crate) async fn stop(self) -> Folder {
        self.service.stop().await;
        self.folder
    }
}

/// Asks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1200 {
        if let Some(found) = ask().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} does not come");
}

/// Returns arguments for a service on a store, on any free port.
pub(crate) fn arguments(store: &str) -> Arguments {
    let words = ["timerd", "--listen", "127.0.0.1:0", "--token", TOKEN, "--store", store];
    Arguments::parse_from(words)
}

impl Api {
    pub(crate) fn of(address: &str, token: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client, base: format!("http://{address}"), token: token.to_owned() }
    }

    /// Returns a client with another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Reply {
        self.send_with(method, path, body, "accept", "application/json").await
    }

    /// Sends a request with another header.
    pub(crate) async fn send_with(
        &self,
        method: &str,
        path: &str,
        body: &str,
        name: &str,
        value: &str,
    ) -> Reply {
        let headers = [("content-type", "application/json"), (name, value)];
        self.request(method, path, body, &headers).await
    }

    /// Sends a form with a cookie as a browser does, without the token of the API.
    pub(crate) async fn post_form(&self, path: &str, fields: &str, cookie: &str) -> Reply {
        let kind = "application/x-www-form-urlencoded";
        let headers =
            [("content-type", kind), ("cookie", cookie), ("sec-fetch-site", "same-origin")];
        self.with_token("none").request("POST", path, fields, &headers).await
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> Reply {
        let mut request = Request::builder()
            .method(method.parse::<Method>().unwrap())
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.token));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let response = self.client.request(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Reply { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "").await
    }

    /// Waits until there are `count` dead letters, and returns them.
    pub(crate) async fn letters(&self, count: usize) -> Vec<Value> {
        until("a number of dead letters", async || {
            let mut letters = self.get("/v1/dead-letters").await.json(200);
            match letters["dead_letters"].take() {
                Value::Array(letters) if letters.len() == count => Some(letters),
                _ => None,
            }
        })
        .await
    }

    pub(crate) async fn post(&self, path: &str) -> Reply {
        self.send("POST", path, "").await
    }

    /// Inserts a timer that calls a URL.
    pub(crate) async fn put(&self, id: &str, url: &str, schedule: Value) -> Reply {
        let timer = json!({ "webhook": { "url": url }, "schedule": schedule });
        self.send("PUT", &format!("/v1/timers/{id}"), &timer.to_string()).await
    }
}

impl Reply {
    /// Checks the status, and returns the body.
    pub(crate) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        serde_json::from_str(&self.text).unwrap()
    }

    /// Returns the detail of a problem.
    pub(crate) fn problem(&self, status: u16) -> String {
        let problem = self.json(status);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(problem["status"], status);
        problem["detail"].as_str().unwrap().to_owned()
    }
}

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Relaxed);
        let folder = std::env::temp_dir().join(format!("timerd-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
