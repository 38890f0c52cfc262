//! Streams with limits as connections of hyper's servers and clients, of hyper-util's client and of
//! axum, in memory and in tokio's paused time.

use crate::common::SECOND;
use crate::hyper_pool::Wire;
use axum::Router;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request as AxumRequest, State};
use axum::middleware::{Next, from_fn};
use axum::response::Response as AxumResponse;
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1 as client;
use hyper::rt::Write;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::error::Error;
use std::future::{pending, poll_fn, ready};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon::io::{Limit, StreamError, StreamHandle, TimeoutStream};

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n";
/// The time that the handlers work.
const WORK: Duration = Duration::from_secs(90);

fn timer() -> Timer {
    tourbillon::tokio::spawn(Builder::new()).unwrap().0
}

/// The limit that ended a connection.
fn limit_of(error: &(dyn Error + 'static)) -> Option<Limit> {
    // `io::Error::source` returns the source of the inner error, and not the inner error itself.
    let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match held.and_then(|held| held.downcast_ref()).or_else(|| error.downcast_ref()) {
        Some(StreamError::Elapsed(limit)) => Some(*limit),
        _ => error.source().and_then(limit_of),
    }
}

async fn works(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    tokio::time::sleep(WORK).await;
    Ok(Response::new(Full::new(Bytes::from_static(b"done"))))
}

/// A slow server on a stream with these limits, with pauses or without, and the client's end.
fn serve(
    pauses: bool,
    limit: impl FnOnce(TimeoutStream<DuplexStream>) -> TimeoutStream<DuplexStream>,
) -> (DuplexStream, JoinHandle<Option<Limit>>) {
    let (near, far) = duplex(64);
    let stream = limit(TimeoutStream::new(&timer(), far));
    let connection = stream.handle();
    let service = service_fn(move |request| {
        let paused = pauses.then(|| connection.pause());
        async move {
            let _paused = paused;
            works(request).await
        }
    });
    let served = http1::Builder::new().serve_connection(stream, service);
    (near, tokio::spawn(async { served.await.err().and_then(|error| limit_of(&error)) }))
}

/// Reads one response of this server.
async fn read_answer(stream: &mut DuplexStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\ndone") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "cut off");
    }
    String::from_utf8(answer).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_longer_than_the_limits_is_answered_in_a_pause() {
    let limits = |stream: TimeoutStream<_>| {
        stream.with_read_timeout(SECOND * 40).with_idle_timeout(SECOND * 30)
    };
    let start = Instant::now();
    let (mut near, served) = serve(true, limits);
    for request in 1..=2 {
        near.write_all(HEAD).await.unwrap();
        assert!(read_answer(&mut near).await.starts_with("HTTP/1.1 200"));
        assert_eq!(start.elapsed().as_secs(), 90 * request);
    }
    // A client that is silent from then on is disconnected. The server does not report an error,
    // because it owes no response.
    assert_eq!(served.await.unwrap(), None);
    assert_eq!(start.elapsed().as_secs(), 180 + 30);
}

#[tokio::test(start_paused = true)]
async fn without_a_pause_it_is_cut() {
    type Set = fn(TimeoutStream<DuplexStream>) -> TimeoutStream<DuplexStream>;
    let sets: [(Set, Limit); 2] = [
        (|stream| stream.with_read_timeout(SECOND * 30), Limit::Read),
        (|stream| stream.with_idle_timeout(SECOND * 30), Limit::Idle),
    ];
    for (set, limit) in sets {
        let start = Instant::now();
        let (mut near, served) = serve(false, set);
        near.write_all(HEAD).await.unwrap();
        assert_eq!(near.read(&mut [0]).await.unwrap(), 0, "an answer");
        assert_eq!(served.await.unwrap(), Some(limit));
        assert_eq!(start.elapsed().as_secs(), 30);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stalls_is_cut() {
    let start = Instant::now();
    let (mut near, served) = serve(true, |stream| stream.with_read_timeout(SECOND * 30));
    near.write_all(&HEAD[..9]).await.unwrap();
    assert_eq!(served.await.unwrap(), Some(Limit::Read), "in the middle of a head");
    assert_eq!(start.elapsed().as_secs(), 30);
}

/// The response is larger than the pipe, which is not read during a pause that continues.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_its_answer_is_cut_in_a_pause() {
    let (mut near, far) = duplex(64);
    let stream = TimeoutStream::new(&timer(), far)
        .with_idle_timeout(SECOND * 20)
        .with_write_timeout(SECOND * 30);
    let _paused = stream.handle().pause();
    let large = service_fn(|_| {
        ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&[0; 500])))))
    });
    let start = Instant::now();
    let served = tokio::spawn(http1::Builder::new().serve_connection(stream, large));
    near.write_all(HEAD).await.unwrap();
    let ended = served.await.unwrap().unwrap_err();
    assert_eq!(limit_of(&ended), Some(Limit::Write));
    assert_eq!(start.elapsed().as_secs(), 30);
}

/// Slices that hyper writes stay slices.
#[tokio::test(start_paused = true)]
async fn slices_are_passed_on() {
    let (mut near, far) = duplex(64);
    let mut stream = TimeoutStream::new(&timer(), far);
    assert!(Write::is_write_vectored(&stream));
    let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
    let written =
        poll_fn(|context| Write::poll_write_vectored(Pin::new(&mut stream), context, &slices));
    assert_eq!(written.await.unwrap(), 4);
    poll_fn(|context| Write::poll_flush(Pin::new(&mut stream), context)).await.unwrap();
    poll_fn(|context| Write::poll_shutdown(Pin::new(&mut stream), context)).await.unwrap();
    let mut all = String::new();
    near.read_to_string(&mut all).await.unwrap();
    assert_eq!(all, "abcd");
}

/// A client sends each request shortly before its idle limit passes, first to a slow server and
/// then to one that never answers.
#[tokio::test(start_paused = true)]
async fn a_clients_limit_for_reads_is_that_of_an_answer() {
    let (near, far) = duplex(64);
    let asked = AtomicUsize::new(0);
    let service = service_fn(move |_: Request<Incoming>| {
        let silent = asked.fetch_add(1, Relaxed) == 3;
        async move {
            tokio::time::sleep(SECOND * 10).await;
            if silent {
                pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"done"))))
        }
    });
    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(far), service));
    let stream = TimeoutStream::new(&timer(), near).with_read_timeout(SECOND * 30);
    let (mut client, connection) = client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = || Request::builder().header("host", "here").body(Empty::<Bytes>::new()).unwrap();
    for _ in 0..3 {
        let answer = client.send_request(request()).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "done");
        tokio::time::sleep(SECOND * 25).await;
    }
    let start = Instant::now();
    let error = client.send_request(request()).await.unwrap_err();
    assert_eq!(limit_of(&error), Some(Limit::Read));
    assert_eq!(start.elapsed().as_secs(), 30);
}

/// A connector may return streams with limits.
#[tokio::test(start_paused = true)]
async fn hyper_utils_client_takes_limited_streams() {
    let timer = timer();
    let connector = tower::service_fn(move |_: Uri| {
        let (near, far) = duplex(64);
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(far), service_fn(works)));
        let wire = TokioIo::new(Wire(TokioIo::new(near)));
        let stream = TimeoutStream::new(&timer, wire).with_read_timeout(SECOND * 30);
        ready(Ok::<_, Infallible>(stream))
    });
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let start = Instant::now();
    let error = client.get(Uri::from_static("http://host/")).await.unwrap_err();
    assert_eq!(limit_of(&error), Some(Limit::Read));
    assert_eq!(start.elapsed().as_secs(), 30);
}

/// Connections in memory, for `axum::serve`.
struct Pipes {
    timer: Timer,
    accepted: mpsc::Receiver<DuplexStream>,
}

impl Listener for Pipes {
    type Io = TimeoutStream<DuplexStream>;
    type Addr = ();

    async fn accept(&mut self) -> (Self::Io, ()) {
        match self.accepted.recv().await {
            Some(far) => (TimeoutStream::new(&self.timer, far).with_idle_timeout(SECOND * 30), ()),
            None => pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The limits of the connection of a request.
#[derive(Clone)]
struct Limits(StreamHandle);

impl Connected<IncomingStream<'_, Pipes>> for Limits {
    fn connect_info(stream: IncomingStream<'_, Pipes>) -> Self {
        Self(stream.io().handle())
    }
}

async fn paused(
    ConnectInfo(Limits(connection)): ConnectInfo<Limits>,
    request: AxumRequest,
    next: Next,
) -> AxumResponse {
    let _paused = connection.pause();
    next.run(request).await
}

#[tokio::test(start_paused = true)]
async fn axums_handlers_have_the_handle_by_connect_info() {
    let (accept, accepted) = mpsc::channel(1);
    let work = async |State(work): State<Duration>| {
        tokio::time::sleep(work).await;
        "done"
    };
    let router = Router::new().route("/", get(work)).layer(from_fn(paused)).with_state(WORK);
    let service = router.into_make_service_with_connect_info::<Limits>();
    let listener = Pipes { timer: timer(), accepted };
    tokio::spawn(async move { axum::serve(listener, service).await });
    let (mut near, far) = duplex(64);
    accept.send(far).await.unwrap();
    let start = Instant::now();
    near.write_all(HEAD).await.unwrap();
    assert!(read_answer(&mut near).await.starts_with("HTTP/1.1 200"));
    assert_eq!(start.elapsed().as_secs(), 90);
    assert_eq!(near.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(start.elapsed().as_secs(), 120);
}
