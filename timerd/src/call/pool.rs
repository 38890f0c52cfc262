//! [`Pool`], the connections to receivers that are idle and can be used again.
//!
//! ```text
//!   guard ──► the addresses of a host that may be called now ──► an idle connection to one of them
//!                                                           └──► or a new one
//! ```
//!
//! A connection is used again only for the same host, and only if its address is still among those
//! that the guard permits.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "idle connections have an age")]

use super::super::fault::{Fault, ReceiverFault};
use super::super::guard::{Guard, Heard, Route};
use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use url::Host;

/// The number of idle connections. The oldest one is closed when there are more.
pub(crate) const POOLED: usize = 512;

/// The time after which an idle connection is closed. Many servers close theirs after five seconds,
/// and it is better not to send requests to connections that are about to end.
const IDLE: Duration = Duration::from_secs(4);

/// The interval at which old connections are closed.
const INTERVAL: Duration = Duration::from_secs(1);

/// The length of a response up to which it is read, so that its connection can be used again.
const LONGEST_BODY: usize = 64 * 1024;

/// The length of the beginning of a refusal that is shown.
const EXCERPT: usize = 1024;

/// The time for which the rest of a response is awaited.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The number of headers in a response.
const MOST_HEADERS: usize = 1000;

#[derive(Default)]
pub(crate) struct Pool(Mutex<VecDeque<Idle>>);

/// A connection that waits for a request, from the oldest to the latest one.
struct Idle {
    since: Instant,
    connection: Connection,
}

/// A connection to a receiver.
struct Connection {
    host: Host<String>,
    is_tls: bool,
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    heard: Heard,
    /// The task of the connection, which ends with it.
    _task: JoinSet<()>,
}

/// A response whose body has not been read.
pub(crate) struct Answer {
    pool: Arc<Pool>,
    connection: Connection,
    head: Parts,
    body: Incoming,
}

impl Pool {
    /// Sends a request, and returns the response, whose body has not been read. If an idle
    /// connection ends before the first byte of a response, the request is sent again on a new one.
    pub(crate) async fn send(
        self: &Arc<Self>,
        guard: &Guard,
        route: &Route<'_>,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, Fault> {
        if let Some(mut connection) = self.take(route) {
            // The end of the body before it was read with that response.
            connection.heard.take();
            match connection.sender.send_request(request.clone()).await {
                Ok(response) => return Ok(self.answer(connection, response)),
                Err(error) if connection.heard.take() => {
                    return Err(ReceiverFault::Http(error).into());
                }
                Err(_) => {}
            }
        }
        let mut connection = Connection::open(guard, route).await?;
        let sent = connection.sender.send_request(request).await;
        Ok(self.answer(connection, sent.map_err(ReceiverFault::Http)?))
    }

    fn answer(self: &Arc<Self>, connection: Connection, response: Response<Incoming>) -> Answer {
        let (head, body) = response.into_parts();
        Answer { pool: Arc::clone(self), connection, head, body }
    }

    /// Closes connections that have been idle for long, again and again.
    pub(crate) async fn watch(&self) -> ! {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.idle().retain(|idle| idle.since.elapsed() < IDLE);
        }
    }

    /// Takes the latest idle connection that leads where a route does.
    fn take(&self, route: &Route<'_>) -> Option<Connection> {
        let mut all = self.idle();
        loop {
            let fits = |idle: &Idle| idle.connection.fits(route);
            let idle = all.iter().rposition(fits).and_then(|place| all.remove(place))?;
            if idle.since.elapsed() < IDLE && idle.connection.sender.is_ready() {
                return Some(idle.connection);
            }
        }
    }

    fn put(&self, connection: Connection) {
        let mut all = self.idle();
        all.push_back(Idle { since: Instant::now(), connection });
        if all.len() > POOLED {
            all.pop_front();
        }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    /// Returns the head of the response and, unless it is a success, the beginning of its body as
    /// far as it comes by a time. The connection is kept once the rest of the body has been read.
    pub(crate) async fn read_until(self, end: tokio::time::Instant) -> Response<Bytes> {
        let Self { pool, mut connection, head, mut body } = self;
        let mut beginning = BytesMut::new();
        if !head.status.is_success() {
            // What does not come in time is left out.
            let _ = tokio::time::timeout_at(end, async {
                while beginning.len() < EXCERPT
                    && let Some(Ok(frame)) = body.frame().await
                {
                    beginning.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                }
            })
            .await;
            beginning.truncate(EXCERPT);
        }
        tokio::spawn(tokio::time::timeout(PATIENCE, async move {
            let read = Limited::new(body, LONGEST_BODY).collect().await;
            if read.is_ok() && connection.sender.ready().await.is_ok() {
                pool.put(connection);
            }
        }));
        Response::from_parts(head, beginning.freeze())
    }
}

impl Connection {
    async fn open(guard: &Guard, route: &Route<'_>) -> Result<Self, Fault> {
        let (stream, address) = guard.connect(route).await?;
        let heard = stream.heard();
        let mut builder = http1::Builder::new();
        builder.max_headers(MOST_HEADERS);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(ReceiverFault::Http)?;
        let mut task = JoinSet::new();
        task.spawn(async {
            // The request that it carries fails with it.
            let _ = connection.await;
        });
        let (host, is_tls) = (route.target.host.clone(), route.target.tls.is_some());
        Ok(Self { host, is_tls, address, sender, heard, _task: task })
    }

    /// Returns `true` if the connection leads where a route does.
    fn fits(&self, route: &Route<'_>) -> bool {
        self.address.port() == route.target.port
            && self.is_tls == route.target.tls.is_some()
            && route.addresses.contains(&self.address.ip())
            && self.host == route.target.host
    }
}
