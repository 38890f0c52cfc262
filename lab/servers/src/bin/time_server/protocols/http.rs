//! HTTP/1.1. A connection is closed if it has been idle for too long, and each request pushes that
//! back. An answer has a time limit too.

use super::super::time::{self, Instant};
use super::server::{Connection, Server};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tourbillon_servers::process::Failure;

/// The time limit of an answer.
const LIMIT: Duration = Duration::from_secs(30);

impl Server {
    /// Serves a connection until it ends or is idle for too long.
    pub(crate) async fn http(self: Arc<Self>, stream: impl Connection) -> Result<(), Failure> {
        let requested = Notify::new();
        let service = service_fn(|_| {
            requested.notify_one();
            answer()
        });
        let mut connection =
            pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        let mut idle = pin!(time::sleep(self.idle));
        loop {
            tokio::select! {
                ended = connection.as_mut() => return Ok(ended?),
                () = requested.notified() => idle.as_mut().reset(Instant::now() + self.idle),
                () = idle.as_mut() => {
                    self.audit.fire(idle.deadline());
                    return Ok(());
                }
            }
        }
    }
}

async fn answer() -> Result<Response<Full<Bytes>>, Infallible> {
    let content = async { Bytes::from_static(b"hello\n") };
    let mut response = Response::default();
    match time::timeout(LIMIT, content).await {
        Ok(content) => *response.body_mut() = Full::new(content),
        Err(_) => *response.status_mut() = StatusCode::GATEWAY_TIMEOUT,
    }
    Ok(response)
}
