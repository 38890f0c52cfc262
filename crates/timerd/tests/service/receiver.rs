//! A receiver of webhooks that records its requests.

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use http::{HeaderMap, StatusCode};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// A received request.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// A receiver on a free port.
pub(crate) struct Receiver {
    address: SocketAddr,
    seen: UnboundedReceiver<Seen>,
    connections: Arc<AtomicUsize>,
    /// Ends with the receiver.
    _serving: JoinSet<()>,
}

/// The reply to a request with a number and a path, or `None` to leave it open.
type Answer = dyn Fn(usize, &str) -> Option<Response> + Send + Sync;

struct Shared {
    send: UnboundedSender<Seen>,
    answer: Box<Answer>,
    count: AtomicUsize,
}

impl Receiver {
    /// Starts a receiver. `answer` gets the number of the request.
    pub(crate) async fn start(
        answer: impl Fn(usize) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        Self::answering(Box::new(move |number, _| answer(number))).await
    }

    /// Starts a receiver whose replies depend on the path.
    pub(crate) async fn by_path(answer: impl Fn(&str) -> Response + Send + Sync + 'static) -> Self {
        Self::answering(Box::new(move |_, path| Some(answer(path)))).await
    }

    async fn answering(answer: Box<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (send, seen) = unbounded_channel();
        let shared = Arc::new(Shared { send, answer, count: 0.into() });
        let router = Router::new().fallback(receive).with_state(shared);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let listener = listener.tap_io(move |_| {
            counted.fetch_add(1, Relaxed);
        });
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, seen, connections, _serving: serving }
    }

    /// Starts a receiver that replies with these statuses in turn, and then with 200.
    pub(crate) async fn with(statuses: &'static [u16]) -> Self {
        Self::start(|number| Some(status(statuses.get(number).copied().unwrap_or(200)))).await
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the next request. The limit keeps a broken build from hanging.
    pub(crate) async fn next(&mut self) -> Seen {
        let seen = tokio::time::timeout(Duration::from_secs(60), self.seen.recv());
        seen.await.expect("a request comes").unwrap()
    }

    /// Returns the number of connections that were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Returns the number of requests that were not taken yet.
    pub(crate) fn left(&self) -> usize {
        self.seen.len()
    }
}

/// Returns an empty response.
pub(crate) fn status(code: u16) -> Response {
    StatusCode::from_u16(code).unwrap().into_response()
}

async fn receive(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let number = shared.count.fetch_add(1, Relaxed);
    let seen = Seen {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let answer = (shared.answer)(number, &seen.path);
    // The test may have ended.
    let _ = shared.send.send(seen);
    match answer {
        Some(response) => response,
        None => std::future::pending().await,
    }
}
