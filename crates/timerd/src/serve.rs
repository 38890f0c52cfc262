//! Serves connections, and limits how many there are and how long each may take.
//!
//! A connection belongs to a **stranger** until one of its requests has a valid token or session.
//! At the maximum number of connections, a new connection replaces the oldest connection of a
//! stranger or, if there are no strangers, the connection that has been idle longest. The replaced
//! connection must have been without a request for [`GRACE`]. Strangers therefore cannot lock other
//! peers out, however many and however slow they are, and neither can the holder of a removed
//! token. A burst of strangers does not push out a connection whose first request is on its way.
//!
//! Each connection has one deadline, which moves as the connection progresses:
//!
//! | once | the connection has |
//! |---|---|
//! | it is accepted | [`HEAD`] for the head of its first request |
//! | the head of a request has arrived | the time limit of requests for the handler, and as long again for the response |
//! | the response has begun | the time limit of requests for the whole response |
//! | the response is sent | [`IDLE`] for the head of the next request |

#![forbid(unsafe_code)]

use super::metrics::EVICTED;
use super::tasks::stopped;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use metrics::{Counter, counter};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tourbillon::future::{Timer, default_timer};
use tourbillon::io::{StreamHandle, TimeoutStream};
use tower_service::Service;

/// How long a new connection is safe from eviction. Newer connections wait meanwhile.
const GRACE: Duration = Duration::from_millis(100);

/// How long a new connection may take to send the head of its first request.
const HEAD: Duration = Duration::from_secs(10);

/// How long a connection may wait for its next request.
const IDLE: Duration = Duration::from_secs(60);

/// The maximum length in bytes of the head of a request, and of the part of a response that waits
/// for the peer to read it.
const BUFFER: usize = 64 * 1024;

/// The length in bytes of each part of a response. The rest stays in the body, so the body does not
/// end before the peer has read nearly all of it.
const PART: usize = 16 * 1024;

/// The pause after a failure to accept a connection.
const PAUSE: Duration = Duration::from_secs(1);

/// The routes that the service serves, and their bounds. Reloading the configuration replaces both.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) router: Router,
    pub(crate) bounds: Bounds,
}

/// The limits of connections.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// The maximum number of connections.
    pub(crate) connections: usize,
    /// How long a handler may take, and how long a peer may take to read the response.
    pub(crate) timeout: Duration,
}

/// The peer of a connection, which requests carry in their extensions.
#[derive(Clone)]
pub(crate) struct Peer(Arc<Connected>);

struct Connected {
    address: SocketAddr,
    number: u64,
    connections: Arc<Connections>,
    deadline: StreamHandle,
    /// `true` from the head of a request until the end of its response.
    is_busy: AtomicBool,
}

/// The connections of a service.
struct Connections {
    served: watch::Receiver<Served>,
    timer: Timer,
    state: Mutex<State>,
    /// Notified when a connection ends.
    changed: Notify,
    /// Counts the connections that were replaced.
    evicted: Counter,
}

#[derive(Default)]
struct State {
    /// The number of the latest connection.
    latest: u64,
    /// The connections of strangers by number, oldest first.
    strangers: BTreeMap<u64, Stranger>,
    /// All other connections by number.
    known: BTreeMap<u64, Known>,
}

/// A connection with a request that had a valid token or session.
struct Known {
    /// The end of the last response, or `None` during a request.
    idle_since: Option<Instant>,
    /// Ends the connection.
    evict: oneshot::Sender<()>,
}

/// The connection of a stranger.
struct Stranger {
    accepted: Instant,
    /// Ends the connection.
    evict: oneshot::Sender<()>,
}

/// The room for another connection.
enum Room {
    /// There is a free place.
    Free,
    /// A stranger can be evicted at this time.
    At(Instant),
    /// All connections have requests.
    Full,
}

/// A place among the concurrent requests. The response carries it in its extensions, and holds it
/// until the response is sent.
#[derive(Clone)]
pub(crate) struct Place(#[allow(dead_code, reason = "it is held")] Arc<OwnedSemaphorePermit>);

/// The body of a response, which is sent in parts.
struct Sending {
    body: Body,
    /// The rest of the last frame of the body.
    rest: Bytes,
    peer: Peer,
    _place: Option<Place>,
}

/// The listener, which outlives each run of the task that serves. It is `None` once the service
/// stops.
pub(crate) type Listener = Arc<tokio::sync::Mutex<Option<TcpListener>>>;

/// Serves connections until the service stops. Requests that have begun are still answered.
pub(crate) async fn serve(
    listener: Listener,
    served: watch::Receiver<Served>,
    stops: watch::Receiver<bool>,
) {
    let connections = Connections {
        served,
        timer: default_timer(),
        state: Mutex::default(),
        changed: Notify::new(),
        evicted: counter!(EVICTED),
    };
    let connections = Arc::new(connections);
    let mut talks = JoinSet::new();
    let mut open = listener.lock_owned().await;
    while let Some(listener) = &*open {
        let (stream, address) = tokio::select! {
            accepted = accept(listener) => accepted,
            () = stopped(stops.clone()) => break,
            Some(_) = talks.join_next() => continue,
        };
        tokio::select! {
            () = connections.make_room() => {}
            () = stopped(stops.clone()) => break,
        }
        connections.begin(stream, address, &stops, &mut talks);
    }
    drop(open.take());
    while talks.join_next().await.is_some() {}
}

/// Accepts the next connection.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_peer(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Returns `true` if a connection ended before it was accepted.
fn is_of_peer(error: &io::Error) -> bool {
    let kinds =
        [ErrorKind::ConnectionRefused, ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset];
    kinds.contains(&error.kind())
}

impl Connections {
    /// Waits until another connection is allowed. If there are strangers, this evicts the oldest
    /// stranger, and waits no longer than its grace period.
    async fn make_room(&self) {
        loop {
            match self.room() {
                Room::Free => return,
                // Either a connection can be evicted now, or there may be a place.
                Room::At(at) => drop(timeout_at(at, self.changed.notified()).await),
                Room::Full => self.changed.notified().await,
            }
        }
    }

    /// Makes room for another connection, if that is possible now.
    fn room(&self) -> Room {
        let most = self.served.borrow().bounds.connections;
        let mut state = self.state();
        if state.strangers.len() + state.known.len() < most {
            return Room::Free;
        }
        let Some((since, number)) = state.first_to_go() else { return Room::Full };
        if Instant::now() < since + GRACE {
            return Room::At(since + GRACE);
        }
        let stranger = state.strangers.remove(&number).map(|stranger| stranger.evict);
        let evict = stranger.or_else(|| state.known.remove(&number).map(|known| known.evict));
        // The connection may have ended by itself.
        let _ = evict.map(|evict| evict.send(()));
        self.evicted.increment(1);
        Room::Free
    }

    /// Begins to serve a connection.
    fn begin(
        self: &Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        stops: &watch::Receiver<bool>,
        talks: &mut JoinSet<()>,
    ) {
        // Sends the parts of a response without delay. A socket without this option still works.
        let _ = stream.set_nodelay(true);
        let stream = TimeoutStream::new(&self.timer, stream);
        let (evict, evicted) = oneshot::channel();
        let mut state = self.state();
        state.latest += 1;
        let number = state.latest;
        state.strangers.insert(number, Stranger { accepted: Instant::now(), evict });
        drop(state);
        let peer = Peer(Arc::new(Connected {
            address,
            number,
            connections: Arc::clone(self),
            deadline: stream.handle(),
            is_busy: AtomicBool::new(false),
        }));
        peer.has_until(HEAD);
        talks.spawn(talk(stream, peer, evicted, stops.clone()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the number of the connection to evict first, and since when it has been without a
    /// request.
    fn first_to_go(&self) -> Option<(Instant, u64)> {
        let oldest = self.strangers.first_key_value();
        let oldest = oldest.map(|(number, stranger)| (stranger.accepted, *number));
        let idle = |(number, known): (&u64, &Known)| Some((known.idle_since?, *number));
        oldest.or_else(|| self.known.iter().filter_map(idle).min())
    }
}

/// Serves the requests of a connection.
async fn talk(
    stream: TimeoutStream<TcpStream>,
    peer: Peer,
    evicted: oneshot::Receiver<()>,
    stops: watch::Receiver<bool>,
) {
    let service = service_fn(|request| answer(peer.clone(), request));
    let mut builder = http1::Builder::new();
    let connection = builder.max_buf_size(BUFFER).serve_connection(stream, service);
    let mut connection = pin!(connection);
    tokio::select! {
        // The peer is gone, or its deadline has passed.
        _ = connection.as_mut() => return,
        Ok(()) = evicted => return,
        () = stopped(stops) => {}
    }
    // Other peers have not sent a whole head, and may never do so.
    if peer.0.is_busy.load(Relaxed) {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// Answers a request with the routes and bounds that apply when it begins.
async fn answer(peer: Peer, request: Request<Incoming>) -> Result<Response<Sending>, Infallible> {
    peer.set_busy(true);
    let Served { mut router, bounds: Bounds { timeout, .. } } =
        peer.0.connections.served.borrow().clone();
    peer.has_until(timeout.saturating_mul(2));
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(peer.clone());
    let mut response = router.call(request).await?;
    peer.has_until(timeout);
    let place = response.extensions_mut().remove();
    Ok(response.map(|body| Sending { body, rest: Bytes::new(), peer, _place: place }))
}

impl Place {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(permit))
    }
}

impl Peer {
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Marks the peer as known.
    pub(crate) fn becomes_known(&self) {
        let peer = &*self.0;
        let mut state = peer.connections.state();
        // A peer that was evicted stays a stranger.
        if let Some(Stranger { evict, .. }) = state.strangers.remove(&peer.number) {
            state.known.insert(peer.number, Known { idle_since: None, evict });
        }
    }

    /// Notes that a request has begun, or that its response has ended.
    fn set_busy(&self, is_busy: bool) {
        let peer = &*self.0;
        peer.is_busy.store(is_busy, Relaxed);
        if let Some(known) = peer.connections.state().known.get_mut(&peer.number) {
            known.idle_since = (!is_busy).then(Instant::now);
        }
        if !is_busy {
            peer.connections.changed.notify_one();
        }
    }

    fn has_until(&self, limit: Duration) {
        let peer = &*self.0;
        peer.deadline.set_deadline(Some(peer.connections.timer.now() + limit));
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        state.known.remove(&self.number);
        state.strangers.remove(&self.number);
        drop(state);
        self.connections.changed.notify_one();
    }
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let length = self.rest.len().min(PART);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.peer.has_until(IDLE);
        self.peer.set_busy(false);
    }
}
