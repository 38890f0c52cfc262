//! [`Pool`], the idle connections to receivers that can be reused.
//!
//! ```text
//!   guard ──► the addresses of a host that may be called now ──► an idle connection to one of them
//!                                                           └──► or a new one
//! ```
//!
//! A connection is reused only for the same host, and only if the guard still permits its address.
//! The client of `hyper-util` reuses a connection without a look at its address. It bounds the idle
//! connections of each host, and not of all hosts together.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "idle connections have an age")]

use crate::fault::{Fault, ReceiverFault};
use crate::guard::{Guard, Heard, Route};
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
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use url::Host;

/// The maximum number of connections without a call.
pub(crate) const POOLED: usize = MAX_IDLE + MAX_READ;

/// The maximum number of idle connections. If there are more, the oldest is closed.
const MAX_IDLE: usize = 448;

/// The maximum number of connections whose responses are read to the end after their calls. If
/// there are more, the connection is closed instead, because a receiver may never send the end.
const MAX_READ: usize = 64;

/// How long an idle connection is kept. Many servers close idle connections after five seconds, and
/// it is better not to send a request on a connection that is about to be closed.
const IDLE: Duration = Duration::from_secs(4);

/// How often old connections are closed.
const INTERVAL: Duration = Duration::from_secs(1);

/// The maximum length of a response that is read to its end, so that its connection can be reused.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// The maximum length of the part of a refusal that is shown.
const EXCERPT: usize = 1024;

/// How long to wait for the rest of a response.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of headers in a response.
const MAX_HEADERS: usize = 1000;

pub(crate) struct Pool {
    /// The idle connections, oldest first.
    idle: Mutex<VecDeque<Idle>>,
    /// The places of connections whose responses are read to the end.
    reads: Arc<Semaphore>,
}

/// A connection that waits for a request.
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
    /// The task that drives the connection, and ends with it.
    _task: JoinSet<()>,
}

/// A response whose body has not been read.
pub(crate) struct Answer {
    pool: Arc<Pool>,
    connection: Connection,
    head: Parts,
    body: Incoming,
}

impl Default for Pool {
    fn default() -> Self {
        Self { idle: Mutex::default(), reads: Arc::new(Semaphore::new(MAX_READ)) }
    }
}

impl Pool {
    /// Sends a request, and returns the response before its body is read. If an idle connection
    /// ends before the first byte of a response, the request is sent again on a new connection.
    pub(crate) async fn send(
        self: &Arc<Self>,
        guard: &Guard,
        route: &Route<'_>,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, Fault> {
        if let Some(mut connection) = self.take(route) {
            // Clears the note of the previous response's bytes.
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

    /// Periodically closes connections that have been idle for too long.
    pub(crate) async fn watch(&self) -> ! {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.idle().retain(|idle| idle.since.elapsed() < IDLE);
        }
    }

    /// Takes the most recent idle connection to the receiver of a route.
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
        if all.len() > MAX_IDLE {
            all.pop_front();
        }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    /// Returns the head of the response and, unless it is a success, the beginning of its body that
    /// arrives by `end`. The connection is kept once the rest of the body has been read.
    pub(crate) async fn read_until(self, end: tokio::time::Instant) -> Response<Bytes> {
        let Self { pool, mut connection, head, mut body } = self;
        let mut beginning = BytesMut::new();
        if !head.status.is_success() {
            // The part that does not arrive in time is left out.
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
        let response = Response::from_parts(head, beginning.freeze());
        let Ok(place) = Arc::clone(&pool.reads).try_acquire_owned() else { return response };
        tokio::spawn(tokio::time::timeout(DRAIN_TIMEOUT, async move {
            let _place = place;
            let read = Limited::new(body, MAX_BODY_BYTES).collect().await;
            if read.is_ok() && connection.sender.ready().await.is_ok() {
                pool.put(connection);
            }
        }));
        response
    }
}

impl Connection {
    async fn open(guard: &Guard, route: &Route<'_>) -> Result<Self, Fault> {
        let (stream, address) = guard.connect(route).await?;
        let heard = stream.heard();
        let mut builder = http1::Builder::new();
        builder.max_headers(MAX_HEADERS);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(ReceiverFault::Http)?;
        let mut task = JoinSet::new();
        task.spawn(async {
            // If the connection fails, the request that it carries fails too.
            let _ = connection.await;
        });
        let (host, is_tls) = (route.target.host.clone(), route.target.tls.is_some());
        Ok(Self { host, is_tls, address, sender, heard, _task: task })
    }

    /// Returns `true` if the connection leads to the receiver of a route.
    fn fits(&self, route: &Route<'_>) -> bool {
        self.address.port() == route.target.port
            && self.is_tls == route.target.tls.is_some()
            && route.addresses.contains(&self.address.ip())
            && self.host == route.target.host
    }
}
