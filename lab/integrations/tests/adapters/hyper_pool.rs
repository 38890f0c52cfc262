//! A [`Timer`](tourbillon::future::Timer) as the timer of hyper-util's client and its pool of idle
//! connections, in memory and in virtual time.

use crate::common::{MS, SECOND, Time, settle};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;

/// The client's end of a connection in memory.
pub(crate) struct Wire(pub(crate) TokioIo<DuplexStream>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A host in memory, with a task for each connection.
#[derive(Clone, Default)]
struct Host(Arc<Mutex<Vec<JoinHandle<()>>>>);

async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"here"))))
}

impl Host {
    fn connect(&self) -> Ready<io::Result<Wire>> {
        let (client, server) = duplex(4096);
        let serves = async {
            let connection = http1::Builder::new()
                .header_read_timeout(None)
                .serve_connection(TokioIo::new(server), service_fn(answer));
            connection.await.unwrap();
        };
        self.0.lock().unwrap().push(tokio::spawn(serves));
        ready(Ok(Wire(TokioIo::new(client))))
    }

    /// The number of connections so far, and at present.
    fn connections(&self) -> (usize, usize) {
        let all = self.0.lock().unwrap();
        (all.len(), all.iter().filter(|served| !served.is_finished()).count())
    }
}

impl tower::Service<Uri> for Host {
    type Response = Wire;
    type Error = io::Error;
    type Future = Ready<io::Result<Wire>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.connect()
    }
}

/// A client that keeps idle connections for ten seconds.
fn client(time: &Time, host: &Host) -> Client<Host, Empty<Bytes>> {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_idle_timeout(10 * SECOND);
    builder.pool_timer(time.timer.clone()).timer(time.timer.clone());
    builder.build(host.clone())
}

async fn ask(client: &Client<Host, Empty<Bytes>>) {
    let answer = client.get(Uri::from_static("http://host/")).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "here");
    settle().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_at_its_time() {
    let (mut time, host) = (Time::new(), Host::default());
    let client = client(&time, &host);
    ask(&client).await;
    // A connection that is reused in time is kept.
    time.pass(10 * SECOND - MS).await;
    ask(&client).await;
    assert_eq!(host.connections(), (1, 1));
    assert_eq!(time.armed(), 1);
    // The pool checks once in ten seconds, and keeps connections that have been idle for exactly
    // that long.
    time.pass(10 * SECOND).await;
    assert_eq!(host.connections(), (1, 1));
    time.pass(10 * SECOND).await;
    assert_eq!(host.connections(), (1, 0));
    assert_eq!(time.armed(), 0);
    ask(&client).await;
    assert_eq!(host.connections(), (2, 1));
    drop(client);
    settle().await;
    assert_eq!(host.connections(), (2, 0));
    assert_eq!(time.armed(), 0);
}

/// A pool whose timer was shut down drops idle connections, and continues without blocking its
/// thread.
#[tokio::test]
async fn a_timer_that_is_shut_down_empties_the_pool() {
    let (mut time, host) = (Time::new(), Host::default());
    let client = client(&time, &host);
    ask(&client).await;
    time.pass(SECOND).await;
    assert_eq!((host.connections(), time.armed()), ((1, 1), 1));
    time.timer.shutdown();
    settle().await;
    assert_eq!((host.connections(), time.armed()), ((1, 0), 0));
    // Although no timer can be armed any more.
    ask(&client).await;
    assert_eq!(host.connections(), (2, 1));
    drop(client);
    settle().await;
    assert_eq!(host.connections(), (2, 0));
}
